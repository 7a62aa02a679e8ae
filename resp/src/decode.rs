//! Decodes replies of all RESP2 and RESP3 types, for clients and tests; the server itself never
//! reads a reply.

use std::fmt;

use bytes::Bytes;
use memchr::memchr;

use crate::number::{parse_double, parse_integer};
use crate::reply::Reply;

/// Why bytes are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// A reply began with this byte.
    UnknownType(u8),
    /// An invalid number, boolean or length.
    Malformed,
    /// No CR LF where one is required.
    MissingLineEnd,
    /// Aggregates nested deeper than `DEPTH_MAX`.
    TooDeep,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::UnknownType(byte) => {
                write!(f, "no reply begins with '{}'", byte.escape_ascii())
            }
            DecodeError::Malformed => f.write_str("malformed number or length in a reply"),
            DecodeError::MissingLineEnd => f.write_str("line end missing in a reply"),
            DecodeError::TooDeep => f.write_str("reply nested too deeply"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Levels of nested aggregates: far more than any server's replies have, and within any stack.
pub const DEPTH_MAX: usize = 128;

/// Decodes the reply at the beginning of `buffer` and returns it with its length in bytes; `None`
/// if the reply is incomplete. Attributes are skipped. The errors of `!` are `Reply::Error`; the
/// two nulls of RESP2 stay distinct.
pub fn decode(buffer: &[u8]) -> Result<Option<(Reply, usize)>, DecodeError> {
    let mut cursor = Cursor { buffer, position: 0 };
    match cursor.reply(0) {
        Ok(reply) => Ok(Some((reply, cursor.position))),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Error(error)) => Err(error),
    }
}

/// Why decoding ends early.
enum Stop {
    Incomplete,
    Error(DecodeError),
}

impl From<DecodeError> for Stop {
    fn from(error: DecodeError) -> Stop {
        Stop::Error(error)
    }
}

struct Cursor<'a> {
    buffer: &'a [u8],
    position: usize,
}

impl<'a> Cursor<'a> {
    fn reply(&mut self, depth: usize) -> Result<Reply, Stop> {
        if depth > DEPTH_MAX {
            return Err(DecodeError::TooDeep.into());
        }
        loop {
            let marker = *self.rest().first().ok_or(Stop::Incomplete)?;
            self.position += 1;
            if marker != b'|' {
                return self.typed(marker, depth);
            }
            self.pairs(depth)?;
        }
    }

    /// Decodes the reply after its marker.
    fn typed(&mut self, marker: u8, depth: usize) -> Result<Reply, Stop> {
        Ok(match marker {
            b'+' => Reply::Simple(self.text()?),
            b'-' => Reply::Error(self.text()?),
            b':' => Reply::Integer(parse_integer(self.line()?).ok_or(DecodeError::Malformed)?),
            b'$' => self.bulk()?.map_or(Reply::Null, Reply::Bulk),
            b'*' => self.items(depth)?.map_or(Reply::NullArray, Reply::Array),
            b'~' => Reply::Set(self.items(depth)?.ok_or(DecodeError::Malformed)?),
            b'>' => Reply::Push(self.items(depth)?.ok_or(DecodeError::Malformed)?),
            b'%' => Reply::Map(self.pairs(depth)?),
            b'!' => Reply::Error(self.bulk()?.ok_or(DecodeError::Malformed)?),
            b'=' => self.verbatim()?,
            b'(' => self.big_number()?,
            b',' => match self.line()? {
                b"nan" | b"-nan" => Reply::Double(f64::NAN),
                text => Reply::Double(parse_double(text).ok_or(DecodeError::Malformed)?),
            },
            b'#' => match self.line()? {
                b"t" => Reply::Boolean(true),
                b"f" => Reply::Boolean(false),
                _ => return Err(DecodeError::Malformed.into()),
            },
            b'_' => match self.line()? {
                b"" => Reply::Null,
                _ => return Err(DecodeError::Malformed.into()),
            },
            other => return Err(DecodeError::UnknownType(other).into()),
        })
    }

    fn big_number(&mut self) -> Result<Reply, Stop> {
        let line = self.line()?;
        let digits = line.strip_prefix(b"-").unwrap_or(line);
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return Err(DecodeError::Malformed.into());
        }
        Ok(Reply::BigNumber(Bytes::copy_from_slice(line)))
    }

    fn verbatim(&mut self) -> Result<Reply, Stop> {
        let bytes = self.bulk()?.ok_or(DecodeError::Malformed)?;
        match *bytes {
            [a, b, c, b':', ..] => {
                Ok(Reply::Verbatim { format: [a, b, c], text: bytes.slice(4..) })
            }
            _ => Err(DecodeError::Malformed.into()),
        }
    }

    /// `None` for a null aggregate.
    fn items(&mut self, depth: usize) -> Result<Option<Vec<Reply>>, Stop> {
        let Some(count) = self.length()? else {
            return Ok(None);
        };
        // The count is not trusted: memory is allocated as replies are decoded.
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(self.reply(depth + 1)?);
        }
        Ok(Some(items))
    }

    fn pairs(&mut self, depth: usize) -> Result<Vec<(Reply, Reply)>, Stop> {
        let count = self.length()?.ok_or(DecodeError::Malformed)?;
        let mut pairs = Vec::new();
        for _ in 0..count {
            pairs.push((self.reply(depth + 1)?, self.reply(depth + 1)?));
        }
        Ok(pairs)
    }

    /// `None` for a null bulk string.
    fn bulk(&mut self) -> Result<Option<Bytes>, Stop> {
        let Some(length) = self.length()? else {
            return Ok(None);
        };
        let rest = self.rest();
        let (bytes, after) = rest.split_at_checked(length).ok_or(Stop::Incomplete)?;
        match after {
            [b'\r', b'\n', ..] => {}
            [] | [b'\r'] => return Err(Stop::Incomplete),
            _ => return Err(DecodeError::MissingLineEnd.into()),
        }
        self.position += length + 2;
        Ok(Some(Bytes::copy_from_slice(bytes)))
    }

    /// A length or a count; `None` for `-1`.
    fn length(&mut self) -> Result<Option<usize>, Stop> {
        match parse_integer(self.line()?) {
            Some(-1) => Ok(None),
            Some(length) => Ok(Some(usize::try_from(length).map_err(|_| DecodeError::Malformed)?)),
            None => Err(DecodeError::Malformed.into()),
        }
    }

    fn text(&mut self) -> Result<Bytes, Stop> {
        self.line().map(Bytes::copy_from_slice)
    }

    /// Up to CR LF.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = self.rest();
        let end = memchr(b'\n', rest).ok_or(Stop::Incomplete)?;
        self.position += end + 1;
        Ok(rest[..end].strip_suffix(b"\r").ok_or(DecodeError::MissingLineEnd)?)
    }

    fn rest(&self) -> &'a [u8] {
        self.buffer.get(self.position..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, expected: &Reply) {
        let input = input.replace('/', "\r\n");
        let (reply, end) = decode(input.as_bytes()).expect("a reply").expect("a whole reply");
        // NaN is not equal to itself, so the debug texts are compared.
        assert_eq!(format!("{reply:?}"), format!("{expected:?}"));
        assert_eq!(end, input.len());
        for cut in 0..input.len() {
            assert_eq!(decode(&input.as_bytes()[..cut]), Ok(None), "cut at {cut}");
        }
        let followed = input.clone() + "+more\r\n";
        assert_eq!(decode(followed.as_bytes()).ok().flatten().map(|(_, end)| end), Some(end));
    }

    #[test]
    fn resp2_replies_are_decoded() {
        check("+OK/", &Reply::OK);
        check("-ERR no/", &Reply::error("ERR no"));
        check(":-7/", &Reply::Integer(-7));
        check("$0//", &Reply::bulk(""));
        check("$4/a/b/", &Reply::bulk("a\r\nb"));
        check("$-1/", &Reply::Null);
        check("*-1/", &Reply::NullArray);
        check("*0/", &Reply::Array(vec![]));
        let nested = Reply::Array(vec![Reply::bulk("x")]);
        check("*2/:1/*1/$1/x/", &Reply::Array(vec![Reply::Integer(1), nested]));
    }

    #[test]
    fn resp3_replies_are_decoded() {
        check("_/", &Reply::Null);
        check("#t/", &Reply::Boolean(true));
        check("#f/", &Reply::Boolean(false));
        check(",1.5/", &Reply::Double(1.5));
        check(",-inf/", &Reply::Double(f64::NEG_INFINITY));
        check(",nan/", &Reply::Double(f64::NAN));
        check("(-12345678901234567890/", &Reply::BigNumber("-12345678901234567890".into()));
        check("=7/txt:a//", &Reply::Verbatim { format: *b"txt", text: "a\r\n".into() });
        check("!6/ERR no/", &Reply::error("ERR no"));
        check("~1/:1/", &Reply::Set(vec![Reply::Integer(1)]));
        check(">1/+m/", &Reply::Push(vec![Reply::status("m")]));
        check("%1/+k/_/", &Reply::Map(vec![(Reply::status("k"), Reply::Null)]));
        check("|1/+ttl/:3/*1/|1/+a/:1/:2/", &Reply::Array(vec![Reply::Integer(2)]));
    }

    #[test]
    fn malformed_replies_are_errors() {
        for (input, expected) in [
            ("x", DecodeError::UnknownType(b'x')),
            (":1x\r\n", DecodeError::Malformed),
            ("$-2\r\n", DecodeError::Malformed),
            ("$+1\r\n", DecodeError::Malformed),
            ("*x\r\n", DecodeError::Malformed),
            ("~-1\r\n", DecodeError::Malformed),
            ("%-1\r\n", DecodeError::Malformed),
            ("#x\r\n", DecodeError::Malformed),
            ("_x\r\n", DecodeError::Malformed),
            (",x\r\n", DecodeError::Malformed),
            ("(1x\r\n", DecodeError::Malformed),
            ("=3\r\ntxt\r\n", DecodeError::Malformed),
            ("+OK\n", DecodeError::MissingLineEnd),
            ("$1\r\nab\r\n", DecodeError::MissingLineEnd),
        ] {
            assert_eq!(decode(input.as_bytes()), Err(expected), "{input:?}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth| "*1\r\n".repeat(depth) + ":1\r\n";
        assert!(decode(nested(DEPTH_MAX).as_bytes()).is_ok_and(|reply| reply.is_some()));
        assert_eq!(decode(nested(DEPTH_MAX + 1).as_bytes()), Err(DecodeError::TooDeep));
    }

    #[test]
    fn declared_sizes_do_not_allocate() {
        for input in
            ["*9223372036854775807\r\n", "$9223372036854775807\r\n", "%4611686018427387904\r\n"]
        {
            assert_eq!(decode(input.as_bytes()), Ok(None));
        }
    }
}
