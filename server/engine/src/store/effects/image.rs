//! Whole values in byte form, with everything that a client can observe: the encoding, the order of
//! small values, the nodes of streams, groups and consumers.

use std::collections::BTreeMap;

use super::codec::Field;
use crate::store::dict::HashSeed;
use crate::store::hash::{Fields, Hash};
use crate::store::list::{End, List};
use crate::store::lock::Lock;
use crate::store::records::NewValue;
use crate::store::serialised::Malformed;
use crate::store::set::{Set, SetForm};
use crate::store::sorted_set::SortedSet;
use crate::store::stream::Stream;
use crate::store::string_value::{StringValue, Text, TextForm};
use crate::store::value::{Kind, Value, ValueRef};

/// A value, or its byte form: one byte for the type and the encoding, then the contents.
#[derive(Clone, Copy, Debug)]
pub enum Image<'a> {
    /// A value that is about to be stored.
    New(&'a NewValue<'a>),
    /// A stored value.
    Stored(ValueRef<'a>),
    /// The byte form.
    Encoded(&'a [u8]),
}

/// The bytes of the length in front of a value.
const LENGTH_BYTES: usize = size_of::<u64>();

const INT: u8 = 0;
const BYTES: u8 = 1;
const RAW: u8 = 2;
const SMALL_HASH: u8 = 3;
const LARGE_HASH: u8 = 4;
const LIST: u8 = 5;
const OUTGROWN_LIST: u8 = 6;
const INTEGER_SET: u8 = 7;
const SMALL_SET: u8 = 8;
const LARGE_SET: u8 = 9;
const SMALL_SORTED_SET: u8 = 10;
const LARGE_SORTED_SET: u8 = 11;
const STREAM: u8 = 12;
const LOCK: u8 = 13;

impl<'a> Field<'a> for Image<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        // The length is known only afterwards.
        out.extend_from_slice(&[0; LENGTH_BYTES]);
        self.write(out);
        let length = (out.len() - start - LENGTH_BYTES) as u64;
        out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    }

    fn decode(from: &mut &'a [u8]) -> Result<Image<'a>, Malformed> {
        let (length, rest) = from.split_first_chunk().ok_or(Malformed)?;
        let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| Malformed)?;
        let (bytes, rest) = rest.split_at_checked(length).ok_or(Malformed)?;
        *from = rest;
        Ok(Image::Encoded(bytes))
    }
}

impl Image<'_> {
    /// The type of the value; `None` if the byte form has none.
    pub fn kind(self) -> Option<Kind> {
        match self {
            Image::New(NewValue::Text(_) | NewValue::Float(_)) => Some(Kind::String),
            Image::New(NewValue::Field(..)) => Some(Kind::Hash),
            Image::New(NewValue::Value(value)) => Some(value.view().kind()),
            Image::Stored(value) => Some(value.kind()),
            Image::Encoded(bytes) => Some(match *bytes.first()? {
                INT..=RAW => Kind::String,
                SMALL_HASH | LARGE_HASH => Kind::Hash,
                LIST | OUTGROWN_LIST => Kind::List,
                INTEGER_SET..=LARGE_SET => Kind::Set,
                SMALL_SORTED_SET | LARGE_SORTED_SET => Kind::SortedSet,
                STREAM => Kind::Stream,
                LOCK => Kind::Lock,
                _ => return None,
            }),
        }
    }

    /// Appends the byte form without its length.
    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            Image::New(NewValue::Text(text)) => {
                write_text(Text { bytes: text, form: TextForm::of(text) }, out);
            }
            Image::New(NewValue::Float(text)) => {
                write_text(Text { bytes: text, form: TextForm::Bytes }, out);
            }
            Image::New(NewValue::Field(field, value)) => {
                out.push(SMALL_HASH);
                field.encode(out);
                value.encode(out);
            }
            Image::New(NewValue::Value(value)) => write_value(value.view(), out),
            Image::Stored(value) => write_value(value, out),
            Image::Encoded(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// Reads a value from its byte form. `seed` is that of dictionaries.
    pub fn to_value(self, seed: HashSeed) -> Result<Value, Malformed> {
        let Image::Encoded(bytes) = self else {
            let mut bytes = Vec::new();
            self.write(&mut bytes);
            return Image::Encoded(&bytes).to_value(seed);
        };
        let (&form, rest) = bytes.split_first().ok_or(Malformed)?;
        let mut from = rest;
        let value = match form {
            INT => return Ok(StringValue::Int(rest.into()).into()),
            BYTES => return Ok(StringValue::Bytes(rest.into()).into()),
            RAW => return Ok(StringValue::Raw(rest.into()).into()),
            SMALL_HASH | LARGE_HASH => read_hash(form == LARGE_HASH, &mut from, seed)?.into(),
            LIST | OUTGROWN_LIST => read_list(form == OUTGROWN_LIST, &mut from)?.into(),
            INTEGER_SET => read_set(SetForm::Integers, &mut from, seed)?.into(),
            SMALL_SET => read_set(SetForm::Small, &mut from, seed)?.into(),
            LARGE_SET => read_set(SetForm::Large, &mut from, seed)?.into(),
            SMALL_SORTED_SET | LARGE_SORTED_SET => {
                read_sorted_set(form == LARGE_SORTED_SET, &mut from, seed)?.into()
            }
            STREAM => Box::new(Stream::decode(&mut from)?).into(),
            LOCK => Box::new(Lock::decode(&mut from)?).into(),
            _ => return Err(Malformed),
        };
        if from.is_empty() { Ok(value) } else { Err(Malformed) }
    }
}

/// The byte form of a value with the members of large values in the order of their bytes: equal for
/// values between which no client can distinguish.
pub(in crate::store) fn canonical(value: ValueRef<'_>, out: &mut Vec<u8>) {
    match value {
        ValueRef::Hash(Fields::Large(fields)) => {
            out.push(LARGE_HASH);
            let sorted: BTreeMap<&[u8], &[u8]> = fields.iter().map(|(f, v)| (f, &**v)).collect();
            for (field, value) in sorted {
                field.encode(out);
                value.encode(out);
            }
        }
        ValueRef::Set(set @ Set::Large(_)) => {
            out.push(LARGE_SET);
            let mut members: Vec<_> = set.iter().collect();
            members.sort_unstable();
            members.iter().for_each(|member| (&**member).encode(out));
        }
        other => write_value(other, out),
    }
}

fn write_text(text: Text<'_>, out: &mut Vec<u8>) {
    out.push(match text.form {
        TextForm::Int => INT,
        TextForm::Bytes => BYTES,
        TextForm::Raw => RAW,
    });
    out.extend_from_slice(text.bytes);
}

fn write_value(value: ValueRef<'_>, out: &mut Vec<u8>) {
    match value {
        ValueRef::String(text) => write_text(text, out),
        ValueRef::Hash(fields) => {
            out.push(if matches!(fields, Fields::Small(_)) { SMALL_HASH } else { LARGE_HASH });
            for (field, value) in fields.iter() {
                field.encode(out);
                value.encode(out);
            }
        }
        ValueRef::List(list) => {
            out.push(if list.is_outgrown() { OUTGROWN_LIST } else { LIST });
            list.iter().for_each(|element| element.encode(out));
        }
        ValueRef::Set(set) => {
            out.push(match set.form() {
                SetForm::Integers => INTEGER_SET,
                SetForm::Small => SMALL_SET,
                SetForm::Large => LARGE_SET,
            });
            set.iter().for_each(|member| (&*member).encode(out));
        }
        ValueRef::SortedSet(set) => {
            let is_small = matches!(set, SortedSet::Small(_));
            out.push(if is_small { SMALL_SORTED_SET } else { LARGE_SORTED_SET });
            for (member, score) in set.iter() {
                member.encode(out);
                score.encode(out);
            }
        }
        ValueRef::Stream(stream) => {
            out.push(STREAM);
            stream.encode(out);
        }
        ValueRef::Lock(lock) => {
            out.push(LOCK);
            lock.encode(out);
        }
    }
}

fn read_hash(is_large: bool, from: &mut &[u8], seed: HashSeed) -> Result<Hash, Malformed> {
    let mut hash = if is_large { Hash::new_large(seed) } else { Hash::default() };
    while !from.is_empty() {
        let (field, value) = (<&[u8]>::decode(from)?, <&[u8]>::decode(from)?);
        hash.set_in_form(field, value);
    }
    Ok(hash)
}

fn read_list(is_outgrown: bool, from: &mut &[u8]) -> Result<List, Malformed> {
    let mut list = List::default();
    while !from.is_empty() {
        list.push(End::Right, <&[u8]>::decode(from)?);
    }
    list.set_outgrown(is_outgrown);
    Ok(list)
}

fn read_set(form: SetForm, from: &mut &[u8], seed: HashSeed) -> Result<Set, Malformed> {
    let mut set = Set::empty(form, seed);
    while !from.is_empty() {
        if !set.add_in_form(<&[u8]>::decode(from)?) {
            return Err(Malformed);
        }
    }
    Ok(set)
}

fn read_sorted_set(
    is_large: bool,
    from: &mut &[u8],
    seed: HashSeed,
) -> Result<SortedSet, Malformed> {
    let mut set = SortedSet::empty(is_large, seed);
    while !from.is_empty() {
        let (member, score) = (<&[u8]>::decode(from)?, f64::decode(from)?);
        if score.is_nan() {
            return Err(Malformed);
        }
        set.set_in_form(member, score);
    }
    Ok(set)
}
