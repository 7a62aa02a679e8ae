//! The hash type: a few fields in one byte string, many in a dictionary.
//!
//! A lock is a hash with one field, so the small form matters most: its fields and values are
//! packed one after another, it is searched from the front, and it keeps the order in which they
//! were added, as Redis's listpack does. It may follow other bytes (the key in its record) and is
//! changed in place; a change that keeps its length moves no bytes.

use std::ops::Range;

use crate::random::Random;
use crate::store::dict::{Dict, HashSeed, Slot};
use crate::store::packed::{self, Items, PackedMut, Part};
use crate::store::random_sample;

/// When a hash leaves its small form. Redis's `hash-max-listpack-entries` and `-value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallHashLimits {
    /// A hash with more fields than this becomes a dictionary.
    pub entries_max: usize,
    /// A hash with a longer field or value than this becomes one, too.
    pub value_bytes_max: usize,
}

/// A field with its value.
pub type Field<'a> = (&'a [u8], &'a [u8]);

/// The large form.
pub type LargeHash = Dict<Box<[u8]>>;

/// An owned hash. Never empty while it is stored: the key is removed with its last field.
#[derive(Clone, Debug)]
pub enum Hash {
    /// In insertion order, packed.
    Small(Box<[u8]>),
    /// By field.
    Large(Box<LargeHash>),
}

/// A borrowed hash, wherever it is stored.
#[derive(Clone, Copy, Debug)]
pub enum Fields<'a> {
    /// As [`Hash::Small`].
    Small(&'a [u8]),
    /// As [`Hash::Large`].
    Large(&'a LargeHash),
}

/// A hash to be changed in place.
#[derive(Debug)]
pub(super) enum FieldsMut<'a, B> {
    /// After the first `from` bytes.
    Small {
        bytes: B,
        from: usize,
    },
    Large(&'a mut LargeHash),
}

/// The result of a search for a field. Valid until the hash is changed.
#[derive(Clone, Debug)]
pub enum FoundField {
    /// The field is in the small form.
    Small {
        /// Where the field begins.
        start: usize,
        /// Where its value is, counted from the first field.
        value: Range<usize>,
    },
    /// The field is not in the small form, which has this many fields.
    NotSmall(usize),
    /// The field is in the large form.
    Large(Slot),
    /// The field is not in the large form.
    NotLarge,
}

impl SmallHashLimits {
    /// Whether the small form can hold such a field and value at all.
    pub fn admits(self, field: &[u8], value: &[u8]) -> bool {
        self.entries_max > 0 && field.len().max(value.len()) <= self.value_bytes_max
    }
}

impl Default for Hash {
    fn default() -> Hash {
        Hash::Small(Box::default())
    }
}

impl Hash {
    /// The fields, read-only.
    pub fn fields(&self) -> Fields<'_> {
        match self {
            Hash::Small(bytes) => Fields::Small(bytes),
            Hash::Large(fields) => Fields::Large(fields),
        }
    }

    /// Whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.fields().is_empty()
    }

    /// An empty hash in the large form.
    pub(super) fn new_large(seed: HashSeed) -> Hash {
        Hash::Large(Box::new(Dict::new(seed)))
    }

    /// Sets a field; returns whether it is new.
    pub fn set(
        &mut self,
        field: &[u8],
        value: &[u8],
        limits: SmallHashLimits,
        seed: HashSeed,
    ) -> bool {
        let found = self.fields().find(field);
        if found.outgrows(field, value, limits) {
            *self = Hash::Large(Box::new(self.fields().to_large(seed)));
        }
        self.set_in_form(field, value)
    }

    /// Sets a field and keeps the form; returns whether the field is new.
    pub(super) fn set_in_form(&mut self, field: &[u8], value: &[u8]) -> bool {
        let found = self.fields().find(field);
        match self {
            Hash::Small(bytes) => FieldsMut::Small { bytes, from: 0 }.put(&found, field, value),
            Hash::Large(fields) => {
                FieldsMut::<&mut Box<[u8]>>::Large(fields).put(&found, field, value)
            }
        }
    }
}

impl FoundField {
    /// Whether the field exists.
    pub fn exists(&self) -> bool {
        !matches!(self, FoundField::NotSmall(_) | FoundField::NotLarge)
    }

    /// Whether setting the field would make the small form too large.
    pub(super) fn outgrows(&self, field: &[u8], value: &[u8], limits: SmallHashLimits) -> bool {
        let long = field.len().max(value.len()) > limits.value_bytes_max;
        match *self {
            FoundField::Small { .. } => long,
            FoundField::NotSmall(count) => long || count >= limits.entries_max,
            FoundField::Large(_) | FoundField::NotLarge => false,
        }
    }
}

impl<'a> Fields<'a> {
    /// The number of fields.
    pub fn len(self) -> usize {
        match self {
            Fields::Small(bytes) => Items(bytes).count() / 2,
            Fields::Large(fields) => fields.len(),
        }
    }

    /// Whether there are no fields.
    pub fn is_empty(self) -> bool {
        match self {
            Fields::Small(bytes) => bytes.is_empty(),
            Fields::Large(fields) => fields.is_empty(),
        }
    }

    /// The value of a field.
    pub fn get(self, field: &[u8]) -> Option<&'a [u8]> {
        self.value(&self.find(field))
    }

    /// Searches for a field.
    #[inline(always)]
    pub(super) fn find(self, field: &[u8]) -> FoundField {
        match self {
            Fields::Small(bytes) => {
                let (mut at, mut count) = (0, 0);
                while at < bytes.len() {
                    let name = packed::item_at(bytes, at);
                    let value = packed::item_at(bytes, name.end);
                    if bytes[name] == *field {
                        return FoundField::Small { start: at, value };
                    }
                    (at, count) = (value.end, count + 1);
                }
                FoundField::NotSmall(count)
            }
            Fields::Large(fields) => {
                fields.find(field).map_or(FoundField::NotLarge, FoundField::Large)
            }
        }
    }

    /// The value of a field that has been found.
    #[inline]
    pub(super) fn value(self, found: &FoundField) -> Option<&'a [u8]> {
        match (self, found) {
            (Fields::Small(bytes), FoundField::Small { value, .. }) => Some(&bytes[value.clone()]),
            (Fields::Large(fields), FoundField::Large(slot)) => Some(fields.value(*slot)),
            _ => None,
        }
    }

    /// All fields with their values.
    pub fn iter(self) -> impl Iterator<Item = Field<'a>> {
        let (small, large) = match self {
            Fields::Small(bytes) => (Some(bytes), None),
            Fields::Large(fields) => (None, Some(fields)),
        };
        let mut items = Items(small.unwrap_or_default());
        std::iter::from_fn(move || Some((items.next()?, items.next()?)))
            .chain(large.into_iter().flat_map(|fields| fields.iter().map(|(f, v)| (f, &**v))))
    }

    /// A random field with its value, nearly uniform; `None` if there is none.
    pub fn random(self, random: &mut Random) -> Option<Field<'a>> {
        match self {
            Fields::Small([]) => None,
            Fields::Small(_) => self.iter().nth(random.below(self.len())),
            Fields::Large(fields) => {
                fields.random(random).map(|slot| (fields.key(slot), &**fields.value(slot)))
            }
        }
    }

    /// `count` different fields with their values; all of them if there are not more.
    pub fn random_distinct(self, count: usize, random: &mut Random) -> Vec<Field<'a>> {
        if count >= self.len() {
            return self.iter().collect();
        }
        if let Fields::Large(fields) = self
            && count <= fields.len() / 2
        {
            let slots = fields.random_distinct(count, random);
            return slots.map(|at| (fields.key(at), &**fields.value(at))).collect();
        }
        random_sample(self.iter().collect(), count, random)
    }

    /// Some fields with their values, from `cursor` on, and the next cursor, 0 at the end. The
    /// small form is returned at once, as in Redis.
    pub fn scan(self, cursor: u64, count: usize) -> (Vec<Field<'a>>, u64) {
        match self {
            Fields::Small(_) => (self.iter().collect(), 0),
            Fields::Large(fields) => {
                let (slots, next) = fields.scan(cursor, count);
                (slots.map(|at| (fields.key(at), &**fields.value(at))).collect(), next)
            }
        }
    }

    /// The name that `OBJECT ENCODING` replies with.
    pub fn encoding(self) -> &'static str {
        match self {
            Fields::Small(_) => "listpack",
            Fields::Large(_) => "hashtable",
        }
    }

    /// An owned copy.
    pub fn to_hash(self) -> Hash {
        match self {
            Fields::Small(bytes) => Hash::Small(bytes.into()),
            Fields::Large(fields) => Hash::Large(Box::new(fields.clone())),
        }
    }

    /// A copy in the large form. A large hash never becomes small again, as in Redis.
    pub(super) fn to_large(self, seed: HashSeed) -> LargeHash {
        let mut large = Dict::new(seed);
        for (field, value) in self.iter() {
            large.insert_new(field, value.into());
        }
        large
    }
}

impl<B: PackedMut> FieldsMut<'_, B> {
    /// Sets a field that has just been searched for; returns whether it is new.
    pub(super) fn put(self, found: &FoundField, field: &[u8], value: &[u8]) -> bool {
        match (self, found) {
            (FieldsMut::Small { mut bytes, from }, FoundField::Small { start, value: old }) => {
                if old.len() == value.len() {
                    let old = from + old.start..from + old.end;
                    bytes.bytes_mut()[old].copy_from_slice(value);
                } else {
                    let pair = from + start..from + old.end;
                    bytes.splice(pair, &[Part::Item(field), Part::Item(value)]);
                }
            }
            (FieldsMut::Small { mut bytes, .. }, _) => {
                let end = bytes.bytes_mut().len();
                bytes.splice(end..end, &[Part::Item(field), Part::Item(value)]);
            }
            (FieldsMut::Large(fields), &FoundField::Large(slot)) => {
                overwrite(fields.value_mut(slot), value);
            }
            (FieldsMut::Large(fields), _) => drop(fields.insert_new(field, value.into())),
        }
        !found.exists()
    }

    /// Removes a field that has just been searched for; returns whether it existed.
    pub(super) fn remove(self, found: &FoundField) -> bool {
        match (self, found) {
            (FieldsMut::Small { mut bytes, from }, FoundField::Small { start, value }) => {
                bytes.splice(from + start..from + value.end, &[]);
            }
            (FieldsMut::Large(fields), &FoundField::Large(slot)) => drop(fields.remove_slot(slot)),
            _ => return false,
        }
        true
    }
}

/// Replaces a value, in place if the length is the same: a counter that changes by one seldom
/// changes its length.
fn overwrite(old: &mut Box<[u8]>, value: &[u8]) {
    if old.len() == value.len() {
        old.copy_from_slice(value);
    } else {
        *old = value.into();
    }
}
