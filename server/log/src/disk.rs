//! Access to files: the traits between the log and the system.

use std::fmt::Debug;
use std::io;

/// A directory that belongs to one log.
pub trait Disk: Debug + Send + Sync {
    /// Takes the directory for this process, until the result is dropped.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if another process has it.
    fn lock(&self) -> io::Result<Box<dyn DiskLock>>;

    /// The names of the files, in no particular order.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Creates an empty file. It is an error if there is one with this name.
    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file, to read it and to write to it.
    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>>;

    /// Renames a file, and replaces one that has the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Gives a file a second name.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] and others, on file systems without links.
    fn link(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Flushes the entries of the directory: files that were created, renamed or removed.
    fn sync(&self) -> io::Result<()>;

    /// The bytes that may still be written.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// Keeps a directory for this process until it is dropped.
pub trait DiskLock: Debug + Send + Sync {}

/// An open file.
pub trait DiskFile: Debug + Send + Sync {
    /// Its length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// Reads bytes from `offset` on; returns how many, 0 at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes all bytes at the end. After an error, any part of them may have been written.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Replaces bytes that the file contains, from `offset` on.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Cuts the file off.
    fn truncate(&mut self, length: u64) -> io::Result<()>;

    /// Flushes the contents to the disk. After an error nothing may be assumed of what was written
    /// since the last flush, even if another call succeeds.
    fn sync(&mut self) -> io::Result<()>;
}
