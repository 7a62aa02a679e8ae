//! The units of the engine in batches, one of which is being replicated while the next one
//! collects.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use lockwheel_defects::defect;
use lockwheel_engine::durability::unit_log::{Position, Units};
use lockwheel_engine::replication::nodes::Nodes;
use lockwheel_log::files::Clocks;
use lockwheel_raft::{Batch, Node, Rounds};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use crate::durability::commit_gate::CommitGate;
use crate::durability::{Log, LogOwner, LogSizes};
use crate::host::Host;
use crate::limits;

/// The units of the engine, in batches.
#[derive(Debug)]
pub(crate) struct RaftLog {
    host: Weak<Host>,
    gate: Arc<CommitGate>,
    node: OnceLock<Weak<Node>>,
    pending: Mutex<Pending>,
    /// Whether the node has to write a snapshot, and none has begun since.
    snapshot_is_due: AtomicBool,
    /// Notified when there is a batch to replicate, or a snapshot to write.
    work: Notify,
    /// Notified when a batch of this server is committed.
    pub(super) committed: Notify,
    /// Notified when a client begins to wait for how far the followers are.
    pub(crate) progress_is_awaited: Notify,
    /// The nodes as clients are shown them, until the engine takes them.
    nodes: Mutex<Option<Nodes>>,
    /// Whether there are such nodes; read without the lock.
    has_nodes: AtomicBool,
    /// The number of the last request that the engine has held.
    held: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Pending {
    /// The leadership of this server, while it leads.
    leadership: Option<Leadership>,
    /// The last unit that was appended, ever: numbers are not used again.
    last: Position,
}

/// What belongs to one leadership, and ends with it.
#[derive(Debug)]
struct Leadership {
    /// The barrier of its batches.
    barrier: u64,
    /// What is not replicated yet.
    batches: VecDeque<Collected>,
    /// Whether a batch was not committed: the leadership is about to end, and later ones must not
    /// be.
    has_failed: bool,
    /// The barrier and the batches that are committed, the latest ones: the index of each, and the
    /// last unit up to it.
    committed: VecDeque<(u64, Position)>,
    /// The greatest time of the lease clock that was appended.
    lease_ms: i64,
}

/// A batch that collects units.
#[derive(Debug)]
struct Collected {
    /// When it has begun to collect.
    begun: Instant,
    /// Number of its units.
    units: u64,
    last: Position,
    lease_ms: i64,
    effects: Vec<u8>,
    /// Whether later units belong to the next batch: a snapshot has the effects of these and no
    /// others.
    is_closed: bool,
}

impl Pending {
    /// The leadership with this barrier, unless it has ended.
    fn with(&mut self, barrier: u64) -> Option<&mut Leadership> {
        self.leadership.as_mut().filter(|leadership| leadership.barrier == barrier)
    }
}

impl Leadership {
    /// Adds effects to the last batch, or begins another one.
    fn collect(&mut self, units: u64, last: Position, lease_ms: i64, effects: &[u8]) {
        self.lease_ms = lease_ms;
        match self.batches.back_mut() {
            Some(batch) if !batch.is_closed && batch.effects.len() < limits::LOG_BATCH_BYTES => {
                (batch.last, batch.lease_ms) = (last, lease_ms);
                batch.units += units;
                batch.effects.extend_from_slice(effects);
            }
            _ => {
                let (begun, effects) = (Instant::now(), effects.to_vec());
                let batch = Collected { begun, units, last, lease_ms, effects, is_closed: false };
                self.batches.push_back(batch);
            }
        }
    }
}

impl RaftLog {
    pub(crate) fn new(host: &Arc<Host>) -> RaftLog {
        RaftLog {
            host: Arc::downgrade(host),
            gate: Arc::clone(&host.gate),
            node: OnceLock::new(),
            pending: Mutex::default(),
            snapshot_is_due: AtomicBool::new(false),
            work: Notify::new(),
            committed: Notify::new(),
            progress_is_awaited: Notify::new(),
            nodes: Mutex::default(),
            has_nodes: AtomicBool::new(false),
            held: watch::Sender::default(),
        }
    }

    /// The node that replicates the log.
    pub(crate) fn use_node(&self, node: &Arc<Node>) {
        // Only the start of a server calls this.
        let _ = self.node.set(Arc::downgrade(node));
    }

    /// The number of the last request that the engine has held, and changes of it.
    pub(super) fn held(&self) -> watch::Receiver<u64> {
        self.held.subscribe()
    }

    /// Passes the number of the last request that the engine has held.
    pub(crate) fn note_held(&self, last: u64) {
        self.held.send_if_modified(|held| std::mem::replace(held, last) != last);
    }

    /// Whether this node leads now, for certain.
    pub(crate) fn leads(&self) -> bool {
        self.node.get().and_then(Weak::upgrade).is_some_and(|node| node.leads())
    }

    /// Begins batches with this barrier, after this time of the lease clock. Returns the number of
    /// the unit before the first.
    /// The caller holds the engine, as that of [`RaftLog::end`] does: a leadership begins and ends
    /// for both at the same moment.
    pub(crate) fn begin(&self, barrier: u64, lease_ms: i64) -> Position {
        let mut pending = self.pending.lock();
        // Followers would apply units that this server has undone.
        let former = pending.leadership.take();
        assert!(former.is_none() || defect!(UnitsKeptAcrossLeaderships), "an earlier leadership");
        if defect!(PositionsBeginAnew) {
            pending.last = 0;
        }
        let last = pending.last;
        pending.leadership = Some(Leadership {
            barrier,
            batches: former.map(|former| former.batches).unwrap_or_default(),
            has_failed: false,
            committed: VecDeque::from([(barrier, last)]),
            lease_ms,
        });
        last
    }

    /// Ends the leadership: what is not replicated yet never will be.
    pub(crate) fn end(&self) {
        match &mut self.pending.lock().leadership {
            Some(ended) if defect!(UnitsKeptAcrossLeaderships) => {
                (ended.barrier, ended.has_failed) = (0, true);
            }
            leadership => *leadership = None,
        }
    }

    /// Records that a batch is committed, whose entry has this index and whose last unit is `last`.
    fn note_committed(&self, barrier: u64, index: u64, last: Position) {
        if let Some(leadership) = self.pending.lock().with(barrier) {
            leadership.committed.push_back((index, last));
            if leadership.committed.len() > limits::RAFT_BATCHES_KNOWN {
                leadership.committed.pop_front();
            }
        }
        self.committed.notify_one();
    }

    /// The last unit of the leader with this barrier that is in the entries up to `index`, as far
    /// as it is known; 0 if this server does not lead with it any more.
    pub(super) fn position_at(&self, barrier: u64, index: u64) -> Position {
        let mut pending = self.pending.lock();
        let Some(Leadership { committed, .. }) = pending.with(barrier) else { return 0 };
        let count = committed.partition_point(|(committed, _)| *committed <= index);
        count.checked_sub(1).map_or(0, |at| committed[at].1)
    }

    /// Sets the nodes that clients are shown. The engine takes them when it is used next.
    pub(super) fn show(&self, nodes: Nodes) {
        *self.nodes.lock() = Some(nodes);
        self.has_nodes.store(true, Ordering::SeqCst);
    }

    /// The nodes that clients are to be shown from now on, if they have changed.
    pub(crate) fn take_nodes(&self) -> Option<Nodes> {
        let has_nodes =
            self.has_nodes.load(Ordering::SeqCst) && self.has_nodes.swap(false, Ordering::SeqCst);
        has_nodes.then(|| self.nodes.lock().take()).flatten()
    }

    /// Whether this server leads with this barrier.
    pub(crate) fn has_barrier(&self, barrier: u64) -> bool {
        self.pending.lock().with(barrier).is_some()
    }

    /// Ends the batch; returns the last unit that was appended, if this server leads.
    pub(crate) fn close_batch(&self) -> Option<Position> {
        let mut pending = self.pending.lock();
        if let Some(batch) = pending.leadership.as_mut()?.batches.back_mut() {
            batch.is_closed = true;
        }
        Some(pending.last)
    }

    /// The last unit that was appended.
    pub(super) fn last(&self) -> Position {
        self.pending.lock().last
    }

    /// Releases the units up to `last`: their batch is committed.
    pub(crate) fn release(&self, last: Position) {
        self.gate.release(last, last);
        if self.gate.is_flush_awaited()
            && let Some(host) = self.host.upgrade()
        {
            host.log_is_flushed();
        }
    }

    /// Lets the node write a snapshot.
    pub(crate) fn start_snapshot(&self) {
        self.snapshot_is_due.store(true, Ordering::Release);
        self.work.notify_one();
    }

    fn snapshot_is_due(&self) -> bool {
        self.snapshot_is_due.load(Ordering::Acquire)
    }

    /// Records that the node begins to write a snapshot.
    pub(crate) fn note_snapshot(&self) {
        self.snapshot_is_due.store(false, Ordering::Release);
    }

    /// Records that a batch with this barrier was not committed.
    fn note_failed(&self, barrier: u64) {
        if let Some(leadership) = self.pending.lock().with(barrier) {
            leadership.has_failed = true;
        }
    }

    /// Takes the next batch, and begins its round unless it passes only the time.
    fn take(&self, rounds: &Rounds) -> Option<Batch> {
        let mut pending = self.pending.lock();
        let leadership = pending.leadership.as_mut().filter(|leadership| !leadership.has_failed)?;
        let batch = leadership.batches.pop_front()?;
        let Collected { begun, units, last, lease_ms, effects, .. } = batch;
        if units > 0 {
            rounds.begin(begun, units);
        }
        Some(Batch::new(leadership.barrier, lease_ms, last, effects))
    }

    /// Replicates the lease clock, also if nothing changes: followers must know how far it has
    /// come.
    fn pass_time(&self, lease_ms: i64) {
        let mut pending = self.pending.lock();
        let last = pending.last;
        let Some(leadership) = &mut pending.leadership else { return };
        if leadership.batches.is_empty() && leadership.lease_ms < lease_ms {
            leadership.collect(0, last, lease_ms, &[]);
            self.work.notify_one();
        }
    }

    /// Does what a log must do once a second.
    fn second(&self, host: &Host, node: &Node) {
        if let Err(error) = node.check_files()
            && error.kind() == io::ErrorKind::NotFound
        {
            error!(%error, "a file of the log is missing; the server stops");
            return host.log_has_failed();
        }
        self.pass_time(host.now().now.0);
        if self.snapshot_is_due() {
            // `openraft` ignores the order until it has finished the one before.
            self.work.notify_one();
        }
        let (snapshot, segments, free_bytes) = node.sizes();
        host.log_second(Some(LogSizes { snapshot, segments }), free_bytes);
    }
}

/// Replicates the batches of `log`, one after the other, as long as the node runs: clients of a
/// server that stops wait for the last ones.
pub(crate) async fn replicate(log: Arc<RaftLog>, node: Arc<Node>) {
    loop {
        while let Some(batch) = log.take(node.rounds()) {
            let (barrier, last) = (batch.barrier, batch.last);
            match node.replicate(batch).await {
                Ok(index) => {
                    log.note_committed(barrier, index, last);
                    node.rounds().end();
                }
                Err(error) => {
                    warn!(%error, "a batch was not committed by this node");
                    log.note_failed(barrier);
                    node.rounds().give_up();
                }
            }
        }
        if log.snapshot_is_due()
            && let Err(error) = node.begin_snapshot().await
        {
            error!(%error, "no snapshot");
        }
        log.work.notified().await;
    }
}

/// Does what a log must do once a second, until the server has ended: also while a large batch is
/// being replicated.
pub(crate) async fn pass_seconds(log: Arc<RaftLog>, node: Arc<Node>) {
    loop {
        sleep(limits::RAFT_SECOND).await;
        let Some(host) = log.host.upgrade() else { return };
        lockwheel_raft::blocking(|| log.second(&host, &node));
    }
}

/// Hands the leadership over when the disk of this node is full, until the server has ended.
pub(crate) async fn leave_full_disk(log: Arc<RaftLog>, node: Arc<Node>) {
    let mut next_handover = Instant::now();
    loop {
        sleep(limits::RAFT_SECOND).await;
        let Some(host) = log.host.upgrade() else { return };
        let disk_is_full = host.disk_is_full();
        drop(host);
        node.set_disk_is_full(disk_is_full);
        if disk_is_full && node.leads() && Instant::now() >= next_handover {
            next_handover = Instant::now() + limits::RAFT_HANDOVER_PAUSE;
            match node.hand_over_for_space().await {
                Ok(to) => info!(to, "another node leads, whose disk has space"),
                Err(error) => warn!(%error, "the disk is full, and the handover has failed"),
            }
        }
    }
}

impl Log for RaftLog {
    fn append(&self, units: Units<'_>, clocks: Clocks) {
        let Units { first, last, effects } = units;
        let mut pending = self.pending.lock();
        pending.last = last;
        let Some(leadership) = &mut pending.leadership else { return };
        leadership.collect(last + 1 - first, last, clocks.lease_ms, effects);
        drop(pending);
        self.work.notify_one();
        if defect!(RepliesBeforeCommit) {
            self.release(last);
        }
    }

    fn released(&self) -> Position {
        self.gate.released()
    }

    fn flushed(&self) -> Position {
        self.gate.flushed()
    }
}

/// As [`io::Error`], for a host that has ended.
pub(crate) fn ended() -> io::Error {
    io::Error::other("the server has ended")
}

#[cfg(test)]
mod tests {
    use lockwheel_engine::Engine;
    use lockwheel_raft::State;

    use super::super::node_state::NodeState;
    use super::*;
    use crate::host::testing::host;

    /// A log without a node.
    fn log() -> RaftLog {
        RaftLog::new(&host())
    }

    fn append(log: &RaftLog, number: Position) {
        log.append(Units { first: number, last: number, effects: b"e" }, Clocks::default());
    }

    fn take(log: &RaftLog) -> Option<Batch> {
        log.take(&Rounds::default())
    }

    #[test]
    fn units_of_a_leadership_end_with_it() {
        let log = log();
        log.begin(1, 0);
        append(&log, 1);
        log.end();
        append(&log, 2);
        assert_eq!(log.begin(2, 0), 2, "numbers are not used again");
        assert_eq!(take(&log), None);
        append(&log, 3);
        let batch = take(&log).expect("a batch");
        assert_eq!((batch.barrier, batch.last), (2, 3));
    }

    #[test]
    fn time_passes_also_shortly_after_a_change() {
        let log = log();
        log.begin(1, 0);
        append(&log, 1);
        assert!(take(&log).is_some());
        log.pass_time(0);
        assert_eq!(take(&log), None);
        log.pass_time(1);
        let batch = take(&log).expect("a batch");
        assert_eq!((batch.lease_ms, batch.last), (1, 1));
    }

    #[test]
    fn time_that_was_not_committed_does_not_hold_back_that_of_a_later_leadership() {
        let log = log();
        log.begin(1, 0);
        log.pass_time(9);
        log.end();
        log.begin(2, 0);
        log.pass_time(5);
        assert_eq!(take(&log).map(|batch| batch.lease_ms), Some(5));
    }

    #[test]
    fn batch_that_was_not_committed_is_the_last_one_of_its_leadership() {
        let log = log();
        log.begin(1, 0);
        append(&log, 1);
        assert!(take(&log).is_some());
        log.note_failed(1);
        append(&log, 2);
        assert_eq!(take(&log), None);
        log.end();
        log.begin(2, 0);
        append(&log, 3);
        assert!(take(&log).is_some());
    }

    #[test]
    fn index_that_a_follower_has_acknowledged_to_an_earlier_leader_is_no_position() {
        let log = log();
        log.begin(1, 0);
        append(&log, 1);
        log.note_committed(1, 2, 1);
        assert_eq!((log.position_at(1, 1), log.position_at(1, 5)), (0, 1));
        // Another server leads meanwhile, and replaces the entries from 3 on.
        log.end();
        assert_eq!(log.position_at(1, 5), 0);
        log.begin(4, 0);
        append(&log, 2);
        log.note_committed(4, 5, 2);
        // A batch of the earlier leader is reported late.
        log.note_committed(1, 6, 1);
        assert_eq!(log.position_at(1, 6), 0);
        assert_eq!((log.position_at(4, 4), log.position_at(4, 6)), (1, 2));
    }

    #[test]
    fn order_of_a_snapshot_stays_until_one_begins() {
        let host = host();
        let log = Arc::new(RaftLog::new(&host));
        host.with(Engine::follow).expect("an engine");
        let state = NodeState::new(&host, &log);
        for _ in 0..2 {
            log.start_snapshot();
            // The first order comes while the snapshot before is not finished.
            assert!(log.snapshot_is_due() && log.snapshot_is_due());
            let _parts = state.begin_snapshot();
            assert!(!log.snapshot_is_due());
        }
    }
}
