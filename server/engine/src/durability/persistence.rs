//! What the engine knows of its log and of snapshots, for `INFO` and the commands about them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Engine;
use crate::sessions::ClientId;
use crate::settings::{SavePoint, directive};
use crate::store::snapshot::SnapshotProgress;
use crate::timing::time::{Millis, Time};

/// The state of the log and of snapshots.
#[derive(Debug)]
pub struct Persistence {
    /// When the snapshot that is being written was begun, on the lease clock.
    pub began_at: Option<Millis>,
    /// The wall clock at the last snapshot that was completed, or at the start of the server, in
    /// seconds.
    pub last_save_seconds: i64,
    /// When the last snapshot was completed or has failed, on the lease clock.
    pub ended_at: Option<Millis>,
    /// Whether the last snapshot was completed.
    pub last_succeeded: bool,
    /// Duration of the last snapshot.
    pub last_duration: Option<Millis>,
    /// Completed snapshots since the start.
    pub saves: u64,
    /// Snapshots that have failed since the last one that was completed.
    pub failures: u64,
    /// The keys in the log when it was loaded.
    pub loaded_keys: u64,
    /// Changes before the last snapshot that was completed.
    pub saved_changes: u64,
    /// Changes before the snapshot that is being written.
    changes_at_begin: u64,
    /// The bytes of the last snapshot.
    pub snapshot_bytes: u64,
    /// The bytes of the log after the last snapshot.
    pub segment_bytes: u64,
    /// The bytes of the units that the caller has taken and has not written.
    unwritten_bytes: Arc<AtomicU64>,
    /// Clients that wait for its end.
    waiting: Vec<ClientId>,
}

/// The milliseconds after a failed snapshot before the next one begins by itself.
const RETRY_MS: i64 = 5_000;

impl Persistence {
    /// Of a server that starts at `time`.
    pub(crate) fn new(time: Time) -> Persistence {
        Persistence {
            began_at: None,
            last_save_seconds: time.wall_us.div_euclid(1_000_000),
            ended_at: None,
            last_succeeded: true,
            last_duration: None,
            saves: 0,
            failures: 0,
            loaded_keys: 0,
            saved_changes: 0,
            changes_at_begin: 0,
            snapshot_bytes: 0,
            segment_bytes: 0,
            unwritten_bytes: Arc::default(),
            waiting: Vec::new(),
        }
    }
}

impl Engine {
    /// Sets the sizes of the files of the log, for `INFO` and for [`Engine::snapshot_is_due`].
    pub fn set_log_sizes(&mut self, snapshot_bytes: u64, segment_bytes: u64) {
        self.persistence.snapshot_bytes = snapshot_bytes;
        self.persistence.segment_bytes = segment_bytes;
    }

    /// The bytes of the units that were taken and are not written: the caller counts them.
    pub fn unwritten_bytes(&self) -> &Arc<AtomicU64> {
        &self.persistence.unwritten_bytes
    }

    /// The bytes of all units that are not written.
    pub(crate) fn log_buffer_bytes(&self) -> u64 {
        let untaken = self.unit_log.as_ref().map_or(0, |log| log.untaken_bytes());
        self.persistence.unwritten_bytes.load(Ordering::Relaxed) + untaken as u64
    }

    /// Whether the caller must begin a snapshot, because of `save` or because the log has grown.
    /// If so, the snapshot counts as begun.
    pub fn snapshot_is_due(&mut self, time: Time) -> bool {
        let persistence = &self.persistence;
        if persistence.began_at.is_some() {
            return false;
        }
        let changes = self.writer.dirty() - persistence.saved_changes;
        let seconds = time.wall_us.div_euclid(1_000_000) - persistence.last_save_seconds;
        // As in Redis, one that has failed is not repeated at once.
        let since_end = persistence.ended_at.map_or(i64::MAX, |end| time.now.0 - end.0);
        let may_retry = persistence.last_succeeded || since_end > RETRY_MS;
        let save_points = self.settings.get(directive::SAVE);
        let is_reached = |point: &SavePoint| {
            changes > 0 && seconds > point.seconds && changes >= point.changes && may_retry
        };
        let is_due = save_points.iter().any(is_reached) || may_retry && self.log_has_grown();
        if is_due {
            self.request_snapshot(time);
        }
        is_due
    }

    fn log_has_grown(&self) -> bool {
        let Persistence { snapshot_bytes, segment_bytes, .. } = self.persistence;
        let percentage = u64::from(self.settings.auto_aof_rewrite_percentage);
        let bytes = snapshot_bytes + segment_bytes;
        percentage > 0
            && bytes > self.settings.auto_aof_rewrite_min_size_bytes
            && segment_bytes.saturating_mul(100) / snapshot_bytes.max(1) >= percentage
    }

    /// Records that a client has asked for a snapshot, which the caller of the engine is going to
    /// write.
    pub(crate) fn request_snapshot(&mut self, time: Time) {
        self.persistence.began_at = Some(time.now);
    }

    /// Blocks the client until the snapshot that is being written is complete: it gets `+OK`, or an
    /// error if that fails.
    pub(crate) fn wait_for_snapshot(&mut self, client: ClientId) {
        self.sessions.block(client, lockwheel_resp::Reply::OK, None);
        self.persistence.waiting.push(client);
    }

    /// Begins to give out the state as it is now, which is that after the units that were taken.
    pub fn begin_snapshot(&mut self, time: Time) {
        self.persistence.began_at.get_or_insert(time.now);
        self.persistence.changes_at_begin = self.writer.dirty();
        self.writer.begin_snapshot();
    }

    /// Passes the next part of the snapshot, with about `keys` keys, to `take`: effects for
    /// [`Engine::apply`]. If it is void, the caller begins another one.
    pub fn snapshot_part(&mut self, keys: usize, take: impl FnOnce(&[u8])) -> SnapshotProgress {
        self.writer.snapshot_part(keys, take)
    }

    /// Ends a snapshot, which is complete and durable or has failed. The clients that wait for it
    /// continue.
    pub fn end_snapshot(&mut self, succeeded: bool, time: Time) {
        let persistence = &mut self.persistence;
        let began_at = persistence.began_at.take();
        persistence.last_succeeded = succeeded;
        persistence.ended_at = Some(time.now);
        if succeeded {
            persistence.last_save_seconds = time.wall_us.div_euclid(1_000_000);
            persistence.saved_changes = persistence.changes_at_begin;
            persistence.saves += 1;
            persistence.failures = 0;
        } else {
            persistence.failures += 1;
            self.writer.give_up_snapshot();
        }
        persistence.last_duration = began_at.map(|begin| Millis(time.now.0 - begin.0));
        for client in std::mem::take(&mut persistence.waiting) {
            if succeeded {
                self.end_wait(client);
            } else {
                self.unblock(client, &lockwheel_resp::Reply::error("ERR the snapshot has failed"));
            }
        }
    }
}
