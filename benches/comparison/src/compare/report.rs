//! The outcome as text: tables for a terminal or in Markdown, or everything as JSON.

use std::fmt::Write;

use serde::Serialize;

use crate::figures::{Figures, Row, Spread};
use crate::options::Format;
use crate::page;
use crate::tables::{Cell, GroupTable, Tables};

/// Writes the outcome in a format.
pub(crate) fn write(figures: &Figures, format: Format) -> String {
    match format {
        Format::Table => TerminalTables::write(figures),
        Format::Markdown => markdown(figures),
        Format::Json => json(figures),
        Format::Page => page::write(&Tables::of(figures)),
        Format::Durability => page::write_durability(&Tables::of(figures)),
    }
}

struct TerminalTables;

impl TerminalTables {
    fn write(figures: &Figures) -> String {
        let mut out = heading(figures);
        out.push('\n');
        for group in &figures.groups {
            let rows = figures.rows(&group.name);
            let _ = writeln!(out, "\n{}\n{}\n", group.name, group.note);
            let mut parameters = None;
            let participants = participants(figures, &rows);
            let names = participants.iter().map(|name| format!("{name:>34}")).collect::<String>();
            let _ = writeln!(out, "{:36}{names}", "");
            for row in &rows {
                if parameters != Some(row.parameters) && !row.parameters.is_empty() {
                    let _ = writeln!(out, "{}", row.parameters);
                }
                parameters = Some(row.parameters);
                let cells = participants.iter().map(|peer| Cell::of(row, peer, participants[0]));
                let cells = cells.map(|it| {
                    let spread =
                        if it.spread.is_empty() { it.spread } else { format!("({})", it.spread) };
                    format!(" {:>10} {:>7} {spread:>14}", it.value, it.ratio)
                });
                let name = metric_name(row);
                let _ = writeln!(out, "  {name:34}{}", cells.collect::<String>().trim_end());
            }
        }
        out + &failures(figures)
    }
}

fn markdown(figures: &Figures) -> String {
    let mut out = heading(figures);
    out.push('\n');
    for group in &figures.groups {
        let _ = writeln!(out, "\n### {}\n\n{}\n", group.name, group.note);
        out += &GroupTable::of(figures, group).to_string();
    }
    out + &failures(figures)
}

fn json(figures: &Figures) -> String {
    #[derive(Serialize)]
    struct Compared<'a> {
        group: &'a str,
        parameters: &'a str,
        metric: &'a str,
        peer: &'a str,
        values: Option<Spread>,
        ratio: Option<Spread>,
    }
    #[derive(Serialize)]
    struct Outcome<'a> {
        #[serde(flatten)]
        figures: &'a Figures,
        compared: Vec<Compared<'a>>,
    }
    let mut compared = Vec::new();
    for group in &figures.groups {
        let rows = figures.rows(&group.name);
        for row in &rows {
            let participants = participants(figures, &rows);
            compared.extend(participants.iter().map(|peer| Compared {
                group: &group.name,
                parameters: row.parameters,
                metric: &row.metric.name,
                peer,
                values: row.values(peer),
                ratio: row.ratio(peer, participants[0]),
            }));
        }
    }
    let text = serde_json::to_string_pretty(&Outcome { figures, compared });
    text.expect("all keys are strings") + "\n"
}

/// The servers that have a figure in one of the rows.
pub(crate) fn participants<'a>(figures: &'a Figures, rows: &[Row<'_>]) -> Vec<&'a str> {
    let names = figures.peers.iter().map(|peer| peer.name.as_str());
    names.filter(|name| rows.iter().any(|row| row.values(name).is_some())).collect()
}

fn heading(figures: &Figures) -> String {
    let Figures { machine, seconds, rounds, quick, peers, .. } = figures;
    let names = peers.iter().map(|peer| match peer.ours {
        true => format!("{} (version {})", peer.name, peer.version),
        false => peer.name.clone(),
    });
    let reference = peers.first().map_or("", |peer| &peer.name);
    let mut out = format!(
        "{}, {} processors, Linux {}; load {} before, {} after.\n{}.\n\
        {rounds} rounds, {seconds} s a measurement. A figure is the median of the rounds, followed \
        by\nits ratio to {reference} within each round (above 1 is better): median \
        (worst..best).\n",
        machine.processor,
        machine.processors,
        machine.kernel,
        machine.load.first().map_or("?", String::as_str),
        machine.load.last().map_or("?", String::as_str),
        names.collect::<Vec<_>>().join(", "),
    );
    if *quick {
        out += "A quick run: it checks that everything works; its figures are not meaningful.\n";
    }
    out
}

/// The failed measurements.
pub(crate) fn failures(figures: &Figures) -> String {
    let mut out = String::new();
    for failure in &figures.failures {
        let _ =
            writeln!(out, "\nFailed: {}: {}: {}", failure.workload, failure.peer, failure.error);
    }
    out
}

pub(crate) fn metric_name(row: &Row<'_>) -> String {
    match &*row.metric.unit {
        "" => row.metric.name.clone(),
        unit => format!("{}, {unit}", row.metric.name),
    }
}

/// A number with at least three significant digits, or four decimals.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 99.95 || size == 0.0 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.0995 => 2,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// A ratio with its unit.
pub(crate) fn times(ratio: f64) -> String {
    format!("{}x", number(ratio))
}

#[cfg(test)]
mod tests {
    use super::{number, write};
    use crate::figures::tests::figures;
    use crate::options::Format;

    const COSTS: &str = "cost theirs 0 10\ncost ours 0 5\ncost theirs 1 12\ncost ours 1 4";

    #[test]
    fn numbers_have_three_digits() {
        let read: Vec<_> = [123_456.7, 99.96, 10.0, 9.99, 0.25, 0.0125, 0.0].map(number).into();
        assert_eq!(read, ["123457", "100", "10.0", "9.99", "0.25", "0.0125", "0"]);
    }

    #[test]
    fn markdown_contains_a_table() {
        let text = write(&figures(COSTS), Format::Markdown);
        let row = "| much | cost, us | 11.0 | 4.50; **2.50x** (2.00..3.00) |";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("### Work\n\nA note.\n\n| | | theirs | ours |"), "{text}");
    }

    #[test]
    fn terminal_output_has_columns() {
        let text = write(&figures(COSTS), Format::Table);
        assert!(text.contains("4.50   2.50x   (2.00..3.00)\n"), "{text}");
    }

    #[test]
    fn json_contains_every_figure() {
        let text = write(&figures(COSTS), Format::Json);
        let read: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(read["figures"].as_array().map(Vec::len), Some(4), "{text}");
        assert_eq!(read["figures"][0]["better"], "less");
        assert_eq!(read["compared"][1]["ratio"]["median"], 2.5, "{text}");
    }
}
