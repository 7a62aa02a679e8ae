//! The options of a lock, and the times that follow from them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::Cmd;

/// The limit for connecting and for a reply, in addition to the time that the lock waits.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);
/// The shortest limit for a renewal, unless the lease is too short for it.
const RENEWAL_LIMIT_MIN: Duration = Duration::from_secs(1);
/// Default of the server.
const GRACE_DEFAULT: Duration = Duration::from_secs(2);
/// A lock that is bound with a shorter grace is not renewed more often than with this one.
const GRACE_MIN: Duration = Duration::from_millis(300);

/// The options of a lock. Spans are whole milliseconds.
#[derive(Clone)]
pub struct Options {
    pub(crate) ttl: Duration,
    pub(crate) wait: Duration,
    pub(crate) owner: Option<String>,
    pub(crate) on_lost: Option<Arc<dyn Fn() + Send + Sync>>,
    mode: Mode,
    grace: Option<Duration>,
    meta: Option<String>,
    renew_every: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
enum Mode {
    Exclusive,
    Shared,
    Permits(u32, u32),
}

impl Options {
    /// A lock with a lease of this length, which is renewed while the lock is held.
    #[must_use]
    pub fn new(ttl: Duration) -> Self {
        Options {
            ttl,
            wait: Duration::ZERO,
            owner: None,
            on_lost: None,
            mode: Mode::Exclusive,
            grace: None,
            meta: None,
            renew_every: None,
        }
    }

    /// How long to wait for the lock, by the server's clock.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Options { wait, ..self }
    }

    /// The owner, by default made of the host, the process and a random number. Locks with the same
    /// owner may be held at the same time.
    #[must_use]
    pub fn owner(self, owner: impl Into<String>) -> Self {
        Options { owner: Some(owner.into()), ..self }
    }

    /// Acquires the lock together with other owners that share it. Replaces
    /// [`permits`](Self::permits).
    #[must_use]
    pub fn shared(self) -> Self {
        Options { mode: Mode::Shared, ..self }
    }

    /// Acquires `permits` of the `of` permits of a semaphore. Replaces [`shared`](Self::shared).
    #[must_use]
    pub fn permits(self, permits: u32, of: u32) -> Self {
        Options { mode: Mode::Permits(permits, of), ..self }
    }

    /// Binds the lock to the connection: the server releases it 2 seconds after its connection has
    /// ended. Until then the lock connects again and keeps what it holds.
    #[must_use]
    pub fn bound(self) -> Self {
        self.bound_with_grace(GRACE_DEFAULT)
    }

    /// As [`bound`](Self::bound), with another time than 2 seconds.
    #[must_use]
    pub fn bound_with_grace(self, grace: Duration) -> Self {
        Options { grace: Some(grace), ..self }
    }

    /// A text that `LOCK.INFO` shows.
    #[must_use]
    pub fn meta(self, meta: impl Into<String>) -> Self {
        Options { meta: Some(meta.into()), ..self }
    }

    /// The time between two renewals, by default a third of the lease, or of the grace if that is
    /// shorter; zero turns them off.
    #[must_use]
    pub fn renew_every(self, period: Duration) -> Self {
        Options { renew_every: Some(period), ..self }
    }

    /// Is called, on a thread for blocking calls, when a held lock is found to be lost.
    #[must_use]
    pub fn on_lost(self, on_lost: impl Fn() + Send + Sync + 'static) -> Self {
        Options { on_lost: Some(Arc::new(on_lost)), ..self }
    }

    pub(crate) fn acquisition(&self, key: &str, owner: &str, wait: Duration) -> Cmd {
        let mut command = redis::cmd("LOCK.ACQUIRE");
        command.arg(key).arg(owner).arg("TTL").arg(ms(self.ttl)).arg("WAIT").arg(ms(wait));
        match self.mode {
            Mode::Exclusive => &mut command,
            Mode::Shared => command.arg("SHARED"),
            Mode::Permits(permits, of) => command.arg("PERMITS").arg(permits).arg("OF").arg(of),
        };
        if let Some(grace) = self.grace {
            command.arg("BOUND").arg("GRACE").arg(ms(grace));
        }
        if let Some(meta) = &self.meta {
            command.arg("META").arg(meta);
        }
        command
    }

    pub(crate) fn times(&self) -> Times {
        let (ttl, grace) = (self.ttl, self.grace.unwrap_or(self.ttl));
        let trust = ttl.min(grace);
        let trust = trust - trust / 20;
        let shortest = RENEWAL_LIMIT_MIN.min(ttl / 3);
        Times {
            period: self.renew_every.unwrap_or(ttl.min(grace.max(GRACE_MIN)) / 3),
            trust,
            limit: (trust / 3).max(shortest).min(LIMIT),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { ttl, wait, owner, on_lost: _, mode, grace, meta, renew_every } = self;
        f.debug_struct("Options")
            .field("ttl", ttl)
            .field("wait", wait)
            .field("owner", owner)
            .field("mode", mode)
            .field("grace", grace)
            .field("meta", meta)
            .field("renew_every", renew_every)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Time between two renewals; zero for none.
    pub(crate) period: Duration,
    /// How long the lock is surely held after a request that was granted was sent, by a clock that
    /// is slower than that of the server by a twentieth.
    pub(crate) trust: Duration,
    /// Longest time until the reply to a renewal.
    pub(crate) limit: Duration,
}

pub(crate) fn ms(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
