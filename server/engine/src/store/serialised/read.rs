//! Reads payloads. A length is compared with the bytes left before memory is allocated for it.

use std::borrow::Cow;

use lockwheel_resp::number;

use super::{encoding, form, legacy, listpack, lzf, node, stream};
use crate::limits;
use crate::store::dict::HashSeed;
use crate::store::hash::{Hash, SmallHashLimits};
use crate::store::list::{End, List, SmallListLimits};
use crate::store::set::{Set, SmallSetLimits};
use crate::store::sorted_set::{SmallSortedSetLimits, SortedSet};
use crate::store::stream::nodes::NodeLimits;
use crate::store::string_value::{StringValue, digits};
use crate::store::value::Value;

/// The error for bytes that are not a valid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// A string, or an error if there is none.
pub(super) type Text<'a> = Result<Cow<'a, [u8]>, Malformed>;

/// The limits of the small forms of values.
#[derive(Clone, Copy, Debug)]
pub struct Forms {
    /// The limits of a small hash.
    pub hash: SmallHashLimits,
    /// The limits of a small list.
    pub list: SmallListLimits,
    /// The limits of a small set.
    pub set: SmallSetLimits,
    /// The limits of a small sorted set.
    pub sorted_set: SmallSortedSetLimits,
    /// The limits of a stream node.
    pub stream: NodeLimits,
    /// The seed of dictionaries.
    pub seed: HashSeed,
}

/// Reads the value of a payload without its version and checksum.
pub fn read(body: &[u8], forms: Forms) -> Result<Value, Malformed> {
    let mut reader = Reader { rest: body, room: limits::RESTORED_BYTES_MAX };
    match reader.byte()? {
        form::STRING => Ok(Value::String(StringValue::new(&reader.string()?))),
        form @ (form::LIST
        | form::LIST_ZIPLIST
        | form::LIST_OF_ZIPLISTS
        | form::LIST_OF_LISTPACKS) => reader.list(form, forms).map(Value::List),
        form @ (form::SET | form::SET_INTSET | form::SET_LISTPACK) => {
            reader.set(form, forms).map(Value::Set)
        }
        form @ (form::HASH | form::HASH_ZIPMAP | form::HASH_ZIPLIST | form::HASH_LISTPACK) => {
            reader.hash(form, forms).map(Value::Hash)
        }
        form @ (form::STREAM | form::STREAM_2 | form::STREAM_3) => {
            let stream = stream::read(form, &mut reader, forms.stream)?;
            Ok(Value::Stream(Box::new(stream)))
        }
        form => reader.sorted_set(form, forms).map(Value::SortedSet),
    }
}

/// Reads the source texts of function libraries from a payload without its version and checksum.
/// The error is the text of the reply.
pub fn read_libraries(body: &[u8]) -> Result<Vec<Vec<u8>>, &'static str> {
    let mut reader = Reader { rest: body, room: limits::RESTORED_BYTES_MAX };
    let mut codes = Vec::new();
    while let Ok(form) = reader.byte() {
        if form != form::LIBRARY {
            return Err("given type is not a function");
        }
        let code = reader.string().map_err(|_| "failed loading the given functions payload")?;
        codes.push(code.into_owned());
    }
    Ok(codes)
}

/// The rest of a payload.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// The number of bytes to which compressed strings may still expand.
    room: usize,
}

impl<'a> Reader<'a> {
    fn list(&mut self, form: u8, forms: Forms) -> Result<List, Malformed> {
        let mut list = List::default();
        let mut add = |element: Text<'_>| {
            let element = element?;
            list.grow(&[&element], forms.list);
            list.push(End::Right, &element);
            Ok(())
        };
        match form {
            form::LIST => self.strings(1)?.try_for_each(add)?,
            form::LIST_ZIPLIST => legacy::ziplist(&self.string()?)?.try_for_each(add)?,
            _ => {
                for _ in 0..self.count(1)? {
                    let kind = match form {
                        form::LIST_OF_LISTPACKS => Some(self.length()?),
                        _ => None,
                    };
                    let piece = self.string()?;
                    match kind {
                        None => legacy::ziplist(&piece)?.try_for_each(&mut add)?,
                        Some(node::PACKED) => listpack::unpack(&piece)?.try_for_each(&mut add)?,
                        Some(node::PLAIN) if !piece.is_empty() => add(Ok(piece))?,
                        Some(_) => return Err(Malformed),
                    }
                }
            }
        }
        if list.is_empty() { Err(Malformed) } else { Ok(list) }
    }

    fn set(&mut self, form: u8, forms: Forms) -> Result<Set, Malformed> {
        // A packed set does not become an intset, even if it could be one.
        let mut set = match form {
            form::SET_LISTPACK => Set::Small(Vec::new()),
            _ => Set::default(),
        };
        let add = |member: Text<'_>| {
            let is_new = set.add(&member?, forms.set, forms.seed);
            if is_new { Ok(()) } else { Err(Malformed) }
        };
        match form {
            form::SET => self.strings(1)?.try_for_each(add)?,
            form::SET_INTSET => legacy::intset(&self.string()?)?.try_for_each(add)?,
            _ => listpack::unpack(&self.string()?)?.try_for_each(add)?,
        }
        if set.is_empty() { Err(Malformed) } else { Ok(set) }
    }

    fn hash(&mut self, form: u8, forms: Forms) -> Result<Hash, Malformed> {
        let mut hash = Hash::default();
        let add = |pair: [Text<'_>; 2]| {
            let [field, value] = pair;
            let is_new = hash.set(&field?, &value?, forms.hash, forms.seed);
            if is_new { Ok(()) } else { Err(Malformed) }
        };
        match form {
            form::HASH => pairs(self.strings(2)?).try_for_each(add)?,
            form::HASH_ZIPMAP => pairs(legacy::zipmap(&self.string()?)?).try_for_each(add)?,
            form::HASH_ZIPLIST => pairs(legacy::ziplist(&self.string()?)?).try_for_each(add)?,
            _ => pairs(listpack::unpack(&self.string()?)?).try_for_each(add)?,
        }
        if hash.is_empty() { Err(Malformed) } else { Ok(hash) }
    }

    fn sorted_set(&mut self, form: u8, forms: Forms) -> Result<SortedSet, Malformed> {
        let mut set = SortedSet::default();
        let mut add = |member: Cow<'_, [u8]>, score: f64| {
            let old = set.set(&member, score, forms.sorted_set, forms.seed);
            if old.is_some() || score.is_nan() { Err(Malformed) } else { Ok(()) }
        };
        let add_packed = |pair: [Text<'_>; 2]| {
            let [member, score] = pair;
            add(member?, number::parse_double(&score?).ok_or(Malformed)?)
        };
        match form {
            form::SORTED_SET => {
                for _ in 0..self.count(9)? {
                    let member = self.string()?;
                    add(member, f64::from_le_bytes(self.chunk()?))?;
                }
            }
            form::SORTED_SET_AS_TEXT => {
                for _ in 0..self.count(2)? {
                    let member = self.string()?;
                    add(member, self.score_as_text()?)?;
                }
            }
            form::SORTED_SET_ZIPLIST => {
                pairs(legacy::ziplist(&self.string()?)?).try_for_each(add_packed)?;
            }
            form::SORTED_SET_LISTPACK => {
                pairs(listpack::unpack(&self.string()?)?).try_for_each(add_packed)?;
            }
            _ => return Err(Malformed),
        }
        if set.is_empty() { Err(Malformed) } else { Ok(set) }
    }

    /// A score in the oldest encoding: the length of its text, or a special value.
    fn score_as_text(&mut self) -> Result<f64, Malformed> {
        match self.byte()? {
            255 => Ok(f64::NEG_INFINITY),
            254 => Ok(f64::INFINITY),
            253 => Err(Malformed),
            length => number::parse_double(self.take(length.into())?).ok_or(Malformed),
        }
    }

    /// The strings after a number of groups of `has` strings each.
    fn strings(&mut self, has: usize) -> Result<impl Iterator<Item = Text<'a>>, Malformed> {
        let count = self.count(has)?;
        Ok((0..count * has).map(|_| self.string()))
    }

    /// A number of items that take at least `bytes_min` bytes each.
    pub(super) fn count(&mut self, bytes_min: usize) -> Result<usize, Malformed> {
        let count = self.length()?;
        if count > self.rest.len() / bytes_min { Err(Malformed) } else { Ok(count) }
    }

    pub(super) fn length(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.number()?).map_err(|_| Malformed)
    }

    pub(super) fn number(&mut self) -> Result<u64, Malformed> {
        let first = self.byte()?;
        self.number_from(first)
    }

    fn number_from(&mut self, first: u8) -> Result<u64, Malformed> {
        match first {
            0..0x40 => Ok(first.into()),
            0x40..0x80 => Ok(u64::from(first & 0x3f) << 8 | u64::from(self.byte()?)),
            0x80 | 0x81 => {
                let bytes = self.take(if first == 0x80 { 4 } else { 8 })?;
                Ok(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
            }
            // As in Redis: an invalid byte is the greatest number, which is no valid length, and a
            // byte that introduces an encoded string is a number where a string is not possible.
            0x82..0xc0 => Ok(u64::MAX),
            0xc0.. => Ok(u64::from(first & 0x3f)),
        }
    }

    pub(super) fn string(&mut self) -> Text<'a> {
        let first = self.byte()?;
        let Some(encoding) = (first >= 0xc0).then_some(first & 0x3f) else {
            let length = usize::try_from(self.number_from(first)?).map_err(|_| Malformed)?;
            return self.take(length).map(Cow::Borrowed);
        };
        let width = match encoding {
            encoding::INT8 => 1,
            encoding::INT16 => 2,
            encoding::INT32 => 4,
            encoding::COMPRESSED => {
                let (compressed, length) = (self.length()?, self.length()?);
                self.room = self.room.checked_sub(length).ok_or(Malformed)?;
                let compressed = self.take(compressed)?;
                if length == 0 {
                    // Redis ignores the bytes in this case.
                    return Ok(Cow::Borrowed(b""));
                }
                return lzf::decompress(compressed, length).map(Cow::Owned);
            }
            _ => return Err(Malformed),
        };
        let integer = little_endian(self.take(width)?);
        Ok(digits(integer))
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        self.take(1).map(|taken| taken[0])
    }

    /// The next `N` bytes.
    pub(super) fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (&chunk, rest) = self.rest.split_first_chunk().ok_or(Malformed)?;
        self.rest = rest;
        Ok(chunk)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// Groups texts in pairs.
fn pairs<'t>(mut texts: impl Iterator<Item = Text<'t>>) -> impl Iterator<Item = [Text<'t>; 2]> {
    std::iter::from_fn(move || Some([texts.next()?, texts.next().unwrap_or(Err(Malformed))]))
}

/// A signed little-endian integer of up to eight bytes.
pub(super) fn little_endian(bytes: &[u8]) -> i64 {
    let unused = 64 - 8 * bytes.len();
    let bits = bytes.iter().rev().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
    (bits << unused) as i64 >> unused
}
