//! Values of a plan, which are references and never copies, and the plain conversions between
//! strings and numbers.

use lockwheel_resp::{Reply, format_double};

/// The names that `type` returns, in the order of [`ValueRef::type_index`].
pub(super) const TYPE_NAMES: [&str; 5] = ["nil", "boolean", "number", "string", "table"];

/// A value of a running plan. Numbers in it are indexes into the values of the run. All fields
/// begin at a word, so that a value is moved as two words.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(super) enum ValueRef {
    Nil,
    Boolean(bool),
    Number(f64),
    /// A string literal of the script.
    Literal(u32),
    /// A key.
    Key(u32),
    /// An argument.
    Arg(u32),
    /// A string that is the reply of a command.
    Text(u32),
    /// A string in an array that is the reply of a command.
    Item {
        reply: u32,
        at: u32,
    },
    /// A string that the script has made: bytes of the run's own text.
    Made {
        start: u32,
        len: u32,
    },
    /// The table of KEYS.
    Keys,
    /// The table of ARGV.
    Args,
    /// The table of a status reply.
    Status(u32),
    /// The table of an array reply.
    Array(u32),
    /// A table that the script has made: a list without holes.
    List(u32),
}

impl ValueRef {
    pub(super) fn is_true(self) -> bool {
        !matches!(self, ValueRef::Nil | ValueRef::Boolean(false))
    }

    pub(super) fn is_text(self) -> bool {
        self.type_index() == 3
    }

    pub(super) fn is_table(self) -> bool {
        self.type_index() == 4
    }

    pub(super) fn type_index(self) -> u32 {
        match self {
            ValueRef::Nil => 0,
            ValueRef::Boolean(_) => 1,
            ValueRef::Number(_) => 2,
            ValueRef::Literal(_)
            | ValueRef::Key(_)
            | ValueRef::Arg(_)
            | ValueRef::Text(_)
            | ValueRef::Item { .. }
            | ValueRef::Made { .. } => 3,
            ValueRef::Keys
            | ValueRef::Args
            | ValueRef::Status(_)
            | ValueRef::Array(_)
            | ValueRef::List(_) => 4,
        }
    }
}

/// How deeply a reply may nest here.
const NESTING_MAX: usize = 4;
/// The memory of a table item in Lua, about.
pub(super) const ITEM_BYTES: usize = 64;

/// Converts an array's items to the form in which Lua gets them in RESP2. Returns about how many
/// bytes it takes, or `None` if an error or another unsupported reply is among them.
pub(super) fn normalize(reply: &mut Reply) -> Option<usize> {
    fn visit(reply: &mut Reply, nesting: usize) -> Option<usize> {
        match reply {
            Reply::Bulk(text) | Reply::Simple(text) => return Some(text.len() + ITEM_BYTES),
            Reply::Integer(_) | Reply::Null | Reply::NullArray => return Some(ITEM_BYTES),
            Reply::Double(number) => *reply = Reply::bulk(format_double(*number)),
            Reply::Boolean(value) => *reply = Reply::Integer(i64::from(*value)),
            Reply::Set(items) | Reply::Push(items) => *reply = Reply::Array(std::mem::take(items)),
            Reply::Map(pairs) => {
                let pairs = std::mem::take(pairs).into_iter();
                *reply = Reply::Array(pairs.flat_map(|(key, value)| [key, value]).collect());
            }
            Reply::Array(_) => {}
            Reply::Error(_) | Reply::BigNumber(_) | Reply::Verbatim { .. } | Reply::Several(_) => {
                return None;
            }
        }
        let Reply::Array(items) = reply else { return Some(2 * ITEM_BYTES) };
        let nesting = nesting.checked_sub(1)?;
        items.iter_mut().try_fold(ITEM_BYTES, |sum, item| Some(sum + visit(item, nesting)?))
    }
    visit(reply, NESTING_MAX)
}

/// Number below which numbers are read and written: from here on, `%.14g` rounds.
const EXACT: f64 = 1e14;

/// The integer of a number that is written as an integer.
pub(super) fn as_integer(number: f64) -> Option<i64> {
    let integer = number as i64;
    let is_plain = integer as f64 == number && number.abs() < EXACT;
    let is_negative_zero = integer == 0 && number.is_sign_negative();
    (is_plain && !is_negative_zero).then_some(integer)
}

/// The result of reading a string as a number.
pub(super) enum ParsedNumber {
    Number(f64),
    /// The string is certainly not a number.
    Other,
    /// Only Lua can decide.
    Unsure,
}

/// Reads digits with an optional sign and fraction. Lua reads blanks, exponents, hexadecimal
/// digits, `inf` and `nan` with C's `strtod`.
pub(super) fn read_number(text: &[u8]) -> ParsedNumber {
    const LENGTH_MAX: usize = 17;
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        _ => (false, text),
    };
    match digits.first() {
        Some(b'0'..=b'9') if digits.len() <= LENGTH_MAX => {}
        Some(first) if first.is_ascii_alphabetic() && !b"iInN".contains(first) => {
            return ParsedNumber::Other;
        }
        _ => return ParsedNumber::Unsure,
    }
    if digits.len() < 16 && digits.iter().all(u8::is_ascii_digit) {
        let value = digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
        let value = value as f64;
        return ParsedNumber::Number(if negative { -value } else { value });
    }
    let is_plain = digits.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
        && digits.last() != Some(&b'.');
    match std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<f64>().ok()) {
        Some(value) if is_plain => ParsedNumber::Number(if negative { -value } else { value }),
        _ => ParsedNumber::Unsure,
    }
}
