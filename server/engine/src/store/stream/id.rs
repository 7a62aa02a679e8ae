//! Ids of stream entries: a time in milliseconds and a sequence number.

use std::fmt;

/// The id of an entry of a stream; later entries have greater ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct StreamId {
    /// Usually the wall clock when the entry was added.
    pub ms: u64,
    /// The sequence number within the millisecond.
    pub seq: u64,
}

/// The id requested for a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewId {
    /// `*`: the current time.
    Now,
    /// `5-*`: the next id of that millisecond.
    NextIn(u64),
    /// `5-1`
    Exactly(StreamId),
}

/// The maximum length of the text of an id, as in Redis.
const TEXT_BYTES_MAX: usize = 127;

impl StreamId {
    /// The smallest possible id; every entry has a greater one.
    pub const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    /// The greatest possible id.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    /// The id after this one.
    pub fn next(self) -> Option<StreamId> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => self.ms.checked_add(1).map(|ms| StreamId { ms, seq: 0 }),
        }
    }

    /// The id before this one.
    pub fn previous(self) -> Option<StreamId> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => self.ms.checked_sub(1).map(|ms| StreamId { ms, seq: u64::MAX }),
        }
    }

    /// Parses `5-1`, or `5` with `seq` as the missing part.
    pub fn parse(text: &[u8], seq: u64) -> Option<StreamId> {
        let (ms, given) = parts(text)?;
        let seq = given.map_or(Some(seq), number)?;
        Some(StreamId { ms: number(ms)?, seq })
    }

    /// The id with these bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> StreamId {
        let id = u128::from_be_bytes(bytes);
        StreamId { ms: (id >> 64) as u64, seq: id as u64 }
    }

    /// The bytes of the id: big-endian, so that ids sort as their bytes do.
    pub fn bytes(self) -> [u8; 16] {
        (u128::from(self.ms) << 64 | u128::from(self.seq)).to_be_bytes()
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

impl NewId {
    /// Parses `*`, `5-*`, `5-1` or `5`.
    pub fn parse(text: &[u8]) -> Option<NewId> {
        if text == b"*" {
            return Some(NewId::Now);
        }
        match parts(text)? {
            (ms, Some(b"*")) => number(ms).map(NewId::NextIn),
            _ => StreamId::parse(text, 0).map(NewId::Exactly),
        }
    }
}

/// The texts before and after the first dash. As in C, a zero byte ends the text.
fn parts(text: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    Some(match text.iter().position(|&byte| byte == b'-') {
        Some(dash) => (&text[..dash], Some(&text[dash + 1..])),
        None => (text, None),
    })
}

/// Parses a number as C's `strtoull` does, but never a negative one.
fn number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let digits = text.strip_prefix(b"+").unwrap_or(text);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, &byte| {
        let digit = char::from(byte).to_digit(10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_and_previous_ids_carry_over() {
        let id = |ms, seq| StreamId { ms, seq };
        assert_eq!(id(5, 1).next(), Some(id(5, 2)));
        assert_eq!(id(5, u64::MAX).next(), Some(id(6, 0)));
        assert_eq!(StreamId::MAX.next(), None);
        assert_eq!(id(5, 0).previous(), Some(id(4, u64::MAX)));
        assert_eq!(StreamId::MIN.previous(), None);
    }
}
