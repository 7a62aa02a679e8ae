//! Arranges text for a terminal: wrapped sentences, and tables with aligned columns.

/// Characters of the longest line.
pub(super) const COLUMNS: usize = 100;
/// Characters between two columns of a table.
const GAP: usize = 2;

/// A table as lines. The first row has the headings, whose words may be on several lines; cells are
/// wrapped where the table is too wide. Columns of numbers are aligned on the right.
pub(super) fn table(rows: &[Vec<String>]) -> String {
    let widths = widths(rows);
    let is_number = |cell: &String| cell.chars().all(|it| it.is_ascii_digit() || it == ',');
    let mut out = String::new();
    for row in rows {
        let cells: Vec<_> =
            row.iter().zip(&widths).map(|(cell, &width)| wrap(cell, width)).collect();
        for line in 0..cells.iter().map(Vec::len).max().unwrap_or(0) {
            let mut text = String::new();
            for (at, &width) in widths.iter().enumerate() {
                let part = cells.get(at).and_then(|cell| cell.get(line)).map_or("", String::as_str);
                let mut column = rows.iter().skip(1).filter_map(|row| row.get(at));
                text += &match column.all(is_number) {
                    true => format!("{part:>width$}"),
                    false => format!("{part:width$}"),
                };
                text += &" ".repeat(GAP);
            }
            out += text.trim_end();
            out.push('\n');
        }
    }
    out
}

/// The width of each column, such that the table fits on a line.
fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let count = rows.first().map_or(0, Vec::len);
    let mut widths = vec![1; count];
    for (number, row) in rows.iter().enumerate() {
        for (width, cell) in widths.iter_mut().zip(row) {
            let needed = match number {
                0 => cell.split(' ').map(characters).max().unwrap_or(0),
                _ => characters(cell),
            };
            *width = needed.max(*width);
        }
    }
    let gaps = count.saturating_sub(1) * GAP;
    let excess = (widths.iter().sum::<usize>() + gaps).saturating_sub(COLUMNS);
    for _ in 0..excess {
        if let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > 1) {
            *widest -= 1;
        }
    }
    widths
}

/// The lines of a text of at most that many characters, broken between words where possible.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut rest: Vec<char> = word.chars().collect();
        loop {
            let used = lines.last().map_or(0, |line| characters(line));
            let space = usize::from(used > 0);
            let free = width.saturating_sub(used + space);
            if rest.len() > free && used > 0 {
                lines.push(String::new());
                continue;
            }
            let part: String = rest.drain(..rest.len().min(free.max(1))).collect();
            if let Some(line) = lines.last_mut() {
                *line += if space > 0 { " " } else { "" };
                *line += &part;
            }
            if rest.is_empty() {
                break;
            }
            lines.push(String::new());
        }
    }
    lines
}

fn characters(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use super::{COLUMNS, table, wrap};

    fn row(cells: &[&str]) -> Vec<String> {
        cells.iter().map(|cell| (*cell).to_owned()).collect()
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("a abcdefghij b", 4), ["a", "abcd", "efgh", "ij b"]);
        assert_eq!(wrap("", 4), [""]);
    }

    #[test]
    fn numbers_are_aligned_on_the_right() {
        let rows = [row(&["kind", "granted twice"]), row(&["a", "1,000"]), row(&["b", "7"])];
        assert_eq!(table(&rows), "kind  granted\n        twice\na       1,000\nb           7\n");
    }

    #[test]
    fn table_is_as_wide_as_the_terminal() {
        let long = "word ".repeat(40);
        let rows = [row(&["a", "b", "c"]), row(&["short", long.trim(), &"x".repeat(150)])];
        let text = table(&rows);
        assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        assert!(text.lines().any(|line| line.len() == COLUMNS), "{text}");
        assert_eq!(text.matches("word").count(), 40);
        assert_eq!(text.matches('x').count(), 150);
    }
}
