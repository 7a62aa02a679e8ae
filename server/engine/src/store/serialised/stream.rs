//! Writes and reads streams: listpacks of entries, the totals of the stream, and its groups.
//!
//! A listpack begins with field names that its entries may share. The id of each entry is stored as
//! the difference to the id of the listpack.

use std::borrow::Cow;
use std::collections::BTreeMap;

use lockwheel_resp::number;

use super::read::{Malformed, Reader, Text};
use super::write::Writer;
use super::{form, listpack};
use crate::store::stream::Stream;
use crate::store::stream::group::Group;
use crate::store::stream::id::StreamId;
use crate::store::stream::nodes::{Node, NodeLimits};
use crate::timing::time::Millis;

/// Flag: the entry has been deleted.
const DELETED: i64 = 1;
/// Flag: the entry has the field names at the head of the listpack.
const SAME_FIELDS: i64 = 2;
/// Elements of an entry besides its fields: flags and the two parts of its id.
const ENTRY_ELEMENTS: usize = 3;
/// Bytes of an id that is stored in full.
const ID_BYTES: usize = 16;
/// Written if the number of entries that a group has read is not known.
const UNKNOWN: u64 = u64::MAX;

pub(super) fn write(stream: &Stream, out: &mut Writer) {
    out.form(form::STREAM_3);
    out.length(stream.nodes().iter().count());
    for (first, node) in stream.nodes().iter() {
        out.string(&first.bytes());
        out.string(&listpack::pack(elements(stream, first, node).into_iter().map(Cow::Owned)));
    }
    out.length(stream.len());
    for id in [stream.last_id, stream.first_id().unwrap_or_default(), stream.max_deleted_id] {
        write_id(id, out);
    }
    out.number(stream.entries_added as u64);
    out.length(stream.groups().len());
    for (name, group) in stream.groups() {
        out.string(name);
        write_group(group, out);
    }
}

fn write_id(id: StreamId, out: &mut Writer) {
    out.number(id.ms);
    out.number(id.seq);
}

/// The elements of a node's listpack. Deleted entries are left out.
fn elements(stream: &Stream, first: StreamId, node: &Node) -> Vec<Vec<u8>> {
    let digits = |integer: i64| itoa::Buffer::new().format(integer).as_bytes().to_vec();
    let mut elements = vec![digits(node.live as i64), digits(0), digits(node.names.len() as i64)];
    elements.extend(node.names.iter().map(|name| name.to_vec()));
    elements.push(digits(0));
    for (id, entry) in stream.range(first, node.last) {
        let same = entry.fields().map(|(name, _)| name).eq(node.names.iter().map(|name| &**name));
        let begin = elements.len();
        elements.push(digits(if same { SAME_FIELDS } else { 0 }));
        elements.push(digits(id.ms.wrapping_sub(first.ms) as i64));
        elements.push(digits(id.seq.wrapping_sub(first.seq) as i64));
        if same {
            elements.extend(entry.fields().map(|(_, value)| value.to_vec()));
        } else {
            elements.push(digits(entry.fields().count() as i64));
            elements.extend(entry.fields().flat_map(|(name, value)| [name.into(), value.into()]));
        }
        elements.push(digits((elements.len() - begin) as i64));
    }
    elements
}

fn write_group(group: &Group, out: &mut Writer) {
    write_id(group.last_id, out);
    out.number(group.entries_read.map_or(UNKNOWN, |read| read as u64));
    out.length(group.pending().len());
    for (id, pending) in group.pending() {
        out.raw(&id.bytes());
        out.raw(&pending.delivered_at.0.to_le_bytes());
        out.number(pending.deliveries);
    }
    out.length(group.consumers().len());
    for (name, consumer) in group.consumers() {
        out.string(name);
        out.raw(&consumer.seen_at.0.to_le_bytes());
        out.raw(&consumer.active_at.unwrap_or(Millis(-1)).0.to_le_bytes());
        out.length(consumer.pending().len());
        consumer.pending().iter().for_each(|id| out.raw(&id.bytes()));
    }
}

pub(super) fn read(
    form: u8,
    from: &mut Reader<'_>,
    limits: NodeLimits,
) -> Result<Stream, Malformed> {
    let mut stream = Stream::default();
    for _ in 0..from.count(2)? {
        let first = StreamId::from_bytes(from.string()?[..].try_into().map_err(|_| Malformed)?);
        let packed = from.string()?;
        read_entries(first, Elements(listpack::unpack_uncounted(&packed)?), &mut stream, limits)?;
    }
    let length = from.length()?;
    let last_id = read_id(from)?;
    if length != stream.len() || stream.has_after(last_id) {
        return Err(Malformed);
    }
    stream.last_id = last_id;
    if form != form::STREAM {
        let _first_id = read_id(from)?;
        stream.max_deleted_id = read_id(from)?;
        stream.entries_added = from.number()? as i64;
    }
    for _ in 0..from.count(5)? {
        let name = from.string()?;
        let group = read_group(form, from, &stream)?;
        if !stream.add_group(&name, group) {
            return Err(Malformed);
        }
    }
    Ok(stream)
}

fn read_id(from: &mut Reader<'_>) -> Result<StreamId, Malformed> {
    Ok(StreamId { ms: from.number()?, seq: from.number()? })
}

fn read_time(from: &mut Reader<'_>) -> Result<Millis, Malformed> {
    from.chunk().map(i64::from_le_bytes).map(Millis)
}

/// The elements of a listpack, one after another.
struct Elements<I>(I);

impl<'a, I: Iterator<Item = Text<'a>>> Elements<I> {
    fn text(&mut self) -> Text<'a> {
        self.0.next().unwrap_or(Err(Malformed))
    }

    fn integer(&mut self) -> Result<i64, Malformed> {
        number::parse_integer(&self.text()?).ok_or(Malformed)
    }

    /// The next `count` texts, which a number of fields precedes.
    fn texts(&mut self, count: i64) -> Result<Vec<Cow<'a, [u8]>>, Malformed> {
        (0..count).map(|_| self.text()).collect()
    }
}

fn read_entries<'a>(
    first: StreamId,
    mut elements: Elements<impl Iterator<Item = Text<'a>>>,
    stream: &mut Stream,
    limits: NodeLimits,
) -> Result<(), Malformed> {
    let (live, deleted, count) = (elements.integer()?, elements.integer()?, elements.integer()?);
    let names = elements.texts(count)?;
    if elements.integer()? != 0 {
        return Err(Malformed);
    }
    let (mut seen_live, mut seen_deleted) = (0, 0);
    while seen_live < live || seen_deleted < deleted {
        let (flags, ms, seq) = (elements.integer()?, elements.integer()?, elements.integer()?);
        let id = StreamId {
            ms: first.ms.wrapping_add(ms as u64),
            seq: first.seq.wrapping_add(seq as u64),
        };
        let (values, own_names);
        let length;
        let fields: Vec<[&[u8]; 2]> = if flags & SAME_FIELDS != 0 {
            values = elements.texts(count)?;
            length = ENTRY_ELEMENTS + values.len();
            names.iter().zip(&values).map(|(name, value)| [&**name, &**value]).collect()
        } else {
            let count = elements.integer()?;
            own_names = elements.texts(count.checked_mul(2).ok_or(Malformed)?)?;
            length = ENTRY_ELEMENTS + 1 + own_names.len();
            own_names.chunks_exact(2).map(|pair| [&*pair[0], &*pair[1]]).collect()
        };
        // This number serves to find the entry when reading backwards.
        if usize::try_from(elements.integer()?) != Ok(length) {
            return Err(Malformed);
        }
        if flags & DELETED != 0 {
            seen_deleted += 1;
            continue;
        }
        seen_live += 1;
        if fields.is_empty() || id <= stream.last_id {
            return Err(Malformed);
        }
        stream.add(id, &fields, limits);
    }
    // A listpack must contain an entry, and no more entries than its header says.
    let ended = elements.0.next().is_none();
    let is_right = seen_live + seen_deleted > 0 && (seen_live, seen_deleted) == (live, deleted);
    if ended && is_right { Ok(()) } else { Err(Malformed) }
}

fn read_group(form: u8, from: &mut Reader<'_>, stream: &Stream) -> Result<Group, Malformed> {
    let last_id = read_id(from)?;
    let entries_read = match form {
        form::STREAM => stream.extent().entries_up_to(last_id),
        _ => Some(from.number()?).filter(|&read| read != UNKNOWN).map(|read| read as i64),
    };
    let mut group = Group::new(last_id, entries_read);
    let mut pending = BTreeMap::new();
    for _ in 0..from.count(ID_BYTES + 9)? {
        let id = StreamId::from_bytes(from.chunk()?);
        let delivered = (read_time(from)?, from.number()?);
        if pending.insert(id, delivered).is_some() {
            return Err(Malformed);
        }
    }
    for _ in 0..from.count(10)? {
        let name = from.string()?;
        let seen_at = read_time(from)?;
        if !group.add_consumer(&name, seen_at) {
            return Err(Malformed);
        }
        let active_at = if form == form::STREAM_3 { read_time(from)? } else { seen_at };
        if active_at != Millis(-1) {
            group.note_delivery(&name, active_at);
        }
        for _ in 0..from.count(ID_BYTES)? {
            let id = StreamId::from_bytes(from.chunk()?);
            // An entry is pending with one consumer only.
            let (delivered_at, deliveries) = pending.remove(&id).ok_or(Malformed)?;
            group.assign(id, &name, delivered_at, deliveries);
        }
    }
    if pending.is_empty() { Ok(group) } else { Err(Malformed) }
}
