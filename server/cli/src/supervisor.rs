//! Notifies the supervisor of the process (`supervised`): systemd by messages to its socket,
//! upstart by stopping once.

use std::time::Duration;

use lockwheel::Server;
use lockwheel_engine::settings::Supervised;
use nix::sys::signal::{Signal, raise};
use sd_notify::NotifyState;
use tracing::{info, warn};

use crate::limits;

/// The supervisor that waits for the server to be ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supervisor {
    None,
    Systemd,
    Upstart,
}

impl Supervisor {
    /// The supervisor that the directive names, or that the environment shows.
    pub(crate) fn of(supervised: Supervised) -> Supervisor {
        let has = |name: &str| std::env::var_os(name).is_some();
        let (is_upstart, is_systemd) = (has("UPSTART_JOB"), has("NOTIFY_SOCKET"));
        match supervised {
            Supervised::Systemd if !is_systemd => {
                warn!("systemd supervision requested, but NOTIFY_SOCKET not found");
                Supervisor::None
            }
            Supervised::Upstart if !is_upstart => {
                warn!("upstart supervision requested, but UPSTART_JOB not found");
                Supervisor::None
            }
            Supervised::No => Supervisor::None,
            Supervised::Upstart => Supervisor::Upstart,
            Supervised::Systemd => Supervisor::Systemd,
            Supervised::Auto if is_upstart => Supervisor::Upstart,
            Supervised::Auto if is_systemd => Supervisor::Systemd,
            Supervised::Auto => Supervisor::None,
        }
    }

    /// Extends the supervisor's time limit for the start while the log is loaded.
    pub(crate) fn loading(self) {
        self.extend_start(Duration::ZERO, "Loading the log");
    }

    /// Notifies the supervisor when the server serves commands: when the restart guard is over.
    pub(crate) async fn ready(self, server: &Server) {
        while let Some(left) = server.restart_guard_left() {
            let status = format!("Restart guard: commands are refused for {} s", left.as_secs());
            self.extend_start(left, &status);
            tokio::time::sleep(left.min(limits::NOTIFY_INTERVAL)).await;
        }
        if server.is_stopped() {
            return;
        }
        self.notify(&[NotifyState::Ready, NotifyState::Status("Ready to accept connections")]);
        if self == Supervisor::Upstart {
            info!("supervised by upstart, will stop to signal readiness");
            if let Err(error) = raise(Signal::SIGSTOP) {
                warn!(%error, "cannot stop");
            }
        }
    }

    /// Notifies the supervisor that the server stops.
    pub(crate) fn stopping(self) {
        self.notify(&[NotifyState::Stopping, NotifyState::Status("Stopping")]);
    }

    /// Lets the supervisor wait for longer.
    fn extend_start(self, left: Duration, status: &str) {
        let micros = (left + 3 * limits::NOTIFY_INTERVAL).as_micros();
        let micros = u32::try_from(micros).unwrap_or(u32::MAX);
        self.notify(&[NotifyState::ExtendTimeoutUsec(micros), NotifyState::Status(status)]);
    }

    fn notify(self, state: &[NotifyState<'_>]) {
        if self == Supervisor::Systemd
            && let Err(error) = sd_notify::notify(state)
        {
            warn!(%error, "cannot notify systemd");
        }
    }
}
