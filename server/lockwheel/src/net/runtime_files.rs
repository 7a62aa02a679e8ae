//! The files by which others know of a server: its pidfile and its unix socket. They are gone
//! before anybody hears of its end, for whoever has heard of it may put others in their place.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// The files, removed with this.
#[derive(Debug, Default)]
pub(crate) struct RuntimeFiles(Mutex<Vec<PathBuf>>);

impl RuntimeFiles {
    /// Minds a file that has just been made.
    pub(crate) fn add(&self, path: &Path) {
        self.0.lock().push(path.to_owned());
    }

    /// Writes this process's number to a file, and minds it.
    pub(crate) fn write_pidfile(&self, path: &Path) -> io::Result<()> {
        fs::write(path, format!("{}\n", std::process::id()))?;
        self.add(path);
        Ok(())
    }

    /// Removes them, once.
    pub(crate) fn remove(&self) {
        for path in self.0.lock().drain(..) {
            // If it is gone already, all the better.
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for RuntimeFiles {
    fn drop(&mut self) {
        self.remove();
    }
}
