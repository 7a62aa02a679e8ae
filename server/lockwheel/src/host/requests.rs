//! Requests, and the orders to the server that result from them.

use bytes::BytesMut;
use lockwheel_resp::Reply;

use super::core::Host;
use crate::net::registry::Receiver;
use lockwheel_engine::durability::unit_log::Position;
use lockwheel_engine::sessions::ClientId;
use lockwheel_engine::timing::time::Time;
use lockwheel_engine::{Engine, Flow};

/// How a client goes on after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// With its next request.
    Request,
    /// With its next request, when the engine resumes it after the reply.
    LateReply,
    /// With the same request, when the engine resumes it.
    SameRequest,
    /// Not at all: it is disconnected after its replies.
    End,
}

impl Host {
    /// Runs a request of a connection and the orders to the server that result from it.
    pub(crate) fn run_command(
        &self,
        engine: &mut Engine,
        time: Time,
        client: ClientId,
        argv: &[&[u8]],
        out: &mut BytesMut,
    ) -> Next {
        let flow = engine.run(time, client, argv, out);
        self.carry_out(engine, time, client, flow, out)
    }

    /// As [`Host::run_command`], for a client in this process: returns the reply, and appends only
    /// messages to `messages`. Both depend on the position that is returned.
    pub(crate) fn call_command(
        &self,
        engine: &mut Engine,
        client: ClientId,
        argv: &[&[u8]],
        messages: &mut BytesMut,
    ) -> (Next, Option<Reply>, Position) {
        let (time, now_ns) = self.now_and_ns();
        engine.begin_requests_at(now_ns);
        let (flow, reply) = engine.call(time, client, argv, messages);
        let next = self.carry_out(engine, time, client, flow, messages);
        // To a connection, SHUTDOWN sends no reply.
        let dependency = self.deliver_output(engine);
        (next, if flow == Flow::Shutdown { Some(Reply::OK) } else { reply }, dependency)
    }

    /// Serves the clients that a request has made ready, and carries out the request's order to the
    /// server, if any.
    pub(super) fn carry_out(
        &self,
        engine: &mut Engine,
        time: Time,
        client: ClientId,
        flow: Flow,
        out: &mut BytesMut,
    ) -> Next {
        engine.end_request(time, client, out, |waiter| self.peer_has_closed(waiter));
        match flow {
            Flow::Next => return Next::Request,
            Flow::Wait => return Next::LateReply,
            Flow::Again => {
                self.read_files(engine);
                return Next::SameRequest;
            }
            // Disconnected at once, since a client that sees its last reply must find itself
            // disconnected.
            Flow::Close => self.disconnect(engine, client),
            Flow::Shutdown => self.stop(),
            Flow::Snapshot => {
                self.start_snapshot();
                return Next::Request;
            }
            Flow::Clock(order) => {
                self.run_clock_order_with(engine, order);
                engine.count_as_active(client, self.now().now);
                return Next::Request;
            }
        }
        Next::End
    }

    /// Removes a client that has disconnected, and serves those that have waited for it; none while
    /// the server ends, since the log takes no more units, and their replies would wait for ever.
    pub(crate) fn disconnect(&self, engine: &mut Engine, client: ClientId) {
        engine.disconnect(client);
        if engine.has_waiters_to_serve() && !self.is_stopping() {
            engine.serve_waiters(self.now(), |waiter| self.peer_has_closed(waiter));
        }
    }

    /// Whether the peer of a client has closed the connection, also before its own thread has read
    /// that.
    pub(super) fn peer_has_closed(&self, client: ClientId) -> bool {
        match self.registry.get(client) {
            Some(Receiver::Socket(connection)) => connection.peer_has_closed(),
            _ => false,
        }
    }
}
