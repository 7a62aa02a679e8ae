//! Glob patterns as in `KEYS`, `SCAN`, `PSUBSCRIBE` and `CONFIG GET`: `*`, `?`, `[a-z]`, `[^a]`,
//! and `\` to take the next byte literally.
//!
//! Matching is iterative, so that no pattern can exhaust the stack. Only the latest star
//! backtracks, so the time is at most proportional to pattern times text.

/// Whether all of `text` matches `pattern`.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, |byte| byte)
}

/// Like [`matches()`], for the name of a channel: not even a single star matches an empty one.
pub fn matches_channel(pattern: &[u8], channel: &[u8]) -> bool {
    if channel.is_empty() { pattern.is_empty() } else { matches(pattern, channel) }
}

/// Like [`matches()`], ignoring case.
pub fn matches_ignoring_case(pattern: &[u8], text: &[u8]) -> bool {
    matches_with(pattern, text, |byte| byte.to_ascii_lowercase())
}

fn matches_with(pattern: &[u8], text: &[u8], fold: impl Fn(u8) -> u8) -> bool {
    // As in Redis, an empty text matches only the empty pattern and a single star.
    if text.is_empty() {
        return matches!(pattern, b"" | b"*");
    }
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
            continue;
        }
        let step = match (p < pattern.len(), text.get(t)) {
            (true, Some(&byte)) => one(&pattern[p..], byte, &fold),
            (false, None) => return true,
            _ => None,
        };
        if let Some(used) = step {
            p += used;
            t += 1;
            continue;
        }
        // Let the latest star match one more byte, if possible.
        match star {
            Some((after, from)) if from < text.len() => {
                p = after;
                t = from + 1;
                star = Some((after, t));
            }
            _ => return false,
        }
    }
}

/// Matches one byte against the single-byte pattern at the start of `pattern`; returns the length
/// of that pattern.
fn one(pattern: &[u8], byte: u8, fold: &impl Fn(u8) -> u8) -> Option<usize> {
    match pattern[0] {
        b'?' => Some(1),
        b'[' => class(pattern, byte, fold),
        b'\\' if pattern.len() > 1 => (fold(pattern[1]) == fold(byte)).then_some(2),
        literal => (fold(literal) == fold(byte)).then_some(1),
    }
}

/// Matches a class `[...]`. As in Redis, a class without a closing bracket ends with the pattern.
fn class(pattern: &[u8], byte: u8, fold: &impl Fn(u8) -> u8) -> Option<usize> {
    let byte = fold(byte);
    let negated = pattern.get(1) == Some(&b'^');
    let mut at = if negated { 2 } else { 1 };
    let mut found = false;
    while at < pattern.len() && pattern[at] != b']' {
        if pattern[at] == b'\\' && at + 1 < pattern.len() {
            at += 1;
            found |= fold(pattern[at]) == byte;
            at += 1;
        } else if at + 2 < pattern.len() && pattern[at + 1] == b'-' {
            let (a, b) = (fold(pattern[at]), fold(pattern[at + 2]));
            found |= (a.min(b)..=a.max(b)).contains(&byte);
            at += 3;
        } else {
            found |= fold(pattern[at]) == byte;
            at += 1;
        }
    }
    let used = (at + 1).min(pattern.len());
    (found != negated).then_some(used)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("**", "", false),
            ("*", "anything", true),
            ("", "", true),
            ("", "a", false),
            ("h?llo", "hello", true),
            ("h?llo", "hllo", false),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("[", "[", false),
            ("[a", "a", true),
            ("a\\", "a\\", true),
            ("*a*b*c", "xxaxxbxxc", true),
            ("*a*b*c", "xxaxxbxx", false),
            ("lock:{*}:?", "lock:{42}:7", true),
            ("[]a]", "a]", false),
            ("[\\]]", "]", true),
            // As in Redis, the bracket is the end of a range here.
            ("[a-]", "-", false),
            ("[a-]", "^", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_take_no_exponential_time() {
        let pattern = "a*".repeat(2_000) + "b";
        let text = "a".repeat(4_000);
        assert!(!matches(pattern.as_bytes(), text.as_bytes()));
    }

    #[test]
    fn case_is_ignored_on_request() {
        assert!(matches_ignoring_case(b"MAX*", b"maxmemory"));
        assert!(matches_ignoring_case(b"[A-C]x", b"bX"));
        assert!(!matches(b"MAX*", b"maxmemory"));
    }

    /// A simple implementation without classes, which tries every alternative.
    fn reference(pattern: &[u8], text: &[u8]) -> bool {
        let (Some(&first), rest) = (pattern.first(), pattern.get(1..).unwrap_or_default()) else {
            return text.is_empty();
        };
        let here = |literal: u8, rest: &[u8]| {
            text.first() == Some(&literal) && reference(rest, &text[1..])
        };
        match first {
            b'*' => reference(rest, text) || (!text.is_empty() && reference(pattern, &text[1..])),
            b'?' => !text.is_empty() && reference(rest, &text[1..]),
            b'\\' if !rest.is_empty() => here(rest[0], &rest[1..]),
            literal => here(literal, rest),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_096))]

        #[test]
        fn agrees_with_the_reference(
            pattern in proptest::collection::vec(proptest::sample::select(&b"ab*?\\"[..]), 0..9),
            text in proptest::collection::vec(proptest::sample::select(&b"ab*\\"[..]), 1..9),
        ) {
            prop_assert_eq!(matches(&pattern, &text), reference(&pattern, &text));
        }

        #[test]
        fn no_pattern_panics(pattern in any::<Vec<u8>>(), text in any::<Vec<u8>>()) {
            matches(&pattern, &text);
            matches_ignoring_case(&pattern, &text);
        }
    }
}
