//! The engine as the state of a node.

use std::io;
use std::sync::{Arc, Weak};

use lockwheel_defects::defect;
use lockwheel_engine::Engine;
use lockwheel_engine::store::snapshot::SnapshotProgress;
use lockwheel_engine::timing::time::Millis;
use lockwheel_log::files::Snapshot;
use lockwheel_raft::{Batch, Guard, SnapshotParts, State};

use super::raft_log::{RaftLog, ended};
use crate::durability::restart_guard::GuardSettings;
use crate::durability::snapshots;
use crate::host::Host;
use crate::limits;

/// The engine as the state of a node.
#[derive(Debug)]
pub(crate) struct NodeState {
    host: Weak<Host>,
    log: Arc<RaftLog>,
}

impl NodeState {
    pub(crate) fn new(host: &Arc<Host>, log: &Arc<RaftLog>) -> NodeState {
        NodeState { host: Arc::downgrade(host), log: Arc::clone(log) }
    }

    /// Runs `act` on the engine; an error if the server has ended.
    fn with<T>(&self, act: impl FnOnce(&Host, &mut Engine) -> T) -> Result<T, String> {
        let host = self.host.upgrade().ok_or_else(|| ended().to_string())?;
        host.with_of_node(|engine| act(&host, engine))
            .map_err(|_| "the engine has failed".to_owned())
    }
}

impl State for NodeState {
    fn clear(&self) {
        if defect!(StateKeptAtStepDown) {
            return;
        }
        // The keys exist, and a failed engine has ended the server.
        let _ = self.with(|host, engine| engine.clear_state(host.now()));
    }

    fn load(&self, effects: &[u8], lease_ms: i64) -> Result<(), String> {
        let applied = self.with(|host, engine| {
            host.clock.set(Millis(lease_ms));
            engine.apply_committed(effects, Millis(lease_ms), host.now())
        })?;
        applied.map_err(|error| format!("an entry cannot be applied: {error:?}"))
    }

    fn commit(&self, batch: &Batch) -> Result<(), String> {
        if defect!(UnitsOfOthersReleased) {
            self.log.release(batch.last);
        }
        if self.log.has_barrier(batch.barrier) && !defect!(BatchAppliedByItsLeader) {
            let all = defect!(AllReleasedAtACommit).then(|| self.log.last());
            self.log.release(all.unwrap_or(batch.last));
            return Ok(());
        }
        self.load(&batch.effects, batch.lease_ms)
    }

    fn begin_leading(&self, barrier: u64, lease_ms: i64, guard: Option<&Guard>) -> u64 {
        let begun = self.with(|host, engine| {
            let position = self.log.begin(barrier, lease_ms);
            let lease_ms = if defect!(LeaseTimeFromWallClock) { 0 } else { lease_ms };
            host.clock.begin_leading(Millis(lease_ms));
            engine.set_clock_rate(host.clock.rate());
            engine.lead(position, host.now());
            if let Some(Guard { until_ms, reason }) = guard
                && !defect!(GuardSkippedByLeaders)
            {
                // What the guard waits for is in the state, or is not known.
                let groups = |engine: &Engine| {
                    let exempt = GuardSettings::of(engine.settings()).exempt;
                    engine.groups_of_keys(host.now().now, exempt)
                };
                host.begin_guard_until(engine, Millis(*until_ms), reason.clone(), groups);
            }
            position
        });
        // A failed engine has ended the server.
        begun.unwrap_or_default()
    }

    fn stop_leading(&self) {
        // A failed engine has ended the server.
        let _ = self.with(|host, engine| {
            self.log.end();
            // Their replies may be of units that were not committed, and others must find the
            // leader. First, while it is known which locks are bound to them.
            if !defect!(ClientsKeptAtStepDown) {
                host.close_clients(engine);
            }
            engine.follow();
            if !defect!(LeaseClockKeptAtStepDown) {
                host.clock.end_leading();
            }
            engine.set_clock_rate(host.clock.rate());
        });
    }

    fn begin_snapshot(&self) -> Box<dyn SnapshotParts> {
        let last = self.with(|host, engine| {
            self.log.note_snapshot();
            engine.begin_snapshot(host.now());
            self.log.close_batch()
        });
        Box::new(Parts { host: Weak::clone(&self.host), last: last.ok().flatten() })
    }
}

/// A snapshot of the engine.
#[derive(Debug)]
struct Parts {
    host: Weak<Host>,
    last: Option<u64>,
}

impl SnapshotParts for Parts {
    fn last(&self) -> Option<u64> {
        self.last
    }

    #[expect(clippy::disallowed_methods, reason = "there is no event: other threads must run")]
    fn write(&mut self, file: &mut Snapshot) -> io::Result<bool> {
        let mut part = Vec::new();
        loop {
            let host = self.host.upgrade().ok_or_else(ended)?;
            let progress =
                snapshots::write_part(&host, file, &mut part, limits::SNAPSHOT_PART_KEYS)?;
            drop(host);
            match progress {
                // A simulation has no other threads.
                #[cfg(feature = "simulation")]
                SnapshotProgress::Partial if crate::simulation::is_on() => {}
                SnapshotProgress::Partial => std::thread::sleep(limits::SNAPSHOT_PAUSE),
                SnapshotProgress::Complete => return Ok(true),
                SnapshotProgress::Void => return Ok(false),
            }
        }
    }

    fn end(&mut self, is_complete: bool) {
        if let Some(host) = self.host.upgrade() {
            // A failed engine has no clients any more.
            let _ = host.with(|engine| engine.end_snapshot(is_complete, host.now()));
        }
    }
}

#[cfg(test)]
mod tests {
    use lockwheel_log::files::{Clocks, Files};
    use lockwheel_simulated_disk::SimulatedDisk;

    use super::*;
    use crate::host::testing::host;
    use crate::in_process::Client;

    #[test]
    fn long_guard_names_the_keys_that_it_waits_for() {
        let host = host();
        let mut client = Client::connect(&host).expect("a client");
        for (key, seconds) in [("session:1", "90000"), ("short:1", "60"), ("job", "80000")] {
            client.call(&["SET", key, "v", "NX", "EX", seconds]).expect("OK");
        }
        let state = NodeState::new(&host, &Arc::new(RaftLog::new(&host)));
        let guard = Guard { until_ms: 90_000_000, reason: "a copy".to_owned() };
        state.begin_leading(1, 1, Some(&guard));
        let names = host.with(|engine| engine.guard().map(|guard| guard.groups.names()));
        assert_eq!(names, Ok(Some(vec!["session:".to_owned(), "job".to_owned()])));
    }

    #[test]
    fn snapshot_leaves_space_for_the_log() {
        const VALUE_BYTES: usize = 20 << 20;
        let log_bytes = limits::SNAPSHOT_RESERVE_BYTES as usize;
        let host = host();
        let mut client = Client::connect(&host).expect("a client");
        let state = NodeState::new(&host, &Arc::new(RaftLog::new(&host)));
        let disk = Arc::new(SimulatedDisk::new());
        let opened = Files::open(disk.clone(), [1; 16], |_| Ok(()), |_| Ok(Clocks::default()));
        let (files, _) = opened.expect("an empty log");
        for (value_bytes, space_bytes, is_written) in [
            (0, log_bytes, false),
            (0, VALUE_BYTES, true),
            (VALUE_BYTES, log_bytes + VALUE_BYTES, false),
            (VALUE_BYTES, 3 * VALUE_BYTES, true),
        ] {
            let value = vec![b'v'; value_bytes];
            client.call(&[b"SET", &b"key"[..], &value]).expect("a reply");
            // A part of it is used.
            disk.set_space(Some(space_bytes as u64));
            let mut file = files.begin_snapshot_at(1, Clocks::default()).expect("a file");
            let written = state.begin_snapshot().write(&mut file).map_err(|error| error.kind());
            let expected = if is_written { Ok(true) } else { Err(io::ErrorKind::StorageFull) };
            assert_eq!(written, expected, "{space_bytes} bytes");
        }
    }
}
