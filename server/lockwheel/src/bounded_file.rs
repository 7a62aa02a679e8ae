//! Reads files that directives name.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// The contents of a regular file. Another kind of file may have no end, or let its reader wait.
///
/// # Errors
/// If it is of another kind or longer than `bytes_max`, or as the system returns them.
pub(crate) fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let refused = |reason: String| io::Error::new(ErrorKind::InvalidInput, reason);
    if !fs::metadata(path)?.is_file() {
        return Err(refused("it is not a regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= bytes_max {
        true => Ok(bytes),
        false => Err(refused(format!("it is longer than {bytes_max} bytes"))),
    }
}
