//! The one engine behind its one lock, and everything that has to happen around each use of it.
//!
//! The seam between input/output and the state machine: whoever wants something of the engine
//! calls [`Host::with`] and is alone with it meanwhile. Replaceable as a whole.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::clock::Clock;
use crate::limits;
use crate::net::outbox::Excess;
use crate::net::registry::{Receiver, Registry};
use crate::net::runtime_files::RuntimeFiles;
use crate::net::ticker::Alarm;
use crate::net::turn::{self, Pending};
use lockwheel_engine::session::{ClientId, Close};
use lockwheel_engine::settings::OutputBufferLimit;
use lockwheel_engine::time::{ClockOrder, Millis, Rate, Time};
use lockwheel_engine::{Delivery, Engine};

/// See the module's documentation.
pub(crate) struct Host {
    engine: Mutex<Engine>,
    /// The present.
    pub(crate) clock: Clock,
    /// Who is connected.
    pub(crate) registry: Registry,
    /// What others know the server by.
    runtime_files: RuntimeFiles,
    /// Ends everything when cancelled.
    pub(crate) shutdown: CancellationToken,
    /// Wakes who fires the wheel.
    pub(crate) alarm: Alarm,
    /// `timeout`, copied here for the connections to see.
    idle_timeout_seconds: AtomicU32,
    failed: AtomicBool,
    /// Whoever has the engine runs a script that takes its time.
    script_is_long: AtomicBool,
    /// `shutdown` has been cancelled: told without its lock.
    stopping: AtomicBool,
}

/// The engine has failed: a bug was hit in the middle of a change, so nothing it holds can be
/// trusted any more, and nothing more is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed;

impl Host {
    /// A host for `engine`, and for a server that has left these `runtime_files`.
    pub(crate) fn new(
        engine: Engine,
        clock: Clock,
        runtime_files: RuntimeFiles,
    ) -> io::Result<Host> {
        Ok(Host {
            engine: Mutex::new(engine),
            clock,
            registry: Registry::default(),
            runtime_files,
            shutdown: CancellationToken::new(),
            alarm: Alarm::new()?,
            idle_timeout_seconds: AtomicU32::new(0),
            failed: AtomicBool::new(false),
            script_is_long: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        })
    }

    /// Does something with the engine, alone with it, and passes on what comes of it for others.
    ///
    /// A panic in `act` fails the engine for good: clients are disconnected, and this and every
    /// later call returns [`Failed`].
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Engine) -> R) -> Result<R, Failed> {
        self.with_until(act, drop)
    }

    /// As [`Host::with`], for who will be back at once: if somebody is waiting, it is their turn.
    pub(crate) fn with_in_turn<R>(&self, act: impl FnOnce(&mut Engine) -> R) -> Result<R, Failed> {
        self.with_until(act, |engine| MutexGuard::unlock_fair(engine))
    }

    fn with_until<'a, R>(
        &'a self,
        act: impl FnOnce(&mut Engine) -> R,
        let_go: impl FnOnce(MutexGuard<'a, Engine>),
    ) -> Result<R, Failed> {
        let engine = self.engine.try_lock().unwrap_or_else(|| self.wait_for_engine());
        self.with_guard(engine, act, let_go)
    }

    fn with_guard<'a, R>(
        &'a self,
        mut engine: MutexGuard<'a, Engine>,
        act: impl FnOnce(&mut Engine) -> R,
        let_go: impl FnOnce(MutexGuard<'a, Engine>),
    ) -> Result<R, Failed> {
        if self.failed.load(Ordering::Acquire) {
            return Err(Failed);
        }
        let result = catch_unwind(AssertUnwindSafe(|| {
            let result = act(&mut engine);
            self.pass_on(&mut engine);
            result
        }));
        let Ok(result) = result else {
            // While the lock is held: nobody may see what is left of the engine.
            self.failed.store(true, Ordering::Release);
            drop(engine);
            error!("the engine has failed; no further command is served");
            self.stop();
            return Err(Failed);
        };
        if self.script_is_long.load(Ordering::Relaxed) {
            self.script_is_long.store(false, Ordering::Release);
            // The clock may have been moved alone.
            engine.clock_rate = self.clock.rate();
        }
        self.publish(&engine);
        let_go(engine);
        turn::engine_let_go();
        Ok(result)
    }

    #[cold]
    fn wait_for_engine(&self) -> MutexGuard<'_, Engine> {
        if let Some(engine) = self.engine.try_lock_for(limits::ENGINE_PATIENCE) {
            return engine;
        }
        // It may take long: those who have been served need not wait as well.
        turn::end();
        self.engine.lock()
    }

    /// Copies what others look at without the lock. Under the lock, so that what they see last is
    /// what holds.
    fn publish(&self, engine: &Engine) {
        self.alarm.set(engine.next_deadline(), &self.clock);
        if engine.has_garbage() {
            self.alarm.ring();
        }
        let timeout = engine.settings.timeout_seconds;
        if self.idle_timeout_seconds.load(Ordering::Relaxed) != timeout {
            self.idle_timeout_seconds.store(timeout, Ordering::Relaxed);
            self.wake_everyone();
        }
    }

    fn wake_everyone(&self) {
        for peer in self.registry.all() {
            peer.outbox().wake();
        }
    }

    /// After how long a client that says nothing is closed; 0 for never.
    pub(crate) fn idle_timeout_seconds(&self) -> u32 {
        self.idle_timeout_seconds.load(Ordering::Relaxed)
    }

    /// Whether the server ends. Everyone has been woken since.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Whether the engine has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The present.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Gives the engine's deliveries to the outboxes and its log lines to the log.
    ///
    /// Disconnects clients beyond `maxmemory-clients`: this is called wherever what clients take
    /// may have grown.
    pub(crate) fn pass_on(&self, engine: &mut Engine) {
        self.hand_out(engine, |_| {});
        if engine.has_clients_to_evict() {
            for (client, bytes) in engine.evict_clients() {
                warn!(client = client.serial, bytes, "closing a client: maxmemory-clients");
            }
            self.hand_out(engine, |_| {});
        }
        if !engine.log.is_empty() {
            engine.log.drain(..).for_each(|(level, message)| log_script(level, &message));
        }
    }

    /// Gives the engine's deliveries to the outboxes; `look` sees each of them before.
    fn hand_out(&self, engine: &mut Engine, mut look: impl FnMut(&Delivery)) {
        if !engine.has_deliveries() {
            return;
        }
        let mut checks = Vec::new();
        engine.hand_out(|engine, delivery| {
            look(delivery);
            let client = delivery.client;
            checks.extend(self.deliver(engine, delivery).map(|moment| (client, moment)));
        });
        for (client, moment) in checks {
            engine.check_output_at(client, moment);
        }
    }

    /// Returns when to look again whether the client has read.
    fn deliver(&self, engine: &Engine, delivery: &mut Delivery) -> Option<Millis> {
        let (client, close) = (delivery.client, delivery.close);
        let owed = if delivery.resume { Pending::Reply } else { Pending::Messages };
        let peer = self.registry.get(client)?;
        let (outbox, limit) = (peer.outbox(), output_limit(engine, client));
        let now = || self.now().now;
        let mut excess = outbox.put(delivery, limit, now);
        if let (Excess::Over(_), Receiver::Socket(connection)) = (excess, &peer) {
            // Some of it may only have been held back until now.
            connection.send_owed();
            excess = outbox.excess(limit, now);
        }
        if let Excess::Over(bytes) = excess {
            outbox.give_up();
            warn_overrun(client, bytes);
        }
        let is_over = matches!(excess, Excess::Over(_));
        match peer {
            // Before whoever wanted it gone is told that it is.
            Receiver::Socket(connection) if close == Some(Close::Now) => connection.cut_off(),
            Receiver::Socket(connection) if close.is_none() && !is_over => {
                turn::enlist(connection, owed);
            }
            Receiver::Socket(connection) => connection.outbox.wake(),
            Receiver::InProcess(outbox) => outbox.wake(),
        }
        match excess {
            Excess::Soft(moment) => moment,
            _ => None,
        }
    }

    // --- the clock ---

    /// Does with the clock what somebody in this process wants. While a script keeps the engine for
    /// long, it is only moved: what is due then happens when the script is over.
    pub(crate) fn order_clock(&self, order: ClockOrder) -> Result<(), Failed> {
        let engine = loop {
            if let Some(engine) = self.engine.try_lock_for(limits::ENGINE_PATIENCE) {
                break engine;
            }
            if self.script_is_long.load(Ordering::Acquire) {
                self.move_clock_alone(order);
                return Ok(());
            }
        };
        self.with_guard(engine, |engine| self.obey_clock_order(engine, order), drop)
    }

    /// As [`Host::order_clock`], for who is alone with the engine, be it within a script.
    pub(crate) fn obey_clock_order(&self, engine: &mut Engine, order: ClockOrder) {
        if engine.running_script().is_some() {
            self.move_clock_alone(order);
            engine.clock_rate = self.clock.rate();
            return;
        }
        match order {
            ClockOrder::Run(rate) => self.run_clock(rate),
            ClockOrder::Advance(span) => {
                self.advance_to(engine, self.clock.lease_us().saturating_add(micros(span)));
            }
            ClockOrder::AdvanceTo(moment) => self.advance_to(engine, micros(moment)),
            ClockOrder::Jump(span) if span.0 < 0 => {
                engine.postpone(Millis(span.0.saturating_neg()));
                self.clock.step_wall(span);
            }
            ClockOrder::Jump(span) => {
                self.clock.set_us(self.clock.lease_us().saturating_add(micros(span)));
                let now = self.now();
                while engine.next_deadline().is_some_and(|next| now.reached(next)) {
                    engine.tick(now, limits::EXPIRE_KEYS_BETWEEN_LOOKS);
                    self.pass_on(engine);
                }
            }
            ClockOrder::StepWall(span) => self.clock.step_wall(span),
        }
        engine.clock_rate = self.clock.rate();
        self.alarm.disarm();
        // Whoever was held goes on in the order in which they came, not in that of the registry.
        turn::end();
        // Who has been idle for long may be so now.
        self.wake_everyone();
    }

    /// Does everything that is due until then, each thing at its own moment. The clock stands
    /// meanwhile, but for being moved.
    fn advance_to(&self, engine: &mut Engine, target_us: i64) {
        let rate = self.clock.set_rate(Rate::STOPPED);
        let target = Millis(target_us.div_euclid(1000));
        while let Some(deadline) = engine.next_deadline().filter(|&next| next <= target) {
            self.clock.set(deadline);
            engine.tick(self.now(), limits::EXPIRE_KEYS_BETWEEN_LOOKS);
            self.let_go_on(engine);
            self.pass_on(engine);
        }
        self.clock.set_us(target_us);
        self.clock.set_rate(rate);
    }

    /// As [`Host::pass_on`], but whose wait is over goes on at this very moment. Callers in this
    /// process have threads of their own, which see to that when the clock has been moved.
    fn let_go_on(&self, engine: &mut Engine) {
        let mut resumed = Vec::new();
        self.hand_out(engine, |delivery| {
            resumed.extend(delivery.resume.then_some(delivery.client));
        });
        for client in resumed {
            if let Some(Receiver::Socket(connection)) = self.registry.get(client) {
                connection.go_on(self, engine);
                turn::enlist(connection, Pending::Reply);
            }
        }
    }

    /// Moves the clock under a script, which is told how long it has run.
    fn move_clock_alone(&self, order: ClockOrder) {
        match order {
            ClockOrder::Run(rate) => self.run_clock(rate),
            ClockOrder::Advance(span) | ClockOrder::Jump(span) => {
                self.clock.set_us(self.clock.lease_us().saturating_add(micros(span)));
            }
            ClockOrder::AdvanceTo(moment) => self.clock.set(moment),
            ClockOrder::StepWall(span) => self.clock.step_wall(span),
        }
    }

    /// It stops on a whole millisecond: a lease that begins then ends exactly when it is over.
    fn run_clock(&self, rate: Rate) {
        self.clock.set_rate(rate);
        if rate.is_stopped() {
            let lease_us = self.clock.lease_us();
            self.clock.set_us(lease_us.saturating_add((-lease_us).rem_euclid(1000)));
        }
    }

    /// A script has kept the engine for long.
    pub(crate) fn script_is_long(&self) {
        self.script_is_long.store(true, Ordering::Release);
    }

    /// Ends the server, from whatever side.
    pub(crate) fn stop(&self) {
        if !self.stopping.swap(true, Ordering::SeqCst) {
            info!("stopping");
            self.runtime_files.remove();
            self.shutdown.cancel();
            // Callers in this process may be waiting for mail.
            self.wake_everyone();
        }
    }
}

fn micros(span: Millis) -> i64 {
    span.0.saturating_mul(1000)
}

/// How much may wait for a client that does not read.
pub(crate) fn output_limit(engine: &Engine, client: ClientId) -> OutputBufferLimit {
    let limits = &engine.settings.client_output_buffer_limits;
    match engine.sessions.get(client) {
        Some(state) if !state.authenticated => STRANGERS,
        Some(state) if state.is_subscriber() => limits.pubsub,
        _ => limits.normal,
    }
}

/// Before AUTH.
const STRANGERS: OutputBufferLimit = OutputBufferLimit {
    hard_bytes: limits::UNAUTHENTICATED_OUTBOX_BYTES_MAX as u64,
    soft_bytes: 0,
    soft_seconds: 0,
};

/// `DEBUG SLEEP`. The caller is alone with the engine, so everyone waits.
#[expect(clippy::disallowed_methods, reason = "it is there to keep everyone waiting")]
pub(crate) fn sleep_holding_everyone(span: Millis) {
    turn::end();
    std::thread::sleep(std::time::Duration::from_millis(u64::try_from(span.0).unwrap_or(0)));
}

/// Says that a client is closed because it does not read.
pub(crate) fn warn_overrun(client: ClientId, bytes: usize) {
    warn!(client = client.serial, bytes, "closing a client that overran its output buffer limit");
}

fn log_script(level: lockwheel_engine::script::LogLevel, message: &str) {
    use lockwheel_engine::script::LogLevel;
    match level {
        LogLevel::Debug => tracing::debug!(target: "lockwheel::script", "{message}"),
        LogLevel::Verbose => tracing::debug!(target: "lockwheel::script", "{message}"),
        LogLevel::Notice => info!(target: "lockwheel::script", "{message}"),
        LogLevel::Warning => warn!(target: "lockwheel::script", "{message}"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::client::Client;
    use crate::error::ErrorKind;
    use lockwheel_engine::settings::Settings;

    fn host() -> Arc<Host> {
        let clock = Clock::stopped(Some(Millis(0)));
        let engine = Engine::new(Settings::default(), clock.now(), [0; 4]);
        Arc::new(Host::new(engine, clock, RuntimeFiles::default()).expect("a host"))
    }

    #[test]
    fn a_panic_fails_the_engine_for_good() {
        let host = host();
        let mut client = Client::connect(&host).expect("a client");
        let result: Result<(), Failed> = host.with(|_| panic!("on purpose"));
        assert_eq!(result, Err(Failed));
        assert!(host.has_failed() && host.shutdown.is_cancelled());
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
    fn a_panic_wakes_whoever_waits_for_mail() {
        let host = host();
        let mut client = Client::connect(&host).expect("a client");
        let waiting = std::thread::spawn(move || client.receive().expect_err("no mail").kind());
        let _: Result<(), Failed> = host.with(|_| panic!("on purpose"));
        assert_eq!(waiting.join().expect("it returns"), ErrorKind::Failed);
    }
}
