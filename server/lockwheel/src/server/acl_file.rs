//! The file of `aclfile`: read at the start and by `ACL LOAD`, replaced by `ACL SAVE`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lockwheel_engine::acl::{AclFile, AclFileReader, WriteFailed};
use tracing::warn;

use crate::bounded_file;
use crate::limits;

/// An ACL file on disk.
#[derive(Debug)]
pub(crate) struct AclFileOnDisk {
    path: String,
}

impl AclFileOnDisk {
    /// The file at a path.
    pub(crate) fn at(path: String) -> Box<dyn AclFile> {
        Box::new(AclFileOnDisk { path })
    }

    /// Replaces the file atomically: after a crash, it is the old or the new one.
    fn replace(&self, text: &[u8]) -> io::Result<()> {
        let partial = PathBuf::from(format!("{}.tmp-{}", self.path, std::process::id()));
        // An earlier process with the same id may have left one.
        match fs::remove_file(&partial) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let result = write_durably(&partial, text, Path::new(&self.path));
        if result.is_err() {
            // The error of the write is returned, not that of the removal.
            let _ = fs::remove_file(&partial);
        }
        result
    }
}

fn write_durably(partial: &Path, text: &[u8], path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    // The hashes of passwords are not for other users of the machine.
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(partial)?;
    if let Ok(old) = fs::metadata(path) {
        file.set_permissions(old.permissions())?;
    }
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(partial, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

impl AclFile for AclFileOnDisk {
    fn name(&self) -> &str {
        &self.path
    }

    fn reader(&self) -> AclFileReader {
        let path = PathBuf::from(&self.path);
        Box::new(move || {
            let read = bounded_file::read(&path, limits::ACL_FILE_BYTES_MAX);
            read.map_err(|error| match error.kind() {
                // As in Redis, without the number of the error.
                io::ErrorKind::NotFound => "No such file or directory".to_owned(),
                io::ErrorKind::PermissionDenied => "Permission denied".to_owned(),
                _ => error.to_string(),
            })
        })
    }

    fn write(&mut self, text: &[u8]) -> Result<(), WriteFailed> {
        self.replace(text).map_err(|error| {
            warn!(path = self.path, %error, "cannot write the ACL file");
            WriteFailed
        })
    }
}
