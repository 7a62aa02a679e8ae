//! How numbers, spans of time and text from outside are shown.

/// The number with separators of thousands.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// The number, with the noun in singular or plural.
pub(super) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", number(count), if count == 1 { one } else { many })
}

/// A number of things in memory, to be shown.
pub(super) fn size(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// A span of time, to the millisecond or to a tenth of a second.
pub(super) fn span(span_us: i64) -> String {
    let span_ms = (span_us.unsigned_abs() + 500) / 1000;
    let tenths = (span_ms + 50) / 100;
    match span_us {
        1..500 => "less than 1 ms".to_owned(),
        _ if span_ms < 1000 => format!("{span_ms} ms"),
        _ if tenths < 600 => format!("{}.{} s", tenths / 10, tenths % 10),
        _ => format!("{} min {} s", number(tenths / 600), tenths % 600 / 10),
    }
}

/// The text with the codes of control characters and invisible characters: such characters could
/// change the terminal, and make two names look alike.
pub(super) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            _ if is_visible(char) => shown.push(char),
            _ if char.is_control() => shown.extend(char.escape_debug()),
            _ => shown.extend(char.escape_unicode()),
        }
    }
    shown
}

/// The text for HTML and SVG.
pub(super) fn html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in printable(text).chars() {
        match char {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            other => out.push(other),
        }
    }
    out
}

/// Whether a character can be seen, and changes no other.
pub(super) fn is_visible(char: char) -> bool {
    // What Rust escapes apart from quotes and backslashes, and letters that are empty.
    let is_escaped = char.escape_debug().len() > 1 && !matches!(char, '\\' | '"' | '\'');
    !is_escaped && !matches!(char, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}')
}

#[cfg(test)]
mod tests {
    use super::{counted, html, number, printable, span};

    #[test]
    fn numbers_have_separators() {
        let shown = [0, 7, 999, 1000, 41_207, 123_456, 1_234_567].map(number);
        assert_eq!(shown, ["0", "7", "999", "1,000", "41,207", "123,456", "1,234,567"]);
        assert_eq!(counted(1, "lock", "locks"), "1 lock");
        assert_eq!(counted(2000, "lock", "locks"), "2,000 locks");
        assert_eq!(counted(0, "lock", "locks"), "0 locks");
    }

    #[test]
    fn spans_have_the_unit_that_fits() {
        let shown = [0, 1, 1000, 999_499, 999_500, 11_840_000, 59_940_000, 59_960_000].map(span);
        let expected =
            ["0 ms", "less than 1 ms", "1 ms", "999 ms", "1.0 s", "11.8 s", "59.9 s", "1 min 0 s"];
        assert_eq!(shown, expected);
        assert_eq!(span(75_000_000), "1 min 15 s");
    }

    #[test]
    fn invisible_characters_are_shown_as_codes() {
        assert_eq!(printable("say \"hi\" \\o/ caf\u{e9}"), "say \"hi\" \\o/ caf\u{e9}");
        assert_eq!(printable("\x1b[31m\n\0"), "\\u{1b}[31m\\n\\0");
        for char in ['\u{7f}', '\u{9b}', '\u{ad}', '\u{202e}', '\u{200b}', '\u{fe0f}', '\u{3164}'] {
            assert!(printable(&char.to_string()).starts_with("\\u{"), "{char:?}");
        }
    }

    #[test]
    fn text_is_no_markup() {
        assert_eq!(html("<a b='c' d=\"e\">&\n"), "&lt;a b=&#39;c&#39; d=&quot;e&quot;&gt;&amp;\\n");
    }
}
