//! The files that other programs find the server by: its pidfile and its unix socket. They are
//! removed before the end of the server is visible, since another server may create new ones then.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

/// The files; dropping this removes them.
#[derive(Debug, Default)]
pub(crate) struct RuntimeFiles(Mutex<Vec<PathBuf>>);

impl RuntimeFiles {
    /// Adds a file that has just been created.
    pub(crate) fn add(&self, path: &Path) {
        self.0.lock().push(path.to_owned());
    }

    /// Writes the process id to a file, and adds the file.
    pub(crate) fn write_pidfile(&self, path: &Path) -> io::Result<()> {
        fs::write(path, format!("{}\n", std::process::id()))?;
        self.add(path);
        Ok(())
    }

    /// Removes the files, once.
    pub(crate) fn remove(&self) {
        for path in self.0.lock().drain(..) {
            // The file may be gone already.
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for RuntimeFiles {
    fn drop(&mut self) {
        self.remove();
    }
}
