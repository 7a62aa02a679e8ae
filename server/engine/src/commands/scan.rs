//! Cursors and options of `SCAN` and the similar commands.

use crate::command::{integer, is};
use crate::error::Error;

/// The options after the cursor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanOptions<'a> {
    /// Pattern of the entries that are returned.
    pub pattern: Option<&'a [u8]>,
    /// Type of the keys that are returned; for `SCAN` alone.
    pub kind: Option<&'a [u8]>,
    /// About how many entries to examine.
    pub count: usize,
}

/// The default of `COUNT`, as in Redis.
const COUNT_DEFAULT: usize = 10;

/// Parses a cursor as C's `strtoul` does: it may have a sign, and a zero byte ends it.
pub fn cursor(argument: &[u8]) -> Result<u64, Error> {
    const INVALID: Error = Error::line("ERR invalid cursor");
    let text = argument.split(|&byte| byte == 0).next().unwrap_or_default();
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() && !text.is_empty() {
        return Err(INVALID);
    }
    let value = digits.iter().try_fold(0_u64, |value, &byte| {
        let digit = char::from(byte).to_digit(10)?;
        value.checked_mul(10)?.checked_add(u64::from(digit))
    });
    let value = value.ok_or(INVALID)?;
    Ok(if negative { value.wrapping_neg() } else { value })
}

/// Parses the options after the cursor; `TYPE` only if `takes_kind`.
pub fn options<'a>(arguments: &[&'a [u8]], takes_kind: bool) -> Result<ScanOptions<'a>, Error> {
    let mut options = ScanOptions { count: COUNT_DEFAULT, ..ScanOptions::default() };
    for pair in arguments.chunks(2) {
        let &[option, value] = pair else { return Err(Error::Syntax) };
        if is(option, "count") {
            let count = integer(value)?;
            if count < 1 {
                return Err(Error::Syntax);
            }
            options.count = usize::try_from(count).unwrap_or(usize::MAX);
        } else if is(option, "match") {
            options.pattern = Some(value);
        } else if is(option, "type") && takes_kind {
            options.kind = Some(value);
        } else {
            return Err(Error::Syntax);
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_parsed_as_by_strtoul() {
        for (text, expected) in [
            ("0", Some(0)),
            ("", Some(0)),
            ("0042", Some(42)),
            ("+5", Some(5)),
            ("-1", Some(u64::MAX)),
            ("1\0abc", Some(1)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("-", None),
            ("--1", None),
            (" 1", None),
            ("1 ", None),
            ("0x1", None),
            ("abc", None),
        ] {
            assert_eq!(cursor(text.as_bytes()).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn options_after_the_cursor_are_parsed() {
        let read = |line: &'static str, takes_kind| {
            let words: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
            options(&words, takes_kind).map_err(|error| error.to_string())
        };
        let none = ScanOptions { count: 10, ..ScanOptions::default() };
        assert_eq!(read("", false), Ok(none));
        let all = ScanOptions { pattern: Some(b"a*"), kind: Some(b"hash"), count: 7 };
        assert_eq!(read("Count 7 MATCH a* type hash", true), Ok(all));
        assert_eq!(read("COUNT 1 COUNT 2", true), Ok(ScanOptions { count: 2, ..none }));
        for (line, expected) in [
            ("COUNT", "ERR syntax error"),
            ("COUNT 0", "ERR syntax error"),
            ("COUNT x", "ERR value is not an integer or out of range"),
            ("COUNT 9223372036854775808", "ERR value is not an integer or out of range"),
            ("TYPE hash", "ERR syntax error"),
            ("MATCH a b", "ERR syntax error"),
            ("NOVALUES", "ERR syntax error"),
        ] {
            assert_eq!(read(line, false), Err(expected.to_owned()), "{line}");
        }
    }
}
