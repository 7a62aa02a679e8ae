//! TLS connections that are not clients yet: their handshakes.
//!
//! A connection becomes a client when its handshake is complete. Before that it does not count
//! against `maxclients`, does not use the engine, and has a time limit. While a slow script runs,
//! [`crate::host::slow_script`] continues the handshakes.

use std::collections::VecDeque;
use std::fmt::Display;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::warn;

use crate::host::Host;
use crate::net::connection::Connection;
use crate::net::listener::admit;
use crate::net::stream::Stream;
use crate::net::tls_stream::{Access, HandshakeStep, TlsStream};
use lockwheel_engine::Engine;
use lockwheel_engine::sessions::Origin;

/// The handshakes that are not complete, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Handshakes(Mutex<VecDeque<Arc<Handshake>>>);

/// One handshake. Its task continues it, and serves the client afterwards.
#[derive(Debug)]
pub(crate) struct Handshake(Mutex<State>);

#[derive(Debug)]
struct State {
    stage: Stage,
    /// Wakes the task.
    waker: Option<Waker>,
}

#[derive(Debug)]
enum Stage {
    /// Not complete, or complete and not a client yet.
    Running(Box<TlsStream>, Origin),
    /// Completed while a script ran; the connection is a client.
    Admitted(Arc<Connection>),
    /// Over: nothing is left to do.
    Over,
}

impl Handshakes {
    /// Begins the handshake of a connection that was just accepted. The task of the result must be
    /// run. If `others_max` handshakes are not complete, the oldest is closed.
    ///
    /// # Errors
    /// If the configuration does not allow a connection.
    pub(crate) fn begin(
        &self,
        tcp: TcpStream,
        config: Arc<ServerConfig>,
        origin: Origin,
        others_max: usize,
    ) -> io::Result<Arc<Handshake>> {
        let stream = Box::new(TlsStream::new(tcp, config)?);
        let stage = Stage::Running(stream, origin);
        let handshake = Arc::new(Handshake(Mutex::new(State { stage, waker: None })));
        let mut all = self.0.lock();
        let oldest = if all.len() < others_max { None } else { all.pop_front() };
        all.push_back(Arc::clone(&handshake));
        drop(all);
        if let Some(oldest) = oldest {
            oldest.close("too many unfinished handshakes");
        }
        Ok(handshake)
    }

    /// Continues all handshakes without the runtime, for a caller that holds the engine.
    pub(crate) fn continue_all(&self, host: &Host, engine: &mut Engine) {
        let all: Vec<Arc<Handshake>> = self.0.lock().iter().cloned().collect();
        for handshake in all {
            handshake.continue_without_runtime(host, engine);
        }
    }

    fn remove(&self, handshake: &Arc<Handshake>) {
        self.0.lock().retain(|other| !Arc::ptr_eq(other, handshake));
    }
}

impl Handshake {
    /// Completes the handshake within the time limit, and then serves the client.
    pub(crate) async fn run(
        self: Arc<Handshake>,
        handshakes: Arc<Handshakes>,
        host: Arc<Host>,
        limit: Duration,
    ) {
        let ended = timeout(limit, poll_fn(|context| self.poll(context)));
        let connection = match host.until_stopped(ended).await {
            // A slow script may hold the engine; then the connection is admitted from there. A
            // failed engine has no clients any more.
            Some(Ok(())) => host.with(|engine| self.admit(&host, engine)).ok().flatten(),
            Some(Err(_)) => {
                self.close("the TLS handshake was not complete in time");
                None
            }
            None => {
                // The server ends.
                self.take_stage();
                None
            }
        };
        handshakes.remove(&self);
        // Only the list and the task have the handshake.
        drop(self);
        if let Some(connection) = connection {
            connection.run(host).await;
        }
    }

    /// The connection, which becomes a client if its handshake is complete.
    fn admit(&self, host: &Host, engine: &mut Engine) -> Option<Arc<Connection>> {
        match self.take_stage() {
            Stage::Running(stream, origin) => admit(host, engine, origin, Stream::Tls(stream)),
            Stage::Admitted(connection) => Some(connection),
            Stage::Over => None,
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        loop {
            let step = match &state.stage {
                Stage::Running(stream, _) => stream.continue_handshake(Access::Runtime),
                _ => Ok(HandshakeStep::Complete),
            };
            let ready = match (step, &state.stage) {
                (Err(error), Stage::Running(..)) => {
                    state.fail(&error);
                    Poll::Ready(Ok(()))
                }
                (Ok(HandshakeStep::NeedsInput), Stage::Running(stream, _)) => {
                    stream.poll_readable(context)
                }
                (Ok(HandshakeStep::NeedsOutput), Stage::Running(stream, _)) => {
                    stream.poll_writable(context)
                }
                _ => return Poll::Ready(()),
            };
            if ready.is_pending() {
                state.waker = Some(context.waker().clone());
            }
            if let Err(error) = ready!(ready) {
                state.fail(&error);
            }
        }
    }

    /// Continues the handshake; if it is complete, makes the connection a client. Does nothing if
    /// its own thread is busy with it.
    fn continue_without_runtime(&self, host: &Host, engine: &mut Engine) {
        let Some(mut state) = self.0.try_lock() else { return };
        let Stage::Running(stream, _) = &state.stage else { return };
        match stream.continue_handshake(Access::Direct) {
            Ok(HandshakeStep::Complete) => {}
            Ok(_) => return,
            Err(error) => {
                state.fail(&error);
                return state.wake();
            }
        }
        if let Stage::Running(stream, origin) = state.take_stage()
            && let Some(connection) = admit(host, engine, origin, Stream::Tls(stream))
        {
            state.stage = Stage::Admitted(connection);
        }
        state.wake();
    }

    /// Closes the connection unless its handshake has ended.
    fn close(&self, reason: &str) {
        let mut state = self.0.lock();
        state.fail(&reason);
        state.wake();
    }

    fn take_stage(&self) -> Stage {
        self.0.lock().take_stage()
    }
}

impl State {
    fn take_stage(&mut self) -> Stage {
        std::mem::replace(&mut self.stage, Stage::Over)
    }

    /// Ends a handshake that runs. The peer has been sent the alert, if there is one.
    fn fail(&mut self, reason: &dyn Display) {
        if let Stage::Running(stream, origin) = self.take_stage() {
            let Origin { address, local_address, .. } = &origin;
            warn!(
                "Error accepting a client connection: {reason} (addr={address} \
                 laddr={local_address})"
            );
            Stream::Tls(stream).shut_down();
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}
