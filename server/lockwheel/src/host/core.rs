//! The engine behind its lock.
//!
//! This is the boundary between input/output and the state machine: all code that uses the engine
//! calls [`Host::with`], which holds the lock meanwhile.

use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::task::Poll;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tracing::{error, info};

use super::log::NO_GUARD;
use crate::clock::Clock;
use crate::durability::commit_gate::CommitGate;
use crate::durability::disk_watch::DiskWatch;
use crate::durability::{FileLog, Log};
use crate::error::{Error, ErrorKind};
use crate::host::runtime_files::RuntimeFiles;
use crate::limits;
use crate::net::registry::Registry;
use crate::net::ticker::DeadlineTimer;
use crate::net::turn;
#[cfg(feature = "replication")]
use crate::replication::RaftLog;
use lockwheel_engine::Engine;
use lockwheel_engine::durability::readiness::Role;
use lockwheel_engine::timing::time::Time;

/// The engine behind its lock, and what surrounds it in a server.
pub(crate) struct Host {
    pub(super) engine: Mutex<Engine>,
    /// The clock of the server.
    pub(crate) clock: Clock,
    /// Holds back output until the log has released it.
    pub(crate) gate: Arc<CommitGate>,
    /// Where the units of the engine are logged.
    pub(super) log: OnceLock<Arc<dyn Log>>,
    /// The log, if it is in files of this machine.
    pub(super) file_log: OnceLock<Arc<FileLog>>,
    /// The log, if it is replicated.
    #[cfg(feature = "replication")]
    pub(super) raft_log: OnceLock<Arc<RaftLog>>,
    pub(super) disk_watch: Mutex<DiskWatch>,
    /// The host itself, for its threads.
    pub(super) this: Weak<Host>,
    /// Whether a thread reads files for requests. Changed only under the engine's lock.
    pub(super) reads_files: AtomicBool,
    /// The connected clients.
    pub(crate) registry: Registry,
    /// How many leaderships of this node have ended. Changed only under the engine's lock.
    pub(crate) leaderships_ended: AtomicU64,
    /// The files that are removed when the server ends.
    pub(super) runtime_files: RuntimeFiles,
    /// Whether the server has ended: all tasks end then.
    pub(crate) stopped: watch::Sender<bool>,
    /// Whether the log is loaded and the restart guard of the start is over. It stays so: see
    /// [`Acceptor`](crate::net::listener::Acceptor), which waits for it.
    pub(super) has_been_ready: watch::Sender<bool>,
    /// Wakes the ticker.
    pub(crate) deadline_timer: DeadlineTimer,
    /// A copy of the directive `timeout`, read without the lock.
    pub(super) idle_timeout_seconds: AtomicU32,
    pub(super) failed: AtomicBool,
    /// Whether the thread that holds the engine runs a slow script.
    pub(super) script_is_slow: AtomicBool,
    /// Whether the server is ending; read without a lock.
    pub(super) stopping: AtomicBool,
    /// A copy of the end of the engine's restart guard, on the lease clock; [`NO_GUARD`] if it is
    /// not on. Read without the lock, which a script may hold.
    pub(super) guard_until_ms: AtomicI64,
}

/// The engine has failed: it panicked, perhaps in the middle of a change, so its state cannot be
/// trusted any more, and no further command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed;

impl From<Failed> for Error {
    fn from(_: Failed) -> Error {
        Error::new(ErrorKind::Failed, "the engine has failed and runs no further command")
    }
}

impl Host {
    /// A host for `engine`. It removes `runtime_files` when the server ends.
    pub(crate) fn new(
        engine: Engine,
        clock: Clock,
        runtime_files: RuntimeFiles,
    ) -> io::Result<Arc<Host>> {
        let is_loading = matches!(engine.role(), Role::Loading(_));
        let deadline_timer = DeadlineTimer::new()?;
        Ok(Arc::new_cyclic(|this| Host {
            engine: Mutex::new(engine),
            clock,
            gate: Arc::default(),
            log: OnceLock::new(),
            file_log: OnceLock::new(),
            #[cfg(feature = "replication")]
            raft_log: OnceLock::new(),
            disk_watch: Mutex::default(),
            this: Weak::clone(this),
            reads_files: AtomicBool::new(false),
            registry: Registry::default(),
            runtime_files,
            stopped: watch::Sender::new(false),
            has_been_ready: watch::Sender::new(!is_loading),
            deadline_timer,
            leaderships_ended: AtomicU64::new(0),
            idle_timeout_seconds: AtomicU32::new(0),
            failed: AtomicBool::new(false),
            script_is_slow: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            guard_until_ms: AtomicI64::new(NO_GUARD),
        }))
    }

    /// Runs `action` with exclusive access to the engine, and delivers the output for other
    /// clients.
    ///
    /// A panic in `action` fails the engine permanently: clients are disconnected, and this and
    /// every later call return [`Failed`].
    pub(crate) fn with<R>(&self, action: impl FnOnce(&mut Engine) -> R) -> Result<R, Failed> {
        self.with_release(action, drop)
    }

    /// As [`Host::with`], for a task of the node: messages between nodes go on while it waits.
    #[cfg(feature = "replication")]
    pub(crate) fn with_of_node<R>(
        &self,
        action: impl FnOnce(&mut Engine) -> R,
    ) -> Result<R, Failed> {
        let engine = self.engine.try_lock();
        let engine = engine.unwrap_or_else(|| lockwheel_raft::blocking(|| self.wait_for_engine()));
        self.with_guard(engine, action, drop)
    }

    /// As [`Host::with`], for a caller that calls again at once: a waiting thread gets the engine
    /// first.
    pub(crate) fn with_fair<R>(&self, action: impl FnOnce(&mut Engine) -> R) -> Result<R, Failed> {
        self.with_release(action, |engine| MutexGuard::unlock_fair(engine))
    }

    pub(super) fn with_release<'a, R>(
        &'a self,
        action: impl FnOnce(&mut Engine) -> R,
        release: impl FnOnce(MutexGuard<'a, Engine>),
    ) -> Result<R, Failed> {
        let engine = self.engine.try_lock().unwrap_or_else(|| self.wait_for_engine());
        self.with_guard(engine, action, release)
    }

    pub(super) fn with_guard<'a, R>(
        &'a self,
        mut engine: MutexGuard<'a, Engine>,
        action: impl FnOnce(&mut Engine) -> R,
        release: impl FnOnce(MutexGuard<'a, Engine>),
    ) -> Result<R, Failed> {
        if self.failed.load(Ordering::Acquire) {
            return Err(Failed);
        }
        let result = catch_unwind(AssertUnwindSafe(|| {
            #[cfg(feature = "replication")]
            self.check_leadership(&mut engine);
            self.note_flush(&mut engine);
            let result = action(&mut engine);
            self.deliver_output(&mut engine);
            self.log_units(&mut engine);
            self.serve_log_waits(&mut engine);
            #[cfg(feature = "replication")]
            self.note_held(&engine);
            result
        }));
        let Ok(result) = result else {
            // Set while the lock is held, so that no other thread uses the failed engine.
            self.failed.store(true, Ordering::Release);
            drop(engine);
            error!("the engine has failed; no further command is served");
            self.stop();
            return Err(Failed);
        };
        if self.script_is_slow.load(Ordering::Relaxed) {
            self.script_is_slow.store(false, Ordering::Release);
            // Another thread may have changed the clock meanwhile.
            engine.set_clock_rate(self.clock.rate());
        }
        self.publish(&mut engine);
        release(engine);
        turn::engine_released();
        Ok(result)
    }

    #[cold]
    pub(super) fn wait_for_engine(&self) -> MutexGuard<'_, Engine> {
        if let Some(engine) = self.engine.try_lock_for(limits::ENGINE_WAIT_BEFORE_SEND) {
            return engine;
        }
        // The wait may be long: send the replies that this thread holds back.
        turn::end();
        self.engine.lock()
    }

    /// Copies the values that other threads read without the lock. Called under the lock, so that
    /// the last value written is the current one.
    pub(super) fn publish(&self, engine: &mut Engine) {
        self.deadline_timer.set(engine.next_deadline(), &self.clock);
        if engine.has_garbage() {
            self.deadline_timer.fire_now();
        }
        if self.log.get().is_some() {
            self.follow_settings(engine);
        }
        let timeout = engine.settings().timeout_seconds;
        if self.idle_timeout_seconds.load(Ordering::Relaxed) != timeout {
            self.idle_timeout_seconds.store(timeout, Ordering::Relaxed);
            self.wake_all_clients();
        }
    }

    pub(super) fn wake_all_clients(&self) {
        for receiver in self.registry.all() {
            receiver.outbox().wake();
        }
    }

    /// The seconds after which an idle client is closed; 0 for never.
    pub(crate) fn idle_timeout_seconds(&self) -> u32 {
        self.idle_timeout_seconds.load(Ordering::Relaxed)
    }

    /// Whether the server ends. All clients are woken after this becomes true.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Whether the server has stopped: its runtime files have been removed.
    pub(crate) fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    /// Waits until the server has stopped.
    pub(crate) async fn stopped(&self) {
        // Fails only if there is no sender, and the host has one.
        let _ = self.stopped.subscribe().wait_for(|&stopped| stopped).await;
    }

    /// Waits until the server has been ready: the log is loaded, and the restart guard is over.
    pub(crate) async fn ready(&self) {
        // Fails only if there is no sender, and the host has one.
        let _ = self.has_been_ready.subscribe().wait_for(|&is_ready| is_ready).await;
    }

    /// Runs `work` until it ends, or returns `None` when the server stops.
    pub(crate) async fn until_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let (mut work, mut stopped) = (pin!(work), pin!(self.stopped()));
        poll_fn(|context| match stopped.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(None),
            Poll::Pending => work.as_mut().poll(context).map(Some),
        })
        .await
    }

    /// Whether the engine has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The current time.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// The current time, and that of the clock by which commands are timed.
    pub(crate) fn now_and_ns(&self) -> (Time, u64) {
        self.clock.now_and_ns()
    }

    /// Called when a script has held the engine for long.
    pub(crate) fn set_script_is_slow(&self) {
        self.script_is_slow.store(true, Ordering::Release);
    }

    /// Stops the server. May be called from any thread, more than once.
    pub(crate) fn stop(&self) {
        if !self.stopping.swap(true, Ordering::SeqCst) {
            info!("stopping");
            self.runtime_files.remove();
            self.stopped.send_replace(true);
            // Callers in this process may be waiting for messages.
            self.wake_all_clients();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use super::*;
    use crate::clock::Stopwatch;
    use crate::durability::{LogOwner, OpenFiles};
    use crate::host::testing::{host, poll};
    use crate::in_process::Client;
    use lockwheel_engine::durability::unit_log::{Position, Units};
    use lockwheel_log::files::{Clocks, Files};
    use lockwheel_resp::Reply;
    use lockwheel_simulated_disk::SimulatedDisk;

    #[test]
    fn panic_fails_engine_permanently() {
        let host = host();
        let mut client = Client::connect(&host).expect("a client");
        let result: Result<(), Failed> = host.with(|_| panic!("on purpose"));
        assert_eq!(result, Err(Failed));
        assert!(host.has_failed() && host.is_stopped());
        let refused = host.with(|_| unreachable!("nothing runs on a failed engine"));
        assert_eq!(refused, Err(Failed));
        for kind in [
            client.call(&["GET", "k"]).expect_err("a refusal").kind(),
            client.receive().expect_err("a refusal").kind(),
            Client::connect(&host).expect_err("a refusal").kind(),
        ] {
            assert_eq!(kind, ErrorKind::Failed);
        }
    }

    #[test]
    fn slow_flush_is_a_latency_event() {
        let disk = Arc::new(SimulatedDisk::new());
        disk.set_on_flush(|| {
            let begin = Stopwatch::start();
            while begin.elapsed() < Duration::from_millis(1) {}
        });
        let opened = Files::open(disk, [1; 16], |_| Ok(()), |_| Ok(Clocks::default()));
        let (files, _) = opened.expect("an empty log");
        let host = host();
        host.start_log(OpenFiles::new(Some(files), None, None), None).expect("a log");
        let mut client = Client::connect(&host).expect("a client");
        let mut events_after_write = |threshold: &str| {
            let settings = ["latency-monitor-threshold", threshold, "appendfsync", "always"];
            client.call(&[&["CONFIG", "SET"], &settings[..]].concat()).expect("OK");
            client.call(&["SET", "k", "v"]).expect("OK");
            match client.call(&["LATENCY", "HISTORY", "aof-fsync-always"]) {
                Ok(Reply::Array(events)) => events.len(),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(events_after_write("0"), 0);
        assert_eq!(events_after_write("1"), 1);
        host.end_log();
    }

    #[test]
    fn panic_wakes_caller_that_waits_for_message() {
        let host = host();
        let mut client = Client::connect(&host).expect("a client");
        let waiting = std::thread::spawn(move || client.receive().expect_err("no message").kind());
        let _: Result<(), Failed> = host.with(|_| panic!("on purpose"));
        assert_eq!(waiting.join().expect("it returns"), ErrorKind::Failed);
    }

    /// A log that writes at once. Its thread flushes after the host has asked what is durable for a
    /// number of times.
    #[derive(Default)]
    struct FlushesBetween {
        gate: Arc<CommitGate>,
        last: AtomicU64,
        questions_left: AtomicU64,
        /// Whether it has reported what is durable.
        reports: AtomicBool,
    }

    impl FlushesBetween {
        fn flush(&self) {
            let last = self.last.load(Ordering::SeqCst);
            self.gate.release(last, last);
            self.reports.fetch_or(self.gate.is_flush_awaited(), Ordering::SeqCst);
        }
    }

    impl Log for FlushesBetween {
        fn append(&self, units: Units<'_>, _: Clocks) {
            self.last.store(units.last, Ordering::SeqCst);
            self.gate.release(units.last, 0);
        }

        fn released(&self) -> Position {
            self.gate.released()
        }

        fn flushed(&self) -> Position {
            let flushed = self.gate.flushed();
            if self.questions_left.fetch_sub(1, Ordering::SeqCst) == 1 {
                self.flush();
            }
            flushed
        }
    }

    /// The log flushes a unit before, while or after a client begins to wait for that.
    #[test]
    fn client_that_waits_for_a_flush_does_not_miss_it() {
        for questions in 1..10 {
            let host = host();
            let log = FlushesBetween { gate: Arc::clone(&host.gate), ..FlushesBetween::default() };
            let log = Arc::new(log);
            host.with(|engine| engine.start_log(0)).expect("an engine");
            assert!(host.log.set(Arc::<FlushesBetween>::clone(&log)).is_ok());
            let mut client = Client::connect(&host).expect("a client");
            client.call(&["SET", "k", "v"]).expect("OK");
            log.questions_left.store(questions, Ordering::SeqCst);
            let mut wait = pin!(client.call_async(&["WAITAOF", "1", "0", "0"]));
            let mut reply = poll(wait.as_mut());
            if reply.is_pending() {
                if host.gate.flushed() == 0 {
                    log.flush();
                }
                assert!(log.reports.load(Ordering::SeqCst), "{questions}");
                host.log_is_flushed();
                reply = poll(wait.as_mut());
            }
            let expected = Reply::Array(vec![Reply::Integer(1), Reply::Integer(0)]);
            let Poll::Ready(reply) = reply else { panic!("{questions}: it waits for ever") };
            assert_eq!(reply.expect("a reply"), expected, "{questions}");
        }
    }
}
