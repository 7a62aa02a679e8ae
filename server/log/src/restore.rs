//! Restores a log from a backup: a copy of a log directory.
//!
//! The file `restoring` marks a directory whose restoration is not complete: a start refuses it.

use std::fmt;

use crate::ceiling::{CEILING, CeilingRecord};
use crate::disk::Disk;
use crate::marker::{self, Marker};
use crate::names::{GUARD, Name, RESTORING};
use crate::recovery::{self, Recovered, RecoveryError, names, recover, recover_restored};
use crate::repair::copy_from;
use crate::small_file;

/// Why a backup cannot be restored.
#[derive(Debug)]
pub enum RestoreError {
    /// The backup cannot be read.
    Backup(RecoveryError),
    /// There is no log in the backup.
    NoLog,
    /// The new log cannot be written, or was not read back as it was written.
    Directory(RecoveryError),
    /// The directory has a log already.
    NotEmpty(Name),
}

impl fmt::Display for RestoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestoreError::Backup(error) => write!(f, "the backup cannot be used: {error}"),
            RestoreError::NoLog => f.write_str("there is no log in the backup"),
            RestoreError::Directory(error) => write!(f, "the backup cannot be copied: {error}"),
            RestoreError::NotEmpty(name) => write!(f, "the directory has a log already: {name}"),
        }
    }
}

impl std::error::Error for RestoreError {}

/// Copies the log in `backup` to a directory without a log, at this time of the wall clock, and
/// reads it back. `copied` is called with the length of each part. Returns what the log contains.
///
/// # Errors
/// As [`RestoreError`] lists them. If the log could not be copied, the directory must be emptied
/// before the next attempt.
pub fn restore(
    backup: &dyn Disk,
    directory: &dyn Disk,
    wall_seconds: u64,
    copied: &mut dyn FnMut(u64),
) -> Result<Recovered, RestoreError> {
    let found = recover(backup, |_| Ok(())).map_err(RestoreError::Backup)?;
    if found.snapshot.is_none() && found.segments.is_empty() {
        return Err(RestoreError::NoLog);
    }
    let _lock = recovery::lock(directory).map_err(RestoreError::Directory)?;
    if let Some(name) = names(directory).map_err(RestoreError::Directory)?.first() {
        return Err(RestoreError::NotEmpty(*name));
    }
    // A previous attempt may have left a marker.
    let previous = marker::read(directory).ok().flatten().map_or(0, |marker| marker.epoch);
    let marker = Marker {
        epoch: marker::raised(found.epoch.max(previous), wall_seconds),
        reason: format!("restored from a backup that ends with unit {}", found.last),
    };
    let in_directory = |error: RecoveryError| RestoreError::Directory(error);
    small_file::write(directory, RESTORING, b"")
        .map_err(RecoveryError::io(&RESTORING))
        .map_err(in_directory)?;
    marker::write(directory, &marker).map_err(RecoveryError::io(&GUARD)).map_err(in_directory)?;
    copy_ceiling(backup, directory)?;
    let files = found.snapshot.map(Name::Snapshot).into_iter().chain(found.segments.clone());
    for name in files {
        let torn = found.torn.filter(|torn| torn.segment == name).map(|torn| torn.offset);
        copy(backup, directory, name, torn, copied)?;
    }
    let restored = recover_restored(directory, |_| Ok(())).map_err(in_directory)?;
    if restored.last != found.last {
        let error = std::io::Error::other("its copy has other units than the backup");
        return Err(in_directory(RecoveryError::io(&"log")(error)));
    }
    let finished = directory.remove(RESTORING).and_then(|()| directory.sync());
    finished.map_err(RecoveryError::io(&RESTORING)).map_err(in_directory)?;
    Ok(restored)
}

/// Copies the lease ceiling, which says how long the guard must last, unless the directory has one
/// that lasts longer. The greater token of both counts.
fn copy_ceiling(backup: &dyn Disk, directory: &dyn Disk) -> Result<(), RestoreError> {
    let read = |disk| CeilingRecord::read(disk).map_err(RecoveryError::io(&CEILING));
    let Some(record) = read(backup).map_err(RestoreError::Backup)? else { return Ok(()) };
    let present = read(directory).map_err(RestoreError::Directory)?;
    let left_ms = |record: &CeilingRecord| record.deadline_ms.saturating_sub(record.lease_ms);
    let token = present.as_ref().map_or(0, |present| present.token).max(record.token);
    let longer = present.filter(|present| left_ms(present) >= left_ms(&record)).unwrap_or(record);
    CeilingRecord { token, ..longer }
        .write(directory)
        .map_err(RecoveryError::io(&CEILING))
        .map_err(RestoreError::Directory)
}

/// Copies a file until `end`, durably.
fn copy(
    backup: &dyn Disk,
    directory: &dyn Disk,
    name: Name,
    end: Option<u64>,
    copied: &mut dyn FnMut(u64),
) -> Result<(), RestoreError> {
    let file = recovery::open(backup, name).map_err(RestoreError::Backup)?;
    let length = file.length().map_err(RecoveryError::io(&name)).map_err(RestoreError::Backup)?;
    let mut write = || {
        let partial = format!("{name}.restored");
        match directory.remove(&partial) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut copy = directory.create(&partial)?;
        copy_from(&*file, 0, end.unwrap_or(length), &mut *copy, copied)?;
        copy.sync()?;
        directory.rename(&partial, &name.to_string())?;
        directory.sync()
    };
    write().map_err(RecoveryError::io(&name)).map_err(RestoreError::Directory)
}
