//! The file with the lease ceiling: after a restart that has lost leases, it says when all of them
//! are over.
//!
//! The file is replaced as a whole: a spare one is overwritten, flushed and renamed, and the
//! directory is flushed. The replaced file becomes the spare one. So the ceiling can be raised on a
//! full disk: the file that is overwritten has its space already.

use std::io;

use crate::disk::{Disk, DiskFile};
use crate::position::Position;
use lockwheel_defects::defect;

/// The name of the file.
pub const CEILING: &str = "ceiling";

/// The file that is written next.
const SPARE: &str = "ceiling.spare";

/// The second name of the file that becomes the spare one.
const PREVIOUS: &str = "ceiling.previous";

/// A group of keys with long leases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyGroup {
    /// The first bytes of its keys: at most [`PREFIX_BYTES_MAX`].
    pub prefix: Vec<u8>,
    /// The latest deadline of its keys, on the lease clock, in milliseconds.
    pub deadline_ms: i64,
}

/// Most groups of a record, for which each file has space.
pub const GROUPS_MAX: usize = 8;

/// Most bytes of the prefix of a group.
pub const PREFIX_BYTES_MAX: usize = 64;

/// The length of a group: that of its prefix, the prefix filled up with zeros, and the deadline.
const GROUP_BYTES: usize = 1 + PREFIX_BYTES_MAX + 8;

/// The contents of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CeilingRecord {
    /// Latest end of all granted leases, on the lease clock, in milliseconds.
    pub deadline_ms: i64,
    /// Lease clock when the record was written, in milliseconds.
    pub lease_ms: i64,
    /// Milliseconds from the start of the machine until the record was written.
    pub boot_ms: i64,
    /// Wall clock when the record was written, in milliseconds since 1970.
    pub wall_ms: i64,
    /// Identifier of the machine's run, which ends when the machine is restarted.
    pub boot_id: [u8; 16],
    /// Greatest fencing token that was given out.
    pub token: u64,
    /// Whether there were keys without a deadline.
    pub has_lasting_keys: bool,
    /// What the log keeps of the leases that clients know of.
    pub kept: Kept,
    /// The first unit of the last segment of the log, which was durable when this was written; 0
    /// without a log.
    pub segment: Position,
    /// The groups of keys with long leases. More than [`GROUPS_MAX`] are not written.
    pub groups: Vec<KeyGroup>,
}

/// What a log keeps of the leases that clients know of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kept {
    /// None: there is no log.
    #[default]
    Nothing,
    /// All while the machine runs. A crash of the machine may lose some.
    Written,
    /// All.
    Durable,
}

const KEPT: [Kept; 3] = [Kept::Nothing, Kept::Written, Kept::Durable];

/// The first bytes of the file: a kind, and the version of the format.
const MAGIC: [u8; 8] = *b"LWceil04";

/// The first bytes of a file of version 3, which has no groups.
const MAGIC_3: [u8; 8] = *b"LWceil03";

/// The first bytes of a file of version 2, which has no segment either.
const MAGIC_2: [u8; 8] = *b"LWceil02";

/// The first bytes of a file of version 1, which has no token either.
const MAGIC_1: [u8; 8] = *b"LWceil01";

/// The length of the file.
const BYTES: usize = 8 + 4 * 8 + 16 + 2 + 8 + 8 + GROUPS_MAX * GROUP_BYTES + 4;

impl CeilingRecord {
    /// The bytes of the file; the last four are the CRC-32C of the others.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.extend_from_slice(&MAGIC);
        for number in [self.deadline_ms, self.lease_ms, self.boot_ms, self.wall_ms] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.boot_id);
        bytes.push(u8::from(self.has_lasting_keys));
        bytes.push(self.kept as u8);
        bytes.extend_from_slice(&self.token.to_le_bytes());
        bytes.extend_from_slice(&self.segment.to_le_bytes());
        let mut groups = [[0; GROUP_BYTES]; GROUPS_MAX];
        for (bytes, group) in groups.iter_mut().zip(&self.groups) {
            let prefix = &group.prefix[..group.prefix.len().min(PREFIX_BYTES_MAX)];
            bytes[0] = prefix.len() as u8;
            bytes[1..=prefix.len()].copy_from_slice(prefix);
            bytes[1 + PREFIX_BYTES_MAX..].copy_from_slice(&group.deadline_ms.to_le_bytes());
        }
        bytes.extend_from_slice(groups.as_flattened());
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Reads what [`CeilingRecord::encode`] has written; `None` if it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<CeilingRecord> {
        let (contents, checksum) = bytes.split_last_chunk::<4>()?;
        if crc32c::crc32c(contents) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let (magic, rest) = contents.split_first_chunk::<8>()?;
        let (rest, groups) = match *magic == MAGIC {
            true => rest.split_at_checked(rest.len().checked_sub(GROUPS_MAX * GROUP_BYTES)?)?,
            false => (rest, &[][..]),
        };
        let known = [MAGIC_1, MAGIC_2, MAGIC_3, MAGIC];
        let added = known.iter().position(|known| known == magic)?.min(2);
        let (rest, added) = rest.split_at_checked(rest.len().checked_sub(8 * added)?)?;
        let added = |at: usize| added.as_chunks::<8>().0.get(at).copied().map(u64::from_le_bytes);
        let (numbers, rest) = rest.split_first_chunk::<32>()?;
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&numbers[8 * at..8 * at + 8]);
            i64::from_le_bytes(bytes)
        };
        let (boot_id, flags) = rest.split_first_chunk::<16>()?;
        let [has_lasting_keys, kept] = flags else { return None };
        Some(CeilingRecord {
            deadline_ms: number(0),
            lease_ms: number(1),
            boot_ms: number(2),
            wall_ms: number(3),
            boot_id: *boot_id,
            has_lasting_keys: *has_lasting_keys != 0,
            kept: *KEPT.get(usize::from(*kept))?,
            token: added(0).unwrap_or(0),
            segment: added(1).unwrap_or(0),
            groups: groups_of(groups)?,
        })
    }

    /// Reads the file; `None` if there is none.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it is damaged.
    pub fn read(disk: &dyn Disk) -> io::Result<Option<CeilingRecord>> {
        let file = match disk.open(CEILING) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let (mut bytes, mut filled) = ([0; BYTES + 1], 0);
        loop {
            match file.read_at(filled as u64, &mut bytes[filled..])? {
                0 => break,
                read => filled += read,
            }
        }
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "the checksum is wrong");
        CeilingRecord::decode(&bytes[..filled]).map(Some).ok_or_else(damaged)
    }

    /// Replaces the file; it is durable when this returns.
    pub fn write(&self, disk: &dyn Disk) -> io::Result<()> {
        // A process that has ended may have left the previous file.
        remove_if_present(disk, PREVIOUS)?;
        let mut file = spare(disk)?;
        file.write_at(0, &self.encode())?;
        file.sync()?;
        let keeps_space = !defect!(CeilingWithoutReserve);
        let has_previous = keeps_space && disk.link(CEILING, PREVIOUS).is_ok();
        disk.rename(SPARE, CEILING)?;
        if has_previous {
            // The renaming must be durable before the next one: a crash could otherwise leave one
            // file with both names, and the next record would overwrite the valid one.
            disk.sync()?;
            disk.rename(PREVIOUS, SPARE)?;
        } else if keeps_space {
            // The first file, or a file system without links. Without a spare file, the next
            // ceiling needs space.
            let _ = spare(disk);
        }
        disk.sync()
    }
}

/// The groups in their byte form; those without a prefix are not used.
fn groups_of(bytes: &[u8]) -> Option<Vec<KeyGroup>> {
    let mut groups = Vec::new();
    for bytes in bytes.as_chunks::<GROUP_BYTES>().0.iter().filter(|bytes| bytes[0] > 0) {
        let (prefix, deadline) = bytes[1..].split_at(PREFIX_BYTES_MAX);
        let prefix = prefix.get(..bytes[0].into())?.to_vec();
        let deadline_ms = i64::from_le_bytes(*deadline.first_chunk()?);
        groups.push(KeyGroup { prefix, deadline_ms });
    }
    Some(groups)
}

/// The spare file, which has the length of a record. It is created if there is none.
fn spare(disk: &dyn Disk) -> io::Result<Box<dyn DiskFile>> {
    match disk.open(SPARE) {
        Ok(file) if file.length()? == BYTES as u64 => return Ok(file),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    remove_if_present(disk, SPARE)?;
    let mut file = disk.create(SPARE)?;
    file.append(&[0; BYTES])?;
    Ok(file)
}

fn remove_if_present(disk: &dyn Disk, name: &str) -> io::Result<()> {
    match disk.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: i64) -> CeilingRecord {
        CeilingRecord {
            deadline_ms: number,
            lease_ms: -number,
            boot_ms: i64::MAX,
            wall_ms: 3,
            boot_id: [7; 16],
            token: number.unsigned_abs() << 40,
            has_lasting_keys: number % 2 == 0,
            kept: KEPT[number as usize % 3],
            segment: number.unsigned_abs() << 50,
            groups: vec![
                KeyGroup { prefix: b"session:".to_vec(), deadline_ms: -number },
                KeyGroup { prefix: vec![0xff; PREFIX_BYTES_MAX], deadline_ms: number },
            ],
        }
    }

    /// Shows G28.
    #[test]
    fn every_wrong_bit_is_found() {
        let bytes = record(1).encode();
        for at in 0..bytes.len() * 8 {
            let mut wrong = bytes.clone();
            wrong[at / 8] ^= 1 << (at % 8);
            assert_eq!(CeilingRecord::decode(&wrong), None, "bit {at}");
        }
        assert_eq!(CeilingRecord::decode(&bytes[..BYTES - 1]), None);
    }

    #[test]
    fn records_of_earlier_versions_lack_the_last_numbers() {
        let expected = CeilingRecord { groups: Vec::new(), ..record(1) };
        let no_segment = CeilingRecord { segment: 0, ..expected.clone() };
        let no_token = CeilingRecord { token: 0, ..no_segment.clone() };
        let groups = GROUPS_MAX * GROUP_BYTES;
        let versions = [
            (MAGIC_3, 4 + groups, expected),
            (MAGIC_2, 12 + groups, no_segment),
            (MAGIC_1, 20 + groups, no_token),
        ];
        for (magic, lacking, expected) in versions {
            let mut bytes = record(1).encode();
            bytes.truncate(BYTES - lacking);
            bytes[..8].copy_from_slice(&magic);
            bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
            assert_eq!(CeilingRecord::decode(&bytes), Some(expected));
        }
    }
}
