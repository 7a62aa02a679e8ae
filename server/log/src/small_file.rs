//! Small files that are replaced as a whole: after a crash, one has its old contents or its new
//! ones.

use std::io;

use crate::disk::Disk;

/// The contents of a file; `None` if there is none.
pub fn read(disk: &dyn Disk, name: &str) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = vec![0; usize::try_from(file.length()?).unwrap_or(usize::MAX)];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(filled as u64, &mut bytes[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    Ok(Some(bytes))
}

/// Creates a file or replaces it, durably.
pub fn write(disk: &dyn Disk, name: &str, bytes: &[u8]) -> io::Result<()> {
    let partial = format!("{name}.partial");
    match disk.remove(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = disk.create(&partial)?;
    file.append(bytes)?;
    file.sync()?;
    disk.rename(&partial, name)?;
    disk.sync()
}
