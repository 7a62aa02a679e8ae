//! What the engine has to be told of the world outside while it does not listen.
//!
//! Whether a client that waits has hung up is asked of its socket at the moment it would be given
//! something.
//!
//! While a script runs past its time, the others are heard, and refused. A script holds the engine
//! and the thread it runs on, so nobody else is served; when that has lasted longer than
//! `busy-reply-threshold`, this looks at every socket itself, between two stretches of Lua. The
//! engine's own gates then answer `-BUSY` to everything but what may end the script. Nothing runs
//! nested that could touch a key.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::limits;
use crate::net::host::Host;
use crate::net::listener::Acceptor;
use crate::net::registry::Receiver;
use crate::net::turn;
use lockwheel_engine::Engine;
use lockwheel_engine::script::ScriptMonitor;
use lockwheel_engine::session::ClientId;

/// See the module's documentation.
pub(crate) struct SlowScriptMonitor {
    host: Weak<Host>,
    acceptor: Weak<Acceptor>,
    /// Which script was looked at last, when that began, and when the others were last heard.
    watched: Option<Watched>,
}

struct Watched {
    script: u64,
    begin: Instant,
    /// On the lease clock, which may stand or run faster.
    begin_us: i64,
    heard: Instant,
    /// Nobody waits for what this thread has to send but held back.
    sent: bool,
}

impl SlowScriptMonitor {
    /// A monitor for the clients of `host` and those who come through `acceptor`.
    pub(crate) fn new(host: &Arc<Host>, acceptor: &Arc<Acceptor>) -> SlowScriptMonitor {
        let (host, acceptor) = (Arc::downgrade(host), Arc::downgrade(acceptor));
        SlowScriptMonitor { host, acceptor, watched: None }
    }

    #[expect(clippy::disallowed_methods, reason = "how long a script runs is no matter of leases")]
    fn hear(&mut self, host: &Arc<Host>, engine: &mut Engine, hearing: Hearing) {
        if let Some(acceptor) = self.acceptor.upgrade() {
            acceptor.let_all_in(host, engine);
        }
        for connection in host.registry.sockets() {
            connection.serve_directly(host, engine, hearing);
        }
        if let Some(watched) = &mut self.watched {
            watched.heard = Instant::now();
        }
    }
}

/// What is heard of the others while a script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hearing {
    /// Whatever they say.
    Everything,
    /// What they want of the clock, should it be their next request: a script that has not run for
    /// long on a clock that stands would not do so for ever.
    OrdersOfClock,
}

impl ScriptMonitor for SlowScriptMonitor {
    #[expect(clippy::disallowed_methods, reason = "how long a script runs is no matter of leases")]
    fn poll(&mut self, engine: &mut Engine) {
        let (Some(host), Some(script)) = (self.host.upgrade(), engine.running_script()) else {
            return;
        };
        if host.is_stopping() {
            engine.kill_script();
            return;
        }
        let now = Instant::now();
        let watched = match &mut self.watched {
            Some(watched) if watched.script == script => watched,
            _ => {
                let begin_us = host.clock.lease_us();
                self.watched.insert(Watched {
                    script,
                    begin: now,
                    begin_us,
                    heard: now,
                    sent: false,
                })
            }
        };
        if !watched.sent && now - watched.begin >= limits::HELD_BACK_BY_SCRIPT {
            watched.sent = true;
            turn::end();
            host.script_is_long();
        }
        let threshold = Duration::from_millis(engine.settings.busy_reply_threshold_ms);
        if threshold.is_zero() {
            return;
        }
        if now - watched.heard < limits::BUSY_HEARING_EVERY {
            return;
        }
        let passed_us = host.clock.lease_us().saturating_sub(watched.begin_us);
        let passed = Duration::from_micros(u64::try_from(passed_us).unwrap_or(0));
        if passed < threshold {
            if host.clock.is_in_hand() {
                self.hear(&host, engine, Hearing::OrdersOfClock);
            }
            return;
        }
        if !engine.is_busy() {
            tracing::warn!(
                seconds = passed.as_secs(),
                "slow script: still running; others are refused until it ends or is killed"
            );
        }
        engine.set_busy();
        self.hear(&host, engine, Hearing::Everything);
    }

    fn has_hung_up(&self, client: ClientId) -> bool {
        let peer = self.host.upgrade().and_then(|host| host.registry.get(client));
        matches!(peer, Some(Receiver::Socket(connection)) if connection.has_hung_up())
    }
}
