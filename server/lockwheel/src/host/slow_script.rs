//! Serves clients while a slow script runs.
//!
//! A script holds the engine and the thread it runs on, so no other client is served. When the
//! script has run for longer than `busy-reply-threshold`, the monitor polls every socket itself,
//! between two stretches of Lua. The engine's gates then answer `-BUSY` to all commands but those
//! that may end the script. So no command that could touch a key runs within the script.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::host::Host;
use crate::limits;
use crate::net::listener::Acceptor;
use crate::net::turn;
use lockwheel_engine::Engine;
use lockwheel_engine::run::script::ScriptMonitor;

/// The monitor of the running script.
pub(crate) struct SlowScriptMonitor {
    host: Weak<Host>,
    acceptor: Weak<Acceptor>,
    /// The last script seen.
    watched: Option<WatchedScript>,
}

struct WatchedScript {
    script: u64,
    begin: Instant,
    /// Its start on the lease clock, which may be stopped or run faster.
    begin_us: i64,
    /// Time at which clients were last polled.
    polled_at: Instant,
    /// Whether the output that this thread held back has been sent.
    sent: bool,
}

impl SlowScriptMonitor {
    /// A monitor for the clients of `host` and new connections of `acceptor`.
    pub(crate) fn new(host: &Arc<Host>, acceptor: &Arc<Acceptor>) -> SlowScriptMonitor {
        let (host, acceptor) = (Arc::downgrade(host), Arc::downgrade(acceptor));
        SlowScriptMonitor { host, acceptor, watched: None }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the running time of a script does not depend on the lease clock"
    )]
    fn poll_clients(&mut self, host: &Arc<Host>, engine: &mut Engine, filter: RequestFilter) {
        if let Some(acceptor) = self.acceptor.upgrade() {
            acceptor.accept_all(host, engine);
        }
        for connection in host.registry.connections() {
            connection.serve_without_runtime(host, engine, filter);
        }
        if let Some(watched) = &mut self.watched {
            watched.polled_at = Instant::now();
        }
    }
}

/// The requests that are run while a script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestFilter {
    /// All requests.
    All,
    /// Only `LOCKWHEEL CLOCK` as the client's next request: on a stopped clock a script would
    /// otherwise never exceed the threshold.
    ClockCommands,
}

impl ScriptMonitor for SlowScriptMonitor {
    #[expect(
        clippy::disallowed_methods,
        reason = "the running time of a script does not depend on the lease clock"
    )]
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
                self.watched.insert(WatchedScript {
                    script,
                    begin: now,
                    begin_us,
                    polled_at: now,
                    sent: false,
                })
            }
        };
        if !watched.sent && now - watched.begin >= limits::SCRIPT_TIME_BEFORE_SEND {
            watched.sent = true;
            turn::end();
            host.set_script_is_slow();
        }
        if watched.sent {
            // The event loop of this thread, which the gate wakes, waits for the script.
            host.gate.send_released();
        }
        let threshold = Duration::from_millis(engine.settings().busy_reply_threshold_ms);
        if threshold.is_zero() {
            return;
        }
        if now - watched.polled_at < limits::BUSY_POLL_INTERVAL {
            return;
        }
        let elapsed_us = host.clock.lease_us().saturating_sub(watched.begin_us);
        let elapsed = Duration::from_micros(u64::try_from(elapsed_us).unwrap_or(0));
        if elapsed < threshold {
            if host.clock.is_controlled() {
                self.poll_clients(&host, engine, RequestFilter::ClockCommands);
            }
            return;
        }
        if !engine.is_busy() {
            tracing::warn!(
                seconds = elapsed.as_secs(),
                "slow script: still running; other clients are refused until it ends or is killed"
            );
        }
        engine.set_busy();
        self.poll_clients(&host, engine, RequestFilter::All);
    }
}
