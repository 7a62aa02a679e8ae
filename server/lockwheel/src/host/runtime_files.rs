//! The files that other programs find the server by: its pidfile and its unix socket. They are
//! removed before the end of the server is visible, since another server may create new ones then.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use parking_lot::Mutex;

/// Permission bits of a new pidfile, unless the umask permits less.
const PIDFILE_MODE: u32 = 0o644;

/// The files; dropping this removes them.
#[derive(Debug, Default)]
pub(crate) struct RuntimeFiles(Mutex<Vec<PathBuf>>);

impl RuntimeFiles {
    /// Adds a file that has just been created.
    pub(crate) fn add(&self, path: &Path) {
        self.0.lock().push(path.to_owned());
    }

    /// Writes the process id to a regular file, and adds the file.
    ///
    /// # Errors
    /// As the system returns them, with the path.
    pub(crate) fn write_pidfile(&self, path: &Path) -> io::Result<()> {
        write_process_id(path).map_err(|error| {
            let reason = format!("cannot write the pidfile {}: {error}", path.display());
            io::Error::new(error.kind(), reason)
        })?;
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

/// Writes the process id to a file. A symbolic link is not followed: another user of the machine
/// that may write to the folder could name any file of the server's user with one.
fn write_process_id(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(PIDFILE_MODE);
    // A pipe would let the server wait.
    let mut file = options.custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    file.set_len(0)?;
    writeln!(file, "{}", std::process::id())
}
