//! A directory of the system.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::disk::{Disk, DiskFile, DiskLock};
use crate::names::LOCK;

/// Permission bits of new files, whatever the umask permits: they have values of keys, hashes of
/// passwords and the key of a node, which are not for other users of the machine.
const FILE_MODE: u32 = 0o600;

/// Permission bits of a new directory.
const DIRECTORY_MODE: u32 = 0o700;

/// A directory of the file system, as a disk.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Whether files are opened for reading only.
    is_read_only: bool,
    /// The directory itself, to flush its entries.
    handle: File,
}

impl Directory {
    /// Opens the directory, and creates it if there is none. The directory above must exist.
    pub fn open(path: &Path) -> io::Result<Directory> {
        match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
            Ok(()) => sync_parent(path)?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        Directory::existing(path)
    }

    /// Opens a directory that exists.
    pub fn existing(path: &Path) -> io::Result<Directory> {
        let handle = File::open(path)?;
        Ok(Directory { path: path.to_owned(), is_read_only: false, handle })
    }

    /// As [`Directory::existing`], to read files only, for which no other permission is needed.
    pub fn read_only(path: &Path) -> io::Result<Directory> {
        Ok(Directory { is_read_only: true, ..Directory::existing(path)? })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

impl Disk for Directory {
    fn lock(&self) -> io::Result<Box<dyn DiskLock>> {
        let path = self.path.join(LOCK);
        let mut options = OpenOptions::new();
        options.mode(FILE_MODE);
        let file = match self.is_read_only {
            false => options.create(true).truncate(false).write(true).open(path)?,
            true => match options.read(true).open(path) {
                // No process has used the directory.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Box::new(self.handle.try_clone()?));
                }
                opened => opened?,
            },
        };
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        // A name that is not UTF-8 is none of the log's.
        let name = |entry: io::Result<fs::DirEntry>| {
            entry.map(|entry| entry.file_name().into_string().ok()).transpose()
        };
        fs::read_dir(&self.path)?.filter_map(name).collect()
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(FILE_MODE);
        let file = options.open(self.path.join(name))?;
        Ok(Box::new(SystemFile { file, length: 0 }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(!self.is_read_only).open(self.path.join(name))?;
        let length = file.metadata()?.len();
        Ok(Box::new(SystemFile { file, length }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        fs::hard_link(self.path.join(from), self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path.join(name))
    }

    fn sync(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let status = nix::sys::statvfs::fstatvfs(&self.handle)?;
        let (blocks, block_bytes) = (status.blocks_available(), status.fragment_size());
        #[allow(clippy::useless_conversion, reason = "the types depend on the system")]
        Ok(u64::from(blocks).saturating_mul(u64::from(block_bytes)))
    }
}

/// The system ends the lock when the file is closed.
impl DiskLock for File {}

/// A file of the system. It is not opened to append: Linux would then write all bytes at the end.
#[derive(Debug)]
struct SystemFile {
    file: File,
    /// Where bytes are appended.
    length: u64,
}

impl DiskFile for SystemFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read_at(buffer, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.length)?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.file.set_len(length)?;
        self.length = length;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}
