//! The log of a host, its restart guard and its snapshots.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use tracing::{info, warn};

use super::core::Host;
use crate::durability::restart_guard::Necessary;
use crate::durability::snapshots;
use crate::durability::{FileLog, LogOwner, LogSizes, OpenFiles};
use crate::limits;
use crate::net::turn::{self};
use lockwheel_defects::defect;
use lockwheel_engine::Engine;
use lockwheel_engine::durability::key_groups::KeyGroups;
use lockwheel_engine::durability::readiness::{Role, WAYS_OUT};
use lockwheel_engine::durability::unit_log::Position;
use lockwheel_engine::settings::{FlushPolicy, directive};
use lockwheel_engine::timing::time::Millis;
use lockwheel_log::files::Snapshot;

/// The end of a restart guard that is not on.
pub(super) const NO_GUARD: i64 = i64::MIN;

impl Host {
    /// Begins to log the units of the engine to `files`, after the log was loaded. Clients are
    /// served when the guard has ended.
    pub(crate) fn start_log(
        self: &Arc<Self>,
        files: OpenFiles,
        guard: Option<Necessary>,
    ) -> io::Result<()> {
        if let Some(free_bytes) = files.free_bytes() {
            self.check_disk(free_bytes, files.log.is_some());
        }
        let begun = self.with(|engine| {
            match &files.log {
                Some(log) => engine.start_log(log.written()),
                None => engine.start_log_of_ceilings(),
            }
            let policy = engine.settings().appendfsync;
            let this = Arc::downgrade(self);
            let log = FileLog::new(files, policy, &self.gate, engine.unwritten_bytes(), this);
            log.start_thread()?;
            let log = Arc::new(log);
            // Only the start of a server calls this.
            let _ = self.log.set(Arc::<FileLog>::clone(&log));
            let _ = self.file_log.set(log);
            engine.end_loading(self.now());
            if let Some(guard) = guard {
                self.begin_guard(engine, guard);
            }
            if engine.is_ready() {
                self.has_been_ready.send_replace(true);
            }
            Ok(())
        });
        begun.map_err(|_| io::Error::other("the engine has failed"))?
    }

    /// The log of the server, if it is in files of this machine.
    #[cfg(feature = "simulation")]
    pub(crate) fn file_log(&self) -> Option<&Arc<FileLog>> {
        self.file_log.get()
    }

    pub(super) fn begin_guard(&self, engine: &mut Engine, guard: Necessary) {
        let Necessary { left_ms, reason, had_lasting_keys, mut groups } = guard;
        if had_lasting_keys {
            warn!("keys without a deadline may have been lost; the restart guard waits for none");
        }
        let now = self.now().now;
        groups.postpone(now);
        let until = Millis(now.0.saturating_add(left_ms));
        self.begin_guard_until(engine, until, reason, |_| groups);
    }

    /// Refuses commands until the lease clock reaches `until`. `groups` returns the groups of keys
    /// with long leases, and is called if the guard is long.
    pub(crate) fn begin_guard_until(
        &self,
        engine: &mut Engine,
        until: Millis,
        reason: String,
        groups: impl FnOnce(&Engine) -> KeyGroups,
    ) {
        let left_ms = until.0.saturating_sub(self.now().now.0);
        if left_ms > 0 {
            warn!("restart guard: commands are refused for {left_ms} ms: {reason}");
            engine.begin_guard(until, reason);
            if left_ms > engine.settings().get(directive::RESTART_GUARD_WARN).0 {
                let groups = groups(engine);
                let (names, [end, exempt]) = (groups.names(), WAYS_OUT);
                if !names.is_empty() {
                    warn!("the restart guard is long, because of keys that begin with {names:?}");
                }
                warn!("{end}; {exempt}");
                engine.explain_guard(groups);
            }
        }
    }

    /// Whether the disk that has the log is nearly full.
    #[cfg(feature = "replication")]
    pub(crate) fn disk_is_full(&self) -> bool {
        self.disk_watch.lock().is_full()
    }

    /// Takes the free space of the disk that has the log.
    pub(super) fn check_disk(&self, free_bytes: io::Result<u64>, has_log: bool) {
        let reserve_bytes =
            if has_log { limits::DISK_RESERVE_BYTES } else { limits::CEILING_RESERVE_BYTES };
        if let Some(is_full) = self.disk_watch.lock().check(free_bytes, reserve_bytes) {
            // A failed engine accepts nothing any more.
            let _ = self.with(|engine| engine.set_disk_is_full(is_full));
        }
    }

    /// Begins to write a snapshot beside the requests that follow.
    pub(super) fn start_snapshot(&self) {
        #[cfg(feature = "replication")]
        if let Some(log) = self.raft_log.get() {
            return log.start_snapshot();
        }
        if let (Some(host), Some(_)) = (self.this.upgrade(), self.file_log.get()) {
            snapshots::start(&host);
        }
    }

    /// Begins a snapshot of the state after all units so far. The log sends its file, unless the
    /// log fails.
    pub(crate) fn begin_snapshot(&self) -> io::Result<mpsc::Receiver<Snapshot>> {
        let log = self.file_log.get().ok_or_else(snapshots::stopped)?;
        let file = self.with(|engine| {
            self.log_units(engine);
            engine.begin_snapshot(self.now());
            log.begin_snapshot()
        });
        file.map_err(|_| snapshots::stopped())
    }

    /// Removes the files that a durable snapshot replaces.
    pub(crate) fn snapshot_is_durable(&self, position: Position) {
        if let Some(log) = self.file_log.get() {
            log.remove_before(position);
        }
    }

    /// Ends the log: everything in it is flushed. Nothing may use the engine afterwards.
    pub(crate) fn end_log(&self) {
        if let Some(log) = self.file_log.get() {
            let keys = self.with(|engine| engine.ceiling_of_keys()).ok().flatten();
            log.end_with(keys, self.clock.readings());
        }
    }

    /// Passes the units of the engine to the log, and what the log has released to the engine.
    #[inline]
    pub(super) fn log_units(&self, engine: &mut Engine) {
        let Some(log) = self.log.get() else { return };
        if defect!(CeilingAfterGrant) {
            engine.take_units(|units| log.append(units, self.clock.readings()));
        }
        let files = self.file_log.get();
        if let Some(files) = files {
            self.order_before_units(engine, files);
        }
        engine.take_units(|units| match files {
            Some(files) if turn::writes_log(&self.gate, files) => {
                files.append_here(units, self.clock.readings());
            }
            _ => log.append(units, self.clock.readings()),
        });
        engine.release_units(log.released(), log.flushed());
    }

    /// Orders what the log must have done when it writes the next units.
    fn order_before_units(&self, engine: &mut Engine, log: &FileLog) {
        // A change to `always` may be in the same turn. Another change follows the units.
        if engine.settings().appendfsync == FlushPolicy::Always {
            self.follow_settings(engine);
        }
        if let Some(ceiling) = engine.take_ceiling(self.now().now)
            && !defect!(CeilingNotRaised)
        {
            log.raise_ceiling(ceiling, self.clock.readings());
        }
    }

    /// Serves the clients whose wait for durability is over and, while others wait, makes the log
    /// report what is durable later.
    pub(super) fn serve_log_waits(&self, engine: &mut Engine) {
        let Some(log) = self.log.get() else { return };
        let is_awaited = engine.is_flush_awaited();
        #[cfg(feature = "replication")]
        let begins = is_awaited && !self.gate.is_flush_awaited();
        self.gate.await_flush(is_awaited);
        if is_awaited {
            // Read after the gate is set: it does not report what became durable before.
            #[cfg(feature = "replication")]
            self.note_nodes(engine);
            engine.release_units(log.released(), log.flushed());
            self.gate.await_flush(engine.is_flush_awaited());
            #[cfg(feature = "replication")]
            if begins
                && self.gate.is_flush_awaited()
                && let Some(log) = self.raft_log.get()
            {
                log.progress_is_awaited.notify_one();
            }
        }
        // `log_units` may have ended waits, too.
        if engine.has_deliveries() {
            self.deliver_output(engine);
        }
    }

    /// Passes the time of the longest flush since the last call to the engine.
    #[inline]
    pub(super) fn note_flush(&self, engine: &mut Engine) {
        if let Some(took_ns) = self.file_log.get().and_then(|log| log.take_longest_flush()) {
            engine.note_flush(took_ns, self.now());
        }
    }

    /// Notes the restart guard, and passes the settings to the log; the flush policy not before the
    /// guard is over.
    pub(super) fn follow_settings(&self, engine: &mut Engine) {
        self.note_guard(engine);
        let Some(log) = self.file_log.get() else { return };
        log.time_flushes(engine.settings().latency_monitor_threshold_ms > 0);
        if engine.guard().is_none() {
            log.set_policy(engine.settings().appendfsync);
        }
    }

    /// Copies the end of the engine's restart guard for other threads. Does what is due when the
    /// guard is over.
    fn note_guard(&self, engine: &mut Engine) {
        let until_ms = engine.guard().map_or(NO_GUARD, |guard| guard.until.0);
        let before_ms = self.guard_until_ms.load(Ordering::Relaxed);
        let is_in_doubt = matches!(engine.role(), Role::Leader(leader) if leader.is_in_doubt);
        if until_ms == before_ms || is_in_doubt {
            return;
        }
        self.guard_until_ms.store(until_ms, Ordering::Relaxed);
        // That of a server which does not lead any more is not over.
        if until_ms != NO_GUARD || !engine.is_ready() {
            return;
        }
        info!("the restart guard is over: commands are served");
        self.has_been_ready.send_replace(true);
        let Some(log) = self.file_log.get() else { return };
        log.follow(engine.settings().appendfsync);
        // A guard that a command has ended does not come back after the next restart.
        if self.now().now < Millis(before_ms)
            && let Some(ceiling) = engine.lower_ceiling()
        {
            log.lower_ceiling(ceiling, self.clock.readings());
        }
    }

    /// The time until the restart guard ends; `None` if it is not on.
    pub(crate) fn restart_guard_left(&self) -> Option<Millis> {
        let until_ms = self.guard_until_ms.load(Ordering::Relaxed);
        let left = (until_ms != NO_GUARD).then(|| self.now().remaining(Millis(until_ms)))?;
        (left.0 > 0).then_some(left)
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
