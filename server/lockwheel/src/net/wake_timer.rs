//! A timer that wakes an event loop, to the microsecond. It takes a duration and does not depend on
//! the clock of the leases.
//!
//! Linux has timers that a loop polls like sockets. Other systems use the runtime's timer, which
//! rounds up by one to two milliseconds.

#[cfg(target_os = "linux")]
pub(crate) use exact::{WakeListener, WakeTimer};
#[cfg(not(target_os = "linux"))]
pub(crate) use rounding::{WakeListener, WakeTimer};

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

    /// Fires once after it has been set. May be set from any thread.
    #[derive(Debug)]
    pub(crate) struct WakeTimer(Arc<Descriptor>);

    /// Waits for the timer within an event loop.
    #[derive(Debug)]
    pub(crate) struct WakeListener(AsyncFd<Arc<Descriptor>>);

    #[derive(Debug)]
    struct Descriptor(TimerFd);

    impl AsRawFd for Descriptor {
        fn as_raw_fd(&self) -> RawFd {
            self.0.as_fd().as_raw_fd()
        }
    }

    impl WakeTimer {
        pub(crate) fn new() -> io::Result<WakeTimer> {
            let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
            let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
            Ok(WakeTimer(Arc::new(Descriptor(timer))))
        }

        /// Sets the timer to fire after `wait`, instead of the time set before.
        pub(crate) fn set(&self, wait: Duration) {
            // Zero would disarm the timer.
            let wait = wait.max(Duration::from_nanos(1));
            let expiration = Expiration::OneShot(wait.into());
            if let Err(error) = self.0.0.set(expiration, TimerSetTimeFlags::empty()) {
                tracing::error!(%error, "cannot set a timer: expired keys are not announced");
            }
        }

        /// Registers the timer with the event loop that this is called in. There may be one
        /// listener.
        #[allow(
            deprecated,
            reason = "its successor is for descriptors that may be closed or \
            exchanged meanwhile, and needs a promise that the compiler cannot check"
        )]
        pub(crate) fn listen(&self) -> io::Result<WakeListener> {
            AsyncFd::with_interest(Arc::clone(&self.0), Interest::READABLE).map(WakeListener)
        }
    }

    impl WakeListener {
        /// Waits until the timer fires, or has fired since the last call. The timer is not read:
        /// every expiration is a new event for the loop, and to set the timer discards earlier
        /// expirations.
        pub(crate) async fn fired(&self) {
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

    /// Fires once after it has been set. May be set from any thread.
    #[derive(Debug)]
    pub(crate) struct WakeTimer(Arc<State>);

    /// Waits for the timer within an event loop.
    #[derive(Debug)]
    pub(crate) struct WakeListener(Arc<State>);

    #[derive(Debug, Default)]
    struct State {
        fires_at: Mutex<Option<Instant>>,
        changed: Notify,
    }

    impl WakeTimer {
        pub(crate) fn new() -> io::Result<WakeTimer> {
            Ok(WakeTimer(Arc::default()))
        }

        /// Sets the timer to fire after `wait`, instead of the time set before.
        pub(crate) fn set(&self, wait: Duration) {
            // A deadline may be later than the system's clock can show.
            *self.0.fires_at.lock() = Instant::now().checked_add(wait);
            self.0.changed.notify_one();
        }

        /// Registers the timer with the event loop that this is called in. There may be one
        /// listener.
        pub(crate) fn listen(&self) -> io::Result<WakeListener> {
            Ok(WakeListener(Arc::clone(&self.0)))
        }
    }

    impl WakeListener {
        /// Waits until the timer fires, or has fired since the last call.
        pub(crate) async fn fired(&self) {
            loop {
                let fires_at = *self.0.fires_at.lock();
                let Some(moment) = fires_at else {
                    self.0.changed.notified().await;
                    continue;
                };
                if timeout_at(moment, self.0.changed.notified()).await.is_err() {
                    let mut current = self.0.fires_at.lock();
                    if *current == fires_at {
                        *current = None;
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

    /// The same test for both implementations, on every system.
    macro_rules! check {
        ($kind:ident) => {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let timer = super::$kind::WakeTimer::new().expect("a timer");
                let listener = timer.listen().expect("a listener");
                assert!(is_pending(listener.fired()).await, "it has not been set");
                // Set several times, it fires once, at the last time set.
                for (waits, on_other_thread) in
                    [(&[Duration::ZERO][..], false), (&[NEVER, Duration::from_millis(1)], true)]
                {
                    std::thread::scope(|scope| {
                        let set = || waits.iter().for_each(|&wait| timer.set(wait));
                        if on_other_thread {
                            scope.spawn(set);
                        } else {
                            set();
                        }
                    });
                    listener.fired().await;
                    assert!(is_pending(listener.fired()).await, "fires twice");
                }
                timer.set(Duration::from_secs(3600));
                assert!(is_pending(listener.fired()).await, "fires early");
            });
        };
    }

    /// Whether the future is pending after the loop has polled for events.
    async fn is_pending(future: impl Future<Output = ()>) -> bool {
        tokio::task::yield_now().await;
        let mut future = std::pin::pin!(future);
        std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending()))
            .await
    }

    #[test]
    fn timer_fires_once_at_the_last_time_set() {
        #[cfg(target_os = "linux")]
        {
            check!(exact);
        }
        check!(rounding);
    }
}
