//! Words of a line, with quotes and escapes: in inline requests, in configuration files and in
//! `redis-cli`.
//!
//! Blanks separate words. Double quotes keep blanks and have the escapes `\n \r \t \b \a \xHH`;
//! single quotes have only `\'`. A word ends at its closing quote. NUL is an ordinary byte.

use bytes::BufMut;

/// Splits a line into words; `None` if a quote is not closed, or a closed one is followed by
/// anything but a blank.
///
/// ```
/// use lockwheel_resp::words::split;
///
/// let words = split(br#"SET "my lock" '$' "#).expect("the quotes are balanced");
/// assert_eq!(words, [&b"SET"[..], b"my lock", b"$"]);
/// assert_eq!(split(b"GET \"lock"), None);
/// ```
pub fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = skip_blanks(line);
    while !rest.is_empty() {
        let mut word = Vec::new();
        rest = take(rest, &mut word)?;
        words.push(word);
    }
    Some(words)
}

/// Appends a word in double quotes, with escapes for bytes that do not print, as Redis shows it.
///
/// ```
/// let mut line = Vec::new();
/// lockwheel_resp::words::quote(b"a\"b\n", &mut line);
/// assert_eq!(line, br#""a\"b\n""#);
/// ```
pub fn quote(word: &[u8], line: &mut impl BufMut) {
    line.put_u8(b'"');
    for &byte in word {
        match byte {
            b'"' | b'\\' => line.put_slice(&[b'\\', byte]),
            b'\n' => line.put_slice(b"\\n"),
            b'\r' => line.put_slice(b"\\r"),
            b'\t' => line.put_slice(b"\\t"),
            0x07 => line.put_slice(b"\\a"),
            0x08 => line.put_slice(b"\\b"),
            b' '..=b'~' => line.put_u8(byte),
            _ => line.put_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    line.put_u8(b'"');
}

pub(crate) fn skip_blanks(line: &[u8]) -> &[u8] {
    &line[line.iter().take_while(|&&byte| is_blank(byte)).count()..]
}

/// Appends the word at the beginning of `rest` to `text`. Returns what follows it and its blanks;
/// `None` if its quotes are not balanced.
pub(crate) fn take<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] | [b' ' | b'\t' | b'\r' | b'\n', ..] => return Some(skip_blanks(rest)),
            [quote @ (b'"' | b'\''), quoted @ ..] => {
                let after = take_quoted(*quote, quoted, text)?;
                let is_end = after.first().is_none_or(|&byte| is_blank(byte));
                return is_end.then(|| skip_blanks(after));
            }
            [byte, after @ ..] => {
                text.push(*byte);
                rest = after;
            }
        }
    }
}

/// Appends quoted text up to its closing quote; returns the bytes after the quote.
fn take_quoted<'a>(quote: u8, mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        let (byte, after) = match (quote, rest) {
            (_, []) => return None,
            (_, [byte, after @ ..]) if *byte == quote => return Some(after),
            (b'"', [b'\\', b'x', high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (hex_digit(*high) << 4 | hex_digit(*low), after)
            }
            (b'"', [b'\\', escaped, after @ ..]) => (unescape(*escaped), after),
            (b'\'', [b'\\', b'\'', after @ ..]) => (b'\'', after),
            (_, [byte, after @ ..]) => (*byte, after),
        };
        text.push(byte);
        rest = after;
    }
}

fn unescape(escaped: u8) -> u8 {
    match escaped {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex_digit(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit.to_ascii_lowercase() - b'a' + 10,
    }
}

/// C's `isspace`.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<&[&str]>) {
        let words = split(line.as_bytes());
        let expected = expected.map(|words| words.iter().map(|w| w.as_bytes().to_vec()).collect());
        assert_eq!(words, expected, "{line}");
    }

    #[test]
    fn lines_split_into_words() {
        check("", Some(&[]));
        check(" \t\x0b ", Some(&[]));
        check("a  b\tc\r", Some(&["a", "b", "c"]));
        check(r#"a "x y" 'z' "" "#, Some(&["a", "x y", "z", ""]));
        check(r#""\x41\n\"\\\q""#, Some(&["A\n\"\\q"]));
        check(r"'\x41\'s'", Some(&["\\x41's"]));
        check(r#"a"b c""#, Some(&["ab c"]));
        check(r#""\xzz""#, Some(&["xzz"]));
        for unbalanced in [r#""a"#, "'a", r#""a"b"#, "'a'b", r#"a "\"#] {
            check(unbalanced, None);
        }
    }

    #[test]
    fn splitting_undoes_quoting() {
        for word in [&b""[..], b"a b", b"a\"b\\c", b"a\tb\n\x01\x7f\x00\xff", b"'"] {
            let mut line = Vec::new();
            quote(word, &mut line);
            assert_eq!(split(&line), Some(vec![word.to_vec()]));
        }
    }
}
