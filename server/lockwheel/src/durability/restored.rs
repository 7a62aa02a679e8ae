//! What a start finds in the directory of the log, and how the server goes on from it.

use std::fmt::Display;
use std::io;
use std::sync::Arc;

use lockwheel_defects::defect;
use lockwheel_engine::durability::lease_ceiling::Ceiling;
use lockwheel_engine::settings::{FlushPolicy, Settings};
use lockwheel_engine::timing::time::{Millis, Time};
use lockwheel_log::ceiling::{CeilingRecord, Kept};
use lockwheel_log::disk::DiskLock;
use lockwheel_log::files::Files;
use lockwheel_log::marker::{self, Marker};
use lockwheel_log::recovery::{Effects, LastTime, Overview, RecoveryError, TornTail, overview};
use lockwheel_log::{Directory, Disk};
use tracing::{info, warn};

use crate::clock::{Clock, MachineTime};
use crate::durability::ceiling_file::CeilingFile;
use crate::durability::restart_guard::{self, FoundAtStart, GuardSettings, Necessary};
use crate::error::{Error, ErrorKind};
use crate::host::Host;
use crate::limits;
use crate::net::listen_settings::ListenSettings;

/// The contents of a log directory at a start.
pub(crate) struct Restored {
    disk: Arc<dyn Disk>,
    /// Keeps the directory for this process, unless the log does.
    lock: Option<Box<dyn DiskLock>>,
    /// The directory's path, for error messages.
    path: String,
    guard: GuardSettings,
    now: MachineTime,
    record: Option<CeilingRecord>,
    /// What is known of the log; `None` if the log is off.
    log: Option<Overview>,
    /// The mark of a log that was repaired, or restored from a backup.
    marker: Option<Marker>,
}

/// The files of a server that runs.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    /// The log, if it is on.
    pub(crate) log: Option<Files>,
    /// The lease ceiling, if there is a restart guard.
    pub(crate) ceiling: Option<CeilingFile>,
    /// Keeps the directory for this process, unless the log does.
    _lock: Option<Box<dyn DiskLock>>,
}

impl OpenFiles {
    /// Files that are open. `lock` keeps the directory for this process, unless the log does.
    pub(crate) fn new(
        log: Option<Files>,
        ceiling: Option<CeilingFile>,
        lock: Option<Box<dyn DiskLock>>,
    ) -> OpenFiles {
        OpenFiles { log, ceiling, _lock: lock }
    }
}

impl Restored {
    /// Opens the directory of the log and of the lease ceiling, or creates it, and reads how far
    /// the log goes. `None` if there is neither a log nor a guard.
    ///
    /// A guard that is on by default is given up if another server uses the directory, and this one
    /// listens only at a unix socket that is new: test suites give several such servers one
    /// directory. What listens at a new socket does not take the place of an earlier server.
    pub(crate) fn find(settings: &mut Settings) -> Result<Option<Restored>, Error> {
        let (guard, has_log) = (GuardSettings::of(settings), settings.has_log());
        if !has_log && !guard.is_on {
            return Ok(None);
        }
        let path = crate::durability::directory(settings);
        let disk = Directory::open(&path).map(Arc::new);
        let locked = disk.and_then(|disk| {
            // With a log, `Files` takes the lock.
            let lock = if has_log { None } else { Some(disk.lock()?) };
            Ok((disk, lock))
        });
        let path = path.display().to_string();
        let (disk, lock) = match locked {
            Ok(locked) => locked,
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock
                    && settings.guards_by_default
                    && !has_log
                    && ListenSettings::of(settings).is_at_new_socket() =>
            {
                warn!("no restart guard: {path}: {}", lock_error(error));
                settings.give_up_restart_guard();
                return Ok(None);
            }
            Err(error) => return Err(in_path(&path, has_log, &lock_error(error))),
        };
        let now = MachineTime::now();
        Restored::find_on(disk, lock, path, has_log, guard, now).map(Some)
    }

    /// As [`Restored::find`], on any disk and at any time.
    pub(crate) fn find_on(
        disk: Arc<dyn Disk>,
        lock: Option<Box<dyn DiskLock>>,
        path: String,
        has_log: bool,
        guard: GuardSettings,
        now: MachineTime,
    ) -> Result<Restored, Error> {
        let record = if guard.is_on { CeilingRecord::read(&*disk) } else { Ok(None) };
        let unusable = |error: &dyn Display| in_path(&path, has_log, error);
        let record = record.map_err(|error| unusable(&format!("ceiling: {error}")))?;
        let log = has_log.then(|| overview(&*disk)).transpose();
        let log = log.map_err(|error| unusable(&error))?;
        let marker = marker::read(&*disk);
        let marker = marker.map_err(|error| unusable(&format!("guard: {error}")))?;
        Ok(Restored { disk, lock, path, guard, now, record, log, marker })
    }

    /// Where the lease clock goes on; `None` if the log is empty or off.
    pub(crate) fn lease_clock(&self) -> Option<Millis> {
        let time = self.log?.time?;
        Some(Millis(continued(time, self.now, self.guard.trusts_wall_clock)))
    }

    /// The lease clock at the end of the log.
    pub(crate) fn last_time(&self) -> Millis {
        Millis(self.log.and_then(|log| log.time).map_or(0, |time| time.lease_ms))
    }

    /// The bytes that will be loaded.
    pub(crate) fn bytes(&self) -> u64 {
        self.log.map_or(0, |log| log.bytes)
    }

    /// Loads the log, while clients of `host` are refused, and begins the restart guard if it is
    /// necessary. From then on the units of the engine are logged.
    pub(crate) fn restore(mut self, host: &Arc<Host>) -> Result<(), Error> {
        let lock = self.lock.take();
        let has_log = self.log.is_some();
        let in_this_path = |error: &dyn Display| in_path(&self.path, has_log, error);
        let (log, torn) = match self.log {
            Some(log) => self.load(host, log).map_err(|error| in_this_path(&error))?,
            None => (None, None),
        };
        let keys = self.track_ceiling(host).map_err(|error| in_this_path(&error))?;
        let now_ms = host.now().now.0;
        let found = FoundAtStart {
            record: self.record.clone(),
            log_time: self.log.and_then(|log| log.time),
            torn,
            marker: self.marker.as_ref().map(|marker| &*marker.reason),
            keys_left_ms: keys.deadline.0.saturating_sub(now_ms),
            now: self.now,
        };
        let mut necessary =
            self.guard.is_on.then(|| restart_guard::decide(&found, &self.guard)).flatten();
        if self.guard.minimum_ms > 0 && self.record.is_some() && necessary.is_none() {
            info!("restart-guard-minimum has no effect: a server has used this directory before");
        }
        if let (Some(_), Some(guard)) = (&self.marker, &mut necessary) {
            guard.groups.merge(&keys.groups, Millis(-now_ms));
        }
        let ceiling = self.begin_ceiling(host, keys, necessary.as_ref(), log.as_ref());
        let ceiling = ceiling.map_err(|error| in_this_path(&error))?;
        if let Some(marker) = &self.marker {
            match ceiling {
                // The ceiling says the same from now on.
                Some(_) => marker::remove(&*self.disk).map_err(|error| in_this_path(&error))?,
                None => warn!("no restart guard although {}: restart-guard is off", marker.reason),
            }
        }
        let files = OpenFiles::new(log, ceiling, lock);
        host.start_log(files, necessary).map_err(|error| in_this_path(&error))
    }

    /// Applies the log to the engine, and opens it for writing.
    fn load(
        &self,
        host: &Host,
        log: Overview,
    ) -> Result<(Option<Files>, Option<TornTail>), RecoveryError> {
        let clock = &host.clock;
        let time = clock.now();
        let mut progress = Progress { total: log.bytes, loaded: 0, reported: 0 };
        let apply = |effects: Effects<'_>| {
            if host.is_stopping() {
                return Err("the server was stopped".to_owned());
            }
            let bytes = effects.bytes.len() as u64;
            progress.add(bytes);
            let at = Millis(effects.lease_ms);
            let loaded = host.with(|engine| engine.load(effects.bytes, at, time));
            match loaded {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(format!("{error:?}")),
                Err(_) => Err("the engine has failed".to_owned()),
            }
        };
        let boot_id = self.now.boot_id.unwrap_or_default();
        let opened = Files::open(Arc::clone(&self.disk), boot_id, apply, |_| Ok(clock.readings()));
        #[cfg_attr(not(feature = "simulation"), expect(unused_mut))]
        let (mut files, recovered) = opened?;
        #[cfg(feature = "simulation")]
        files.set_segment_bytes_max(crate::simulation::segment_bytes_max());
        if let Some(torn) = recovered.torn {
            warn!(
                segment = %torn.segment, offset = torn.offset, bytes = torn.bytes,
                "the end of the log was not complete and has been cut off"
            );
        }
        info!(position = recovered.last, bytes = log.bytes, "the log is loaded");
        Ok((Some(files), recovered.torn))
    }

    /// Lets the engine determine the lease ceiling, if there is a guard. Returns that of the keys
    /// that were loaded.
    fn track_ceiling(&self, host: &Host) -> io::Result<Ceiling> {
        let token = self.record.as_ref().map_or(0, |record| record.token);
        let none = Ceiling { token, ..Ceiling::NONE };
        if !self.guard.is_on {
            return Ok(none);
        }
        let keys = host.with(|engine| {
            engine.track_ceiling(none.clone(), self.guard.exempt.clone());
            if let (Some(_), Some(found)) = (&self.marker, engine.ceiling_of_keys()) {
                let token = found.token.saturating_add(limits::TOKENS_AFTER_RESTORE);
                let exempt = self.guard.exempt.clone();
                engine.track_ceiling(Ceiling { token, ..Ceiling::NONE }, exempt);
            }
            engine.ceiling_of_keys()
        });
        keys.map(|keys| keys.unwrap_or(none)).map_err(|_| io::Error::other("the engine has failed"))
    }

    /// Records the lease ceiling, if there is a guard: that of the keys, and of the leases that the
    /// guard waits for.
    fn begin_ceiling(
        &self,
        host: &Host,
        mut ceiling: Ceiling,
        guard: Option<&Necessary>,
        log: Option<&Files>,
    ) -> io::Result<Option<CeilingFile>> {
        if !self.guard.is_on {
            return Ok(None);
        }
        let clocks = host.clock.readings();
        let left_ms = guard.map_or(0, |guard| guard.left_ms);
        let guarded = Millis(clocks.lease_ms.saturating_add(left_ms));
        ceiling.deadline = ceiling.deadline.max(guarded);
        if let Some(guard) = guard {
            ceiling.groups.merge(&guard.groups, Millis(clocks.lease_ms));
        }
        let begun = host.with(|engine| {
            engine.track_ceiling(ceiling.clone(), self.guard.exempt.clone());
            engine.settings().appendfsync
        });
        let policy = begun.map_err(|_| io::Error::other("the engine has failed"))?;
        // Until the guard is over, leases may be held that the log does not contain.
        let is_complete = self.log.is_some() && left_ms <= 0;
        let kept = if is_complete { kept_by(policy) } else { Kept::Nothing };
        let boot_id = self.now.boot_id.unwrap_or_default();
        let segment = log.map_or(0, Files::segment);
        let disk = Arc::clone(&self.disk);
        CeilingFile::begin(disk, boot_id, &ceiling, kept, clocks, segment).map(Some)
    }
}

/// What a log keeps of the output that was sent.
pub(crate) fn kept_by(policy: FlushPolicy) -> Kept {
    match policy {
        FlushPolicy::Always => Kept::Durable,
        FlushPolicy::EverySecond | FlushPolicy::Never => Kept::Written,
    }
}

fn lock_error(error: io::Error) -> RecoveryError {
    match error.kind() {
        io::ErrorKind::WouldBlock => RecoveryError::InUse,
        _ => RecoveryError::Io { file: "directory".into(), error },
    }
}

/// The error that the directory cannot be used.
fn in_path(path: &dyn Display, has_log: bool, error: &dyn Display) -> Error {
    let message = match has_log {
        true => format!("the log in {path}: {error}"),
        false => format!(
            "the restart guard in {path}: {error}. `restart-guard no` starts without a guard: \
             locks that are still held may be granted again"
        ),
    };
    Error::new(ErrorKind::Io, message)
}

/// Reports in the log file how much is loaded.
struct Progress {
    total: u64,
    loaded: u64,
    reported: u64,
}

impl Progress {
    fn add(&mut self, bytes: u64) {
        self.loaded += bytes;
        if self.loaded - self.reported >= limits::LOAD_REPORT_BYTES {
            self.reported = self.loaded;
            let percent = self.loaded.saturating_mul(100) / self.total.max(1);
            info!("Loading the log: {percent} % of {} MB", self.total >> 20);
        }
    }
}

/// The present time for the leases of a log: the lease clock where a server would go on with it,
/// and the wall clock. `last` is that of the log; without one, both clocks agree.
pub fn time_of_log(last: Option<LastTime>, trusts_wall_clock: bool) -> Time {
    let Some(last) = last else { return Clock::system().now() };
    Clock::system_from(Millis(continued(last, MachineTime::now(), trusts_wall_clock))).now()
}

/// The lease clock at a start, from the time of the last frame of the log. Within one run of the
/// machine the time that passed since then counts. Otherwise none has passed, unless the wall clock
/// is trusted.
///
/// The first of two readings in whole milliseconds may be short of almost one: a millisecond less
/// is counted, so that no lease ends early.
fn continued(last: LastTime, now: MachineTime, trusts_wall_clock: bool) -> i64 {
    if defect!(LeaseClockFromWallClock) {
        return now.wall_ms;
    }
    let is_same_boot = now.boot_id == Some(last.boot_id) || defect!(BootIdIgnored);
    let elapsed_ms = if is_same_boot && !defect!(StoppedTimeIgnored) {
        now.boot_ms.saturating_sub(last.boot_ms)
    } else if trusts_wall_clock {
        now.wall_ms.saturating_sub(last.wall_ms)
    } else {
        0
    };
    last.lease_ms.saturating_add(elapsed_ms.saturating_sub(1).max(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows G40, G41, G42.
    #[test]
    fn lease_clock_goes_on_after_the_time_that_passed_for_certain() {
        let last = LastTime { lease_ms: 1_000, boot_ms: 50, wall_ms: 300, boot_id: [1; 16] };
        let now = |id, boot_ms| MachineTime { boot_id: Some([id; 16]), boot_ms, wall_ms: 5_300 };
        assert_eq!(continued(last, now(1, 80), true), 1_029);
        assert_eq!(continued(last, now(1, 20), false), 1_000);
        assert_eq!(continued(last, now(2, 80), false), 1_000);
        assert_eq!(continued(last, now(2, 80), true), 5_999);
    }
}
