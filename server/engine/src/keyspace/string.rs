//! The string type: bytes, and how Redis would say they are kept.

use lockwheel_resp::number;

/// Strings up to this length are reported as `embstr`, longer ones as `raw` (Redis's figure).
const EMBEDDED_BYTES_MAX: usize = 44;

/// A byte string that stands by itself. Behind a key only the last kind does; see `records.rs`.
#[derive(Clone, Debug)]
pub enum StringValue {
    /// Digits of a 64-bit integer, as it is written.
    Int(Box<[u8]>),
    /// Bytes as they were set.
    Bytes(Box<[u8]>),
    /// Bytes that have been changed in place, with room to grow.
    Raw(Vec<u8>),
}

/// How a string came to be what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextForm {
    /// [`StringValue::Int`]
    Int,
    /// [`StringValue::Bytes`]
    Bytes,
    /// [`StringValue::Raw`]
    Raw,
}

/// A byte string, wherever it is.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// How it came to be.
    pub form: TextForm,
}

impl TextForm {
    /// That of a string that is set to these bytes.
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

    /// What it says.
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

    /// The same string, to stand by itself.
    pub fn to_string_value(self) -> StringValue {
        match self.form {
            TextForm::Int => StringValue::Int(self.bytes.into()),
            TextForm::Bytes => StringValue::Bytes(self.bytes.into()),
            TextForm::Raw => StringValue::Raw(self.bytes.into()),
        }
    }

    /// The name `OBJECT ENCODING` answers with.
    pub fn encoding(self) -> &'static str {
        match self.form {
            TextForm::Int => "int",
            TextForm::Bytes if self.bytes.len() <= EMBEDDED_BYTES_MAX => "embstr",
            TextForm::Bytes | TextForm::Raw => "raw",
        }
    }
}
