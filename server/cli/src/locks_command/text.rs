//! Texts of locks: names without invisible characters, spans and times, in a limited width.

use ratatui::buffer::CellWidth;

/// The end of a long text, which is shown when its middle is not, as on the page of locks.
const END_COLUMNS: usize = 12;
const ELLIPSIS: &str = "...";

/// What is said of the locks of a follower of this leader.
pub(super) fn follower_note(leader: &str) -> String {
    let leader = if leader.is_empty() { "a leader that is not known" } else { leader };
    format!("follower of {}: holders and waiting clients are shown there", printable(leader))
}

/// A span of time to a tenth of a second.
pub(super) fn span(ms: i64) -> String {
    let seconds = ms / 1000;
    match seconds {
        ..60 => format!("{}.{}s", seconds, ms % 1000 / 100),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        _ => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
    }
}

/// The time of the day of milliseconds since 1970.
pub(super) fn time_of_day(ms: i64) -> String {
    let seconds = ms.div_euclid(1000).rem_euclid(24 * 60 * 60);
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// The columns of a text on a terminal.
pub(super) fn columns(text: &str) -> usize {
    usize::from(text.cell_width())
}

/// A text in a width: a long one loses its middle, since the ends distinguish it.
pub(super) fn shortened(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let left = width.saturating_sub(ELLIPSIS.len());
    let end_columns = END_COLUMNS.min(left / 2);
    let reversed: String = text.chars().rev().collect();
    let end: String = begin_of(&reversed, end_columns).chars().rev().collect();
    let begin = begin_of(text, left - columns(&end));
    let shown = format!("{begin}{ELLIPSIS}{end}");
    begin_of(&shown, width).to_owned()
}

/// The lines of a text in a width.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let (mut rest, mut lines) = (text, Vec::new());
    while columns(rest) > width {
        let fitting = begin_of(rest, width);
        // Between words, if there are any.
        let words = fitting.rfind(' ').filter(|&at| !fitting[..at].trim().is_empty());
        let at = words.map_or(fitting.len(), |at| at + 1);
        if at == 0 {
            break;
        }
        lines.push(rest[..at].trim_end().to_owned());
        rest = &rest[at..];
    }
    lines.push(rest.to_owned());
    lines
}

/// The longest beginning of a text that fits a width.
fn begin_of(text: &str, width: usize) -> &str {
    let mut left = width;
    for (at, char) in text.char_indices() {
        let columns = columns(&text[at..at + char.len_utf8()]);
        if columns > left {
            return &text[..at];
        }
        left -= columns;
    }
    text
}

/// A text in which the codes of invisible characters are visible: such characters could change the
/// terminal, and make two names look alike.
pub(super) fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        if is_invisible(char) {
            shown.extend(char.escape_unicode());
        } else {
            shown.push(char);
        }
    }
    shown
}

/// Whether a character is invisible or changes the direction. The page of locks has the same list.
fn is_invisible(char: char) -> bool {
    matches!(
        char,
        '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'
            | '\u{1160}'
            | '\u{17b4}'
            | '\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}
