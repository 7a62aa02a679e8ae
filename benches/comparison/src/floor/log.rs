//! A log that only grows.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The name of its file.
const NAME: &str = "floor.log";

/// The log of a node.
pub(super) struct Log {
    file: File,
}

impl Log {
    /// Opens or creates the log in a directory.
    pub(super) fn open(directory: &Path) -> io::Result<Log> {
        let file = OpenOptions::new().create(true).append(true).open(directory.join(NAME))?;
        Ok(Log { file })
    }

    /// Writes batches and flushes them.
    pub(super) fn append(&mut self, batches: &[u8]) -> io::Result<()> {
        self.file.write_all(batches)?;
        self.file.sync_data()
    }
}
