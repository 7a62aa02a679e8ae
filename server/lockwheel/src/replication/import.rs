//! The state with which a new cluster begins: that of a log.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use lockwheel_defects::defect;
use lockwheel_engine::Engine;
use lockwheel_engine::durability::lease_ceiling::Ceiling;
use lockwheel_engine::engine::inputs::Process;
use lockwheel_engine::settings::Settings;
use lockwheel_engine::store::snapshot::SnapshotProgress;
use lockwheel_engine::timing::time::{Millis, Time};
use lockwheel_log::ceiling::CeilingRecord;
use lockwheel_log::files::Snapshot;
use lockwheel_log::{Directory, Disk, recovery};
use lockwheel_raft::{Contents, Guard, Peer, begin_with, read_log};

use super::setup::{FIRST_NODE, failed};
use crate::clock::{Clock, MachineTime};
use crate::durability::directory;
use crate::durability::restart_guard::{FoundAtStart, GuardSettings, decide};
use crate::error::{Error, ErrorKind};
use crate::limits;
use crate::seeds::seeds;

/// What a new cluster has taken from a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Where the log ends: with a unit of a server, or an entry of a node.
    end: String,
    /// The number of keys.
    keys: usize,
    /// Why the cluster refuses commands at first, and for how many milliseconds.
    guard: Option<(i64, String)>,
    /// What no guard waits for.
    warning: Option<String>,
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Taken { end, keys, guard, warning } = self;
        write!(f, "The log ends with {end}; keys: {keys}.")?;
        if let Some((left_ms, reason)) = guard {
            write!(f, "\nRestart guard: commands are refused for {left_ms} ms: {reason}.")?;
        }
        warning.iter().try_for_each(|warning| write!(f, "\nWarning: {warning}."))
    }
}

/// Writes the log of a new cluster, whose first node is `own`, to `folder`, with the state of the
/// log in `from`.
pub(super) fn import(
    settings: &Settings,
    from: &Path,
    own: &Peer,
    folder: &Path,
) -> Result<Taken, Error> {
    let in_from = |error: &dyn fmt::Display| failed(format!("{}: {error}", from.display()));
    let disk = Directory::read_only(from).map_err(|error| in_from(&error))?;
    let _lock = recovery::lock(&disk).map_err(|error| in_from(&error))?;
    let is_copy = !is_same(from, settings);
    let state = ImportedState::read(settings, &disk, is_copy, seeds(None)?);
    let Some(state) = state.map_err(|error| in_from(&error))? else {
        let reason = "there is no log: that of a server is in its folder 'appendonlydir', that of \
                      a node in its folder 'raft'";
        return Err(Error::new(ErrorKind::Config, format!("{}: {reason}", from.display())));
    };
    let disk: Arc<dyn Disk> = Arc::new(Directory::existing(folder).map_err(failed)?);
    state.write(&disk, own.clone()).map_err(failed)
}

/// The state with which a cluster begins.
pub(crate) struct ImportedState {
    engine: Engine,
    /// The time of the lease clock.
    at: Millis,
    guard: Option<Guard>,
    taken: Taken,
}

impl ImportedState {
    /// Reads the log on `disk`, which must not be in use; `None` if there is none. `is_copy` is
    /// whether its server may have gone on after it.
    pub(crate) fn read(
        settings: &Settings,
        disk: &dyn Disk,
        is_copy: bool,
        seeds: [u64; 4],
    ) -> Result<Option<ImportedState>, String> {
        let now = Clock::system().now();
        let mut engine = Engine::new(settings.clone(), Process::default(), now, seeds);
        engine.follow();
        let apply = |effects: &[u8], lease_ms| {
            let at = Millis(lease_ms);
            let applied = engine.apply_committed(effects, at, Time::at(at));
            applied.map_err(|error| format!("it cannot be applied: {error:?}"))
        };
        let contents = read_log(disk, apply).map_err(|error| error.to_string())?;
        let Some(contents) = contents else { return Ok(None) };
        let record = CeilingRecord::read(disk).map_err(|error| error.to_string())?;
        let origin = Origin { contents: &contents, record, is_copy };
        let databases = 0..settings.databases as usize;
        let keys = databases.map(|database| engine.key_count(database)).sum();
        let (guard, warning) = origin.guard(&mut engine, settings);
        let left = |guard: &Guard| (guard.until_ms - contents.lease_ms, guard.reason.clone());
        let taken = Taken { end: origin.end(), keys, guard: guard.as_ref().map(left), warning };
        Ok(Some(ImportedState { engine, at: Millis(contents.lease_ms), guard, taken }))
    }

    /// Writes the log of a cluster with this state, whose first node is `own`, to an empty disk.
    pub(crate) fn write(self, disk: &Arc<dyn Disk>, own: Peer) -> io::Result<Taken> {
        let ImportedState { mut engine, at, guard, taken } = self;
        let write = |file: &mut Snapshot| write_keys(&mut engine, at, file);
        begin_with(disk, (FIRST_NODE, own), at.0, guard, write)?;
        Ok(taken)
    }
}

/// Whether the log is that of the server with these settings, which goes on as a node.
fn is_same(from: &Path, settings: &Settings) -> bool {
    let own = directory(settings).canonicalize();
    own.is_ok_and(|own| from.canonicalize().is_ok_and(|from| from == own))
}

/// The log that a cluster begins with.
struct Origin<'a> {
    contents: &'a Contents,
    /// The lease ceiling of a server.
    record: Option<CeilingRecord>,
    /// Whether the server may have gone on after it, unlike one that was stopped in order to go on
    /// as a node.
    is_copy: bool,
}

impl Origin<'_> {
    /// Where the log ends.
    fn end(&self) -> String {
        match &self.contents.of_node {
            Some(node) => format!("entry {}", node.last_index),
            None => format!("unit {}", self.contents.recovered.last),
        }
    }

    /// Why leases and tokens may be missing in it, if that does not depend on the lease ceiling.
    fn gap(&self) -> Option<String> {
        let marker = self.contents.recovered.marker.as_ref().map(|marker| marker.reason.clone());
        let is_copy = self.is_copy && !defect!(BackupTrusted);
        let is_gap = is_copy || self.contents.of_node.is_some();
        let begun = || format!("the cluster has begun with a log that ends with {}", self.end());
        marker.or_else(|| is_gap.then(begun))
    }

    /// The guard that the cluster begins with, as at the start of a server with this log, and what
    /// it does not wait for. Fencing tokens that follow are greater than all before.
    fn guard(&self, engine: &mut Engine, settings: &Settings) -> (Option<Guard>, Option<String>) {
        let Contents { recovered, lease_ms, of_node } = self.contents;
        let mut settings = settings.clone();
        settings.choose_restart_guard();
        let settings = GuardSettings::of(&settings);
        let token = self.record.as_ref().map_or(0, |record| record.token);
        engine.track_ceiling(Ceiling { token, ..Ceiling::NONE }, settings.exempt.clone());
        let keys = engine.ceiling_of_keys().unwrap_or(Ceiling::NONE);
        let gap = self.gap();
        let may_lack_tokens = gap.is_some() && !defect!(TokensRepeatedAfterBackup);
        let tokens_lost = if may_lack_tokens { limits::TOKENS_AFTER_RESTORE } else { 0 };
        engine.raise_tokens(keys.token.saturating_add(tokens_lost));
        if !settings.is_on {
            return (None, gap.map(|gap| format!("no restart guard although {gap}")));
        }
        let found = FoundAtStart {
            record: self.record.clone(),
            log_time: recovered.time,
            torn: recovered.torn,
            marker: gap.as_deref(),
            keys_left_ms: keys.deadline.0.saturating_sub(*lease_ms),
            now: MachineTime::now(),
        };
        let mut left_ms = 0;
        let mut reason = gap.clone().unwrap_or_default();
        let mut lasting = gap.is_some() && keys.has_lasting_keys;
        if let Some(necessary) = decide(&found, &settings) {
            (left_ms, reason) = (necessary.left_ms, necessary.reason);
            lasting |= necessary.had_lasting_keys;
        }
        // Includes the guard of a cluster that has begun with a log.
        let guard_before = of_node.as_ref().and_then(|node| node.guard.as_ref());
        let before_ms = guard_before.map_or(0, |guard| guard.until_ms.saturating_sub(*lease_ms));
        left_ms = left_ms.max(before_ms);
        let warning = "keys without a deadline may have been lost; the guard waits for none";
        let until_ms = lease_ms.saturating_add(left_ms);
        let guard = (left_ms > 0).then_some(Guard { until_ms, reason });
        (guard, lasting.then(|| warning.to_owned()))
    }
}

/// Writes the state of the engine to a snapshot.
fn write_keys(engine: &mut Engine, at: Millis, file: &mut Snapshot) -> io::Result<()> {
    engine.begin_snapshot(Time::at(at));
    let mut part = Vec::new();
    loop {
        part.clear();
        let take = |effects: &[u8]| part.extend_from_slice(effects);
        let progress = engine.snapshot_part(limits::SNAPSHOT_PART_KEYS, take);
        if !part.is_empty() {
            file.write(&part)?;
        }
        // Nothing changes meanwhile.
        if progress != SnapshotProgress::Partial {
            return Ok(());
        }
    }
}
