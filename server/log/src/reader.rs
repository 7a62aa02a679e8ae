//! Reads the frames of a file.

use std::io;

use crate::disk::DiskFile;
use crate::frame::{self, Frame, HEADER_BYTES, Parsed};
use crate::limits;

/// Reads the frames of a file one after the other, and keeps no more than one in memory.
#[derive(Debug)]
pub struct Reader {
    file: Box<dyn DiskFile>,
    /// The length of the file.
    length: u64,
    buffer: Vec<u8>,
    /// The place in the file of the first byte of the buffer.
    buffer_offset: u64,
    /// The bytes of the buffer that have been returned as frames.
    used: usize,
}

/// What follows in a file.
#[derive(Debug)]
pub enum Next<'a> {
    /// A frame.
    Frame(Frame<'a>),
    /// The end of the file.
    End,
    /// Bytes that are no frame, or only a part of one.
    Damaged,
}

impl Reader {
    /// A reader that begins at the first frame.
    pub fn new(file: Box<dyn DiskFile>) -> io::Result<Reader> {
        let length = file.length()?;
        Ok(Reader { file, length, buffer: Vec::new(), buffer_offset: 0, used: 0 })
    }

    /// Reads also what was written since the reader was made.
    pub fn extend(&mut self) -> io::Result<()> {
        self.length = self.file.length()?;
        Ok(())
    }

    /// Reads as if the file ended at `end`.
    pub fn until(mut self, end: u64) -> Reader {
        self.length = self.length.min(end);
        self
    }

    /// A reader that begins at `offset`.
    pub fn from(mut self, offset: u64) -> Reader {
        (self.buffer_offset, self.used) = (offset, 0);
        self.buffer.clear();
        self
    }

    /// Where the next frame begins.
    pub fn offset(&self) -> u64 {
        self.buffer_offset + self.used as u64
    }

    /// The length of the file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The file.
    pub fn into_file(self) -> Box<dyn DiskFile> {
        self.file
    }

    /// Reads the next frame. After [`Next::Damaged`], [`Reader::later_frames`] may find others.
    pub fn read(&mut self) -> io::Result<Next<'_>> {
        if self.offset() == self.length {
            return Ok(Next::End);
        }
        let mut needed = HEADER_BYTES;
        while self.fill(needed)? {
            match frame::length(&self.buffer[self.used..]) {
                Some(length) if length > needed => needed = length,
                Some(_) => break,
                None => return Ok(Next::Damaged),
            }
        }
        match frame::parse(&self.buffer[self.used..]) {
            Parsed::Frame(frame, length) => {
                self.used += length;
                Ok(Next::Frame(frame))
            }
            Parsed::Incomplete | Parsed::Damaged => Ok(Next::Damaged),
        }
    }

    /// Calls `found` with each intact frame behind damaged bytes, until it returns true; returns
    /// whether it has.
    pub fn later_frames(&mut self, mut found: impl FnMut(&Frame<'_>) -> bool) -> io::Result<bool> {
        let rest = usize::try_from(self.length - self.offset()).unwrap_or(usize::MAX);
        self.fill(rest)?;
        let mut bytes = self.buffer.get(self.used + 1..).unwrap_or_default();
        while !bytes.is_empty() {
            match frame::parse(bytes) {
                Parsed::Frame(frame, _) if found(&frame) => return Ok(true),
                Parsed::Frame(_, length) => bytes = &bytes[length..],
                Parsed::Incomplete | Parsed::Damaged => bytes = &bytes[1..],
            }
        }
        Ok(false)
    }

    /// Reads until the buffer has this many bytes that have not been returned; false if the file
    /// ends before.
    fn fill(&mut self, bytes: usize) -> io::Result<bool> {
        if self.buffer.len() - self.used >= bytes {
            return Ok(true);
        }
        let left = self.length - self.offset();
        if bytes as u64 > left {
            return Ok(false);
        }
        self.buffer.drain(..self.used);
        self.buffer_offset += self.used as u64;
        self.used = 0;
        let mut filled = self.buffer.len();
        let wanted = bytes.max(limits::READ_BYTES.min(usize::try_from(left).unwrap_or(bytes)));
        self.buffer.resize(wanted, 0);
        while filled < wanted {
            let offset = self.buffer_offset + filled as u64;
            match self.file.read_at(offset, &mut self.buffer[filled..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
        }
        Ok(true)
    }
}
