//! What wakes a loop at a moment, to the microsecond. It knows no leases and no clock but the
//! system's: it is told for how long to wait.
//!
//! Linux has timers that a loop waits for as it does for sockets. Elsewhere it is the runtime's,
//! which rounds up by one to two milliseconds.

#[cfg(target_os = "linux")]
pub(crate) use exact::{Bell, Listener};
#[cfg(not(target_os = "linux"))]
pub(crate) use rounding::{Bell, Listener};

#[cfg(target_os = "linux")]
mod exact {
    use std::future::pending;
    use std::io;
    use std::os::fd::{AsFd, AsRawFd, RawFd};
    use std::sync::Arc;
    use std::time::Duration;

    use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// Rings once, some time after it has been set. May be set from any thread.
    #[derive(Debug)]
    pub(crate) struct Bell(Arc<Timer>);

    /// A loop that hears a bell.
    #[derive(Debug)]
    pub(crate) struct Listener(AsyncFd<Arc<Timer>>);

    #[derive(Debug)]
    struct Timer(TimerFd);

    impl AsRawFd for Timer {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_fd().as_raw_fd()
        }
    }

    impl Bell {
        pub(crate) fn new() -> io::Result<Bell> {
            let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
            Ok(Bell(Arc::new(Timer(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?))))
        }

        /// It rings after `wait`, and no longer when it was to ring before.
        pub(crate) fn set(&self, wait: Duration) {
            // None at all would mean never.
            let wait = wait.max(Duration::from_nanos(1));
            let expiration = Expiration::OneShot(wait.into());
            if let Err(error) = self.0.0.set(expiration, TimerSetTimeFlags::empty()) {
                tracing::error!(%error, "a timer cannot be set: nobody is told of leases that end");
            }
        }

        /// Has the loop this is called in hear it. There may be one such.
        #[allow(
            deprecated,
            reason = "its successor is for descriptors that may be closed or \
            exchanged meanwhile, and asks for a promise that the compiler cannot check"
        )]
        pub(crate) fn listen(&self) -> io::Result<Listener> {
            AsyncFd::with_interest(Arc::clone(&self.0), Interest::READABLE).map(Listener)
        }
    }

    impl Listener {
        /// Waits until the bell rings, or has rung since the last time. The timer is not read: each
        /// end of it is news to the loop, and setting it forgets those before.
        pub(crate) async fn rung(&self) {
            match self.0.readable().await {
                Ok(mut ready) => ready.clear_ready(),
                // The loop ends.
                Err(_) => pending().await,
            }
        }
    }
}

#[cfg(any(test, not(target_os = "linux")))]
#[cfg_attr(target_os = "linux", expect(clippy::unnecessary_wraps, reason = "as where it can fail"))]
mod rounding {
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    use parking_lot::Mutex;
    use tokio::sync::Notify;
    use tokio::time::{Instant, timeout_at};

    /// Rings once, some time after it has been set. May be set from any thread.
    #[derive(Debug)]
    pub(crate) struct Bell(Arc<Timer>);

    /// A loop that hears a bell.
    #[derive(Debug)]
    pub(crate) struct Listener(Arc<Timer>);

    #[derive(Debug, Default)]
    struct Timer {
        rings_at: Mutex<Option<Instant>>,
        changed: Notify,
    }

    impl Bell {
        pub(crate) fn new() -> io::Result<Bell> {
            Ok(Bell(Arc::default()))
        }

        /// It rings after `wait`, and no longer when it was to ring before.
        pub(crate) fn set(&self, wait: Duration) {
            // Deadlines have no end, the system's clock has one.
            *self.0.rings_at.lock() = Instant::now().checked_add(wait);
            self.0.changed.notify_one();
        }

        /// Has the loop this is called in hear it. There may be one such.
        pub(crate) fn listen(&self) -> io::Result<Listener> {
            Ok(Listener(Arc::clone(&self.0)))
        }
    }

    impl Listener {
        /// Waits until the bell rings, or has rung since the last time.
        pub(crate) async fn rung(&self) {
            loop {
                let rings_at = *self.0.rings_at.lock();
                let Some(moment) = rings_at else {
                    self.0.changed.notified().await;
                    continue;
                };
                if timeout_at(moment, self.0.changed.notified()).await.is_err() {
                    let mut now_at = self.0.rings_at.lock();
                    if *now_at == rings_at {
                        *now_at = None;
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::Poll;
    use std::time::Duration;

    use tokio::runtime::Builder;

    const NEVER: Duration = Duration::MAX;

    /// The same of both, wherever this runs.
    macro_rules! check {
        ($kind:ident) => {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let bell = super::$kind::Bell::new().expect("a bell");
                let listener = bell.listen().expect("a listener");
                assert!(is_pending(listener.rung()).await, "it has not been set");
                // Set anew, it rings when it was set to last, and once.
                for (waits, from_elsewhere) in
                    [(&[Duration::ZERO][..], false), (&[NEVER, Duration::from_millis(1)], true)]
                {
                    std::thread::scope(|scope| {
                        let set = || waits.iter().for_each(|&wait| bell.set(wait));
                        if from_elsewhere {
                            scope.spawn(set);
                        } else {
                            set();
                        }
                    });
                    listener.rung().await;
                    assert!(is_pending(listener.rung()).await, "rings twice");
                }
                bell.set(Duration::from_secs(3600));
                assert!(is_pending(listener.rung()).await, "rings early");
            });
        };
    }

    /// Whether it is not over, once the loop has looked for news.
    async fn is_pending(future: impl Future<Output = ()>) -> bool {
        tokio::task::yield_now().await;
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending()))
            .await
    }

    #[test]
    fn a_bell_rings_when_it_was_set_to_last() {
        #[cfg(target_os = "linux")]
        {
            check!(exact);
        }
        check!(rounding);
    }
}
