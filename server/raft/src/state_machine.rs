//! The state machine of `openraft`: the engine of the server, behind the trait [`State`].

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use lockwheel_defects::defect;
use lockwheel_log::files::{Clocks, Snapshot as SnapshotWriter};
use lockwheel_log::recovery::{RecoveryError, read_snapshot};
use lockwheel_log::replicated::ReceivedSnapshot;
use lockwheel_log::{Disk, DiskFile, Position};
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{
    Entry, LogId, OptionalSend, RaftSnapshotBuilder, SnapshotMeta, StorageError, StoredMembership,
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tracing::error;

use crate::batch::{Batch, Peer, Types};
use crate::limits;
use crate::log_store::{LogReader, LogStore, Shared, WritesOn};
use crate::place::{Guard, LogPlace};
use crate::rounds::Moment;
use crate::snapshot_file::SnapshotFile;
use crate::types::{NodeId, position_of, storage_error};

/// The state of a server.
pub trait State: Debug + Send + Sync + 'static {
    /// Removes everything.
    fn clear(&self);

    /// Applies effects, and sets the log time after them to `lease_ms`.
    ///
    /// # Errors
    /// If they cannot be applied: the node must stop.
    fn load(&self, effects: &[u8], lease_ms: i64) -> Result<(), String>;

    /// Applies the effects of a committed batch, unless this process leads and has produced it:
    /// then the state has them already. A wait for the state is within [`blocking`].
    ///
    /// # Errors
    /// As [`State::load`].
    fn commit(&self, batch: &Batch) -> Result<(), String>;

    /// Begins to produce batches with this barrier, starting at this log time. Nothing is granted
    /// before the end of the guard, if there is one. Returns the number of the unit before the
    /// first one.
    fn begin_leading(&self, barrier: u64, lease_ms: i64, guard: Option<&Guard>) -> u64;

    /// Stops producing batches. [`State::clear`] follows, since the state may have effects that
    /// will never be committed.
    fn stop_leading(&self);

    /// Begins a snapshot of the present state. While this process leads, the state goes on
    /// changing; otherwise it does not change until all parts are written.
    fn begin_snapshot(&self) -> Box<dyn SnapshotParts>;
}

/// The parts of a snapshot.
pub trait SnapshotParts: Send + Sync {
    /// The last unit whose effects the snapshot has, if this process leads: then the state is ahead
    /// of what is committed. One batch must end with this unit.
    fn last(&self) -> Option<u64>;

    /// Writes all parts; returns false if the state was cleared meanwhile.
    ///
    /// # Errors
    /// As the file returns them.
    fn write(&mut self, file: &mut SnapshotWriter) -> io::Result<bool>;

    /// Called when the snapshot is durable or has failed, but not if [`SnapshotParts::write`] has
    /// returned false.
    fn end(&mut self, is_complete: bool);
}

/// The state machine of a node. Clones share their state.
#[derive(Clone, Debug)]
pub struct StateMachine {
    pub(crate) shared: Arc<Shared>,
    state: Arc<dyn State>,
    applied: Arc<Mutex<Applied>>,
}

/// The committed entries that the state has.
#[derive(Debug, Default)]
struct Applied {
    /// The place after the last of them.
    at: LogPlace,
    /// Whether a change of the state has failed, so that it belongs to no place. The node stops,
    /// but a snapshot may still be about to begin.
    is_broken: bool,
    /// The latest snapshot.
    snapshot: Option<LogPlace>,
    /// Barrier and last committed unit of this process while it leads.
    leading: Option<(u64, u64)>,
    /// The snapshot that waits for its place in the log: its last unit, and where to send the
    /// place.
    waiting: Option<(u64, oneshot::Sender<LogPlace>)>,
}

impl Applied {
    /// Records that a batch was committed, after which `at` is the place.
    fn note_committed(&mut self, batch: &Batch) {
        if let Some((barrier, last)) = &mut self.leading
            && *barrier == batch.barrier
        {
            *last = batch.last;
            // If no batch ends with the unit, the snapshot is given up and begun again.
            if let Some((last, sender)) = self.waiting.take_if(|(last, _)| *last <= batch.last)
                && last == batch.last
            {
                // Fails if the snapshot was given up.
                let _ = sender.send(self.at.clone());
            }
        }
    }
}

/// Loads the parts of a snapshot into `state`. The first part is the place of the snapshot.
struct Loader<'a> {
    state: &'a dyn State,
    place: Option<LogPlace>,
}

impl Loader<'_> {
    fn load(&mut self, part: &[u8], lease_ms: i64) -> Result<(), String> {
        if self.place.is_some() {
            return self.state.load(part, lease_ms);
        }
        let place = rmp_serde::from_slice(part).map_err(|error| error.to_string())?;
        self.place = Some(place);
        Ok(())
    }
}

impl StateMachine {
    /// Opens the log on a disk, and loads the snapshot into `state`, which must be empty.
    ///
    /// # Errors
    /// As [`RecoveryError`] lists them.
    pub fn open(
        disk: Arc<dyn Disk>,
        state: Arc<dyn State>,
        writes_on: WritesOn,
    ) -> Result<(LogStore, StateMachine), RecoveryError> {
        let mut loader = Loader { state: &*state, place: None };
        let shared = Shared::open(disk, |part, lease_ms| loader.load(part, lease_ms))?;
        let snapshot = loader.place;
        if let Some(last) = snapshot.as_ref().and_then(|place| place.last) {
            shared.begin_after(last);
        }
        let shared = Arc::new(shared);
        let thread = |error| RecoveryError::Io { file: "thread".into(), error };
        let log = LogStore::start(&shared, writes_on).map_err(thread)?;
        let at = snapshot.clone().unwrap_or_default();
        let applied = Arc::new(Mutex::new(Applied { at, snapshot, ..Applied::default() }));
        Ok((log, StateMachine { shared, state, applied }))
    }

    /// The applied entries, which are locked for long while the state is being replaced.
    fn lock_applied(&self) -> MutexGuard<'_, Applied> {
        self.applied.try_lock().unwrap_or_else(|| blocking(|| self.applied.lock()))
    }

    /// The log time after the last applied entry, in milliseconds.
    pub(crate) fn lease_ms(&self) -> i64 {
        self.applied.lock().at.lease_ms
    }

    /// The index of the last applied entry; `None` before the first one. Waits while the
    /// state is being replaced.
    pub(crate) fn applied_index(&self) -> Option<u64> {
        self.lock_applied().at.last.map(|last| last.index)
    }

    /// The barrier whose batches have effects.
    pub(crate) fn barrier(&self) -> u64 {
        self.applied.lock().at.barrier
    }

    /// Begins to lead, if the barrier of this node is still the latest; returns whether it is.
    pub(crate) fn begin_leading(&self, barrier: u64) -> bool {
        let mut applied = self.applied.lock();
        let is_latest = applied.at.barrier == barrier;
        if is_latest {
            let mut lease_ms = applied.at.lease_ms;
            if defect!(RaftLeaseTimeBeginsAnew) {
                lease_ms = 0;
            }
            if defect!(RaftElectionAddedToLeaseTime) {
                lease_ms += 1_000;
            }
            let guard = applied.at.guard.as_ref();
            let guard = guard.filter(|_| !defect!(RaftGuardSkipped));
            let last = self.state.begin_leading(barrier, lease_ms, guard);
            applied.leading = Some((barrier, last));
        }
        is_latest
    }

    /// Stops leading: rebuilds the state from the snapshot and the applied entries.
    ///
    /// # Errors
    /// As the disk returns them, or if the entries cannot be applied.
    pub(crate) fn stop_leading(&self) -> io::Result<()> {
        let mut applied = self.applied.lock();
        (applied.leading, applied.waiting) = (None, None);
        self.state.stop_leading();
        if defect!(RaftUncommittedEffectsKept) {
            return Ok(());
        }
        applied.is_broken = true;
        self.state.clear();
        let mut place = LogPlace::default();
        if let Some(snapshot) = &applied.snapshot {
            place = self.load_snapshot(snapshot.position())?;
        }
        let mut reader = LogReader::new(&self.shared);
        let end = applied.at.position();
        while place.position() < end {
            let entries = reader.entries(place.position(), end, REBUILD_BYTES)?;
            if entries.is_empty() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "entries are missing"));
            }
            for entry in &entries {
                if let Some(batch) = place.pass(entry) {
                    let loaded = self.state.load(&batch.effects, batch.lease_ms);
                    loaded.map_err(io::Error::other)?;
                }
            }
        }
        applied.at.parts = place.parts;
        applied.is_broken = false;
        Ok(())
    }

    /// Loads a snapshot into an empty state; returns its place.
    fn load_snapshot(&self, position: Position) -> io::Result<LogPlace> {
        let mut loader = Loader { state: &*self.state, place: None };
        let load =
            |part: lockwheel_log::recovery::Effects<'_>| loader.load(part.bytes, part.lease_ms);
        read_snapshot(&*self.shared.disk, position, load).map_err(io::Error::other)?;
        let incomplete = || io::Error::new(io::ErrorKind::InvalidData, "a snapshot without place");
        loader.place.ok_or_else(incomplete)
    }
}

/// Runs a call that may block, so that messages between nodes go on meanwhile. Another thread takes
/// over the tasks of this one, which costs as much as a small message.
pub fn blocking<T>(call: impl FnOnce() -> T) -> T {
    // Simulations have one thread.
    let runtime = tokio::runtime::Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match runtime {
        Ok(tokio::runtime::RuntimeFlavor::CurrentThread) => call(),
        _ => tokio::task::block_in_place(call),
    }
}

/// Size of the entries that are read at once when the state is rebuilt.
const REBUILD_BYTES: usize = 16 << 20;

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<NodeId>>, StoredMembership<NodeId, Peer>), StorageError<NodeId>> {
        let applied = self.applied.lock();
        Ok((applied.at.last, applied.at.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<()>, StorageError<NodeId>>
    where
        I: IntoIterator<Item = Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let entries: Vec<Entry<Types>> = entries.into_iter().collect();
        if let Some(last) = entries.last()
            && !defect!(RaftAppliedBeforeFlush)
        {
            let last = position_of(Some(last.log_id)).min(position_of(self.shared.last()));
            self.shared.wait_until_flushed(last).await.map_err(storage_error)?;
        }
        let mut applied = self.lock_applied();
        let mut replies = Vec::new();
        for entry in entries {
            if let Some(batch) = applied.at.pass(&entry) {
                // Messages between nodes must go on while many effects are applied.
                let committed = match batch.effects.len() > limits::ENTRY_BYTES {
                    true => blocking(|| self.state.commit(&batch)),
                    false => self.state.commit(&batch),
                };
                committed.map_err(|error| {
                    applied.is_broken = true;
                    storage_error(io::Error::other(error))
                })?;
                applied.note_committed(&batch);
                self.shared.rounds.note(Moment::Released, position_of(Some(entry.log_id)));
            }
            replies.push(());
        }
        Ok(replies)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        SnapshotBuilder { machine: self.clone() }
    }

    async fn begin_receiving_snapshot(
        &mut self,
    ) -> Result<Box<SnapshotFile>, StorageError<NodeId>> {
        Ok(Box::new(SnapshotFile::Expected))
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<NodeId, Peer>,
        snapshot: Box<SnapshotFile>,
    ) -> Result<(), StorageError<NodeId>> {
        let installed = blocking(|| self.install(meta, *snapshot));
        installed.inspect_err(|_| self.shared.fail()).map_err(storage_error)
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<Snapshot<Types>>, StorageError<NodeId>> {
        let place = self.applied.lock().snapshot.clone();
        place.map(|place| self.open_snapshot(&place)).transpose().map_err(storage_error)
    }
}

impl StateMachine {
    fn install(&self, meta: &SnapshotMeta<NodeId, Peer>, snapshot: SnapshotFile) -> io::Result<()> {
        let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidData, reason);
        let position = position_of(meta.last_log_id);
        let received = match snapshot {
            SnapshotFile::Received(received) => received,
            SnapshotFile::Complete { file, .. } => self.copy_snapshot(&*file, position)?,
            SnapshotFile::Expected => return Err(invalid("a snapshot without contents")),
        };
        if received.position() != position {
            return Err(invalid("a snapshot of another place"));
        }
        received.finish()?;
        let mut applied = self.applied.lock();
        applied.is_broken = true;
        if !defect!(RaftStateNotCleared) {
            self.state.clear();
        }
        let mut place = self.load_snapshot(position)?;
        if defect!(RaftInstalledSnapshotAtWrongPlace) {
            place.barrier = applied.at.barrier;
        }
        if place.last != meta.last_log_id {
            return Err(invalid("a snapshot of another place"));
        }
        self.shared.use_snapshot(position, place.lease_ms)?;
        (applied.at, applied.snapshot) = (place.clone(), Some(place));
        applied.is_broken = false;
        Ok(())
    }

    /// Copies a snapshot file of another node in this process.
    fn copy_snapshot(
        &self,
        file: &dyn DiskFile,
        position: Position,
    ) -> io::Result<ReceivedSnapshot> {
        let mut received = self.receive_snapshot(position)?;
        let (mut buffer, mut offset) = (vec![0; limits::SNAPSHOT_PART_BYTES], 0);
        loop {
            let read = file.read_at(offset, &mut buffer)?;
            if read == 0 {
                return Ok(received);
            }
            received.write(&buffer[..read])?;
            offset += read as u64;
        }
    }

    fn open_snapshot(&self, place: &LogPlace) -> io::Result<Snapshot<Types>> {
        let position = place.position();
        let file = self.shared.files.lock().open_snapshot(position)?;
        let snapshot = Box::new(SnapshotFile::Complete { position, file });
        Ok(Snapshot { meta: place.meta(), snapshot })
    }

    /// A file for a snapshot that the leader sends.
    pub(crate) fn receive_snapshot(&self, position: Position) -> io::Result<ReceivedSnapshot> {
        self.shared.files.lock().receive_snapshot(position)
    }
}

/// Writes a snapshot.
#[derive(Debug)]
pub struct SnapshotBuilder {
    machine: StateMachine,
}

/// How far a snapshot is.
enum Progress {
    /// The snapshot is complete.
    Written(Snapshot<Types>),
    /// The state was cleared meanwhile.
    GivenUp,
    /// The snapshot has effects of units that are not committed. The receiver gets its place in the
    /// log when they are, or an error if this process stops leading before.
    Awaits(oneshot::Receiver<LogPlace>, Box<dyn SnapshotParts>),
}

impl RaftSnapshotBuilder<Types> for SnapshotBuilder {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError<NodeId>> {
        match self.build().await {
            // After an error `openraft` would end, and the log has space for releases.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                error!(%error, "the snapshot has failed");
                Ok(self.machine.same_snapshot())
            }
            built => built.map_err(storage_error),
        }
    }
}

impl SnapshotBuilder {
    async fn build(&self) -> io::Result<Snapshot<Types>> {
        let machine = &self.machine;
        loop {
            let mut progress = blocking(|| machine.begin_snapshot())?;
            if let Progress::Awaits(place, mut parts) = progress {
                progress = match place.await {
                    Ok(place) => blocking(|| machine.write_snapshot(&place, &mut *parts))?,
                    Err(_) => Progress::GivenUp,
                };
            }
            if let Progress::Written(snapshot) = progress {
                return Ok(snapshot);
            }
        }
    }
}

impl StateMachine {
    fn begin_snapshot(&self) -> io::Result<Progress> {
        let mut applied = self.applied.lock();
        if applied.is_broken && !defect!(RaftSnapshotOfABrokenState) {
            return Err(io::Error::other("the state could not be rebuilt"));
        }
        let mut parts = self.state.begin_snapshot();
        let place = applied.at.whole();
        match (parts.last(), applied.leading) {
            (Some(last), Some((_, committed))) if last == committed => {
                drop(applied);
                self.write_snapshot(&place, &mut *parts)
            }
            (Some(_), _) if defect!(RaftSnapshotOfUncommittedEffects) => {
                drop(applied);
                self.write_snapshot(&place, &mut *parts)
            }
            (Some(last), _) => {
                let (sender, receiver) = oneshot::channel();
                applied.waiting = Some((last, sender));
                Ok(Progress::Awaits(receiver, parts))
            }
            // Nothing is applied meanwhile.
            (None, _) => {
                let written = self.write_parts(&place, &mut *parts)?;
                self.use_snapshot(&mut applied, place, written)
            }
        }
    }

    fn write_snapshot(
        &self,
        place: &LogPlace,
        parts: &mut dyn SnapshotParts,
    ) -> io::Result<Progress> {
        let written = self.write_parts(place, parts)?;
        self.use_snapshot(&mut self.applied.lock(), place.clone(), written)
    }

    /// Writes the file; returns whether it is complete.
    fn write_parts(&self, place: &LogPlace, parts: &mut dyn SnapshotParts) -> io::Result<bool> {
        let written = self.write_file(place, parts);
        if !matches!(written, Ok(false)) {
            parts.end(written.is_ok());
        }
        written
    }

    fn write_file(&self, place: &LogPlace, parts: &mut dyn SnapshotParts) -> io::Result<bool> {
        let is_unstamped = defect!(RaftSnapshotWithoutLeaseTime);
        let lease_ms = if is_unstamped { 0 } else { place.lease_ms };
        let clocks = Clocks { lease_ms, ..Clocks::default() };
        let mut file = self.shared.files.lock().begin_snapshot_at(place.position(), clocks)?;
        let mut place = place.clone();
        if defect!(RaftSnapshotWithoutBarrier) {
            place.barrier = 0;
        }
        if defect!(RaftSnapshotWithoutLeaseTime) {
            place.lease_ms = 0;
        }
        if defect!(RaftSnapshotWithoutGuard) {
            place.guard = None;
        }
        if defect!(RaftSnapshotWithoutMembers) {
            place.membership = StoredMembership::default();
        }
        let place = rmp_serde::to_vec_named(&place).map_err(io::Error::other)?;
        match file.write(&place).and_then(|()| parts.write(&mut file)) {
            Ok(true) => file.finish().map(|()| true),
            Ok(false) => file.give_up().map(|()| false),
            Err(error) => {
                // The next start removes a file that is left.
                let _ = file.give_up();
                Err(error)
            }
        }
    }

    /// The metadata of the latest snapshot, if there is one, without contents: tells `openraft`
    /// that nothing has changed.
    fn same_snapshot(&self) -> Snapshot<Types> {
        let meta = self.applied.lock().snapshot.as_ref().map(LogPlace::meta).unwrap_or_default();
        Snapshot { meta, snapshot: Box::new(SnapshotFile::Expected) }
    }

    /// Replaces the snapshot by one that was written, unless that is not complete.
    fn use_snapshot(
        &self,
        applied: &mut Applied,
        place: LogPlace,
        is_complete: bool,
    ) -> io::Result<Progress> {
        if !is_complete {
            return Ok(Progress::GivenUp);
        }
        // One that was installed meanwhile may be later.
        if let Some(snapshot) = &applied.snapshot
            && snapshot.position() > place.position()
        {
            return self.open_snapshot(snapshot).map(Progress::Written);
        }
        self.shared.use_snapshot(place.position(), place.lease_ms)?;
        let snapshot = self.open_snapshot(&place)?;
        applied.snapshot = Some(place);
        Ok(Progress::Written(snapshot))
    }

    /// As [`Files::check_names`](lockwheel_log::files::Files::check_names).
    pub(crate) fn check_files(&self) -> io::Result<()> {
        self.shared.files.lock().check_names()
    }

    /// The sizes of the snapshot and of the log after it, and the free space of the disk, in bytes.
    pub(crate) fn sizes(&self) -> (u64, u64, io::Result<u64>) {
        let files = self.shared.files.lock();
        (files.snapshot_bytes(), files.segment_bytes(), files.free_bytes())
    }
}
