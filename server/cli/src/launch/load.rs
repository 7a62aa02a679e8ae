//! Reads configuration files and standard input: the only module that opens configuration files.

use std::fs::File;
use std::io::{self, Read};

use super::Source;
use crate::limits::CONFIG_FILE_BYTES_MAX;

/// Reads all bytes of a source: the [`Reader`](super::Reader) of the program.
pub(crate) fn read(source: Source<'_>) -> io::Result<Vec<u8>> {
    match source {
        Source::Stdin => bounded(io::stdin().lock()),
        Source::File(path) => bounded(File::open(path)?),
    }
}

fn bounded(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    reader.take(CONFIG_FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > CONFIG_FILE_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "too long for a configuration file",
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_file_is_refused() {
        let endless = bounded(io::repeat(b'#')).map_err(|error| error.kind());
        assert_eq!(endless, Err(io::ErrorKind::FileTooLarge));
        let at_most = bounded(io::repeat(b'#').take(CONFIG_FILE_BYTES_MAX));
        assert_eq!(at_most.map(|text| text.len() as u64).ok(), Some(CONFIG_FILE_BYTES_MAX));
    }
}
