//! Repairs a log that cannot be read to its end: cuts it off where the damage begins, and keeps
//! what is cut under another name.
//!
//! The marker is written first: whatever a crash leaves of a repair, the next start guards it.

use std::fmt::Display;
use std::io;
use std::sync::Arc;

use crate::ceiling::{CEILING, CeilingRecord};
use crate::disk::{Disk, DiskFile, DiskLock};
use crate::frame::Kind;
use crate::limits;
use crate::marker::{self, Marker};
use crate::names::{GUARD, Name};
use crate::position::Position;
use crate::reader::{Next, Reader};
use crate::recovery::{
    self, Effects, Recovered, RecoveryError, missing_segment, names, recover_parts,
};

/// A repair that is planned. The directory belongs to this process until it is dropped.
#[derive(Debug)]
pub struct Repair {
    disk: Arc<dyn Disk>,
    _lock: Box<dyn DiskLock>,
    /// What is damaged, in the order in which it was found.
    damages: Vec<RecoveryError>,
    /// What the log will contain.
    left: Recovered,
    /// The segment that is cut off, and where.
    cut: Option<(Name, u64)>,
    /// Files that are renamed.
    renamed: Vec<Name>,
    lost: Lost,
    /// The greatest epoch that could be read.
    epoch: u64,
    has_marker: bool,
    has_damaged_marker: bool,
    has_damaged_ceiling: bool,
}

/// What a repair removes from the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// The bytes.
    pub bytes: u64,
    /// The last unit of which a trace was found behind the damage.
    pub last: Option<Position>,
    /// Whether some of it had been flushed: clients may then rely on it.
    pub was_flushed: bool,
}

impl Repair {
    /// Takes the directory, and reads the log. Changes nothing. `read` is called with the bytes of
    /// each part that was read.
    ///
    /// # Errors
    /// If another process has the directory, a file cannot be read, or it has another version; or
    /// if the restoration of a backup was interrupted.
    pub fn plan(disk: Arc<dyn Disk>, read: &mut dyn FnMut(u64)) -> Result<Repair, RecoveryError> {
        let lock = recovery::lock(&*disk)?;
        recovery::refuse_unfinished(&*disk)?;
        let mut repair = Repair {
            disk,
            _lock: lock,
            damages: Vec::new(),
            left: Recovered::default(),
            cut: None,
            renamed: Vec::new(),
            lost: Lost::default(),
            epoch: 0,
            has_marker: false,
            has_damaged_marker: false,
            has_damaged_ceiling: false,
        };
        repair.read_marker()?;
        repair.read_ceiling()?;
        repair.find_damage(read)?;
        repair.measure_loss()?;
        Ok(repair)
    }

    fn find_damage(&mut self, read: &mut dyn FnMut(u64)) -> Result<(), RecoveryError> {
        let mut names = names(&*self.disk)?;
        for name in &names {
            self.epoch = self.epoch.max(epoch_of(&*self.disk, *name)?);
        }
        loop {
            let mut apply = |effects: Effects<'_>| {
                read(effects.bytes.len() as u64);
                Ok(())
            };
            let error = match recover_parts(&*self.disk, &names, self.cut, &mut apply) {
                Ok(left) => {
                    if let Some(torn) = left.torn {
                        self.cut = Some((torn.segment, torn.offset));
                    }
                    self.left = left;
                    return Ok(());
                }
                Err(error) => error,
            };
            let (file, offset) = match error {
                RecoveryError::Damaged { file, offset, .. } => (file, offset),
                RecoveryError::Missing { file, .. } => (file, 0),
                error => return Err(error),
            };
            let is_lost = |name: &Name| match (name, file) {
                (Name::Segment(first), Name::Segment(damaged)) if offset > 0 => *first > damaged,
                (Name::Segment(first), Name::Segment(damaged)) => *first >= damaged,
                _ => *name == file,
            };
            self.cut = Some((file, offset)).filter(|_| offset > 0 && !is_lost(&file));
            self.renamed.extend(names.iter().copied().filter(is_lost));
            names.retain(|name| !is_lost(name));
            self.lost.was_flushed = true;
            self.damages.push(error);
        }
    }

    fn measure_loss(&mut self) -> Result<(), RecoveryError> {
        let renamed = self.renamed.iter().map(|name| (*name, 0));
        for (name, offset) in renamed.chain(self.cut) {
            let mut file = self.reader(name)?.from(offset);
            self.lost.bytes += file.length() - offset;
            let last = last_unit(&mut file).map_err(RecoveryError::io(&name))?;
            self.lost.last = self.lost.last.max(last);
        }
        Ok(())
    }

    /// Reads the marker; a damaged one will be replaced.
    fn read_marker(&mut self) -> Result<(), RecoveryError> {
        match marker::read(&*self.disk) {
            Ok(Some(marker)) => (self.epoch, self.has_marker) = (marker.epoch, true),
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                self.has_damaged_marker = true;
            }
            Err(error) => return Err(RecoveryError::io(&GUARD)(error)),
        }
        Ok(())
    }

    /// Reads the lease ceiling; a damaged one will be renamed.
    fn read_ceiling(&mut self) -> Result<(), RecoveryError> {
        match CeilingRecord::read(&*self.disk).map_err(RecoveryError::io(&CEILING)) {
            Ok(_) if self.has_marker => {}
            Ok(record) => {
                let missing = missing_segment(record, &names(&*self.disk)?);
                self.damages.extend(missing.map(RecoveryError::MissingSegment));
            }
            Err(RecoveryError::Io { file, error })
                if error.kind() == io::ErrorKind::InvalidData =>
            {
                self.has_damaged_ceiling = true;
                self.damages.push(RecoveryError::Io { file, error });
            }
            Err(error) => return Err(error),
        }
        self.lost.was_flushed = !self.damages.is_empty();
        Ok(())
    }

    fn reader(&self, name: Name) -> Result<Reader, RecoveryError> {
        Reader::new(recovery::open(&*self.disk, name)?).map_err(RecoveryError::io(&name))
    }

    /// Whether there is nothing to repair.
    pub fn is_needless(&self) -> bool {
        self.cut.is_none() && self.damages.is_empty() && !self.has_damaged_marker
    }

    /// What is damaged. Empty if there is only a torn tail, which a start cuts off as well.
    pub fn damages(&self) -> &[RecoveryError] {
        &self.damages
    }

    /// What the log will contain.
    pub fn left(&self) -> &Recovered {
        &self.left
    }

    /// What will be removed from it.
    pub fn lost(&self) -> Lost {
        self.lost
    }

    /// Repairs the log at this time of the wall clock. Returns the names of the files that keep
    /// what was removed.
    pub fn carry_out(self, wall_seconds: u64) -> Result<Vec<String>, RecoveryError> {
        let epoch = marker::raised(self.epoch, wall_seconds);
        let reason = match self.lost.last {
            Some(last) if last > self.left.last => {
                format!("repaired: units {} to {last} are lost", self.left.last + 1)
            }
            _ if self.has_damaged_ceiling => "repaired: the lease ceiling was damaged".to_owned(),
            _ => format!("repaired: units after {} may be lost", self.left.last),
        };
        let marker = Marker { epoch, reason };
        marker::write(&*self.disk, &marker).map_err(RecoveryError::io(&GUARD))?;
        let mut kept = Vec::new();
        // The last one first: if this is interrupted, the damage is still before what is left.
        for name in self.renamed.iter().rev() {
            kept.push(self.rename(name).map_err(RecoveryError::io(name))?);
        }
        if let Some((name, offset)) = self.cut {
            kept.push(self.cut_off(name, offset).map_err(RecoveryError::io(&name))?);
        }
        if self.has_damaged_ceiling {
            kept.push(self.rename(&CEILING).map_err(RecoveryError::io(&CEILING))?);
        }
        Ok(kept)
    }

    fn rename(&self, name: &dyn Display) -> io::Result<String> {
        let kept = self.unused_name(name)?;
        self.disk.rename(&name.to_string(), &kept)?;
        self.disk.sync()?;
        Ok(kept)
    }

    fn cut_off(&self, name: Name, offset: u64) -> io::Result<String> {
        let mut file = self.disk.open(&name.to_string())?;
        let kept = self.unused_name(&name)?;
        let mut copy = self.disk.create(&kept)?;
        copy_from(&*file, offset, file.length()?, &mut *copy, &mut |_| {})?;
        copy.sync()?;
        self.disk.sync()?;
        file.truncate(offset)?;
        file.sync()?;
        Ok(kept)
    }

    /// An unused name for the part that is removed from this file.
    fn unused_name(&self, name: &dyn Display) -> io::Result<String> {
        let used = self.disk.names()?;
        let first = format!("{name}.damaged");
        let mut names =
            std::iter::once(first).chain((2..).map(|number| format!("{name}.damaged-{number}")));
        Ok(names.find(|name| !used.contains(name)).unwrap_or_default())
    }
}

/// Copies the bytes from `start` to `end`, and calls `copied` with the length of each part.
pub(crate) fn copy_from(
    file: &dyn DiskFile,
    start: u64,
    end: u64,
    copy: &mut dyn DiskFile,
    copied: &mut dyn FnMut(u64),
) -> io::Result<()> {
    let mut buffer = vec![0; limits::READ_BYTES];
    let mut offset = start;
    while offset < end {
        let wanted = usize::try_from(end - offset).unwrap_or(usize::MAX).min(buffer.len());
        let read = file.read_at(offset, &mut buffer[..wanted])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        copy.append(&buffer[..read])?;
        offset += read as u64;
        copied(read as u64);
    }
    Ok(())
}

/// The epoch of a file; 0 if its beginning cannot be read.
fn epoch_of(disk: &dyn Disk, name: Name) -> Result<u64, RecoveryError> {
    let mut reader = Reader::new(recovery::open(disk, name)?).map_err(RecoveryError::io(&name))?;
    let epoch = match reader.read().map_err(RecoveryError::io(&name))? {
        Next::Frame(frame) if frame.header.kind == Kind::Beginning => recovery::epoch(&frame),
        _ => None,
    };
    Ok(epoch.unwrap_or(0))
}

/// The last unit in the intact frames from here on.
fn last_unit(reader: &mut Reader) -> io::Result<Option<Position>> {
    let mut last = None;
    loop {
        match reader.read()? {
            Next::Frame(frame) => last = last.max(Some(frame.header.last)),
            Next::End => return Ok(last),
            Next::Damaged => break,
        }
    }
    reader.later_frames(|frame| {
        last = last.max(Some(frame.header.last));
        false
    })?;
    Ok(last)
}
