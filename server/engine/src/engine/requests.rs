//! A request from its arguments to its reply.

use bytes::BytesMut;
use lockwheel_resp::encode::encode;
use lockwheel_resp::{Protocol, Reply};

use crate::engine::Engine;
use crate::run::dispatch::DispatchResult;
use crate::run::gates::Conditions;
use crate::run::replies;
use crate::sessions::{ClientId, ReplyMode, Session};
use crate::store::lock_notes::Author;
use crate::timing::time::{ClockOrder, Time};

/// The next step for the caller of [`Engine::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Run the client's next request.
    Next,
    /// Run no request of this client until a [`Delivery`](crate::Delivery) resumes it.
    Wait,
    /// As `Wait`; then run the same request again.
    Again,
    /// Send the pending replies and disconnect the client.
    Close,
    /// Apply this order to the clock, then run the next request.
    Clock(ClockOrder),
    /// Shut the server down.
    Shutdown,
    /// Write a snapshot beside the requests that follow.
    Snapshot,
}

/// What a request has led to.
pub(crate) struct RequestOutcome {
    pub(crate) flow: Flow,
    /// The reply, if the client gets one.
    pub(crate) reply: Option<Reply>,
    /// The protocol of the client.
    pub(crate) protocol: Protocol,
    /// Whether messages for the client follow the reply.
    pub(crate) has_messages: bool,
    /// The bytes of the output that a fault lets through, if it cuts it.
    pub(crate) cut_after: Option<usize>,
}

/// What receives the reply to a request.
pub(crate) enum Receiver<'a> {
    /// The output of a connection.
    Bytes(&'a mut BytesMut),
    /// A caller in this process, or rules that may still suppress the reply.
    Value(&'a mut RequestOutcome),
}

impl Receiver<'_> {
    /// Receives a reply to the client of this session, unless the session is muted. Messages for
    /// the client follow the reply.
    #[inline(always)]
    pub(crate) fn receive(&mut self, reply: Reply, session: &mut Session) {
        match self {
            Receiver::Bytes(out) => {
                if !session.is_muted() {
                    encode(&reply, session.protocol, out);
                }
                if !session.pending.is_empty() {
                    out.extend_from_slice(&session.pending);
                    session.clear_pending();
                }
                match reply {
                    // These replies own no memory; forgetting them saves the call of the
                    // destructor.
                    Reply::Integer(_) | Reply::Null => std::mem::forget(reply),
                    Reply::Bulk(bytes) | Reply::Simple(bytes) => drop(bytes),
                    reply => drop(reply),
                }
            }
            Receiver::Value(outcome) => {
                outcome.reply = (!session.is_muted()).then_some(reply);
                outcome.protocol = session.protocol;
                outcome.has_messages = !session.pending.is_empty();
            }
        }
    }
}

impl RequestOutcome {
    pub(crate) fn without_reply(flow: Flow) -> RequestOutcome {
        let protocol = Protocol::Resp2;
        RequestOutcome { flow, reply: None, protocol, has_messages: false, cut_after: None }
    }
}

impl Engine {
    /// Runs one request of a client and appends the reply to `out`.
    ///
    /// `argv` must not be empty. Output for other clients is in [`Engine::deliveries`]. Before the
    /// next input, the caller calls [`Engine::end_request`].
    #[inline]
    pub fn run(
        &mut self,
        time: Time,
        client: ClientId,
        argv: &[&[u8]],
        out: &mut BytesMut,
    ) -> Flow {
        if self.instruments.is_some() {
            return self.run_and_write(time, client, argv, out);
        }
        self.run_request(time, client, argv, &mut Receiver::Bytes(out))
    }

    /// As [`Engine::run`], with the rules of [`faults`].
    #[cold]
    pub(crate) fn run_and_write(
        &mut self,
        time: Time,
        client: ClientId,
        argv: &[&[u8]],
        out: &mut BytesMut,
    ) -> Flow {
        let outcome = self.run_with_faults(time, client, argv);
        let sent = out.len();
        if let Some(reply) = &outcome.reply {
            encode(reply, outcome.protocol, out);
        }
        if outcome.has_messages {
            self.sessions.take_messages(client, out);
        }
        if let Some(bytes) = outcome.cut_after {
            out.truncate(sent.saturating_add(bytes));
        }
        outcome.flow
    }

    /// As [`Engine::run`], for a client in this process: returns the reply as the client would
    /// decode it, if there is one, and appends only messages to `messages`.
    pub fn call(
        &mut self,
        time: Time,
        client: ClientId,
        argv: &[&[u8]],
        messages: &mut BytesMut,
    ) -> (Flow, Option<Reply>) {
        let run = |engine: &mut Engine| engine.run_with_faults(time, client, argv);
        let session = self.sessions.get(client);
        let outcome = match session.is_some_and(|session| session.origin.is_monitoring) {
            true => self.without_counting(argv, run),
            false => run(self),
        };
        if outcome.has_messages {
            self.sessions.take_messages(client, messages);
        }
        let reply = outcome.reply.and_then(|reply| {
            let is_whole = outcome.cut_after.is_none_or(|bytes| {
                let mut out = BytesMut::new();
                encode(&reply, outcome.protocol, &mut out);
                out.len() <= bytes
            });
            is_whole.then(|| replies::received(reply, outcome.protocol))
        });
        (outcome.flow, reply)
    }

    /// Runs a request without the rules of [`faults`], and keeps the reply as a value.
    pub(crate) fn run_for_outcome(
        &mut self,
        time: Time,
        client: ClientId,
        argv: &[&[u8]],
    ) -> RequestOutcome {
        let mut outcome = RequestOutcome::without_reply(Flow::Next);
        let flow = self.run_request(time, client, argv, &mut Receiver::Value(&mut outcome));
        RequestOutcome { flow, ..outcome }
    }

    /// Runs a request without the rules of [`faults`]. One function for both kinds of receivers, so
    /// that what it calls is inlined in it.
    pub(crate) fn run_request(
        &mut self,
        time: Time,
        client: ClientId,
        argv: &[&[u8]],
        receiver: &mut Receiver<'_>,
    ) -> Flow {
        // While a script runs, no other change may happen, although requests of other clients are
        // run.
        let is_free = self.script.is_none() && self.expiry_backlog_at != Some(time.now);
        if !self.is_done_for(time.now) && is_free {
            let budget_left = self.expire_due(time, DUE_PER_REQUEST_MAX);
            self.expiry_backlog_at = (budget_left == 0).then_some(time.now);
        }
        let Some(state) = self.sessions.get_mut(client) else { return Flow::Close };
        state.active_at = time.now;
        self.writer.set_author(Author::of(client.serial, time));
        let reply_mode = state.reply_mode;
        if reply_mode != ReplyMode::default() {
            state.reply_mode = reply_mode.next();
        }
        let DispatchResult::Reply(reply) = self.dispatch(client, argv, time) else {
            self.sessions.block_until_resumed(client, reply_mode);
            return Flow::Again;
        };
        self.end_unit(time);
        if self.sessions.tracked.clients() > 0 {
            self.finish_tracking(client, argv);
        }
        // Read again, since the command may have changed the protocol or the reply mode.
        let Some(state) = self.sessions.get_mut(client) else { return Flow::Close };
        receiver.receive(reply, state);
        let waits = state.blocked.is_some();
        match (self.flow.take(), state.close) {
            (Some(flow), close) => {
                if close.is_some() {
                    self.sessions.queue_delivery(client);
                }
                flow
            }
            (None, Some(_)) => Flow::Close,
            (None, None) if waits => Flow::Wait,
            (None, None) => Flow::Next,
        }
    }

    /// Records that a script runs longer than `busy-reply-threshold`: from now on requests of other
    /// clients are refused.
    pub fn set_busy(&mut self) {
        self.conditions.set(Conditions::BUSY, self.script.is_some());
    }

    /// Whether a script runs longer than `busy-reply-threshold`.
    pub fn is_busy(&self) -> bool {
        self.conditions.contains(Conditions::BUSY)
    }
}

/// Keys and timers that are processed before a request, so that events of expired leases precede
/// the reply. The bound keeps one request, or all requests of a millisecond, from paying for a mass
/// expiry.
const DUE_PER_REQUEST_MAX: u32 = 64;
