//! Values of a plan: names of where a value is, never a copy of it. How texts and numbers turn into
//! each other, where that is plain.

use lockwheel_resp::{Reply, format_double};

/// What `type` calls the values, in the order of [`Value::type_index`].
pub(super) const TYPE_NAMES: [&str; 5] = ["nil", "boolean", "number", "string", "table"];

/// A value of a running plan. Numbers are places in what the run has at hand. All begin where a
/// word does, so that a value is moved as two.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(super) enum Value {
    Nil,
    Boolean(bool),
    Number(f64),
    /// A string of the script's text.
    Literal(u32),
    /// A key.
    Key(u32),
    /// An argument.
    Arg(u32),
    /// The string a command was answered with.
    Text(u32),
    /// A string in the array a command was answered with.
    Item {
        reply: u32,
        at: u32,
    },
    /// A string that was made: bytes of the run's own text.
    Made {
        start: u32,
        len: u32,
    },
    /// The table of KEYS.
    Keys,
    /// The table of ARGV.
    Args,
    /// The table a status becomes.
    Status(u32),
    /// The table an array becomes.
    Array(u32),
    /// A table that the script has made: a list without holes.
    List(u32),
}

impl Value {
    pub(super) fn is_true(self) -> bool {
        !matches!(self, Value::Nil | Value::Boolean(false))
    }

    pub(super) fn is_text(self) -> bool {
        self.type_index() == 3
    }

    pub(super) fn is_table(self) -> bool {
        self.type_index() == 4
    }

    pub(super) fn type_index(self) -> u32 {
        match self {
            Value::Nil => 0,
            Value::Boolean(_) => 1,
            Value::Number(_) => 2,
            Value::Literal(_)
            | Value::Key(_)
            | Value::Arg(_)
            | Value::Text(_)
            | Value::Item { .. }
            | Value::Made { .. } => 3,
            Value::Keys | Value::Args | Value::Status(_) | Value::Array(_) | Value::List(_) => 4,
        }
    }
}

/// How deeply a reply may nest here.
const NESTING_MAX: usize = 4;
/// What an item of a table takes in Lua, about.
pub(super) const ITEM_BYTES: usize = 64;

/// Puts an array's items in the form Lua is shown them in, in RESP2; about how many bytes it takes.
/// `None` if an error or the like is among them.
pub(super) fn settle(reply: &mut Reply) -> Option<usize> {
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

/// More digits than these are not read, nor written: `%.14g` begins to round.
const EXACT: f64 = 1e14;

/// A number as text, if it is an integer that is written as it is.
pub(super) fn as_integer(number: f64) -> Option<i64> {
    let integer = number as i64;
    let is_plain = integer as f64 == number && number.abs() < EXACT;
    let is_negative_zero = integer == 0 && number.is_sign_negative();
    (is_plain && !is_negative_zero).then_some(integer)
}

/// What a text is as a number.
pub(super) enum Read {
    Number(f64),
    /// It is certainly none.
    Other,
    /// Lua knows.
    Unsure,
}

/// Reads digits with an optional sign and fraction. Blanks, exponents, hexadecimal digits, `inf`
/// and `nan` are read by C's `strtod`, which Lua asks.
pub(super) fn read_number(text: &[u8]) -> Read {
    const LENGTH_MAX: usize = 17;
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        _ => (false, text),
    };
    match digits.first() {
        Some(b'0'..=b'9') if digits.len() <= LENGTH_MAX => {}
        Some(first) if first.is_ascii_alphabetic() && !b"iInN".contains(first) => {
            return Read::Other;
        }
        _ => return Read::Unsure,
    }
    if digits.len() < 16 && digits.iter().all(u8::is_ascii_digit) {
        let value = digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
        let value = value as f64;
        return Read::Number(if negative { -value } else { value });
    }
    let is_plain = digits.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
        && digits.last() != Some(&b'.');
    match std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<f64>().ok()) {
        Some(value) if is_plain => Read::Number(if negative { -value } else { value }),
        _ => Read::Unsure,
    }
}
