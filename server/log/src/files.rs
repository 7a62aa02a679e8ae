//! Writes a log: appends batches to segments, and replaces old segments by snapshots.
//!
//! Nothing here is repeated after an error: a second flush may succeed although the data of the
//! first one is lost. The caller must end the process.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, DiskLock};
use crate::frame::{self, Beginning, HEADER_BYTES, Header, Kind, VERSION};
use crate::limits;
use crate::names::Name;
use crate::position::Position;
use crate::reader::{Next, Reader};
use crate::recovery::{self, Effects, Recovered, RecoveryError, recover};
use lockwheel_defects::defect;

/// The clocks at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// The lease clock, in milliseconds.
    pub lease_ms: i64,
    /// The time since the machine was started, in milliseconds.
    pub boot_ms: i64,
    /// The wall clock, in milliseconds since 1970.
    pub wall_ms: i64,
}

/// The effects of units that follow each other.
#[derive(Debug)]
pub struct Batch {
    /// A frame whose header is not written yet.
    frame: Vec<u8>,
    first: Position,
    last: Position,
    clocks: Clocks,
}

impl Default for Batch {
    fn default() -> Batch {
        Batch { frame: vec![0; HEADER_BYTES], first: 0, last: 0, clocks: Clocks::default() }
    }
}

impl Batch {
    /// Adds units from `first` to `last`, which follow those in the batch. `clocks` is the time
    /// after them.
    pub fn push(&mut self, first: Position, last: Position, effects: &[u8], clocks: Clocks) {
        debug_assert!(self.is_empty() || first == self.last + 1, "units are missing");
        if defect!(BatchInWrongOrder) {
            self.frame.splice(HEADER_BYTES..HEADER_BYTES, effects.iter().copied());
            let is_first = self.is_empty();
            (self.first, self.last) = (if is_first { first } else { self.first }, last);
            self.clocks = clocks;
            return;
        }
        if self.is_empty() {
            self.first = first;
        }
        (self.last, self.clocks) = (last, clocks);
        self.frame.extend_from_slice(effects);
    }

    /// Whether there are no units.
    pub fn is_empty(&self) -> bool {
        self.first == 0
    }

    /// The last unit.
    pub fn last(&self) -> Position {
        self.last
    }

    /// The number of units.
    pub fn units(&self) -> u64 {
        if self.is_empty() { 0 } else { self.last + 1 - self.first }
    }

    /// The bytes of the effects.
    pub fn bytes(&self) -> usize {
        self.frame.len() - HEADER_BYTES
    }

    /// Removes all units.
    pub fn clear(&mut self) {
        self.frame.truncate(HEADER_BYTES);
        self.first = 0;
    }
}

/// A log that is open for writing.
#[derive(Debug)]
pub struct Files {
    pub(crate) disk: Arc<dyn Disk>,
    /// Keeps the directory for this process.
    _lock: Box<dyn DiskLock>,
    pub(crate) beginning: Beginning,
    pub(crate) segment: Box<dyn DiskFile>,
    /// The files that a snapshot makes obsolete, in order, with their lengths. The last one is the
    /// current segment.
    pub(crate) names: Vec<(Name, u64)>,
    /// The checksum of the last frame.
    pub(crate) checksum: u32,
    pub(crate) written: Position,
    pub(crate) flushed: Position,
    pub(crate) clocks: Clocks,
    /// The number of snapshots of other machines.
    pub(crate) received: u64,
    segment_bytes_max: u64,
}

impl Files {
    /// Takes the directory, reads the log, and begins a new segment. `apply` is called as by
    /// [`recover`]; from what was recovered, `clocks` determines the time from which the server
    /// goes on, and `boot_id` names the run of the machine.
    ///
    /// # Errors
    /// As [`RecoveryError`] lists them. Nothing is changed if the log cannot be read, or `clocks`
    /// fails.
    pub fn open(
        disk: Arc<dyn Disk>,
        boot_id: [u8; 16],
        apply: impl FnMut(Effects<'_>) -> Result<(), String>,
        clocks: impl FnOnce(&Recovered) -> Result<Clocks, RecoveryError>,
    ) -> Result<(Files, Recovered), RecoveryError> {
        let lock = match recovery::lock(&*disk) {
            Err(RecoveryError::InUse) if defect!(DirectoryNotLocked) => Box::new(NoLock),
            lock => lock?,
        };
        let recovered = recover(&*disk, apply)?;
        let clocks = clocks(&recovered)?;
        let beginning = Beginning { version: VERSION, epoch: recovered.epoch + 1, boot_id };
        tidy(&*disk, &recovered)?;
        let mut names = Vec::new();
        let snapshot = recovered.snapshot.map(Name::Snapshot);
        for name in snapshot.into_iter().chain(recovered.segments.iter().copied()) {
            let file = recovery::open(&*disk, name)?;
            names.push((name, file.length().map_err(RecoveryError::io(&name))?));
        }
        let first = Name::Segment(recovered.last + 1);
        let (segment, bytes, checksum) =
            begin_segment(&*disk, &beginning, recovered.last, clocks, recovered.checksum, true)
                .map_err(RecoveryError::io(&first))?;
        names.push((first, bytes));
        let files = Files {
            disk,
            _lock: lock,
            beginning,
            segment,
            names,
            checksum,
            written: recovered.last,
            flushed: recovered.last,
            clocks,
            received: 0,
            segment_bytes_max: limits::SEGMENT_BYTES,
        };
        Ok((files, recovered))
    }

    /// Sets the length after which a segment ends, instead of [`limits::SEGMENT_BYTES`].
    pub fn set_segment_bytes_max(&mut self, bytes: u64) {
        self.segment_bytes_max = bytes;
    }

    /// The number of this start.
    pub fn epoch(&self) -> u64 {
        self.beginning.epoch
    }

    /// The last unit that was written.
    pub fn written(&self) -> Position {
        self.written
    }

    /// The last unit that was flushed.
    pub fn flushed(&self) -> Position {
        self.flushed
    }

    /// The first unit of the current segment.
    pub fn segment(&self) -> Position {
        match self.names.last() {
            Some((Name::Segment(first), _)) => *first,
            _ => 0,
        }
    }

    /// The position of the snapshot, if there is one.
    pub fn snapshot(&self) -> Option<Position> {
        self.names.iter().find_map(|(name, _)| match name {
            Name::Snapshot(position) => Some(*position),
            _ => None,
        })
    }

    /// The length of the snapshot, 0 if there is none.
    pub fn snapshot_bytes(&self) -> u64 {
        let is_snapshot = |(name, _): &&(Name, u64)| matches!(name, Name::Snapshot(_));
        self.names.iter().filter(is_snapshot).map(|(_, bytes)| bytes).sum()
    }

    /// The length of all segments.
    pub fn segment_bytes(&self) -> u64 {
        let is_segment = |(name, _): &&(Name, u64)| matches!(name, Name::Segment(_));
        self.names.iter().filter(is_segment).map(|(_, bytes)| bytes).sum()
    }

    /// The bytes that may still be written to the disk.
    pub fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    /// Checks that no other program has removed a file of the log.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if one is missing, or as [`Disk::names`].
    pub fn check_names(&self) -> io::Result<()> {
        let present = self.disk.names()?;
        let mut names = self.names.iter().map(|(name, _)| name.to_string());
        let Some(missing) = names.find(|name| !present.contains(name)) else { return Ok(()) };
        Err(io::Error::new(io::ErrorKind::NotFound, format!("{missing} was removed")))
    }

    /// The length of the current segment.
    pub(crate) fn current_bytes(&mut self) -> &mut u64 {
        let (_, bytes) = self.names.last_mut().expect("there is a current segment");
        bytes
    }

    /// Writes a batch, which must not be empty, and clears it. It is durable after the next
    /// [`Files::sync`].
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the batch is longer than [`limits::FRAME_BYTES_MAX`].
    pub fn write(&mut self, batch: &mut Batch) -> io::Result<()> {
        assert_eq!(batch.first, self.written + 1, "units are missing");
        if batch.bytes() > limits::FRAME_BYTES_MAX {
            let message = "a transaction or script has changed more than a frame can contain";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        if *self.current_bytes() > self.segment_bytes_max {
            self.end_segment()?;
        }
        let header = Header {
            kind: Kind::Units,
            first: batch.first,
            last: batch.last,
            flushed: self.flushed,
            lease_ms: batch.clocks.lease_ms,
            boot_ms: batch.clocks.boot_ms,
            wall_ms: batch.clocks.wall_ms,
        };
        let checksum = frame::seal(&mut batch.frame, &header, self.checksum);
        let written = self.segment.append(&batch.frame);
        if !defect!(WriteErrorIgnored) {
            written?;
        }
        *self.current_bytes() += batch.frame.len() as u64;
        (self.checksum, self.written, self.clocks) = (checksum, batch.last, batch.clocks);
        batch.clear();
        Ok(())
    }

    /// Makes everything that was written durable.
    pub fn sync(&mut self) -> io::Result<()> {
        if self.flushed < self.written {
            let synced = self.segment.sync();
            if !defect!(FlushErrorIgnored) {
                synced?;
            }
            self.flushed = self.written;
        }
        Ok(())
    }

    /// Ends the segment and begins the next one. A snapshot at this position makes all segments
    /// before obsolete.
    pub fn end_segment(&mut self) -> io::Result<()> {
        // Flushed before the next file exists: damage in a segment that is not the last is an
        // error.
        if !defect!(SegmentNotFlushedAtItsEnd) {
            self.sync()?;
        }
        let next = Name::Segment(self.written + 1);
        if self.names.last().is_some_and(|(name, _)| *name == next) {
            return Ok(());
        }
        let (segment, bytes, checksum) = begin_segment(
            &*self.disk,
            &self.beginning,
            self.written,
            self.clocks,
            self.checksum,
            false,
        )?;
        (self.segment, self.checksum) = (segment, checksum);
        self.names.push((next, bytes));
        Ok(())
    }

    /// Begins a snapshot at the last position written: ends the segment, and returns the file to
    /// write, from any thread.
    pub fn begin_snapshot(&mut self) -> io::Result<Snapshot> {
        self.end_segment()?;
        if defect!(SegmentsRemovedTooEarly) {
            let first = Name::Segment(self.written + 1);
            let (obsolete, rest) = self.names.iter().partition(|(name, _)| *name != first);
            self.names = rest;
            let obsolete: Vec<(Name, u64)> = obsolete;
            obsolete.iter().try_for_each(|(name, _)| self.disk.remove(&name.to_string()))?;
        }
        Snapshot::create(Arc::clone(&self.disk), &self.beginning, self.written, self.clocks)
    }

    /// Replaces the files before a complete snapshot by it. They are returned, to be removed from
    /// any thread: the system may take long for large files.
    pub fn replace_before(&mut self, snapshot: Position) -> io::Result<Obsolete> {
        let mut obsolete = self.use_snapshot(snapshot)?;
        obsolete.names.extend(self.drop_units(snapshot).names);
        Ok(obsolete)
    }

    /// Replaces the earlier snapshots by this complete one, and returns them.
    pub fn use_snapshot(&mut self, snapshot: Position) -> io::Result<Obsolete> {
        let name = Name::Snapshot(snapshot);
        let bytes = self.disk.open(&name.to_string())?.length()?;
        // It may replace one of the same position.
        self.names.retain(|(known, _)| *known != name);
        let obsolete = self.take_names(|name| !matches!(name, Name::Segment(_)));
        self.names.insert(0, (name, bytes));
        Ok(obsolete)
    }

    /// Returns the segments in which no unit comes after `position`, but not the current one.
    pub fn drop_units(&mut self, position: Position) -> Obsolete {
        // A segment ends where the next one begins.
        let begins = |name: &Name| matches!(name, Name::Segment(first) if *first <= position + 1);
        let kept = self.names.iter().rev().map(|(name, _)| *name).find(begins);
        self.take_names(|name| begins(name) && Some(*name) != kept)
    }

    fn take_names(&mut self, is_obsolete: impl Fn(&Name) -> bool) -> Obsolete {
        let obsolete = self.names.extract_if(.., |(name, _)| is_obsolete(name));
        let names = obsolete.map(|(name, _)| name).collect();
        Obsolete { disk: Arc::clone(&self.disk), names }
    }
}

/// Files that a snapshot has replaced.
#[derive(Debug)]
#[must_use = "they stay until the next start"]
pub struct Obsolete {
    disk: Arc<dyn Disk>,
    names: Vec<Name>,
}

impl Obsolete {
    /// Removes the files, and frees their parts one after the other.
    pub fn remove(self) -> io::Result<()> {
        for name in self.names.iter().map(Name::to_string) {
            let mut file = self.disk.open(&name)?;
            let mut left = file.length()?;
            self.disk.remove(&name)?;
            while left > 0 {
                left = left.saturating_sub(limits::FREED_BYTES);
                file.truncate(left)?;
            }
        }
        Ok(())
    }
}

/// The lock of a directory in a build with the defect of that name: none.
#[derive(Debug)]
struct NoLock;

impl DiskLock for NoLock {}

/// Cuts off what was not complete, makes durable what was read, and removes files without use.
fn tidy(disk: &dyn Disk, recovered: &Recovered) -> Result<(), RecoveryError> {
    if let Some(last) = recovered.segments.last() {
        let mut file = recovery::open(disk, *last)?;
        if let Some(torn) = recovered.torn.filter(|_| !defect!(TailNotTruncated)) {
            file.truncate(torn.offset).map_err(RecoveryError::io(last))?;
        }
        // What was read may not be durable yet, and clients are about to see it.
        if let Some(offset) = recovered.unflushed_offset {
            let end = recovered.torn.map(|torn| torn.offset);
            write_again(disk, *last, &mut *file, offset..end.unwrap_or(u64::MAX))?;
        }
        if !defect!(RecoveredUnitsNotFlushed) {
            file.sync().map_err(RecoveryError::io(last))?;
        }
    }
    // A segment without units is replaced where it is: the lease ceiling may name it.
    let next = Name::Segment(recovered.last + 1);
    for name in recovered.obsolete.iter().filter(|name| **name != next) {
        disk.remove(&name.to_string()).map_err(RecoveryError::io(name))?;
    }
    Ok(())
}

/// Writes the frames in this range again, in their places. The server may have ended because a
/// flush failed: Linux keeps what it could not write in memory, where it can be read, and does not
/// write it by later flushes.
fn write_again(
    disk: &dyn Disk,
    name: Name,
    file: &mut dyn DiskFile,
    range: Range<u64>,
) -> Result<(), RecoveryError> {
    if defect!(RecoveredUnitsNotWrittenAgain) {
        return Ok(());
    }
    let reader = Reader::new(recovery::open(disk, name)?).map_err(RecoveryError::io(&name))?;
    let mut reader = reader.from(range.start).until(range.end);
    loop {
        let offset = reader.offset();
        match reader.read().map_err(RecoveryError::io(&name))? {
            Next::Frame(frame) => {
                file.write_at(offset, frame.bytes).map_err(RecoveryError::io(&name))?;
            }
            Next::End => return Ok(()),
            Next::Damaged => {
                let reason = "it was read differently before".to_owned();
                return Err(RecoveryError::Damaged { file: name, offset, reason });
            }
        }
    }
}

/// Creates a segment for the units after `last`, or replaces one without units, and flushes it and
/// its name. Returns the file, its length and the checksum of its first frame.
fn begin_segment(
    disk: &dyn Disk,
    beginning: &Beginning,
    last: Position,
    clocks: Clocks,
    previous: u32,
    replaces: bool,
) -> io::Result<(Box<dyn DiskFile>, u64, u32)> {
    let name = Name::Segment(last + 1).to_string();
    let mut file = match disk.create(&name) {
        Err(error) if replaces && error.kind() == io::ErrorKind::AlreadyExists => {
            let mut file = disk.open(&name)?;
            file.truncate(0)?;
            // No crash leaves bytes behind a first frame that is not complete.
            file.sync()?;
            file
        }
        created => created?,
    };
    let frame = first_frame(beginning, last, clocks, previous);
    file.append(&frame.0)?;
    file.sync()?;
    if !defect!(DirectoryNotFlushed) {
        disk.sync()?;
    }
    Ok((file, frame.0.len() as u64, frame.1))
}

/// The first frame of a file, with its checksum.
fn first_frame(
    beginning: &Beginning,
    last: Position,
    clocks: Clocks,
    previous: u32,
) -> (Vec<u8>, u32) {
    let mut bytes = vec![0; HEADER_BYTES];
    beginning.encode(&mut bytes);
    let checksum = frame::seal(&mut bytes, &header(Kind::Beginning, last, clocks), previous);
    (bytes, checksum)
}

/// The header of a frame that contains no units.
fn header(kind: Kind, last: Position, clocks: Clocks) -> Header {
    let Clocks { lease_ms, boot_ms, wall_ms } = clocks;
    Header { kind, first: last + 1, last, flushed: last, lease_ms, boot_ms, wall_ms }
}

/// A snapshot that is being written. Dropped before [`Snapshot::finish`], it is incomplete, and the
/// next start removes it.
#[derive(Debug)]
pub struct Snapshot {
    disk: Arc<dyn Disk>,
    file: Box<dyn DiskFile>,
    position: Position,
    clocks: Clocks,
    checksum: u32,
    frame: Vec<u8>,
    bytes: u64,
    /// Bytes that are flushed.
    synced_bytes: u64,
}

impl Snapshot {
    pub(crate) fn create(
        disk: Arc<dyn Disk>,
        beginning: &Beginning,
        position: Position,
        clocks: Clocks,
    ) -> io::Result<Snapshot> {
        let name = match defect!(SnapshotVisibleTooEarly) {
            true => Name::Snapshot(position).to_string(),
            false => Name::PartialSnapshot(position).to_string(),
        };
        // An attempt that was given up may have left the file.
        match disk.remove(&name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = disk.create(&name)?;
        let (frame, checksum) = first_frame(beginning, position, clocks, 0);
        file.append(&frame)?;
        let bytes = frame.len() as u64;
        let (frame, synced_bytes) = (Vec::new(), 0);
        Ok(Snapshot { disk, file, position, clocks, checksum, frame, bytes, synced_bytes })
    }

    /// The position whose state it contains.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Its length so far, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends effects that, applied to an empty state, give the state.
    pub fn write(&mut self, effects: &[u8]) -> io::Result<()> {
        self.append(Kind::Part, effects)
    }

    fn append(&mut self, kind: Kind, effects: &[u8]) -> io::Result<()> {
        self.frame.clear();
        self.frame.resize(HEADER_BYTES, 0);
        self.frame.extend_from_slice(effects);
        let header = header(kind, self.position, self.clocks);
        self.checksum = frame::seal(&mut self.frame, &header, self.checksum);
        self.file.append(&self.frame)?;
        self.bytes += self.frame.len() as u64;
        if self.bytes - self.synced_bytes >= limits::SNAPSHOT_SYNC_BYTES {
            self.file.sync()?;
            self.synced_bytes = self.bytes;
        }
        Ok(())
    }

    /// The free bytes of the disk.
    pub fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    /// Gives the snapshot up and removes its file.
    pub fn give_up(self) -> io::Result<()> {
        self.disk.remove(&Name::PartialSnapshot(self.position).to_string())
    }

    /// Completes the snapshot and makes it durable. Then [`Files::replace_before`] may be called.
    pub fn finish(mut self) -> io::Result<()> {
        self.append(Kind::End, &[])?;
        if !defect!(SnapshotNotFlushed) {
            self.file.sync()?;
        }
        if defect!(SnapshotVisibleTooEarly) {
            return self.disk.sync();
        }
        let name = |name: Name| name.to_string();
        self.disk.rename(
            &name(Name::PartialSnapshot(self.position)),
            &name(Name::Snapshot(self.position)),
        )?;
        self.disk.sync()
    }
}
