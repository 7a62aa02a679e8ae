//! Text of others, as the name of a fault shows it.

/// The most characters that are shown.
const CHARACTERS_MAX: usize = 200;

/// The text on one line without control characters, shortened if it is long.
pub(super) fn one_line(text: &str) -> String {
    let shown = text.trim().chars().map(|it| if it.is_control() { ' ' } else { it });
    let mut line: String = shown.take(CHARACTERS_MAX).collect();
    if text.trim().chars().count() > CHARACTERS_MAX {
        line.push_str("...");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::{CHARACTERS_MAX, one_line};

    #[test]
    fn control_characters_and_long_text_are_not_shown() {
        assert_eq!(one_line(" docker kill\n\u{1b}[31mredis-1\t"), "docker kill  [31mredis-1");
        let long = one_line(&"x".repeat(CHARACTERS_MAX + 1));
        assert_eq!(long, format!("{}...", "x".repeat(CHARACTERS_MAX)));
    }
}
