//! The log of `openraft`, in the files of `lockwheel_log`.
//!
//! The latest entries are also in memory. A thread of its own writes and flushes: a slow disk must
//! not delay messages between nodes. Units are removed only when a snapshot that contains them is
//! durable, whatever `openraft` has purged.
//!
//! `openraft` 0.9 waits for the disk of a leader before it sends entries. So this log reports the
//! entries of a leader as flushed at once, and the leader sends them while they are flushed here.
//! `openraft` may then count an entry as committed that is not on the disk of the leader. Nothing
//! may rely on that: followers are sent as committed only what [`Shared::is_flushed`] confirms,
//! entries are applied when [`Shared::wait_until_flushed`] returns, and a leader that was killed
//! needs another term ([`Shared::write_vote`]).

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lockwheel_defects::defect;
use lockwheel_log::files::{Batch as Frame, Clocks, Files};
use lockwheel_log::recovery::{Effects, Recovered, RecoveryError};
use lockwheel_log::replicated::Cursor;
use lockwheel_log::{Disk, Position};
use openraft::storage::{LogFlushed, LogState, RaftLogStorage};
use openraft::{Entry, EntryPayload, LogId, OptionalSend, RaftLogReader, StorageError, Vote};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

use crate::batch::Types;
use crate::rounds::{Moment, Rounds};
use crate::types::{NodeId, position, position_of, storage_error};
use crate::{doubt, limits, vote};

/// The log of `openraft` on disk.
#[derive(Debug)]
pub struct LogStore {
    pub(crate) shared: Arc<Shared>,
    writer: Writer,
}

/// Where the log is written and flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritesOn {
    /// On a thread of its own.
    Thread,
    /// On the thread of the caller, for simulations.
    Caller,
    /// On a task, each order after this time, for simulations.
    Later(Duration),
}

#[derive(Debug)]
enum Writer {
    Thread(Sender<Order>),
    /// What has failed, if something has.
    Caller(Mutex<Option<io::ErrorKind>>),
    Task(UnboundedSender<Order>),
}

/// Reads entries for one follower.
#[derive(Debug)]
pub struct LogReader {
    shared: Arc<Shared>,
    /// For entries that are no longer in memory, with the number of cuts when it was made.
    cursor: Option<(u64, Cursor)>,
}

/// The files and the latest entries, for the log and the state machine.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) files: Mutex<Files>,
    log: Mutex<Log>,
    /// The last position in the files, which is flushed; `None` if the files could not be written.
    written: watch::Sender<Option<Position>>,
    /// The number of this node.
    own: OnceLock<NodeId>,
    /// Whether the node was in doubt when the log was opened: see [`doubt`].
    pub(crate) is_in_doubt: bool,
    pub(crate) rounds: Rounds,
}

/// The log as `openraft` sees it: the files follow.
#[derive(Debug, Default)]
pub(crate) struct Log {
    vote: Option<Vote<NodeId>>,
    committed: Option<LogId<NodeId>>,
    purged: Option<LogId<NodeId>>,
    last: Option<LogId<NodeId>>,
    /// The latest entries, with their sizes in byte form; all that are not durable.
    recent: VecDeque<(Entry<Types>, usize)>,
    recent_bytes: usize,
    /// Position up to which everything is durable.
    durable: Position,
    /// The number of times that the end was cut off.
    cuts: u64,
}

/// An entry as it is stored.
#[derive(Serialize, Deserialize)]
pub(crate) struct Stored<E> {
    pub(crate) entry: E,
    /// What was known to be committed then.
    committed: Option<LogId<NodeId>>,
}

/// What the thread does, in order.
enum Order {
    /// Nothing is reported if `openraft` counts the entries as flushed already.
    Append {
        frames: Vec<(Position, Vec<u8>, Clocks)>,
        flushed: Option<LogFlushed<Types>>,
    },
    Vote(Vote<NodeId>, oneshot::Sender<io::Result<()>>),
    CutAfter(Position, oneshot::Sender<io::Result<()>>),
    DropUnits(oneshot::Sender<io::Result<()>>),
}

impl Log {
    /// Adds an entry that was read from the disk or is going to be written.
    fn push(&mut self, entry: Entry<Types>, bytes: usize) {
        self.last = Some(entry.log_id);
        self.recent.push_back((entry, bytes));
        self.recent_bytes += bytes;
    }

    /// Forgets durable entries above the limit.
    fn trim(&mut self) {
        while let Some((entry, bytes)) = self.recent.front()
            && self.recent_bytes > limits::RECENT_BYTES
            && position(entry.log_id.index) <= self.durable
        {
            self.recent_bytes -= bytes;
            self.recent.pop_front();
        }
    }

    fn cut_from(&mut self, index: u64) {
        while let Some((entry, bytes)) = self.recent.back()
            && entry.log_id.index >= index
        {
            self.recent_bytes -= bytes;
            self.recent.pop_back();
        }
        self.cuts += 1;
        self.durable = self.durable.min(index);
    }

    fn purge(&mut self, log_id: LogId<NodeId>) {
        self.purged = Some(log_id);
        while let Some((entry, bytes)) = self.recent.front()
            && entry.log_id.index <= log_id.index
        {
            self.recent_bytes -= bytes;
            self.recent.pop_front();
        }
        if self.last.is_none_or(|last| last.index < log_id.index) {
            self.last = Some(log_id);
        }
    }

    /// The entries from index `begin` to before `end` that are in memory, and the index of the
    /// first one that is.
    fn recent(&self, begin: u64, end: u64) -> (u64, impl Iterator<Item = &(Entry<Types>, usize)>) {
        let next = self.last.map_or(0, |last| last.index + 1);
        let first = self.recent.front().map_or(next, |(entry, _)| entry.log_id.index);
        let skipped = usize::try_from(begin.saturating_sub(first)).unwrap_or(usize::MAX);
        let entries = self.recent.iter().skip(skipped);
        (first, entries.take_while(move |(entry, _)| entry.log_id.index < end))
    }
}

impl Log {
    /// Checks that the vote and the log do not show that a part of either was lost: then the node
    /// may have promised what it does not know any more. A node votes in a term before it gets
    /// entries of it.
    fn check_vote(&self, has_snapshot: bool) -> io::Result<()> {
        let lost = |finding: String| {
            let message = format!(
                "{finding}, and what this node has promised with it: remove it from the cluster, \
                 remove its folder 'raft', and join again"
            );
            Err(io::Error::new(io::ErrorKind::InvalidData, message))
        };
        let term = self.last.map_or(0, |last| last.leader_id.term);
        if defect!(RaftLostVoteNotNoticed) {
            return Ok(());
        }
        match self.vote {
            // A new node that is sent a snapshot may have it before it has voted.
            None if term > 0 => lost("the file is lost".to_owned()),
            Some(vote) if vote.leader_id.term < term => lost(format!(
                "the file is of term {}, and the log of term {term}: a later one is lost",
                vote.leader_id.term
            )),
            _ if self.committed > self.last && !has_snapshot => {
                let committed = position_of(self.committed);
                lost(format!("entry {committed} was committed: the end of the log is lost"))
            }
            _ => Ok(()),
        }
    }
}

fn of_doubt(error: io::Error) -> RecoveryError {
    RecoveryError::Io { file: "doubt".into(), error }
}

/// Records a doubt if the end of the log will be cut off, after it was read.
fn begin_doubt(disk: &dyn Disk, found: &Recovered) -> Result<Clocks, RecoveryError> {
    if found.is_cut {
        doubt::begin(disk).map_err(of_doubt)?;
    }
    Ok(Clocks::default())
}

impl Shared {
    /// Opens the files in an empty directory or in that of an earlier run. `load` is called with
    /// each part of the snapshot.
    pub(crate) fn open(
        disk: Arc<dyn Disk>,
        mut load: impl FnMut(&[u8], i64) -> Result<(), String>,
    ) -> Result<Shared, RecoveryError> {
        let mut log = Log::default();
        let apply = |effects: Effects<'_>| {
            if effects.is_snapshot {
                return load(effects.bytes, effects.lease_ms);
            }
            let stored: Stored<Entry<Types>> = decode(effects.bytes)?;
            log.committed = log.committed.max(stored.committed);
            if defect!(RaftAllEntriesCommitted) {
                log.committed = Some(stored.entry.log_id);
            }
            log.durable = effects.last;
            log.push(stored.entry, effects.bytes.len());
            log.trim();
            Ok(())
        };
        let (files, recovered) =
            Files::open(Arc::clone(&disk), [0; 16], apply, |found| begin_doubt(&*disk, found))?;
        let of_vote = |error| RecoveryError::Io { file: "vote".into(), error };
        log.vote = vote::read(&*disk).map_err(of_vote)?;
        let is_in_doubt = doubt::is_kept(&*disk).map_err(of_doubt)?;
        if is_in_doubt
            && !defect!(RaftLeadsWithACutLog)
            && let Some(vote) = &mut log.vote
        {
            // Otherwise `openraft` goes on to lead in the same term, and makes other entries in the
            // places of those that were lost.
            vote.committed = false;
        }
        log.durable = recovered.last;
        log.check_vote(recovered.snapshot.is_some()).map_err(of_vote)?;
        let written = watch::Sender::new(Some(recovered.last));
        let (files, log) = (Mutex::new(files), Mutex::new(log));
        let (own, rounds) = (OnceLock::new(), Rounds::default());
        Ok(Shared { disk, files, log, written, own, is_in_doubt, rounds })
    }

    /// Lets the log begin after this entry, which a snapshot contains.
    pub(crate) fn begin_after(&self, log_id: LogId<NodeId>) {
        let mut log = self.log.lock();
        log.purge(log_id);
        log.committed = log.committed.max(Some(log_id));
    }

    /// Whether the node has voted, or followed a leader.
    pub(crate) fn has_vote(&self) -> bool {
        self.log.lock().vote.is_some()
    }

    /// The last entry, which may not be durable yet.
    pub(crate) fn last(&self) -> Option<LogId<NodeId>> {
        self.log.lock().last
    }

    /// How often the end of the log was cut off since the start.
    pub(crate) fn cuts(&self) -> u64 {
        self.log.lock().cuts
    }

    /// Whether the entries after this one have neither been removed nor replaced since an earlier
    /// time. `cuts` is [`Shared::cuts`] at that time.
    pub(crate) fn goes_on_after(&self, log_id: Option<LogId<NodeId>>, cuts: u64) -> bool {
        let log = self.log.lock();
        let is_replaced = log.cuts != cuts && !defect!(RaftReplacedEntriesSent);
        position_of(log.purged) <= position_of(log_id) && !is_replaced
    }

    /// Replaces the log up to this position by a snapshot: see
    /// [`lockwheel_log::files::Files::go_on_after`].
    pub(crate) fn use_snapshot(&self, snapshot: Position, lease_ms: i64) -> io::Result<()> {
        let (obsolete, goes_on) = {
            let mut files = self.files.lock();
            let goes_on = files.written() < snapshot;
            let obsolete = match goes_on {
                true => files.go_on_after(snapshot, Clocks { lease_ms, ..Clocks::default() })?,
                false => files.use_snapshot(snapshot)?,
            };
            (obsolete, goes_on)
        };
        obsolete.remove()?;
        self.drop_units()?;
        // Otherwise the files may have entries that are not flushed.
        if goes_on {
            self.written.send_replace(Some(snapshot));
        }
        Ok(())
    }

    /// The files could not be written: the node must stop.
    pub(crate) fn fail(&self) {
        self.written.send_replace(None);
    }

    fn has_failed(&self) -> bool {
        self.written.borrow().is_none()
    }

    /// Lets the log report entries of this node as flushed at once while it leads.
    ///
    /// # Errors
    /// As the disk returns them.
    pub(crate) fn begin_as(&self, own: NodeId) -> io::Result<()> {
        // Only the start of a node calls this.
        let _ = self.own.set(own);
        let vote = self.log.lock().vote.filter(|vote| vote.leader_id.node_id == own);
        vote.map_or(Ok(()), |vote| self.write_vote(vote))
    }

    /// Whether the last vote of this node is for itself.
    pub(crate) fn has_own_vote(&self) -> bool {
        let vote = self.log.lock().vote;
        vote.is_some_and(|vote| self.own.get() == Some(&vote.leader_id.node_id))
    }

    /// Whether this is the vote of this node as a leader.
    fn leads_with(&self, vote: &Vote<NodeId>) -> bool {
        vote.committed && self.own.get() == Some(&vote.leader_id.node_id)
    }

    /// Writes a vote. That of a leader is not on the disk: if it ends with entries that it has sent
    /// and not flushed, it must not go on in the same term, and make others in their places.
    fn write_vote(&self, vote: Vote<NodeId>) -> io::Result<()> {
        let may_go_on = !self.leads_with(&vote) || defect!(RaftLeaderGoesOnAfterCrash);
        vote::write(&*self.disk, &Vote { committed: vote.committed && may_go_on, ..vote })
    }

    /// Ends the log of a node that has stopped. If it has led, it may go on in the same term when
    /// it starts: all entries that it has sent are flushed.
    ///
    /// # Errors
    /// If the files could not be written.
    pub(crate) async fn end(&self) -> io::Result<()> {
        self.wait_until_flushed(position_of(self.last())).await?;
        let vote = self.log.lock().vote;
        let vote = vote.filter(|vote| self.leads_with(vote));
        vote.map_or(Ok(()), |vote| vote::write(&*self.disk, &vote))
    }

    /// Whether an entry is one that this node makes as the leader. An entry with members is none:
    /// `openraft` must not rely on them before they are flushed.
    fn is_made_here(&self, log: &Log, entry: &Entry<Types>) -> bool {
        let vote = log.vote.filter(|vote| self.leads_with(vote));
        matches!(entry.payload, EntryPayload::Normal(_))
            && vote.is_some_and(|vote| vote.leader_id.term == entry.log_id.leader_id.term)
    }

    /// Whether the entries up to this one are flushed on this node.
    pub(crate) fn is_flushed(&self, last: LogId<NodeId>) -> bool {
        self.written.borrow().is_some_and(|written| written >= position(last.index))
    }

    /// Waits until the entries up to this position are flushed on this node.
    ///
    /// # Errors
    /// If the files could not be written.
    pub(crate) async fn wait_until_flushed(&self, last: Position) -> io::Result<()> {
        let mut written = self.written.subscribe();
        let is_over = |written: &Option<Position>| written.is_none_or(|written| written >= last);
        match written.wait_for(is_over).await.is_ok_and(|written| written.is_some()) {
            true => Ok(()),
            false => Err(io::Error::other("the log could not be written")),
        }
    }

    /// Removes the segments that are purged and contained in the snapshot.
    fn drop_units(&self) -> io::Result<()> {
        let purged = position_of(self.log.lock().purged);
        let obsolete = {
            let mut files = self.files.lock();
            let Some(snapshot) = files.snapshot() else { return Ok(()) };
            let mut last = snapshot.min(purged);
            if defect!(RaftEntriesDroppedWithoutSnapshot) {
                last = files.written();
            }
            files.drop_units(last)
        };
        obsolete.remove()
    }

    fn carry_out(&self, order: Order, failure: &mut Option<io::ErrorKind>) {
        let (done, reply) = match order {
            Order::Append { frames, flushed } => {
                let done = self.try_to(failure, |it| {
                    it.write(frames)?;
                    it.sync()
                });
                if done.is_err() {
                    self.fail();
                }
                if let Some(flushed) = flushed {
                    flushed.log_io_completed(done);
                }
                return;
            }
            Order::Vote(vote, reply) => {
                let write = |it: &Shared| match defect!(RaftVoteNotSaved) {
                    true => Ok(()),
                    false => it.write_vote(vote),
                };
                (self.try_to(failure, write), reply)
            }
            Order::CutAfter(_, reply) if defect!(RaftConflictsKept) => (Ok(()), reply),
            Order::CutAfter(position, reply) => {
                (self.try_to(failure, |it| it.cut_after(position)), reply)
            }
            Order::DropUnits(reply) => (self.try_to(failure, Shared::drop_units), reply),
        };
        // Fails if the node has ended meanwhile.
        let _ = reply.send(done);
    }

    /// Acts unless something has failed before: nothing is written after an error.
    fn try_to(
        &self,
        failure: &mut Option<io::ErrorKind>,
        act: impl FnOnce(&Shared) -> io::Result<()>,
    ) -> io::Result<()> {
        if let Some(kind) = *failure {
            return Err(kind.into());
        }
        let done = act(self);
        *failure = done.as_ref().err().map(io::Error::kind);
        done
    }

    fn write(&self, frames: Vec<(Position, Vec<u8>, Clocks)>) -> io::Result<()> {
        let mut frame = Frame::default();
        let mut files = self.files.lock();
        for (position, bytes, clocks) in frames {
            frame.push(position, position, &bytes, clocks);
            files.write(&mut frame)?;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let written = {
            let mut files = self.files.lock();
            if !defect!(RaftEntriesNotFlushed) {
                files.sync()?;
            }
            files.written()
        };
        self.written.send_replace(Some(written));
        self.rounds.note(Moment::Flushed, written);
        let mut log = self.log.lock();
        log.durable = written;
        log.trim();
        Ok(())
    }

    fn cut_after(&self, position: Position) -> io::Result<()> {
        let mut files = self.files.lock();
        files.cut_after(position)?;
        self.written.send_replace(Some(files.written()));
        Ok(())
    }
}

/// Reads what [`encode`] has written.
pub(crate) fn decode<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T, String> {
    rmp_serde::from_slice(bytes).map_err(|error| error.to_string())
}

pub(crate) fn encode(value: &impl Serialize) -> io::Result<Vec<u8>> {
    rmp_serde::to_vec_named(value).map_err(io::Error::other)
}

impl LogStore {
    /// The log in these files.
    pub(crate) fn start(shared: &Arc<Shared>, writes_on: WritesOn) -> io::Result<LogStore> {
        let writer = match writes_on {
            WritesOn::Caller => Writer::Caller(Mutex::default()),
            WritesOn::Thread => {
                let (orders, receiver) = channel();
                let worker = Arc::clone(shared);
                let thread = std::thread::Builder::new().name("lockwheel-raft-log".into());
                thread.spawn(move || {
                    let mut failure = None;
                    // The channel closes when the log is dropped.
                    while let Ok(order) = receiver.recv() {
                        worker.carry_out(order, &mut failure);
                    }
                })?;
                Writer::Thread(orders)
            }
            WritesOn::Later(time) => {
                let (orders, mut receiver) = unbounded_channel();
                let worker = Arc::clone(shared);
                tokio::spawn(async move {
                    let mut failure = None;
                    while let Some(order) = receiver.recv().await {
                        sleep(time).await;
                        worker.carry_out(order, &mut failure);
                    }
                });
                Writer::Task(orders)
            }
        };
        Ok(LogStore { shared: Arc::clone(shared), writer })
    }

    fn order(&self, order: Order) -> io::Result<()> {
        match &self.writer {
            Writer::Thread(orders) => orders.send(order).map_err(|_| thread_has_ended()),
            Writer::Task(orders) => orders.send(order).map_err(|_| thread_has_ended()),
            Writer::Caller(failure) => {
                self.shared.carry_out(order, &mut failure.lock());
                Ok(())
            }
        }
    }

    /// Waits until the order is carried out.
    async fn carry_out(
        &self,
        order: impl FnOnce(oneshot::Sender<io::Result<()>>) -> Order,
    ) -> Result<(), StorageError<NodeId>> {
        let (sender, receiver) = oneshot::channel();
        self.order(order(sender)).map_err(storage_error)?;
        let done = receiver.await.map_err(|_| storage_error(thread_has_ended()))?;
        done.map_err(storage_error)
    }
}

fn thread_has_ended() -> io::Error {
    io::Error::other("the thread of the log has ended")
}

/// The indexes of a range: the first one, and the one after the last one.
fn bounds(range: &impl RangeBounds<u64>) -> (u64, u64) {
    let begin = match range.start_bound() {
        Bound::Included(begin) => *begin,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => u64::MAX,
    };
    (begin, end)
}

impl LogReader {
    pub(crate) fn new(shared: &Arc<Shared>) -> LogReader {
        LogReader { shared: Arc::clone(shared), cursor: None }
    }

    /// The entries from index `begin` to before `end`; of more than `bytes_max`, the first ones.
    pub(crate) fn entries(
        &mut self,
        begin: u64,
        end: u64,
        bytes_max: usize,
    ) -> io::Result<Vec<Entry<Types>>> {
        let (mut entries, mut bytes) = (Vec::new(), 0);
        let mut take = |entry: Entry<Types>, length: usize| {
            let fits = entries.is_empty() || bytes + length <= bytes_max;
            if fits {
                bytes += length;
                entries.push(entry);
            }
            fits
        };
        let mut next = begin;
        loop {
            let (first, cuts) = {
                let log = self.shared.log.lock();
                next = next.max(log.purged.map_or(0, |purged| purged.index + 1));
                let (first, mut recent) = log.recent(next, end);
                if next >= first || next >= end {
                    let _ = recent.all(|(entry, length)| take(entry.clone(), *length));
                    return Ok(entries);
                }
                (first, log.cuts)
            };
            let read_end = first.min(end);
            let mut is_full = false;
            self.read(next, read_end, cuts, |entry, length| {
                is_full = !take(entry, length);
                !is_full
            })?;
            if is_full {
                return Ok(entries);
            }
            next = read_end;
        }
    }

    /// Passes entries on the disk to `take`, until it returns false.
    fn read(
        &mut self,
        begin: u64,
        end: u64,
        cuts: u64,
        mut take: impl FnMut(Entry<Types>, usize) -> bool,
    ) -> io::Result<()> {
        let mut cursor = match self.cursor.take() {
            Some((made_after, cursor))
                if made_after == cuts && cursor.position() == position(begin) =>
            {
                cursor
            }
            _ => self.shared.files.lock().read_from(position(begin))?,
        };
        let mut damage = None;
        cursor.read(position(begin)..position(end), |_, bytes| {
            match decode::<Stored<Entry<Types>>>(bytes) {
                Ok(stored) => take(stored.entry, bytes.len()),
                Err(error) => {
                    damage = Some(io::Error::new(io::ErrorKind::InvalidData, error));
                    false
                }
            }
        })?;
        self.cursor = Some((cuts, cursor));
        damage.map_or(Ok(()), Err)
    }
}

impl RaftLogReader<Types> for LogReader {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry<Types>>, StorageError<NodeId>> {
        let (begin, end) = bounds(&range);
        self.entries(begin, end, usize::MAX).map_err(storage_error)
    }

    async fn limited_get_log_entries(
        &mut self,
        begin: u64,
        end: u64,
    ) -> Result<Vec<Entry<Types>>, StorageError<NodeId>> {
        self.entries(begin, end, limits::APPEND_BYTES).map_err(storage_error)
    }
}

impl RaftLogReader<Types> for LogStore {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry<Types>>, StorageError<NodeId>> {
        LogReader::new(&self.shared).try_get_log_entries(range).await
    }
}

impl RaftLogStorage<Types> for LogStore {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> Result<LogState<Types>, StorageError<NodeId>> {
        let log = self.shared.log.lock();
        Ok(LogState { last_purged_log_id: log.purged, last_log_id: log.last })
    }

    async fn get_log_reader(&mut self) -> LogReader {
        LogReader::new(&self.shared)
    }

    async fn save_vote(&mut self, vote: &Vote<NodeId>) -> Result<(), StorageError<NodeId>> {
        self.carry_out(|done| Order::Vote(*vote, done)).await?;
        self.shared.log.lock().vote = Some(*vote);
        Ok(())
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<NodeId>>, StorageError<NodeId>> {
        Ok(self.shared.log.lock().vote)
    }

    /// Records the committed entry. It becomes durable with the next entry: after a restart, an
    /// earlier one is sufficient.
    async fn save_committed(
        &mut self,
        committed: Option<LogId<NodeId>>,
    ) -> Result<(), StorageError<NodeId>> {
        self.shared.log.lock().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId<NodeId>>, StorageError<NodeId>> {
        Ok(self.shared.log.lock().committed)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        flushed: LogFlushed<Types>,
    ) -> Result<(), StorageError<NodeId>>
    where
        I: IntoIterator<Item = Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let (mut frames, mut are_made_here) = (Vec::new(), !self.shared.has_failed());
        {
            let mut log = self.shared.log.lock();
            for entry in entries {
                are_made_here &= self.shared.is_made_here(&log, &entry);
                let stored = Stored { entry: &entry, committed: log.committed };
                let bytes = encode(&stored).map_err(storage_error)?;
                let lease_ms = match &entry.payload {
                    EntryPayload::Normal(batch) => {
                        self.shared.rounds.note_appended(position(entry.log_id.index));
                        batch.lease_ms
                    }
                    EntryPayload::Blank | EntryPayload::Membership(_) => 0,
                };
                let length = bytes.len();
                let clocks = Clocks { lease_ms, ..Clocks::default() };
                frames.push((position(entry.log_id.index), bytes, clocks));
                log.push(entry, length);
            }
        }
        let flushed = match are_made_here {
            true => {
                flushed.log_io_completed(Ok(()));
                None
            }
            false => Some(flushed),
        };
        self.order(Order::Append { frames, flushed }).map_err(storage_error)
    }

    async fn truncate(&mut self, log_id: LogId<NodeId>) -> Result<(), StorageError<NodeId>> {
        self.shared.log.lock().cut_from(log_id.index);
        // The position of the entry before.
        self.carry_out(|done| Order::CutAfter(log_id.index, done)).await?;
        let before = match log_id.index.checked_sub(1) {
            None => None,
            Some(index) => {
                let purged = self.shared.log.lock().purged;
                let entry = LogReader::new(&self.shared).entries(index, index + 1, usize::MAX);
                let entry = entry.map_err(storage_error)?.pop().map(|entry| entry.log_id);
                entry.or(purged)
            }
        };
        self.shared.log.lock().last = before;
        Ok(())
    }

    async fn purge(&mut self, log_id: LogId<NodeId>) -> Result<(), StorageError<NodeId>> {
        self.shared.log.lock().purge(log_id);
        // If the log ends before, a snapshot is being installed, after which it goes on.
        let is_written = self.shared.wait_until_flushed(position(log_id.index)).await;
        is_written.map_err(storage_error)?;
        self.carry_out(Order::DropUnits).await
    }
}
