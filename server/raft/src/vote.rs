//! The vote of a node, in a small file. A node that forgets its vote may vote twice in one term.

use std::io;

use lockwheel_log::{Disk, small_file};
use openraft::Vote;

use crate::types::NodeId;

const NAME: &str = "vote";

/// The first line of the file: its version comes last.
const TITLE: &str = "lockwheel vote 1";

/// Reads the vote, if there is one.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if the file is damaged or of another version, or as the disk
/// returns them.
pub(crate) fn read(disk: &dyn Disk) -> io::Result<Option<Vote<NodeId>>> {
    let Some(bytes) = small_file::read(disk, NAME)? else { return Ok(None) };
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "not a vote of this version");
    decode(&bytes).map(Some).ok_or_else(invalid)
}

/// Writes the vote, durably.
pub(crate) fn write(disk: &dyn Disk, vote: &Vote<NodeId>) -> io::Result<()> {
    small_file::write(disk, NAME, &encode(vote))
}

fn encode(vote: &Vote<NodeId>) -> Vec<u8> {
    let (term, node) = (vote.leader_id.term, vote.leader_id.node_id);
    let committed = if vote.committed { "yes" } else { "no" };
    let text = format!("{TITLE}\nterm {term}\nnode {node}\ncommitted {committed}\n");
    let checksum = crc32c::crc32c(text.as_bytes());
    format!("{text}crc32c {checksum:08x}\n").into_bytes()
}

fn decode(bytes: &[u8]) -> Option<Vote<NodeId>> {
    let mut lines = std::str::from_utf8(bytes).ok()?.lines().skip(1);
    let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    let (term, node) = (value("term")?.parse().ok()?, value("node")?.parse().ok()?);
    let vote = match value("committed")? {
        "yes" => Vote::new_committed(term, node),
        _ => Vote::new(term, node),
    };
    (encode(&vote) == bytes).then_some(vote)
}

#[cfg(test)]
mod tests {
    use lockwheel_simulated_disk::SimulatedDisk;

    use super::*;

    #[test]
    fn vote_is_read_back() {
        let disk = SimulatedDisk::new();
        assert_eq!(read(&disk).expect("no error"), None);
        for vote in [Vote::new(3, 7), Vote::new_committed(3, 7), Vote::new(u64::MAX, 0)] {
            write(&disk, &vote).expect("a vote");
            assert_eq!(read(&disk).expect("a vote"), Some(vote));
        }
    }

    #[test]
    fn every_damage_of_a_vote_is_found() {
        let bytes = encode(&Vote::new_committed(12, 1));
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&damaged), None, "bit {bit}");
            assert_eq!(decode(&bytes[..bit / 8]), None);
        }
    }
}
