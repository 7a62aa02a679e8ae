//! Writes payloads.

use std::borrow::Cow;

use lockwheel_resp::{format_double, number};

use super::{encoding, form, listpack, lzf, node, seal, stream};
use crate::store::hash::Fields;
use crate::store::list::List;
use crate::store::set::Set;
use crate::store::sorted_set::SortedSet;
use crate::store::value::ValueRef;

/// Bytes up to which several elements share a listpack: Redis's default for a list.
const NODE_BYTES_MAX: usize = 8 << 10;
/// Bytes below which a value is packed, as in Redis.
const PACKED_BYTES_MAX: usize = 1 << 30;
/// The maximum bytes of an element in a listpack besides its contents.
const PACKED_OVERHEAD_BYTES: usize = 10;
/// Length of the shortest string that is compressed, as in Redis.
const COMPRESSED_BYTES_MIN: usize = 21;
/// Length of the longest text of an integer of 32 bits.
const INTEGER_BYTES_MAX: usize = 11;

/// The payload from which `RESTORE` creates the value; `None` if no payload can be made of it.
pub fn write(value: ValueRef<'_>) -> Option<Vec<u8>> {
    let mut writer = Writer(Vec::new());
    match value {
        ValueRef::String(string) => {
            writer.form(form::STRING);
            writer.string(string.bytes());
        }
        ValueRef::List(list) => writer.list(list),
        ValueRef::Set(set) => writer.set(set),
        ValueRef::Hash(hash) => writer.hash(hash),
        ValueRef::SortedSet(set) => writer.sorted_set(set),
        ValueRef::Stream(stream) => stream::write(stream, &mut writer),
        ValueRef::Lock(_) => return None,
    }
    Some(seal(writer.0))
}

/// The payload from which `FUNCTION RESTORE` loads libraries, given their source texts.
pub fn write_libraries<'a>(codes: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut writer = Writer(Vec::new());
    for code in codes {
        writer.form(form::LIBRARY);
        writer.string(code);
    }
    seal(writer.0)
}

/// The bytes written so far.
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn form(&mut self, form: u8) {
        self.0.push(form);
    }

    fn list(&mut self, list: &List) {
        self.form(form::LIST_OF_LISTPACKS);
        let elements: Vec<&[u8]> = list.iter().collect();
        let mut nodes: Vec<&[&[u8]]> = Vec::new();
        let (mut from, mut bytes) = (0, 0);
        for (at, element) in elements.iter().enumerate() {
            bytes += element.len() + PACKED_OVERHEAD_BYTES;
            if bytes > NODE_BYTES_MAX && at > from {
                nodes.push(&elements[from..at]);
                (from, bytes) = (at, element.len() + PACKED_OVERHEAD_BYTES);
            }
        }
        nodes.push(&elements[from..]);
        self.length(nodes.len());
        for elements in nodes {
            self.length(node::PACKED);
            self.string(&listpack::pack(elements.iter().map(|element| Cow::Borrowed(*element))));
        }
    }

    fn set(&mut self, set: &Set) {
        match set {
            Set::Integers(integers) => {
                self.form(form::SET_INTSET);
                self.string(&intset(integers));
            }
            Set::Small(members) if fits(members.iter().map(|member| member.len())) => {
                self.form(form::SET_LISTPACK);
                self.string(&listpack::pack(set.iter()));
            }
            _ => {
                self.form(form::SET);
                self.length(set.len());
                set.iter().for_each(|member| self.string(&member));
            }
        }
    }

    fn hash(&mut self, hash: Fields<'_>) {
        let texts = || hash.iter().flat_map(|(field, value)| [field, value]);
        if matches!(hash, Fields::Small(_)) && fits(texts().map(<[u8]>::len)) {
            self.form(form::HASH_LISTPACK);
            self.string(&listpack::pack(texts().map(Cow::Borrowed)));
        } else {
            self.form(form::HASH);
            self.length(hash.len());
            texts().for_each(|text| self.string(text));
        }
    }

    fn sorted_set(&mut self, set: &SortedSet) {
        if matches!(set, SortedSet::Small(_)) && fits(set.iter().map(|(member, _)| member.len())) {
            self.form(form::SORTED_SET_LISTPACK);
            let score = |score| Cow::Owned(format_double(score).as_bytes().to_vec());
            let texts = set.iter().flat_map(|(member, s)| [Cow::Borrowed(member), score(s)]);
            self.string(&listpack::pack(texts));
        } else {
            self.form(form::SORTED_SET);
            self.length(set.len());
            // In reverse order, so that the reader always inserts at the front, as Redis does.
            for (member, score) in set.iter().rev() {
                self.string(member);
                self.raw(&score.to_le_bytes());
            }
        }
    }

    /// A number in as few bytes as possible; its first two bits give the length.
    pub(super) fn number(&mut self, number: u64) {
        match number {
            0..0x40 => self.0.push(number as u8),
            0x40..0x4000 => self.0.extend((number as u16 | 0x4000).to_be_bytes()),
            0x4000..=0xffff_ffff => {
                self.0.push(0x80);
                self.0.extend((number as u32).to_be_bytes());
            }
            _ => {
                self.0.push(0x81);
                self.0.extend(number.to_be_bytes());
            }
        }
    }

    pub(super) fn length(&mut self, length: usize) {
        self.number(length as u64);
    }

    /// Bytes as they are.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    pub(super) fn string(&mut self, bytes: &[u8]) {
        let is_short = bytes.len() <= INTEGER_BYTES_MAX;
        let integer = number::parse_integer(bytes).filter(|_| is_short);
        if let Some(integer) = integer.and_then(|integer| i32::try_from(integer).ok()) {
            return self.integer(integer);
        }
        let is_long = bytes.len() >= COMPRESSED_BYTES_MIN;
        match lzf::compress(bytes).filter(|_| is_long) {
            Some(compressed) => {
                self.0.push(0xc0 | encoding::COMPRESSED);
                self.length(compressed.len());
                self.length(bytes.len());
                self.0.extend(compressed);
            }
            None => {
                self.length(bytes.len());
                self.0.extend(bytes);
            }
        }
    }

    fn integer(&mut self, integer: i32) {
        let bytes = integer.to_le_bytes();
        let (encoding, count) = match integer {
            -0x80..=0x7f => (encoding::INT8, 1),
            -0x8000..=0x7fff => (encoding::INT16, 2),
            _ => (encoding::INT32, 4),
        };
        self.0.push(0xc0 | encoding);
        self.0.extend(&bytes[..count]);
    }
}

/// Whether strings of such lengths may be packed into one byte string.
fn fits(lengths: impl Iterator<Item = usize>) -> bool {
    lengths.map(|length| length + 2 * PACKED_OVERHEAD_BYTES).sum::<usize>() < PACKED_BYTES_MAX
}

/// The integers in order, all of the width that the largest needs.
fn intset(integers: &[i64]) -> Vec<u8> {
    let ends = [integers.first(), integers.last()];
    let needs = |integer: &i64| match *integer {
        -0x8000..=0x7fff => 2,
        -0x8000_0000..=0x7fff_ffff => 4,
        _ => 8,
    };
    let width = ends.into_iter().flatten().map(needs).max().unwrap_or(2);
    let mut out = Vec::with_capacity(8 + integers.len() * width);
    out.extend((width as u32).to_le_bytes());
    out.extend((integers.len() as u32).to_le_bytes());
    for integer in integers {
        out.extend(&integer.to_le_bytes()[..width]);
    }
    out
}
