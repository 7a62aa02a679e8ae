//! The string type: bytes, and the encoding that Redis would report.

use std::borrow::Cow;

use lockwheel_resp::number;

/// Length of the longest string that is reported as `embstr`; longer ones are reported as `raw`
/// (Redis's limit).
const EMBEDDED_BYTES_MAX: usize = 44;

/// An owned byte string. Only the last kind is stored in this form at a key; see `records.rs`.
#[derive(Clone, Debug)]
pub enum StringValue {
    /// The decimal digits of a 64-bit integer.
    Int(Box<[u8]>),
    /// Bytes as they were set.
    Bytes(Box<[u8]>),
    /// Bytes that have been changed in place, with room to grow.
    Raw(Vec<u8>),
}

/// How a string was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextForm {
    /// [`StringValue::Int`]
    Int,
    /// [`StringValue::Bytes`]
    Bytes,
    /// [`StringValue::Raw`]
    Raw,
}

/// A borrowed byte string, wherever it is stored.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// How it was made.
    pub form: TextForm,
}

impl TextForm {
    /// The form of a string that is set to these bytes.
    pub fn of(bytes: &[u8]) -> TextForm {
        match number::parse_integer(bytes) {
            Some(_) => TextForm::Int,
            None => TextForm::Bytes,
        }
    }
}

impl StringValue {
    /// The string that is set to these bytes.
    pub fn new(bytes: &[u8]) -> StringValue {
        match TextForm::of(bytes) {
            TextForm::Int => StringValue::Int(bytes.into()),
            _ => StringValue::Bytes(bytes.into()),
        }
    }

    /// The borrowed form.
    pub fn text(&self) -> Text<'_> {
        match self {
            StringValue::Int(bytes) => Text { bytes, form: TextForm::Int },
            StringValue::Bytes(bytes) => Text { bytes, form: TextForm::Bytes },
            StringValue::Raw(bytes) => Text { bytes, form: TextForm::Raw },
        }
    }
}

impl<'a> Text<'a> {
    /// The bytes a client sees.
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The length of those bytes.
    pub fn len(self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no bytes.
    pub fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// The value as an integer, if its bytes are one.
    pub fn integer(self) -> Option<i64> {
        number::parse_integer(self.bytes)
    }

    /// An owned copy.
    pub fn to_string_value(self) -> StringValue {
        match self.form {
            TextForm::Int => StringValue::Int(self.bytes.into()),
            TextForm::Bytes => StringValue::Bytes(self.bytes.into()),
            TextForm::Raw => StringValue::Raw(self.bytes.into()),
        }
    }

    /// The name that `OBJECT ENCODING` replies with.
    pub fn encoding(self) -> &'static str {
        match self.form {
            TextForm::Int => "int",
            TextForm::Bytes if self.bytes.len() <= EMBEDDED_BYTES_MAX => "embstr",
            TextForm::Bytes | TextForm::Raw => "raw",
        }
    }
}

/// The decimal digits of an integer.
pub fn digits(integer: i64) -> Cow<'static, [u8]> {
    Cow::Owned(itoa::Buffer::new().format(integer).as_bytes().to_vec())
}
