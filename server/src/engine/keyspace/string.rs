//! The string type: bytes, kept as an integer where that is the same.

use std::borrow::Cow;

use leasehold_resp::number;

/// Strings up to this length are reported as `embstr`, longer ones as `raw` (Redis's figure).
const EMBEDDED_BYTES_MAX: usize = 44;

/// A byte string.
#[derive(Clone, Debug)]
pub enum StringValue {
    /// Digits of a 64-bit integer, kept as the integer.
    Int(i64),
    /// Bytes as they were set.
    Bytes(Box<[u8]>),
    /// Bytes that have been changed in place, with room to grow.
    Raw(Vec<u8>),
}

impl StringValue {
    /// Keeps `bytes` in the smallest form.
    pub fn new(bytes: &[u8]) -> StringValue {
        match number::parse_integer(bytes) {
            Some(value) => StringValue::Int(value),
            None => StringValue::Bytes(bytes.into()),
        }
    }

    /// The bytes a client sees.
    pub fn bytes(&self) -> Cow<'_, [u8]> {
        match self {
            StringValue::Int(value) => {
                Cow::Owned(itoa::Buffer::new().format(*value).as_bytes().to_vec())
            }
            StringValue::Bytes(bytes) => Cow::Borrowed(bytes),
            StringValue::Raw(bytes) => Cow::Borrowed(bytes),
        }
    }

    /// The length of those bytes.
    pub fn len(&self) -> usize {
        match self {
            StringValue::Int(value) => itoa::Buffer::new().format(*value).len(),
            StringValue::Bytes(bytes) => bytes.len(),
            StringValue::Raw(bytes) => bytes.len(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, to be changed in place.
    pub fn raw_mut(&mut self) -> &mut Vec<u8> {
        if !matches!(self, StringValue::Raw(_)) {
            *self = StringValue::Raw(self.bytes().into_owned());
        }
        match self {
            StringValue::Raw(bytes) => bytes,
            _ => unreachable!("made raw above"),
        }
    }

    /// The value as an integer, if its bytes are one.
    pub fn integer(&self) -> Option<i64> {
        match self {
            StringValue::Int(value) => Some(*value),
            StringValue::Bytes(bytes) => number::parse_integer(bytes),
            StringValue::Raw(bytes) => number::parse_integer(bytes),
        }
    }

    /// The name `OBJECT ENCODING` answers with.
    pub fn encoding(&self) -> &'static str {
        match self {
            StringValue::Int(_) => "int",
            StringValue::Bytes(bytes) if bytes.len() <= EMBEDDED_BYTES_MAX => "embstr",
            StringValue::Bytes(_) | StringValue::Raw(_) => "raw",
        }
    }
}
