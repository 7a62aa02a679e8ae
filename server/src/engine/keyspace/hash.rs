//! The hash type: a few fields in a row, many in a dictionary.
//!
//! A lock is a hash with one field, so the small form is what matters: it is searched from the
//! front and keeps its fields in the order they were added, as Redis's listpack does.

use std::collections::BTreeSet;

use crate::engine::keyspace::dict::{Dict, HashSeed};
use crate::engine::random::Random;

/// When a hash leaves its small form. Redis's `hash-max-listpack-entries` and `-value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallHash {
    /// More fields than this make it a dictionary.
    pub entries_max: usize,
    /// A field or value longer than this does, too.
    pub value_bytes_max: usize,
}

/// A field with its value.
pub type Field<'a> = (&'a [u8], &'a [u8]);

/// A field with its value, as the small form keeps them.
pub type StoredField = (Box<[u8]>, Box<[u8]>);

/// Fields with values. Never empty while it is stored: the last field takes the key with it.
#[derive(Clone, Debug)]
pub enum Hash {
    /// In order of arrival.
    Small(Vec<StoredField>),
    /// By field. Apart, so that it does not make the record of every lock larger.
    Large(Box<Dict<Box<[u8]>>>),
}

impl Default for Hash {
    fn default() -> Hash {
        Hash::Small(Vec::new())
    }
}

impl Hash {
    /// How many fields there are.
    pub fn len(&self) -> usize {
        match self {
            Hash::Small(fields) => fields.len(),
            Hash::Large(fields) => fields.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value of a field.
    pub fn get(&self, field: &[u8]) -> Option<&[u8]> {
        match self {
            Hash::Small(fields) => fields.iter().find(|(f, _)| **f == *field).map(|(_, v)| &**v),
            Hash::Large(fields) => fields.get(field).map(|v| &**v),
        }
    }

    /// Sets a field; returns whether it is new.
    pub fn set(&mut self, field: &[u8], value: &[u8], small: SmallHash, seed: HashSeed) -> bool {
        self.make_room(field, value, small, seed);
        match self {
            Hash::Small(fields) => {
                if let Some((_, old)) = fields.iter_mut().find(|(f, _)| **f == *field) {
                    overwrite(old, value);
                    return false;
                }
                fields.push((field.into(), value.into()));
                true
            }
            Hash::Large(fields) => match fields.get_mut(field) {
                Some(old) => {
                    overwrite(old, value);
                    false
                }
                None => {
                    fields.insert_new(field, value.into());
                    true
                }
            },
        }
    }

    /// Removes a field; returns its value.
    pub fn remove(&mut self, field: &[u8]) -> Option<Box<[u8]>> {
        match self {
            Hash::Small(fields) => {
                let at = fields.iter().position(|(f, _)| **f == *field)?;
                Some(fields.remove(at).1)
            }
            Hash::Large(fields) => fields.remove(field).map(|(_, value)| value),
        }
    }

    /// All fields with their values.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> {
        let (small, large) = match self {
            Hash::Small(fields) => (Some(fields), None),
            Hash::Large(fields) => (None, Some(fields)),
        };
        small
            .into_iter()
            .flatten()
            .map(|(f, v)| (&**f, &**v))
            .chain(large.into_iter().flat_map(|fields| fields.iter().map(|(f, v)| (f, &**v))))
    }

    /// A field with its value, all about equally likely; `None` if there is none.
    pub fn random(&self, random: &mut Random) -> Option<Field<'_>> {
        match self {
            Hash::Small(fields) if fields.is_empty() => None,
            Hash::Small(fields) => {
                let (field, value) = &fields[random.below(fields.len())];
                Some((field, value))
            }
            Hash::Large(fields) => {
                fields.random(random).map(|slot| (fields.key(slot), &**fields.value(slot)))
            }
        }
    }

    /// `count` different fields with their values; all of them if there are no more.
    pub fn random_distinct(&self, count: usize, random: &mut Random) -> Vec<Field<'_>> {
        if count >= self.len() {
            return self.iter().collect();
        }
        if let Hash::Large(fields) = self
            && count <= fields.len() / 2
        {
            // At least every other draw brings a new one.
            let mut slots = BTreeSet::new();
            while slots.len() < count {
                slots.extend(fields.random(random));
            }
            return slots.into_iter().map(|at| (fields.key(at), &**fields.value(at))).collect();
        }
        let mut all: Vec<_> = self.iter().collect();
        for at in 0..count {
            all.swap(at, at + random.below(self.len() - at));
        }
        all.truncate(count);
        all
    }

    /// Some fields with their values, from `cursor` on, and the cursor to go on from, 0 at the end.
    /// The small form is shown at once, as Redis does.
    pub fn scan(&self, cursor: u64, count: usize) -> (Vec<Field<'_>>, u64) {
        match self {
            Hash::Small(_) => (self.iter().collect(), 0),
            Hash::Large(fields) => {
                let (slots, next) = fields.scan(cursor, count);
                (slots.map(|at| (fields.key(at), &**fields.value(at))).collect(), next)
            }
        }
    }

    /// The name `OBJECT ENCODING` answers with.
    pub fn encoding(&self) -> &'static str {
        match self {
            Hash::Small(_) => "listpack",
            Hash::Large(_) => "hashtable",
        }
    }

    /// Turns into a dictionary before `field` would make the small form too large. There is no
    /// way back, as in Redis.
    fn make_room(&mut self, field: &[u8], value: &[u8], small: SmallHash, seed: HashSeed) {
        let Hash::Small(fields) = self else { return };
        let long = field.len().max(value.len()) > small.value_bytes_max;
        let full = fields.len() >= small.entries_max && !fields.iter().any(|(f, _)| **f == *field);
        if long || full {
            let mut large = Dict::new(seed);
            for (field, value) in std::mem::take(fields) {
                large.insert_new(&field, value);
            }
            *self = Hash::Large(Box::new(large));
        }
    }
}

/// A counter that moves by one seldom changes its length.
fn overwrite(old: &mut Box<[u8]>, value: &[u8]) {
    if old.len() == value.len() {
        old.copy_from_slice(value);
    } else {
        *old = value.into();
    }
}
