//! Splits a line of text into the arguments of a command, with the quoting of `redis-cli`:
//! `"..."` knows `\n \r \t \\ \" \xHH`, `'...'` takes everything literally.

/// The arguments in `line`. Panics on unbalanced quotes: the lines are our own.
pub fn split(line: &str) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (word, after) = match first {
            '"' => double_quoted(&rest[1..]),
            '\'' => {
                let end = rest[1..].find('\'').unwrap_or_else(|| panic!("open quote: {line}"));
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
    words
}

/// The bytes of a double-quoted word whose opening quote was read, and the text behind it.
pub(crate) fn double_quoted(text: &str) -> (Vec<u8>, &str) {
    let bytes = text.as_bytes();
    let mut word = Vec::new();
    let mut at = 0;
    loop {
        match bytes.get(at) {
            None => panic!("open quote: {text}"),
            Some(b'"') => return (word, &text[at + 1..]),
            Some(b'\\') => {
                at += 1;
                match bytes.get(at) {
                    Some(b'n') => word.push(b'\n'),
                    Some(b'r') => word.push(b'\r'),
                    Some(b't') => word.push(b'\t'),
                    Some(b'x') => {
                        let code = text.get(at + 1..at + 3).unwrap_or_default();
                        word.push(u8::from_str_radix(code, 16).expect("two hex digits after \\x"));
                        at += 2;
                    }
                    Some(&other) => word.push(other),
                    None => panic!("open quote: {text}"),
                }
                at += 1;
            }
            Some(&other) => {
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
    fn splits_as_redis_cli_does() {
        let check = |line: &str, expected: &[&[u8]]| assert_eq!(split(line), expected, "{line}");
        check("", &[]);
        check("  GET  key ", &[b"GET", b"key"]);
        check(r#"SET k "a \"b\"\n\x00\\""#, &[b"SET", b"k", b"a \"b\"\n\0\\"]);
        check(r#"SET k "" ''"#, &[b"SET", b"k", b"", b""]);
        check(r#"EVAL 'return "x"' 0"#, &[b"EVAL", b"return \"x\"", b"0"]);
    }
}
