//! A stream: its entries, its bounds and its groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::group::Group;
use super::id::{NewId, StreamId};
use super::nodes::{NodeLimits, Nodes};

/// The field names of an entry, shared with the entries of its node that have the same names.
pub type Names = Arc<[Box<[u8]>]>;

/// The entries of a stream by id.
pub type Entries = BTreeMap<StreamId, Entry>;

/// An entry of a stream.
#[derive(Clone, Debug)]
pub struct Entry {
    pub(super) names: Names,
    pub(super) values: Box<[Box<[u8]>]>,
}

impl Entry {
    /// Its fields with their values.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.names.iter().zip(&self.values).map(|(name, value)| (&**name, &**value))
    }
}

/// The entries that trimming keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// `MAXLEN`: this many of the latest entries.
    Latest(usize),
    /// `MINID`: the entries from this id on.
    From(StreamId),
}

/// How a stream is to be trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trim {
    /// The entries to keep.
    pub keep: Keep,
    /// `~`: removes whole nodes only, and at most this many entries unless it is 0.
    pub whole_nodes: Option<u64>,
}

/// The value of a stream.
#[derive(Clone, Debug, Default)]
pub struct Stream {
    pub(super) entries: Entries,
    pub(super) nodes: Nodes,
    /// The last id that was given out.
    pub last_id: StreamId,
    /// The greatest id of an entry that was deleted other than by trimming.
    pub max_deleted_id: StreamId,
    /// The number of entries that were ever added.
    pub entries_added: i64,
    pub(super) groups: BTreeMap<Box<[u8]>, Group>,
}

/// The first and last ids of a stream and its counts, from which the progress of a group is
/// computed.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    len: usize,
    first_id: StreamId,
    last_id: StreamId,
    max_deleted_id: StreamId,
    entries_added: i64,
}

impl Stream {
    /// The number of items to free: entries, and pending entries of the groups.
    pub fn items(&self) -> usize {
        self.len() + self.groups.values().map(|group| group.pending().len()).sum::<usize>()
    }

    /// Frees up to `budget` parts of a stream that is no longer used. Returns whether there are
    /// more.
    pub(crate) fn free_part(&mut self, budget: &mut usize) -> bool {
        while *budget > 0 {
            *budget -= 1;
            if !self.free_one() {
                return false;
            }
        }
        true
    }

    fn free_one(&mut self) -> bool {
        // Both shrink together; there are more entries than nodes.
        if self.entries.pop_last().is_some() | self.nodes.free_one() {
            return true;
        }
        let Some(mut group) = self.groups.last_entry() else { return false };
        if !group.get_mut().free_one() {
            group.remove();
        }
        true
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entries by id.
    pub fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The nodes in which Redis would store the entries.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// The id of the oldest entry.
    pub fn first_id(&self) -> Option<StreamId> {
        self.entries.first_key_value().map(|(&id, _)| id)
    }

    /// The entries from one id to another, inclusive.
    pub fn range(
        &self,
        from: StreamId,
        to: StreamId,
    ) -> impl DoubleEndedIterator<Item = (StreamId, &Entry)> {
        let range = (from <= to).then(|| self.entries.range(from..=to));
        range.into_iter().flatten().map(|(&id, entry)| (id, entry))
    }

    /// Whether there is an entry after this id.
    pub fn has_after(&self, id: StreamId) -> bool {
        self.entries.last_key_value().is_some_and(|(&last, _)| last > id)
    }

    /// The id of an entry added now; `None` if it would not be greater than all before.
    pub fn new_id(&self, wanted: NewId, wall_ms: u64) -> Option<StreamId> {
        let id = match wanted {
            NewId::Now if wall_ms > self.last_id.ms => StreamId { ms: wall_ms, seq: 0 },
            NewId::Now => self.last_id.next()?,
            NewId::NextIn(ms) if ms == self.last_id.ms => {
                StreamId { ms, seq: self.last_id.seq.checked_add(1)? }
            }
            NewId::NextIn(ms) => StreamId { ms, seq: 0 },
            NewId::Exactly(id) => id,
        };
        (id > self.last_id).then_some(id)
    }

    /// Adds an entry with pairs of fields and values, under an id from [`Stream::new_id`]. Returns
    /// whether the entry begins a node.
    pub fn add(&mut self, id: StreamId, fields: &[[&[u8]; 2]], limits: NodeLimits) -> bool {
        let begins_node = !self.nodes.have_room(fields, limits);
        self.add_to_node(id, fields, begins_node);
        begins_node
    }

    /// As [`Stream::add`], for an entry that is known to begin a node, or not to.
    pub(crate) fn add_to_node(&mut self, id: StreamId, fields: &[[&[u8]; 2]], begins_node: bool) {
        let names: Names = match self.nodes.names() {
            Some(shared) if shared.iter().map(|n| &**n).eq(fields.iter().map(|[n, _]| *n)) => {
                Arc::clone(shared)
            }
            _ => fields.iter().map(|[name, _]| (*name).into()).collect(),
        };
        let values: Box<[Box<[u8]>]> = fields.iter().map(|[_, value]| (*value).into()).collect();
        self.nodes.added(id, &names, &values, begins_node);
        self.entries.insert(id, Entry { names, values });
        self.last_id = id;
        self.entries_added = self.entries_added.wrapping_add(1);
    }

    /// Deletes an entry; false if there is none.
    pub fn delete(&mut self, id: StreamId) -> bool {
        if self.entries.remove(&id).is_none() {
            return false;
        }
        self.nodes.deleted(id);
        self.max_deleted_id = self.max_deleted_id.max(id);
        true
    }

    /// Removes the oldest entries; returns their number.
    pub fn trim(&mut self, trim: Trim) -> usize {
        let len = self.len();
        while let Some(node) = self.nodes.first() {
            let live = node.live;
            let whole = match trim.keep {
                Keep::Latest(count) if self.len() <= count => break,
                Keep::Latest(count) => self.len() - live >= count,
                Keep::From(id) => node.last < id,
            };
            let removed = len - self.len();
            if trim.whole_nodes.is_some_and(|max| max > 0 && (removed + live) as u64 > max) {
                break;
            }
            if whole {
                self.nodes.remove_first();
                (0..live).for_each(|_| drop(self.entries.pop_first()));
                continue;
            }
            if trim.whole_nodes.is_none() {
                self.trim_first_node(trim.keep);
            }
            break;
        }
        len - self.len()
    }

    fn trim_first_node(&mut self, keep: Keep) {
        let len = self.len();
        while let Some(first) = self.first_id() {
            let stays = match keep {
                Keep::Latest(count) => self.len() <= count,
                Keep::From(id) => first >= id,
            };
            if stays {
                break;
            }
            self.entries.pop_first();
        }
        self.nodes.deleted_from_first(len - self.len());
    }

    // --- groups ---

    /// The groups, by name.
    pub fn groups(&self) -> &BTreeMap<Box<[u8]>, Group> {
        &self.groups
    }

    /// The group with this name.
    pub fn group(&self, name: &[u8]) -> Option<&Group> {
        self.groups.get(name)
    }

    /// The group with this name, and the entries of the stream.
    pub fn group_mut(&mut self, name: &[u8]) -> Option<(&mut Group, &Entries)> {
        self.groups.get_mut(name).map(|group| (group, &self.entries))
    }

    /// Sets the last id that was given out, the greatest deleted id, and the number of entries that
    /// were ever added.
    pub(crate) fn set_totals(
        &mut self,
        last_id: StreamId,
        max_deleted_id: StreamId,
        entries_added: i64,
    ) {
        (self.last_id, self.max_deleted_id) = (last_id, max_deleted_id);
        self.entries_added = entries_added;
    }

    /// Adds a group; false if there is one with this name.
    pub fn add_group(&mut self, name: &[u8], group: Group) -> bool {
        if self.groups.contains_key(name) {
            return false;
        }
        self.groups.insert(name.into(), group);
        true
    }

    /// Removes a group; false if there is none with this name.
    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        self.groups.remove(name).is_some()
    }

    /// The totals from which the progress of groups is computed.
    pub fn extent(&self) -> Extent {
        Extent {
            len: self.len(),
            first_id: self.first_id().unwrap_or_default(),
            last_id: self.last_id,
            max_deleted_id: self.max_deleted_id,
            entries_added: self.entries_added,
        }
    }

    /// The name that `OBJECT ENCODING` replies with.
    pub fn encoding(&self) -> &'static str {
        "stream"
    }
}

impl Group {
    /// Records that the entry is given to a consumer; returns whether the position has changed.
    pub(crate) fn advance(&mut self, id: StreamId, extent: Extent) -> bool {
        let is_ahead = id > self.last_id;
        if is_ahead {
            match self.entries_read {
                Some(read) if !extent.has_deleted_from(id) => {
                    self.entries_read = Some(read.wrapping_add(1));
                }
                _ if extent.entries_added != 0 => self.entries_read = extent.entries_up_to(id),
                _ => {}
            }
            self.last_id = id;
        }
        is_ahead
    }

    /// The number of entries that the group has not been given yet, if known.
    pub fn lag(&self, extent: Extent) -> Option<i64> {
        let read = match self.entries_read {
            _ if extent.entries_added == 0 => return Some(0),
            Some(read) if !extent.has_deleted_from(self.last_id) => Some(read),
            _ => extent.entries_up_to(self.last_id),
        };
        read.map(|read| extent.entries_added.wrapping_sub(read))
    }
}

impl Extent {
    /// Whether an entry with this id or a greater one may have been deleted.
    fn has_deleted_from(self, id: StreamId) -> bool {
        self.len > 0 && !self.is_whole() && id <= self.max_deleted_id
    }

    /// Whether no entry was deleted between the remaining ones.
    fn is_whole(self) -> bool {
        self.max_deleted_id == StreamId::MIN || self.max_deleted_id < self.first_id
    }

    /// The number of entries ever added up to this id, if it can be computed.
    pub fn entries_up_to(self, id: StreamId) -> Option<i64> {
        let gone = self.entries_added.wrapping_sub(self.len as i64);
        let count = match id.cmp(&self.first_id) {
            _ if self.entries_added == 0 => 0,
            _ if id == self.last_id || self.len == 0 && id < self.last_id => self.entries_added,
            _ if id > self.last_id || !self.is_whole() => return None,
            std::cmp::Ordering::Less => gone,
            std::cmp::Ordering::Equal => gone.wrapping_add(1),
            std::cmp::Ordering::Greater => return None,
        };
        // Redis uses -1 for an unknown number.
        (count != -1).then_some(count)
    }
}
