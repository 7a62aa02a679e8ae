//! Reads a log at the start of a server: the newest snapshot, and the segments after it.

use std::collections::VecDeque;
use std::fmt;
use std::io;

use crate::ceiling::{CEILING, CeilingRecord};
use crate::disk::{Disk, DiskFile, DiskLock};
use crate::frame::{Beginning, Frame, Header, Kind, VERSION};
use crate::marker::{self, Marker};
use crate::names::{GUARD, LOCK, Name, RESTORING};
use crate::position::Position;
use crate::reader::{Next, Reader};
use crate::small_file;
use lockwheel_defects::defect;

/// Effects that a log contains, in the order in which they must be applied.
#[derive(Clone, Copy, Debug)]
pub struct Effects<'a> {
    /// The last unit that they belong to.
    pub last: Position,
    /// Whether they are a part of a snapshot.
    pub is_snapshot: bool,
    /// The lease clock after them, in milliseconds.
    pub lease_ms: i64,
    /// In byte form, as the engine has given them out.
    pub bytes: &'a [u8],
}

/// The clocks when the last unit was logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastTime {
    /// The lease clock, in milliseconds.
    pub lease_ms: i64,
    /// The time since the machine was started, in milliseconds.
    pub boot_ms: i64,
    /// The wall clock, in milliseconds since 1970.
    pub wall_ms: i64,
    /// The run of the machine.
    pub boot_id: [u8; 16],
}

/// Bytes at the end of the last segment that are no complete frame: they were being written when
/// the process ended, and nothing that depends on them was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The segment.
    pub segment: Name,
    /// Where they begin.
    pub offset: u64,
    /// Their number.
    pub bytes: u64,
}

/// What was read of a log.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    /// The last unit.
    pub last: Position,
    /// The position of the snapshot.
    pub snapshot: Option<Position>,
    /// The segments that belong to the log, in order. Each has a unit at least.
    pub segments: Vec<Name>,
    /// Files that are no longer needed.
    pub obsolete: Vec<Name>,
    /// The greatest epoch in it, that of the marker included.
    pub epoch: u64,
    /// What a repair or a restoration has left.
    pub marker: Option<Marker>,
    /// The clocks of the last frame.
    pub time: Option<LastTime>,
    /// What must be cut off the last segment.
    pub torn: Option<TornTail>,
    /// Whether something is cut off, also with a whole segment: it may have been flushed once.
    pub is_cut: bool,
    /// Where the frames of the last segment begin that no later frame calls flushed.
    pub unflushed_offset: Option<u64>,
    /// The checksum of the last frame.
    pub(crate) checksum: u32,
}

/// Why a log cannot be used.
#[derive(Debug)]
pub enum RecoveryError {
    /// The system returned an error.
    Io {
        /// The file, or the directory.
        file: String,
        /// The error.
        error: io::Error,
    },
    /// Another process uses the directory.
    InUse,
    /// A file is damaged where it was complete once.
    Damaged {
        /// The file.
        file: Name,
        /// The place of the damage.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// A restoration of a backup to the directory was interrupted.
    Unfinished,
    /// The last segment is missing, or one after it: the lease ceiling names it.
    MissingSegment(Name),
    /// Units are missing: files were removed.
    Missing {
        /// The unit that should follow.
        expected: Position,
        /// The file that begins later.
        file: Name,
    },
    /// A file has a format that this version does not know.
    Version {
        /// The file.
        file: Name,
        /// The version of its format.
        version: u32,
    },
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecoveryError::Io { file, error } => write!(f, "{file}: {error}"),
            RecoveryError::InUse => f.write_str("another process uses the directory"),
            RecoveryError::Damaged { file, offset, reason } => {
                write!(f, "{file} is damaged at byte {offset}: {reason}")
            }
            RecoveryError::Unfinished => f.write_str(
                "the restoration of a backup was interrupted: empty the directory and begin again",
            ),
            RecoveryError::MissingSegment(name) => {
                write!(f, "{name} is missing, which is the last segment according to {CEILING}")
            }
            RecoveryError::Missing { expected, file } => {
                write!(f, "unit {expected} is missing; {file} begins after it")
            }
            RecoveryError::Version { file, version } => write!(
                f,
                "{file} has version {version} of the format; this program reads version {VERSION}"
            ),
        }
    }
}

impl std::error::Error for RecoveryError {}

impl RecoveryError {
    /// An error of the system with this file, or with the directory.
    pub(crate) fn io(file: &impl ToString) -> impl FnOnce(io::Error) -> RecoveryError {
        let file = file.to_string();
        |error| RecoveryError::Io { file, error }
    }
}

/// Reads the log and calls `apply` with everything that must be applied to an empty state. Changes
/// nothing on the disk.
///
/// # Errors
/// As [`RecoveryError`] lists them. An error of `apply` is one of [`RecoveryError::Damaged`].
pub fn recover(
    disk: &dyn Disk,
    apply: impl FnMut(Effects<'_>) -> Result<(), String>,
) -> Result<Recovered, RecoveryError> {
    refuse_unfinished(disk)?;
    recover_restored(disk, apply)
}

/// Refuses a directory to which a backup is being restored.
pub(crate) fn refuse_unfinished(disk: &dyn Disk) -> Result<(), RecoveryError> {
    match small_file::read(disk, RESTORING).map_err(RecoveryError::io(&RESTORING))? {
        Some(_) => Err(RecoveryError::Unfinished),
        None => Ok(()),
    }
}

/// As [`recover`], while a backup is being restored.
pub(crate) fn recover_restored(
    disk: &dyn Disk,
    mut apply: impl FnMut(Effects<'_>) -> Result<(), String>,
) -> Result<Recovered, RecoveryError> {
    // Read before the names, since a server may begin segments meanwhile and then record them.
    let ceiling = CeilingRecord::read(disk).map_err(RecoveryError::io(&CEILING))?;
    let names = names(disk)?;
    let mut recovered = recover_parts(disk, &names, None, &mut apply)?;
    recovered.marker = marker::read(disk).map_err(RecoveryError::io(&GUARD))?;
    match (&recovered.marker, missing_segment(ceiling, &names)) {
        (Some(marker), _) => recovered.epoch = recovered.epoch.max(marker.epoch),
        (None, Some(name)) if !defect!(MissingSegmentNotNoticed) => {
            return Err(RecoveryError::MissingSegment(name));
        }
        (None, _) => {}
    }
    Ok(recovered)
}

/// The segment that the lease ceiling calls the last one, if neither it nor a later one is there.
pub(crate) fn missing_segment(ceiling: Option<CeilingRecord>, names: &[Name]) -> Option<Name> {
    let last = Name::Segment(ceiling?.segment);
    let is_there = |name: &Name| matches!(name, Name::Segment(_)) && *name >= last;
    (last != Name::Segment(0) && !names.iter().any(is_there)).then_some(last)
}

/// The files of the log, in order.
pub(crate) fn names(disk: &dyn Disk) -> Result<Vec<Name>, RecoveryError> {
    let names = disk.names().map_err(RecoveryError::io(&"directory"))?;
    let mut names: Vec<Name> = names.iter().filter_map(|name| Name::parse(name)).collect();
    names.sort_unstable();
    Ok(names)
}

/// As [`recover`], as if there were only the files with these names, and as if one of them ended at
/// `end`.
pub(crate) fn recover_parts(
    disk: &dyn Disk,
    names: &[Name],
    end: Option<(Name, u64)>,
    apply: &mut dyn FnMut(Effects<'_>) -> Result<(), String>,
) -> Result<Recovered, RecoveryError> {
    let mut recovery =
        Recovery { disk, end, apply, result: Recovered::default(), is_chained: false };
    recovery.read_all(names)?;
    Ok(recovery.result)
}

struct Recovery<'a> {
    disk: &'a dyn Disk,
    /// Where one of the files ends.
    end: Option<(Name, u64)>,
    apply: &'a mut dyn FnMut(Effects<'_>) -> Result<(), String>,
    result: Recovered,
    /// Whether `result.checksum` is that of the frame before the next one.
    is_chained: bool,
}

impl Recovery<'_> {
    fn read_all(&mut self, names: &[Name]) -> Result<(), RecoveryError> {
        let snapshot = names.iter().rev().find_map(|name| match name {
            Name::Snapshot(position) => Some(*position),
            _ => None,
        });
        if let Some(position) = snapshot {
            self.read_snapshot(Name::Snapshot(position), position)?;
        }
        let segments: Vec<(Name, Position)> = names
            .iter()
            .filter_map(|name| match name {
                Name::Segment(first) => Some((*name, *first)),
                _ => None,
            })
            .collect();
        // A segment is needed if it has a unit after the snapshot: if the next one begins later.
        let needed = segments.partition_point(|(_, first)| *first <= self.result.last + 1);
        let needed = &segments[needed.saturating_sub(1)..];
        for (at, (name, first)) in needed.iter().enumerate() {
            if *first > self.result.last + 1 {
                let expected = self.result.last + 1;
                return Err(RecoveryError::Missing { expected, file: *name });
            }
            self.read_segment(*name, at + 1 == needed.len())?;
        }
        let is_kept = |name: &Name| match name {
            Name::Snapshot(position) => Some(*position) == snapshot,
            Name::PartialSnapshot(_) => false,
            Name::Segment(_) => self.result.segments.contains(name),
        };
        self.result.obsolete = names.iter().copied().filter(|name| !is_kept(name)).collect();
        Ok(())
    }

    fn read_snapshot(&mut self, name: Name, position: Position) -> Result<(), RecoveryError> {
        let mut reader = self.open(name)?;
        let mut is_complete = false;
        self.is_chained = true;
        loop {
            let offset = reader.offset();
            let damaged =
                |reason: &str| RecoveryError::Damaged { file: name, offset, reason: reason.into() };
            let frame = match reader.read().map_err(RecoveryError::io(&name))? {
                Next::Frame(frame) => frame,
                Next::End if is_complete => break,
                Next::End => return Err(damaged("its end is missing")),
                Next::Damaged => return Err(damaged("no frame")),
            };
            if is_complete || frame.header.last != position {
                return Err(damaged("a frame of another file"));
            }
            self.check_chain(name, offset, &frame)?;
            match frame.header.kind {
                Kind::Beginning if offset == 0 => self.begin(name, &frame)?,
                Kind::Part if offset > 0 => self.pass_on(name, offset, &frame)?,
                Kind::End if offset > 0 => is_complete = true,
                _ => return Err(damaged("a frame of another kind of file")),
            }
        }
        (self.result.snapshot, self.result.last) = (Some(position), position);
        // The checksums of the segments are not continued in a snapshot.
        self.is_chained = false;
        Ok(())
    }

    fn read_segment(&mut self, name: Name, is_last: bool) -> Result<(), RecoveryError> {
        let mut reader = self.open(name)?;
        let checksum_before = self.result.checksum;
        let mut has_units = false;
        // The frames that no later one calls flushed: the last unit and the offset of each.
        let mut unflushed = VecDeque::new();
        loop {
            let offset = reader.offset();
            let damaged =
                |reason: &str| RecoveryError::Damaged { file: name, offset, reason: reason.into() };
            let frame = match reader.read().map_err(RecoveryError::io(&name))? {
                Next::Frame(frame) => frame,
                Next::End if offset > 0 => break,
                Next::End | Next::Damaged => {
                    let last = self.result.last;
                    let was_flushed = |frame: &Frame<'_>| {
                        frame.header.flushed > last && !defect!(FlushedPartCutOff)
                    };
                    let is_ignored = is_last && offset == 0 && defect!(DamagedSegmentRemoved);
                    // The first frame is durable before another one is written.
                    if !is_ignored
                        && (!is_last
                            || offset == 0 && reader.length() > Beginning::FRAME_BYTES
                            || reader
                                .later_frames(was_flushed)
                                .map_err(RecoveryError::io(&name))?)
                    {
                        return Err(damaged("no frame, in a part that was flushed"));
                    }
                    // Nothing follows a beginning that is not complete.
                    self.result.is_cut |= offset > 0;
                    let bytes = reader.length() - offset;
                    self.result.torn = Some(TornTail { segment: name, offset, bytes });
                    break;
                }
            };
            self.check_chain(name, offset, &frame)?;
            let header = frame.header;
            has_units |= header.kind == Kind::Units;
            unflushed.push_back((header.last, offset));
            while unflushed.front().is_some_and(|(last, _)| *last <= header.flushed) {
                unflushed.pop_front();
            }
            match header.kind {
                Kind::Beginning if offset == 0 => self.begin(name, &frame)?,
                Kind::Units if offset > 0 && header.last <= self.result.last => {}
                Kind::Units if offset > 0 && header.first == self.result.last + 1 => {
                    self.pass_on(name, offset, &frame)?;
                    self.result.last = header.last;
                }
                Kind::Units if offset > 0 => return Err(damaged("units are missing")),
                _ => return Err(damaged("a frame of another kind of file")),
            }
        }
        if has_units {
            self.result.segments.push(name);
            self.result.unflushed_offset = unflushed.front().map(|(_, offset)| *offset);
        } else {
            // It is removed, and the next segment continues the one before.
            (self.result.checksum, self.result.torn) = (checksum_before, None);
        }
        Ok(())
    }

    fn open(&self, name: Name) -> Result<Reader, RecoveryError> {
        let reader = Reader::new(open(self.disk, name)?).map_err(RecoveryError::io(&name))?;
        Ok(match self.end {
            Some((ended, end)) if ended == name => reader.until(end),
            _ => reader,
        })
    }

    /// Checks that the frame follows the one before.
    fn check_chain(
        &mut self,
        file: Name,
        offset: u64,
        frame: &Frame<'_>,
    ) -> Result<(), RecoveryError> {
        if self.is_chained && frame.previous != self.result.checksum {
            let reason = "the frame before it is missing".to_owned();
            return Err(RecoveryError::Damaged { file, offset, reason });
        }
        (self.is_chained, self.result.checksum) = (true, frame.checksum);
        Ok(())
    }

    /// Reads the first frame of a file.
    fn begin(&mut self, file: Name, frame: &Frame<'_>) -> Result<(), RecoveryError> {
        let Some(beginning) = Beginning::decode(frame.contents) else {
            let reason = "the first frame has no version".to_owned();
            return Err(RecoveryError::Damaged { file, offset: 0, reason });
        };
        if beginning.version != VERSION {
            return Err(RecoveryError::Version { file, version: beginning.version });
        }
        self.result.epoch = self.result.epoch.max(beginning.epoch);
        let header = frame.header;
        self.result.time = Some(time_of(&header, beginning.boot_id));
        Ok(())
    }

    fn pass_on(&mut self, file: Name, offset: u64, frame: &Frame<'_>) -> Result<(), RecoveryError> {
        let header = frame.header;
        if let Some(time) = &mut self.result.time {
            *time = time_of(&header, time.boot_id);
        }
        let effects = Effects {
            last: header.last,
            is_snapshot: header.kind == Kind::Part,
            lease_ms: header.lease_ms,
            bytes: frame.contents,
        };
        (self.apply)(effects).map_err(|reason| RecoveryError::Damaged { file, offset, reason })
    }
}

fn time_of(header: &Header, boot_id: [u8; 16]) -> LastTime {
    let Header { lease_ms, boot_ms, wall_ms, .. } = *header;
    LastTime { lease_ms, boot_ms, wall_ms, boot_id }
}

/// What is known of a log before it is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// The clocks of the last frame; `None` if there is none.
    pub time: Option<LastTime>,
    /// The length of the files that will be read.
    pub bytes: u64,
}

/// Reads the end of the log only.
///
/// # Errors
/// [`RecoveryError::Io`], [`RecoveryError::Version`]. Damage is found by [`recover`].
pub fn overview(disk: &dyn Disk) -> Result<Overview, RecoveryError> {
    let names = disk.names().map_err(RecoveryError::io(&"directory"))?;
    let mut names: Vec<Name> = names.iter().filter_map(|name| Name::parse(name)).collect();
    names.retain(|name| !matches!(name, Name::PartialSnapshot(_)));
    // Sorted by the units they contain; the log ends in the last segment that has a frame.
    names.sort_by_key(|name| match name {
        Name::Snapshot(position) | Name::PartialSnapshot(position) => (*position, false),
        Name::Segment(first) => (*first, true),
    });
    let mut overview = Overview::default();
    for name in names.into_iter().rev() {
        let mut reader = Reader::new(open(disk, name)?).map_err(RecoveryError::io(&name))?;
        overview.bytes += reader.length();
        if overview.time.is_none() {
            overview.time = last_time(name, &mut reader)?;
        }
        if matches!(name, Name::Snapshot(_)) {
            break;
        }
    }
    Ok(overview)
}

fn last_time(name: Name, reader: &mut Reader) -> Result<Option<LastTime>, RecoveryError> {
    let mut time: Option<LastTime> = None;
    while let Next::Frame(frame) = reader.read().map_err(RecoveryError::io(&name))? {
        let boot_id = match (time, Beginning::decode(frame.contents)) {
            (Some(time), _) => time.boot_id,
            (None, Some(beginning)) if beginning.version == VERSION => beginning.boot_id,
            (None, Some(Beginning { version, .. })) => {
                return Err(RecoveryError::Version { file: name, version });
            }
            (None, None) => break,
        };
        time = Some(time_of(&frame.header, boot_id));
        if matches!(name, Name::Snapshot(_)) {
            // All its frames have the same.
            break;
        }
    }
    Ok(time)
}

/// The epoch in the first frame of a file, if its version is known.
pub(crate) fn epoch(frame: &Frame<'_>) -> Option<u64> {
    Beginning::decode(frame.contents).map(|beginning| beginning.epoch)
}

/// Takes the directory for this process.
///
/// # Errors
/// [`RecoveryError::InUse`] if another process has it, or [`RecoveryError::Io`].
pub fn lock(disk: &dyn Disk) -> Result<Box<dyn DiskLock>, RecoveryError> {
    disk.lock().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => RecoveryError::InUse,
        _ => RecoveryError::io(&LOCK)(error),
    })
}

/// Opens a file of the log to append to it.
pub(crate) fn open(disk: &dyn Disk, name: Name) -> Result<Box<dyn DiskFile>, RecoveryError> {
    disk.open(&name.to_string()).map_err(RecoveryError::io(&name))
}

/// Calls `apply` with the parts of a snapshot.
///
/// # Errors
/// As [`recover`].
pub fn read_snapshot(
    disk: &dyn Disk,
    position: Position,
    mut apply: impl FnMut(Effects<'_>) -> Result<(), String>,
) -> Result<(), RecoveryError> {
    read_snapshot_file(disk, Name::Snapshot(position), position, &mut apply)
}

/// Checks that a file is a complete snapshot of this position.
pub(crate) fn check_snapshot(
    disk: &dyn Disk,
    name: Name,
    position: Position,
) -> Result<(), RecoveryError> {
    read_snapshot_file(disk, name, position, &mut |_| Ok(()))
}

fn read_snapshot_file(
    disk: &dyn Disk,
    name: Name,
    position: Position,
    apply: &mut dyn FnMut(Effects<'_>) -> Result<(), String>,
) -> Result<(), RecoveryError> {
    let result = Recovered::default();
    Recovery { disk, end: None, apply, result, is_chained: false }.read_snapshot(name, position)
}
