//! The marker: a small file that a repair or a restoration leaves in the directory. Clients may
//! hold locks that the log does not contain, so the next start must guard them, and its epoch must
//! be greater than any before.
//!
//! The upper half of an epoch is raised by each repair and restoration, and the lower half by each
//! start.

use std::io;

use crate::disk::Disk;
use crate::names::GUARD;
use crate::small_file;

/// The marker of a repair or a restoration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Epoch that is at least as great as any before the repair or the restoration.
    pub epoch: u64,
    /// What was done to the log, in one line.
    pub reason: String,
}

/// The first line of the file: its version comes last.
const TITLE: &str = "lockwheel guard 1";

/// The bits of an epoch that count starts.
const START_BITS: u32 = 32;

/// Reads the marker, if there is one.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if the file is damaged or of another version, or as the disk
/// returns them.
pub fn read(disk: &dyn Disk) -> io::Result<Option<Marker>> {
    let Some(bytes) = small_file::read(disk, GUARD)? else { return Ok(None) };
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "not a marker of this version");
    decode(&bytes).map(Some).ok_or_else(invalid)
}

/// Removes the marker: the guard that it has asked for is over, and a segment with a greater epoch
/// is durable.
pub fn remove(disk: &dyn Disk) -> io::Result<()> {
    disk.remove(GUARD)?;
    disk.sync()
}

/// Writes a marker, durably. It replaces one that is there.
pub fn write(disk: &dyn Disk, marker: &Marker) -> io::Result<()> {
    small_file::write(disk, GUARD, &encode(marker))
}

/// An epoch greater than `epoch`, and than those of all repairs and restorations until now
/// anywhere, unless the wall clock has been set back since: it is given in seconds.
pub(crate) fn raised(epoch: u64, wall_seconds: u64) -> u64 {
    let restorations = (epoch >> START_BITS).saturating_add(1).max(wall_seconds);
    restorations.min(u64::from(u32::MAX)) << START_BITS
}

fn encode(marker: &Marker) -> Vec<u8> {
    let text = format!("{TITLE}\nepoch {}\n{}\n", marker.epoch, marker.reason);
    let checksum = crc32c::crc32c(text.as_bytes());
    format!("{text}crc32c {checksum:08x}\n").into_bytes()
}

fn decode(bytes: &[u8]) -> Option<Marker> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    let (title, epoch, reason) = (lines.next()?, lines.next()?, lines.next()?);
    let epoch = epoch.strip_prefix("epoch ")?.parse().ok()?;
    let marker = Marker { epoch, reason: reason.to_owned() };
    (title == TITLE && encode(&marker) == bytes).then_some(marker)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_damage_of_a_marker_is_found() {
        let marker = Marker { epoch: 12, reason: "restored".into() };
        let bytes = encode(&marker);
        assert_eq!(decode(&bytes), Some(marker));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&damaged), None, "bit {bit}");
            assert_eq!(decode(&bytes[..bit / 8]), None);
        }
    }

    #[test]
    fn epoch_is_raised_above_starts_and_other_restorations() {
        let first = raised(9, 1_000);
        assert!(first > 9 + 1_000_000);
        assert!(raised(9, 1_001) > first + 1_000_000, "restored again from the same backup");
        assert!(raised(first + 3, 500) > first + 1_000_000, "the wall clock was set back");
    }
}
