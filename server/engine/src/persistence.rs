//! What the engine knows of its log and of snapshots, for `INFO` and the commands about them.

use crate::Engine;
use crate::sessions::ClientId;
use crate::store::snapshot::SnapshotProgress;
use crate::time::{Millis, Time};

/// See the module's documentation.
#[derive(Debug)]
pub struct Persistence {
    /// When the snapshot that is being written was begun, on the lease clock.
    pub began_at: Option<Millis>,
    /// The wall clock at the last snapshot that was completed, or at the start of the server, in
    /// seconds.
    pub last_save_seconds: i64,
    /// Whether the last snapshot was completed.
    pub last_succeeded: bool,
    /// How long the last snapshot has taken.
    pub last_duration: Option<Millis>,
    /// Completed snapshots since the start.
    pub saves: u64,
    /// Changes before the last snapshot that was completed.
    pub saved_changes: u64,
    /// Changes before the snapshot that is being written.
    changes_at_begin: u64,
    /// Clients that wait for its end.
    waiting: Vec<ClientId>,
}

impl Persistence {
    /// Of a server that starts at `time`.
    pub(crate) fn new(time: Time) -> Persistence {
        Persistence {
            began_at: None,
            last_save_seconds: time.wall_us.div_euclid(1_000_000),
            last_succeeded: true,
            last_duration: None,
            saves: 0,
            saved_changes: 0,
            changes_at_begin: 0,
            waiting: Vec::new(),
        }
    }
}

impl Engine {
    /// Whether the units are logged.
    pub(crate) fn has_log(&self) -> bool {
        self.unit_log.is_some()
    }

    /// A client has asked for a snapshot: the caller of the engine is going to write it.
    pub(crate) fn request_snapshot(&mut self, time: Time) {
        self.persistence.began_at = Some(time.now);
    }

    /// The client gets `+OK` when the snapshot that is being written is complete, and an error if
    /// it fails.
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

    /// The snapshot is complete and durable, or has failed. The clients that wait for it continue.
    pub fn end_snapshot(&mut self, succeeded: bool, time: Time) {
        let persistence = &mut self.persistence;
        let began_at = persistence.began_at.take();
        persistence.last_succeeded = succeeded;
        if succeeded {
            persistence.last_save_seconds = time.wall_us.div_euclid(1_000_000);
            persistence.saved_changes = persistence.changes_at_begin;
            persistence.saves += 1;
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
