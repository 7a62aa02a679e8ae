//! The macro nodes in which Redis would store the entries of a stream.
//!
//! Here entries are stored one by one, but `~` trims whole nodes, and clients can see that. So this
//! tracks for each node of Redis the number of entries and the size that its listpack would have.

use std::collections::BTreeMap;
use std::sync::Arc;

use lockwheel_resp::number;

use super::{Names, StreamId};
use crate::store::effects::codec::Field;
use crate::store::serialised::Malformed;

/// When a new node begins. Redis's `stream-node-max-entries` and `-bytes`; 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLimits {
    /// Maximum entries of a node, including deleted ones.
    pub entries_max: u64,
    /// Maximum bytes of its listpack.
    pub bytes_max: u64,
}

/// Size of the largest listpack, whatever the setting.
const LISTPACK_BYTES_MAX: u64 = 1 << 30;

/// A node: entries that share a listpack. Its key is the id of the first of them.
#[derive(Clone, Debug)]
pub struct Node {
    /// The id of the last entry, which may have been deleted.
    pub last: StreamId,
    /// The number of entries that are not deleted.
    pub live: usize,
    deleted: usize,
    /// The field names of its first entry.
    pub names: Names,
    /// The bytes of the listpack except for the two counters at its head.
    bytes: usize,
}

impl Node {
    fn new(first: StreamId, names: &Names) -> Node {
        const HEADER_AND_END_BYTES: usize = 7;
        let bytes = HEADER_AND_END_BYTES
            + integer_bytes(names.len() as i64)
            + names.iter().map(|name| element_bytes(name)).sum::<usize>()
            + integer_bytes(0);
        Node { last: first, live: 0, deleted: 0, names: Arc::clone(names), bytes }
    }

    fn has_room(&self, more_bytes: usize, limits: NodeLimits) -> bool {
        let bytes_max = match limits.bytes_max {
            0 => LISTPACK_BYTES_MAX,
            bytes => bytes.min(LISTPACK_BYTES_MAX),
        };
        let counters = integer_bytes(self.live as i64) + integer_bytes(self.deleted as i64);
        let entries = (self.live + self.deleted) as u64;
        ((self.bytes + counters + more_bytes) as u64) < bytes_max
            && (limits.entries_max == 0 || entries < limits.entries_max)
    }

    fn add(&mut self, first: StreamId, id: StreamId, names: &Names, values: &[Box<[u8]>]) {
        let mut elements = values.len() + 3;
        let same = Arc::ptr_eq(&self.names, names);
        if !same {
            elements += names.len() + 1;
            self.bytes += integer_bytes(names.len() as i64);
            self.bytes += names.iter().map(|name| element_bytes(name)).sum::<usize>();
        }
        let flags = if same { 2 } else { 0 };
        let [ms, seq] = [id.ms.wrapping_sub(first.ms), id.seq.wrapping_sub(first.seq)];
        for integer in [flags, ms as i64, seq as i64, elements as i64] {
            self.bytes += integer_bytes(integer);
        }
        self.bytes += values.iter().map(|value| element_bytes(value)).sum::<usize>();
        self.last = id;
        self.live += 1;
    }
}

/// The nodes of a stream.
#[derive(Clone, Debug, Default)]
pub struct Nodes(BTreeMap<StreamId, Node>);

impl Nodes {
    /// Frees a node of a stream that is no longer used. Returns whether there was one.
    pub(super) fn free_one(&mut self) -> bool {
        self.0.pop_last().is_some()
    }

    /// The number of nodes.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// All nodes that have entries, with the ids of their first ones.
    pub fn iter(&self) -> impl Iterator<Item = (StreamId, &Node)> {
        self.0.iter().filter(|(_, node)| node.live > 0).map(|(&first, node)| (first, node))
    }

    /// The first node, which has the oldest entries.
    pub fn first(&self) -> Option<&Node> {
        self.0.first_key_value().map(|(_, node)| node)
    }

    /// The node of an entry.
    pub(super) fn of(&self, id: StreamId) -> Option<&Node> {
        self.0.range(..=id).next_back().map(|(_, node)| node)
    }

    /// Removes the first node.
    pub fn remove_first(&mut self) {
        self.0.pop_first();
    }

    /// Accounts for the deletion of `count` entries of the first node. The node remains, even if it
    /// has no entries left.
    pub fn deleted_from_first(&mut self, count: usize) {
        if let Some(mut node) = self.0.first_entry() {
            node.get_mut().live -= count;
            node.get_mut().deleted += count;
        }
    }

    /// Accounts for the deletion of an entry, and removes its node if that was the last entry.
    pub fn deleted(&mut self, id: StreamId) {
        let Some((&first, node)) = self.0.range_mut(..=id).next_back() else { return };
        node.live -= 1;
        node.deleted += 1;
        if node.live == 0 {
            self.0.remove(&first);
        }
    }

    /// The field names that an entry added now could share.
    pub fn names(&self) -> Option<&Names> {
        self.0.last_key_value().map(|(_, node)| &node.names)
    }

    /// Whether the last node has room for an entry.
    pub fn have_room(&self, fields: &[[&[u8]; 2]], limits: NodeLimits) -> bool {
        let bytes = fields.iter().flatten().map(|text| text.len()).sum();
        self.0.last_key_value().is_some_and(|(_, last)| last.has_room(bytes, limits))
    }

    /// Accounts for a new entry, which shares the names of its node if they are equal.
    pub fn added(&mut self, id: StreamId, names: &Names, values: &[Box<[u8]>], begins_node: bool) {
        if let Some(mut last) = self.0.last_entry()
            && !begins_node
        {
            let first = *last.key();
            last.get_mut().add(first, id, names, values);
            return;
        }
        let mut node = Node::new(id, names);
        node.add(id, id, names, values);
        self.0.insert(id, node);
    }

    /// The number of nodes in Redis's radix tree of macro nodes.
    pub fn radix_tree_nodes(&self) -> usize {
        let keys: Vec<[u8; 16]> = self.0.keys().map(|id| id.bytes()).collect();
        radix_tree_nodes(&keys, 0).max(1)
    }
}

impl<'a> Field<'a> for Nodes {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.len().encode(out);
        for (first, node) in &self.0 {
            first.encode(out);
            node.last.encode(out);
            for count in [node.live, node.deleted, node.bytes, node.names.len()] {
                count.encode(out);
            }
            node.names.iter().for_each(|name| (&**name).encode(out));
        }
    }

    fn decode(from: &mut &'a [u8]) -> Result<Nodes, Malformed> {
        let mut nodes = BTreeMap::new();
        for _ in 0..usize::decode(from)? {
            let (first, last) = (StreamId::decode(from)?, StreamId::decode(from)?);
            let (live, deleted) = (usize::decode(from)?, usize::decode(from)?);
            let (bytes, count) = (usize::decode(from)?, usize::decode(from)?);
            let names = (0..count).map(|_| <&[u8]>::decode(from).map(Box::from));
            let names: Names = names.collect::<Result<Vec<Box<[u8]>>, Malformed>>()?.into();
            nodes.insert(first, Node { last, live, deleted, names, bytes });
        }
        Ok(Nodes(nodes))
    }
}

/// The number of nodes of a compressed radix tree of sorted keys that agree up to `depth`: one for
/// the bytes they share beyond it, one where they diverge, and the nodes below.
fn radix_tree_nodes(keys: &[[u8; 16]], depth: usize) -> usize {
    let (Some(first), Some(last)) = (keys.first(), keys.last()) else { return 0 };
    let shared = (depth..16).take_while(|&at| first[at] == last[at]).count();
    let parting = depth + shared;
    let behind: usize = keys
        .chunk_by(|a, b| parting == 16 || a[parting] == b[parting])
        .map(|group| if parting == 16 { 0 } else { radix_tree_nodes(group, parting + 1) })
        .sum();
    usize::from(shared > 0) + 1 + behind
}

/// The bytes of a string in a listpack, including the length for reading backwards.
fn element_bytes(text: &[u8]) -> usize {
    if let Some(integer) = number::parse_integer(text) {
        return integer_bytes(integer);
    }
    let bytes = match text.len() {
        len @ 0..64 => 1 + len,
        len @ 64..4096 => 2 + len,
        len => 5 + len,
    };
    let back = match bytes {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    };
    bytes + back
}

/// The bytes of an integer in a listpack, including the length for reading backwards.
fn integer_bytes(integer: i64) -> usize {
    match integer {
        _ if (0..=127).contains(&integer) => 2,
        _ if (-4096..=4095).contains(&integer) => 3,
        _ if i16::try_from(integer).is_ok() => 4,
        _ if (-0x80_0000..=0x7f_ffff).contains(&integer) => 5,
        _ if i32::try_from(integer).is_ok() => 6,
        _ => 10,
    }
}
