//! What a log needs whose units other machines decide on: its end can be cut off, it can go on
//! after a snapshot that another machine has written, and units can be read while others are
//! written.
//!
//! A crash within one of these leaves a log that can be read: with more units at its end than it
//! should have, which the caller cuts off again, or with files that a snapshot has replaced.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile};
use crate::files::{Clocks, Files, Obsolete, Snapshot};
use crate::frame::Header;
use crate::names::Name;
use crate::position::Position;
use crate::reader::{Next, Reader};
use crate::recovery;

impl Files {
    /// Cuts off all units after `position`, durably. A frame contains units on one side only.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the units up to `position` are not in the segments.
    pub fn cut_after(&mut self, position: Position) -> io::Result<()> {
        if position >= self.written {
            return Ok(());
        }
        let invalid = |reason: &str| io::Error::new(io::ErrorKind::InvalidInput, reason);
        let kept = self.segment_of(position + 1).ok_or_else(|| invalid("no such units"))?;
        // The last one first: what is left after a crash has no gap.
        while let Some((name, _)) = self.names.last().filter(|(name, _)| *name != kept) {
            self.disk.remove(&name.to_string())?;
            self.disk.sync()?;
            self.names.pop();
        }
        let mut reader = Reader::new(self.disk.open(&kept.to_string())?)?;
        let end = loop {
            let offset = reader.offset();
            match reader.read()? {
                Next::Frame(frame) if frame.header.first > position && offset > 0 => break offset,
                Next::Frame(frame) if frame.header.last > position => {
                    return Err(invalid("within a frame"));
                }
                Next::Frame(frame) => {
                    (self.checksum, self.clocks) = (frame.checksum, clocks_of(&frame.header));
                }
                Next::End | Next::Damaged => return Err(io::ErrorKind::InvalidData.into()),
            }
        };
        self.segment = reader.into_file();
        self.segment.truncate(end)?;
        self.segment.sync()?;
        *self.current_bytes() = end;
        (self.written, self.flushed) = (position, self.flushed.min(position));
        Ok(())
    }

    /// The segment that contains this unit or will contain it; `None` if it is in none any more.
    fn segment_of(&self, position: Position) -> Option<Name> {
        let before =
            |(name, _): &&(Name, u64)| matches!(name, Name::Segment(first) if *first <= position);
        self.names.iter().rev().find(before).map(|(name, _)| *name)
    }

    /// Begins a snapshot of the state at `position`, which may be earlier than the last unit that
    /// was written. `clocks` is the time of that state.
    pub fn begin_snapshot_at(&self, position: Position, clocks: Clocks) -> io::Result<Snapshot> {
        Snapshot::create(Arc::clone(&self.disk), &self.beginning, position, clocks)
    }

    /// A file for the bytes of a snapshot that another machine has written. Several may be received
    /// at once, also of one position.
    pub fn receive_snapshot(&mut self, position: Position) -> io::Result<ReceivedSnapshot> {
        // No snapshot of this log comes so far.
        self.received += 1;
        let partial = Name::PartialSnapshot(Position::MAX - self.received);
        let file = self.disk.create(&partial.to_string())?;
        Ok(ReceivedSnapshot { disk: Arc::clone(&self.disk), file: Some(file), partial, position })
    }

    /// Lets the log go on after the snapshot at `position`, which is complete: units up to it that
    /// are missing are in the snapshot, and all that the log has are dropped.
    pub fn go_on_after(&mut self, position: Position, clocks: Clocks) -> io::Result<Obsolete> {
        (self.written, self.flushed, self.clocks) = (position, position, clocks);
        self.end_segment()?;
        self.replace_before(position)
    }

    /// The contents of a snapshot, as bytes.
    pub fn open_snapshot(&self, position: Position) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(&Name::Snapshot(position).to_string())
    }

    /// A reader of the units from `position` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if they have been removed.
    pub fn read_from(&self, position: Position) -> io::Result<Cursor> {
        let name = self.segment_of(position).ok_or(io::ErrorKind::NotFound)?;
        let reader = Reader::new(self.disk.open(&name.to_string())?)?;
        Ok(Cursor { disk: Arc::clone(&self.disk), reader, next: position })
    }
}

fn clocks_of(header: &Header) -> Clocks {
    Clocks { lease_ms: header.lease_ms, boot_ms: header.boot_ms, wall_ms: header.wall_ms }
}

/// A snapshot that another machine sends. Its file is removed if it is dropped before
/// [`ReceivedSnapshot::finish`], at the latest by the next start.
#[derive(Debug)]
pub struct ReceivedSnapshot {
    disk: Arc<dyn Disk>,
    /// File that is being written; `None` when it is finished.
    file: Option<Box<dyn DiskFile>>,
    partial: Name,
    position: Position,
}

impl ReceivedSnapshot {
    /// The position whose state it contains.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Appends bytes of the file.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), |file| file.append(bytes))
    }

    /// Checks that the file is a complete snapshot of this position.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it is not, or as the disk returns them.
    pub fn check(&self) -> io::Result<()> {
        recovery::check_snapshot(&*self.disk, self.partial, self.position)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Makes the snapshot durable. Then [`Files::use_snapshot`] or [`Files::go_on_after`] may be
    /// called.
    pub fn finish(mut self) -> io::Result<()> {
        let Some(mut file) = self.file.take() else { return Ok(()) };
        file.sync()?;
        let name = Name::Snapshot(self.position).to_string();
        self.disk.rename(&self.partial.to_string(), &name)?;
        self.disk.sync()
    }
}

impl Drop for ReceivedSnapshot {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // The next start removes a file that is left.
            let _ = self.disk.remove(&self.partial.to_string());
        }
    }
}

/// Reads units in order while others are written.
#[derive(Debug)]
pub struct Cursor {
    disk: Arc<dyn Disk>,
    reader: Reader,
    next: Position,
}

impl Cursor {
    /// The unit that is read next.
    pub fn position(&self) -> Position {
        self.next
    }

    /// Passes the frames with units in `range` to `take`, with the number of the last unit of each,
    /// until it returns false. They must be written, and none of them cut off since the cursor was
    /// made.
    pub fn read(
        &mut self,
        range: Range<Position>,
        mut take: impl FnMut(Position, &[u8]) -> bool,
    ) -> io::Result<()> {
        let mut continues = true;
        self.reader.extend()?;
        while continues && self.next < range.end {
            match self.reader.read()? {
                Next::Frame(frame) => {
                    let Header { first, last, .. } = frame.header;
                    if first <= last && last >= range.start && last >= self.next {
                        continues = take(last, frame.contents);
                        self.next = last + 1;
                    }
                }
                Next::End => {
                    let name = Name::Segment(self.next).to_string();
                    self.reader = Reader::new(self.disk.open(&name)?)?;
                }
                Next::Damaged => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        Ok(())
    }
}
