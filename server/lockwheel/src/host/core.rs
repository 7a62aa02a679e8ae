//! The engine behind its lock, and all work that is necessary around each use of the engine.
//!
//! This is the boundary between input/output and the state machine: all code that uses the engine
//! calls [`Host::with`], which holds the lock meanwhile.

use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::task::Poll;

use bytes::BytesMut;
use lockwheel_resp::Reply;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tracing::{Level, debug, error, info, warn};

use crate::clock::Clock;
use crate::durability::commit_gate::CommitGate;
use crate::durability::disk_watch::DiskWatch;
use crate::durability::restart_guard::Necessary;
use crate::durability::snapshots;
use crate::durability::{FileLog, Log, LogOwner, LogSizes, OpenFiles};
use crate::limits;
use crate::net::outbox::LimitCheck;
use crate::net::registry::{Receiver, Registry};
use crate::net::ticker::DeadlineTimer;
use crate::net::turn::{self, Pending};
#[cfg(feature = "replication")]
use crate::replication::RaftLog;
use crate::server::runtime_files::RuntimeFiles;
use lockwheel_engine::durability::unit_log::Position;
use lockwheel_engine::sessions::{ClientId, Close};
use lockwheel_engine::settings::{FlushPolicy, OutputBufferLimit};
use lockwheel_engine::timing::time::{ClockOrder, Millis, Rate, Time};
use lockwheel_engine::{Delivery, Engine, Flow};
use lockwheel_log::files::Snapshot;
use lockwheel_log::mutants;

/// See the module's documentation.
pub(crate) struct Host {
    engine: Mutex<Engine>,
    /// The clock of the server.
    pub(crate) clock: Clock,
    /// Holds back output until the log has released it.
    pub(crate) gate: Arc<CommitGate>,
    /// Where the units of the engine are logged.
    log: OnceLock<Arc<dyn Log>>,
    /// The log, if it is replicated.
    #[cfg(feature = "replication")]
    raft_log: OnceLock<Arc<RaftLog>>,
    disk_watch: Mutex<DiskWatch>,
    /// The host itself, for the thread that writes a snapshot. Only set if there is a log.
    this: OnceLock<Weak<Host>>,
    /// The connected clients.
    pub(crate) registry: Registry,
    /// Removed when the server ends.
    runtime_files: RuntimeFiles,
    /// Set to true when the server ends: all tasks end then.
    pub(crate) stopped: watch::Sender<bool>,
    /// Wakes the ticker.
    pub(crate) deadline_timer: DeadlineTimer,
    /// The directive `timeout`, copied here to be read without the lock.
    idle_timeout_seconds: AtomicU32,
    failed: AtomicBool,
    /// The thread that holds the engine runs a slow script.
    script_is_slow: AtomicBool,
    /// The server ends; read without a lock.
    stopping: AtomicBool,
    /// When the restart guard ends, on the lease clock; [`NO_GUARD`] if it is not on. Read without
    /// the lock, which a script may hold.
    guard_until_ms: AtomicI64,
}

/// The restart guard is not on.
const NO_GUARD: i64 = i64::MIN;

/// The engine has failed: it panicked, perhaps in the middle of a change, so its state cannot be
/// trusted any more, and no further command is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed;

/// How a client goes on after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// With its next request.
    Request,
    /// With its next request, when the engine resumes it after the reply.
    LateReply,
    /// With the same request, when the engine resumes it.
    SameRequest,
    /// It is disconnected after its replies.
    End,
}

impl Host {
    /// A host for `engine`. It removes `runtime_files` when the server ends.
    pub(crate) fn new(
        engine: Engine,
        clock: Clock,
        runtime_files: RuntimeFiles,
    ) -> io::Result<Host> {
        Ok(Host {
            engine: Mutex::new(engine),
            clock,
            gate: Arc::default(),
            log: OnceLock::new(),
            #[cfg(feature = "replication")]
            raft_log: OnceLock::new(),
            disk_watch: Mutex::default(),
            this: OnceLock::new(),
            registry: Registry::default(),
            runtime_files,
            stopped: watch::Sender::new(false),
            deadline_timer: DeadlineTimer::new()?,
            idle_timeout_seconds: AtomicU32::new(0),
            failed: AtomicBool::new(false),
            script_is_slow: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            guard_until_ms: AtomicI64::new(NO_GUARD),
        })
    }

    /// Runs `action` with exclusive access to the engine, and delivers the output for other
    /// clients.
    ///
    /// A panic in `action` fails the engine permanently: clients are disconnected, and this and
    /// every later call return [`Failed`].
    pub(crate) fn with<R>(&self, action: impl FnOnce(&mut Engine) -> R) -> Result<R, Failed> {
        self.with_release(action, drop)
    }

    /// As [`Host::with`], for a caller that calls again at once: a waiting thread gets the engine
    /// first.
    pub(crate) fn with_fair<R>(&self, action: impl FnOnce(&mut Engine) -> R) -> Result<R, Failed> {
        self.with_release(action, |engine| MutexGuard::unlock_fair(engine))
    }

    fn with_release<'a, R>(
        &'a self,
        action: impl FnOnce(&mut Engine) -> R,
        release: impl FnOnce(MutexGuard<'a, Engine>),
    ) -> Result<R, Failed> {
        let engine = self.engine.try_lock().unwrap_or_else(|| self.wait_for_engine());
        self.with_guard(engine, action, release)
    }

    fn with_guard<'a, R>(
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
            // While the lock is held: no other thread may use the failed engine.
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

    /// The log is loaded: from now on the units of the engine are logged to `files`, and clients
    /// are served when the guard is over.
    pub(crate) fn start_log(
        self: &Arc<Self>,
        files: OpenFiles,
        guard: Option<Necessary>,
    ) -> io::Result<()> {
        let this: Weak<Host> = Arc::downgrade(self);
        if let Some(free_bytes) = files.free_bytes() {
            self.check_disk(free_bytes, files.log.is_some());
        }
        // Only the start of a server calls this.
        let _ = self.this.set(this.clone());
        let begun = self.with(|engine| {
            match &files.log {
                Some(log) => engine.start_log(log.written()),
                None => engine.start_log_of_ceilings(),
            }
            let policy = engine.settings().appendfsync;
            let log = FileLog::new(files, policy, &self.gate, engine.unwritten_bytes(), this);
            log.start_thread()?;
            let _ = self.log.set(Arc::new(log));
            engine.end_loading(self.now());
            if let Some(guard) = guard {
                self.begin_guard(engine, guard);
            }
            Ok(())
        });
        begun.map_err(|_| io::Error::other("the engine has failed"))?
    }

    /// The units of the engine, which follows, go to `log` when it leads.
    #[cfg(feature = "replication")]
    pub(crate) fn start_replicated_log(self: &Arc<Self>, log: &Arc<RaftLog>) {
        // Only the start of a server calls this.
        let _ = self.this.set(Arc::downgrade(self));
        let _ = self.log.set(Arc::<RaftLog>::clone(log));
        let _ = self.raft_log.set(Arc::clone(log));
    }

    /// A leader that may not be the only one any more serves no commands: another one may have
    /// changed the keys that they read. They are held meanwhile.
    #[cfg(feature = "replication")]
    fn check_leadership(&self, engine: &mut Engine) {
        if let Some(log) = self.raft_log.get() {
            engine.set_serves(log.leads());
        }
        self.note_nodes(engine);
    }

    /// Passes on that a request is held.
    #[cfg(feature = "replication")]
    fn note_held(&self, engine: &Engine) {
        if let Some(log) = self.raft_log.get() {
            log.note_held(engine.last_held());
        }
    }

    /// Passes changes of the nodes to the engine.
    #[cfg(feature = "replication")]
    fn note_nodes(&self, engine: &mut Engine) {
        if let Some(nodes) = self.raft_log.get().and_then(|log| log.take_nodes()) {
            engine.set_nodes(nodes, self.now());
        }
    }

    /// Closes all clients, without the output that is not released; except those that only wait for
    /// the event of the next leader and have no such output.
    #[cfg(feature = "replication")]
    pub(crate) fn close_clients(&self, engine: &Engine) {
        for (client, receiver) in self.registry.all_with_clients() {
            if engine.outlives_leader(client) && !receiver.has_output() {
                continue;
            }
            match receiver {
                Receiver::Socket(connection) => connection.close_now(),
                Receiver::InProcess(outbox) => {
                    outbox.disconnect();
                    outbox.wake();
                }
            }
        }
    }

    /// The log of the server, if it has one.
    #[cfg(feature = "simulation")]
    pub(crate) fn log(&self) -> Option<&Arc<dyn Log>> {
        self.log.get()
    }

    fn begin_guard(&self, engine: &mut Engine, guard: Necessary) {
        let Necessary { left_ms, reason, had_lasting_keys } = guard;
        if had_lasting_keys {
            warn!("keys without a deadline may have been lost; the restart guard waits for none");
        }
        let until = Millis(self.now().now.0.saturating_add(left_ms));
        self.begin_guard_until(engine, until, reason);
    }

    /// Refuses commands until the lease clock reaches `until`.
    pub(crate) fn begin_guard_until(&self, engine: &mut Engine, until: Millis, reason: String) {
        let left_ms = until.0.saturating_sub(self.now().now.0);
        if left_ms > 0 {
            warn!("restart guard: commands are refused for {left_ms} ms: {reason}");
            engine.begin_guard(until, reason);
            self.guard_until_ms.store(until.0, Ordering::Relaxed);
        }
    }

    /// The engine has no guard any more, since another server may lead.
    #[cfg(feature = "replication")]
    pub(crate) fn forget_guard(&self) {
        self.guard_until_ms.store(NO_GUARD, Ordering::Relaxed);
    }

    /// Whether the disk that has the log is nearly full.
    #[cfg(feature = "replication")]
    pub(crate) fn disk_is_full(&self) -> bool {
        self.disk_watch.lock().is_full()
    }

    /// Takes the free space of the disk that has the log.
    fn check_disk(&self, free_bytes: io::Result<u64>, has_log: bool) {
        let reserve_bytes =
            if has_log { limits::DISK_RESERVE_BYTES } else { limits::CEILING_RESERVE_BYTES };
        if let Some(is_full) = self.disk_watch.lock().check(free_bytes, reserve_bytes) {
            // A failed engine accepts nothing any more.
            let _ = self.with(|engine| engine.set_disk_is_full(is_full));
        }
    }

    /// Begins to write a snapshot on another thread.
    fn start_snapshot(&self) {
        if let (Some(host), Some(log)) = (self.this.get().and_then(Weak::upgrade), self.log.get()) {
            log.start_snapshot(&host);
        }
    }

    /// Begins a snapshot of the state after all units so far. The log sends its file, unless the
    /// log fails.
    pub(crate) fn begin_snapshot(&self) -> io::Result<mpsc::Receiver<Snapshot>> {
        let log = self.log.get().ok_or_else(snapshots::stopped)?;
        let file = self.with(|engine| {
            self.log_units(engine);
            engine.begin_snapshot(self.now());
            log.begin_snapshot()
        });
        file.map_err(|_| snapshots::stopped())
    }

    /// A snapshot is complete: files that it replaces are removed.
    pub(crate) fn snapshot_is_durable(&self, position: Position) {
        if let Some(log) = self.log.get() {
            log.remove_before(position);
        }
    }

    /// Ends the log: everything in it is flushed. Nothing may use the engine afterwards.
    pub(crate) fn end_log(&self) {
        if let Some(log) = self.log.get() {
            let keys = self.with(|engine| engine.ceiling_of_keys()).ok().flatten();
            log.end_with(keys, self.clock.readings());
        }
    }

    /// Passes the units of the engine to the log, and what the log has released to the engine.
    #[inline]
    fn log_units(&self, engine: &mut Engine) {
        if let Some(log) = self.log.get() {
            // Before the units: a change to `always` may be in the same turn. Another change
            // follows them.
            if engine.settings().appendfsync == FlushPolicy::Always {
                self.follow_settings(engine, &**log);
            }
            if mutants::is_on("ceiling-after-grant") {
                engine.take_units(|units| log.append(units, self.clock.readings(), false));
            }
            if let Some(ceiling) = engine.take_ceiling(self.now().now)
                && !mutants::is_on("ceiling-not-raised")
            {
                log.raise_ceiling(ceiling, self.clock.readings());
            }
            engine.take_units(|units| {
                log.append(units, self.clock.readings(), turn::writes_log(&self.gate, log));
            });
            engine.release_units(log.released(), log.flushed());
        }
    }

    /// While clients wait until more is durable: serves those whose wait is over, and makes the log
    /// report what is durable later.
    fn serve_log_waits(&self, engine: &mut Engine) {
        let Some(log) = self.log.get() else { return };
        let is_awaited = engine.is_flush_awaited();
        self.gate.await_flush(is_awaited);
        if is_awaited {
            // After that: what became durable before is not reported.
            #[cfg(feature = "replication")]
            self.note_nodes(engine);
            engine.release_units(log.released(), log.flushed());
            self.gate.await_flush(engine.is_flush_awaited());
        }
        // `log_units` may have ended waits, too.
        if engine.has_deliveries() {
            self.deliver_output(engine);
        }
    }

    /// Passes the time of the longest flush since the last call to the engine.
    #[inline]
    fn note_flush(&self, engine: &mut Engine) {
        if let Some(took_ns) = self.log.get().and_then(|log| log.take_longest_flush()) {
            engine.note_flush(took_ns, self.now());
        }
    }

    #[cold]
    fn wait_for_engine(&self) -> MutexGuard<'_, Engine> {
        if let Some(engine) = self.engine.try_lock_for(limits::ENGINE_WAIT_BEFORE_SEND) {
            return engine;
        }
        // The wait may be long: send the replies that this thread holds back.
        turn::end();
        self.engine.lock()
    }

    /// Copies the values that other threads read without the lock. Called under the lock, so that
    /// the last value written is the current one.
    fn publish(&self, engine: &mut Engine) {
        self.deadline_timer.set(engine.next_deadline(), &self.clock);
        if engine.has_garbage() {
            self.deadline_timer.fire_now();
        }
        if let Some(log) = self.log.get() {
            log.time_flushes(engine.settings().latency_monitor_threshold_ms > 0);
            self.follow_settings(engine, &**log);
        }
        let timeout = engine.settings().timeout_seconds;
        if self.idle_timeout_seconds.load(Ordering::Relaxed) != timeout {
            self.idle_timeout_seconds.store(timeout, Ordering::Relaxed);
            self.wake_all_clients();
        }
    }

    /// Passes the flush policy of the settings to the log, but not before the restart guard is
    /// over.
    fn follow_settings(&self, engine: &mut Engine, log: &dyn Log) {
        let policy = engine.settings().appendfsync;
        if self.guard_until_ms.load(Ordering::Relaxed) == NO_GUARD {
            return log.set_policy(policy);
        }
        if engine.is_ready() {
            let until_ms = self.guard_until_ms.swap(NO_GUARD, Ordering::Relaxed);
            info!("the restart guard is over: commands are served");
            log.follow(policy);
            // A guard that a command has ended does not come back after the next restart.
            if self.now().now < Millis(until_ms)
                && let Some(ceiling) = engine.lower_ceiling()
            {
                log.lower_ceiling(ceiling, self.clock.readings());
            }
        }
    }

    /// The time until the restart guard ends; `None` if it is not on.
    pub(crate) fn restart_guard_left(&self) -> Option<Millis> {
        let until_ms = self.guard_until_ms.load(Ordering::Relaxed);
        let left = (until_ms != NO_GUARD).then(|| self.now().remaining(Millis(until_ms)))?;
        (left.0 > 0).then_some(left)
    }

    fn wake_all_clients(&self) {
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
        let time = self.now();
        engine.begin_requests();
        let (flow, reply) = engine.call(time, client, argv, messages);
        let next = self.carry_out(engine, time, client, flow, messages);
        // To a connection, SHUTDOWN sends no reply.
        let dependency = self.deliver_output(engine);
        (next, if flow == Flow::Shutdown { Some(Reply::OK) } else { reply }, dependency)
    }

    /// Serves the clients that a request has made ready, and carries out the request's order to the
    /// server, if any.
    fn carry_out(
        &self,
        engine: &mut Engine,
        time: Time,
        client: ClientId,
        flow: Flow,
        out: &mut BytesMut,
    ) -> Next {
        if engine.has_waiters_to_serve() {
            self.serve_waiters(engine, time);
            engine.take_messages(client, out);
        }
        match flow {
            Flow::Next => return Next::Request,
            Flow::Wait => return Next::LateReply,
            Flow::Again => return Next::SameRequest,
            // At once: a client that sees its last reply must find itself disconnected.
            Flow::Close => self.disconnect(engine, client),
            Flow::Shutdown => self.stop(),
            Flow::Snapshot => {
                self.start_snapshot();
                return Next::Request;
            }
            Flow::Sleep(span) => {
                sleep_holding_engine(span);
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

    /// Does the work that is due at `now`, or a part of it.
    pub(crate) fn tick(&self, engine: &mut Engine, now: Time) {
        engine.tick(now, limits::EXPIRE_KEYS_BETWEEN_CLOCK_READS);
        if engine.has_waiters_to_serve() {
            self.serve_waiters(engine, now);
        }
    }

    /// Removes a client that has disconnected, and serves those that have waited for it; none while
    /// the server ends, since the log takes no more units, and their replies would wait for ever.
    pub(crate) fn disconnect(&self, engine: &mut Engine, client: ClientId) {
        engine.disconnect(client);
        if engine.has_waiters_to_serve() && !self.is_stopping() {
            self.serve_waiters(engine, self.now());
        }
    }

    /// Serves the clients whose keys have changed. A client whose peer has closed the connection is
    /// skipped, also before its own thread has read that: what it were given would be lost.
    #[cold]
    fn serve_waiters(&self, engine: &mut Engine, time: Time) {
        while let Some(client) = engine.next_waiter(time) {
            match self.registry.get(client) {
                Some(Receiver::Socket(connection)) if connection.peer_has_closed() => {
                    engine.peer_closed(client);
                }
                _ => engine.serve_waiter(client, time),
            }
        }
    }

    /// Moves the engine's deliveries to the outboxes and its log lines to the log. Returns the
    /// position that all output of the engine since the last call depends on.
    ///
    /// Disconnects clients beyond `maxmemory-clients`: this is called wherever the memory of
    /// clients may have grown.
    pub(crate) fn deliver_output(&self, engine: &mut Engine) -> Position {
        let dependency = engine.take_dependency();
        self.deliver_all(engine, dependency, |_| {});
        if engine.has_clients_to_evict() {
            for (client, bytes) in engine.evict_clients() {
                warn!(client = client.serial, bytes, "closing a client: maxmemory-clients");
            }
            self.deliver_all(engine, dependency, |_| {});
        }
        for (level, message) in engine.take_script_messages() {
            log_script(level, &message);
        }
        dependency
    }

    /// Moves the engine's deliveries, which depend on `position`, to the outboxes; `inspect` is
    /// called with each before.
    fn deliver_all(
        &self,
        engine: &mut Engine,
        position: Position,
        mut inspect: impl FnMut(&Delivery),
    ) {
        if !engine.has_deliveries() {
            return;
        }
        let mut checks = Vec::new();
        engine.hand_out(|engine, delivery| {
            inspect(delivery);
            let client = delivery.client;
            checks.extend(self.deliver(engine, delivery, position).map(|next| (client, next)));
        });
        for (client, next) in checks {
            engine.check_output_at(client, next);
        }
    }

    /// Moves one delivery to its outbox. Returns when to check the client's output limit again.
    fn deliver(
        &self,
        engine: &Engine,
        delivery: &mut Delivery,
        position: Position,
    ) -> Option<Millis> {
        let (client, close) = (delivery.client, delivery.close);
        let pending = if delivery.resume { Pending::Reply } else { Pending::Messages };
        let receiver = self.registry.get(client)?;
        let (outbox, limit) = (receiver.outbox(), output_limit(engine, client));
        let now = || self.now().now;
        #[cfg(feature = "mutants")]
        let position = if is_not_gated(delivery) { 0 } else { position };
        let mut check = outbox.put(delivery, position, limit, now);
        if let (LimitCheck::Overrun(_), Receiver::Socket(connection)) = (check, &receiver) {
            // Part of the output may only have been held back by a turn.
            connection.send_pending();
            check = outbox.check_limit(limit, now);
        }
        if let LimitCheck::Overrun(bytes) = check {
            outbox.disconnect();
            warn_overrun(client, bytes);
        }
        let is_over = matches!(check, LimitCheck::Overrun(_));
        match receiver {
            // Before the client that ordered this gets its reply.
            Receiver::Socket(connection) if close == Some(Close::Now) => connection.close_now(),
            Receiver::Socket(connection) if close.is_none() && !is_over => {
                turn::enqueue(connection, pending);
            }
            Receiver::Socket(connection) => connection.outbox.wake(),
            Receiver::InProcess(outbox) => outbox.wake(),
        }
        match check {
            LimitCheck::OverSoft(next) => next,
            _ => None,
        }
    }

    // --- the clock ---

    /// Runs an order to the clock from a caller in this process. While a slow script holds the
    /// engine, the clock is only moved: work that becomes due is done when the script is over.
    pub(crate) fn run_clock_order(&self, order: ClockOrder) -> Result<(), Failed> {
        let engine = loop {
            if let Some(engine) = self.engine.try_lock_for(limits::ENGINE_WAIT_BEFORE_SEND) {
                break engine;
            }
            if self.script_is_slow.load(Ordering::Acquire) {
                self.move_clock_only(order);
                return Ok(());
            }
        };
        self.with_guard(engine, |engine| self.run_clock_order_with(engine, order), drop)
    }

    /// As [`Host::run_clock_order`], for a caller that holds the engine, perhaps within a script.
    pub(crate) fn run_clock_order_with(&self, engine: &mut Engine, order: ClockOrder) {
        engine.clock_order(order, self.now());
        if engine.running_script().is_some() {
            return self.move_clock_only(order);
        }
        match order {
            ClockOrder::Run(rate) => self.set_clock_rate(rate),
            ClockOrder::Restart(rate) => self.restart_clock(rate),
            ClockOrder::Advance(span) => {
                self.advance_to(engine, self.clock.lease_us().saturating_add(micros(span)));
            }
            ClockOrder::AdvanceTo(moment) => self.advance_to(engine, micros(moment)),
            ClockOrder::Jump(span) if span.0 < 0 => self.clock.step_wall(span),
            ClockOrder::Jump(span) => {
                self.clock.set_us(self.clock.lease_us().saturating_add(micros(span)));
                let now = self.now();
                while engine.next_deadline().is_some_and(|next| now.reached(next)) {
                    self.tick(engine, now);
                    self.deliver_output(engine);
                }
            }
            ClockOrder::StepWall(span) => self.clock.step_wall(span),
        }
        self.deadline_timer.disarm();
        // Resumed clients continue in the order in which they came, not in the order of
        // the registry.
        turn::end();
        // Clients may have been idle for too long now.
        self.wake_all_clients();
    }

    /// Does all work that is due until `target_us`, in order, with the clock at each deadline. The
    /// clock does not run meanwhile.
    fn advance_to(&self, engine: &mut Engine, target_us: i64) {
        let rate = self.clock.set_rate(Rate::STOPPED);
        let target = Millis(target_us.div_euclid(1000));
        while let Some(deadline) = engine.next_deadline().filter(|&next| next <= target) {
            self.clock.set(deadline);
            self.tick(engine, self.now());
            self.deliver_and_run_resumed(engine);
            self.deliver_output(engine);
        }
        self.clock.set_us(target_us);
        self.clock.set_rate(rate);
    }

    /// As [`Host::deliver_output`], but resumed clients run their next requests at this
    /// time of the clock. Callers in this process continue on their own threads, after the move.
    fn deliver_and_run_resumed(&self, engine: &mut Engine) {
        let mut resumed = Vec::new();
        let dependency = engine.take_dependency();
        self.deliver_all(engine, dependency, |delivery| {
            resumed.extend(delivery.resume.then_some(delivery.client));
        });
        for client in resumed {
            if let Some(Receiver::Socket(connection)) = self.registry.get(client) {
                connection.run_in_clock_move(self, engine);
                turn::enqueue(connection, Pending::Reply);
            }
        }
    }

    /// Changes the clock and does no work that becomes due, while a script runs.
    fn move_clock_only(&self, order: ClockOrder) {
        match order {
            ClockOrder::Run(rate) => self.set_clock_rate(rate),
            ClockOrder::Restart(rate) => self.restart_clock(rate),
            ClockOrder::Advance(span) | ClockOrder::Jump(span) => {
                self.clock.set_us(self.clock.lease_us().saturating_add(micros(span)));
            }
            ClockOrder::AdvanceTo(moment) => self.clock.set(moment),
            ClockOrder::StepWall(span) => self.clock.step_wall(span),
        }
    }

    /// Sets the rate. The clock stops on a whole millisecond: a lease that begins then ends exactly
    /// after its duration.
    fn set_clock_rate(&self, rate: Rate) {
        self.clock.set_rate(rate);
        if rate.is_stopped() {
            let lease_us = self.clock.lease_us();
            self.clock.set_us(lease_us.saturating_add((-lease_us).rem_euclid(1000)));
        }
    }

    fn restart_clock(&self, rate: Rate) {
        self.set_clock_rate(rate);
        self.clock.align_wall();
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

impl LogOwner for Host {
    fn log_has_failed(&self) {
        self.gate.fail();
        self.stop();
    }

    fn log_second(&self, sizes: Option<LogSizes>, free_bytes: io::Result<u64>) {
        self.check_disk(free_bytes, sizes.is_some());
        let Some(sizes) = sizes else { return };
        let is_due = self.with(|engine| {
            engine.set_log_sizes(sizes.snapshot, sizes.segments);
            engine.snapshot_is_due(self.now())
        });
        if is_due == Ok(true) {
            self.start_snapshot();
        }
    }

    fn log_is_flushed(&self) {
        // Ends the waits: see `serve_log_waits`. A failed engine has no clients any more.
        let _ = self.with(|_| {});
    }
}

/// Whether a defect sends this delivery at once.
#[cfg(feature = "mutants")]
fn is_not_gated(delivery: &Delivery) -> bool {
    let contains = |text: &[u8]| delivery.bytes.windows(text.len()).any(|bytes| bytes == text);
    [
        ("messages-not-gated", &b"\nmessage\r"[..]),
        ("keyspace-events-not-gated", b"__keyevent"),
        ("invalidations-not-gated", b"\ninvalidate\r"),
    ]
    .iter()
    .any(|(name, text)| mutants::is_on(name) && contains(text))
}

fn micros(span: Millis) -> i64 {
    span.0.saturating_mul(1000)
}

/// The limit of the bytes that may wait for a client that does not read.
pub(crate) fn output_limit(engine: &Engine, client: ClientId) -> OutputBufferLimit {
    let limits = &engine.settings().client_output_buffer_limits;
    match engine.session(client) {
        Some(state) if !state.identity.is_authenticated() => UNAUTHENTICATED_LIMIT,
        Some(state) if state.is_subscriber() => limits.pubsub,
        _ => limits.normal,
    }
}

/// The limit before AUTH.
const UNAUTHENTICATED_LIMIT: OutputBufferLimit = OutputBufferLimit {
    hard_bytes: limits::UNAUTHENTICATED_OUTBOX_BYTES_MAX as u64,
    soft_bytes: 0,
    soft_seconds: 0,
};

/// `DEBUG SLEEP`: the caller holds the engine, so all clients wait.
#[expect(clippy::disallowed_methods, reason = "its purpose is to block all clients")]
fn sleep_holding_engine(span: Millis) {
    turn::end();
    std::thread::sleep(std::time::Duration::from_millis(u64::try_from(span.0).unwrap_or(0)));
}

/// Logs an event of a client with its line in `CLIENT LIST`, if events of clients are logged.
pub(crate) fn log_client(engine: &Engine, client: ClientId, time: Time, event: &str) {
    if tracing::enabled!(Level::DEBUG) {
        let line = engine.client_line(client, time);
        debug!("{event} {}", line.unwrap_or_else(|| format!("id={}", client.serial)));
    }
}

/// Logs that a client is closed because it does not read.
pub(crate) fn warn_overrun(client: ClientId, bytes: usize) {
    warn!(client = client.serial, bytes, "closing a client that overran its output buffer limit");
}

fn log_script(level: lockwheel_engine::run::script::LogLevel, message: &str) {
    use lockwheel_engine::run::script::LogLevel;
    match level {
        LogLevel::Debug => tracing::trace!(target: "lockwheel::script", "{message}"),
        LogLevel::Verbose => tracing::debug!(target: "lockwheel::script", "{message}"),
        LogLevel::Notice => info!(target: "lockwheel::script", "{message}"),
        LogLevel::Warning => warn!(target: "lockwheel::script", "{message}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::clock::Stopwatch;
    use crate::error::ErrorKind;
    use crate::in_process::Client;
    use lockwheel_engine::engine::inputs::Process;
    use lockwheel_engine::settings::Settings;
    use lockwheel_log::files::{Clocks, Files};
    use lockwheel_log::simulated_disk::SimulatedDisk;

    fn host() -> Arc<Host> {
        let clock = Clock::controlled(Some(Millis(0)), Rate::STOPPED);
        let engine = Engine::new(Settings::default(), Process::default(), clock.now(), [0; 4]);
        Arc::new(Host::new(engine, clock, RuntimeFiles::default()).expect("a host"))
    }

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
}
