//! Splits a line of text into the arguments of a command, with the quoting of `redis-cli`:
//! `"..."` understands `\n \r \t \\ \" \xHH`, `'...'` is literal.

/// The arguments in `line`; the error describes the wrong quotes.
pub fn split(line: &str) -> Result<Vec<Vec<u8>>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            '"' => double_quoted(&rest[1..])?,
            '\'' => {
                let open = || format!("open quote: {line}");
                let end = rest[1..].find('\'').ok_or_else(open)?;
                (rest.as_bytes()[1..=end].to_vec(), &rest[end + 2..])
            }
            _ => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (rest.as_bytes()[..end].to_vec(), &rest[end..])
            }
        };
        words.push(word);
        rest = after.trim_start();
    }
    Ok(words)
}

/// Reads a double-quoted word after its opening quote: its bytes, and the text after it.
pub(crate) fn double_quoted(text: &str) -> Result<(Vec<u8>, &str), String> {
    let open = || format!("open quote: {text}");
    let bytes = text.as_bytes();
    let mut word = Vec::new();
    let mut at = 0;
    loop {
        match *bytes.get(at).ok_or_else(open)? {
            b'"' => return Ok((word, &text[at + 1..])),
            b'\\' => {
                at += 1;
                match *bytes.get(at).ok_or_else(open)? {
                    b'n' => word.push(b'\n'),
                    b'r' => word.push(b'\r'),
                    b't' => word.push(b'\t'),
                    b'x' => {
                        let code = text.get(at + 1..at + 3).unwrap_or_default();
                        let byte = u8::from_str_radix(code, 16);
                        word.push(byte.map_err(|_| format!("two hex digits after \\x: {text}"))?);
                        at += 2;
                    }
                    other => word.push(other),
                }
                at += 1;
            }
            other => {
                word.push(other);
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn line_is_split_as_by_redis_cli() {
        let check = |line: &str, expected: &[&[u8]]| {
            assert_eq!(split(line).expect("balanced quotes"), expected, "{line}");
        };
        check("", &[]);
        check("  GET  key ", &[b"GET", b"key"]);
        check(r#"SET k "a \"b\"\n\x00\\""#, &[b"SET", b"k", b"a \"b\"\n\0\\"]);
        check(r#"SET k "" ''"#, &[b"SET", b"k", b"", b""]);
        check(r#"EVAL 'return "x"' 0"#, &[b"EVAL", b"return \"x\"", b"0"]);
    }

    #[test]
    fn open_quotes_are_an_error() {
        for line in [r#"a "b"#, "a 'b", r#"a "\x0"#, r#"a "\"#] {
            assert!(split(line).is_err(), "{line}");
        }
    }
}
