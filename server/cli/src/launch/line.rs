//! Splits a line of a configuration file or of `redis-cli` into words, and quotes words so that
//! splitting returns the same words.

/// Splits a line at its spaces. Words in double quotes may contain spaces and the escapes
/// `\n \r \t \b \a \xHH`; in single quotes only `\'`. `None` when quotes are unbalanced.
pub(crate) fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        rest = rest.trim_ascii_start();
        // For Redis the vertical tab is a space, too; not for Rust.
        while let [0x0b, after @ ..] = rest {
            rest = after.trim_ascii_start();
        }
        if rest.is_empty() {
            return Some(words);
        }
        let (word, after) = word(rest)?;
        words.push(word);
        rest = after;
    }
}

/// Quotes a word with double quotes.
pub(super) fn quote(word: &str) -> String {
    let mut quoted = String::from("\"");
    for character in word.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\x07' => quoted.push_str("\\a"),
            '\x08' => quoted.push_str("\\b"),
            control if control.is_ascii_control() => {
                quoted.push_str(&format!("\\x{:02x}", control as u32));
            }
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

fn word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    while let [byte, after @ ..] = rest {
        if is_space(*byte) {
            break;
        }
        rest = match byte {
            b'"' => return closed(quoted(after, &mut word, b'"')?).map(|rest| (word, rest)),
            b'\'' => return closed(quoted(after, &mut word, b'\'')?).map(|rest| (word, rest)),
            _ => {
                word.push(*byte);
                after
            }
        };
    }
    Some((word, rest))
}

/// Reads up to the closing quote; returns the bytes after it.
fn quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>, quote: u8) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [b'\\', b'x', high, low, after @ ..]
                if quote == b'"' && high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(digit(*high) << 4 | digit(*low));
                after
            }
            [b'\\', escaped, after @ ..] if quote == b'"' => {
                word.push(unescape(*escaped));
                after
            }
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                after
            }
            [byte, after @ ..] if *byte == quote => return Some(after),
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
            [] => return None,
        };
    }
}

/// Checks that the word ends at its closing quote.
fn closed(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(|&byte| is_space(byte)).then_some(rest)
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn digit(hex: u8) -> u8 {
    match hex {
        b'0'..=b'9' => hex - b'0',
        _ => hex.to_ascii_lowercase() - b'a' + 10,
    }
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
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
        for word in ["", "a b", "a\"b\\c", "a\tb\n\x01\x7f", "'", "h\u{e9}"] {
            assert_eq!(split(quote(word).as_bytes()), Some(vec![word.as_bytes().to_vec()]));
        }
        assert_eq!(quote("a\tb\"\x01"), r#""a\tb\"\x01""#);
    }
}
