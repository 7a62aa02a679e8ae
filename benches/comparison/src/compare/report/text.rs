//! The outcome as text: tables for a terminal or in Markdown, or everything as JSON.

use std::fmt::Write;

use serde::Serialize;

use crate::options::Format;
use crate::report::figures::{Figures, Spread};
use crate::report::page;
use crate::report::statistics::{METHOD, Ratio};
use crate::report::tables::{GroupTable, Tables, failures};

/// Writes the outcome in a format.
pub(crate) fn write(figures: &Figures, format: Format) -> String {
    match format {
        Format::Table => terminal(figures),
        Format::Markdown => markdown(figures),
        Format::Json => json(figures),
        Format::Tables => tables(&Tables::of(figures)),
        Format::Page => page::write(&Tables::of(figures)),
        Format::Durability => page::write_durability(&Tables::of(figures)),
    }
}

/// The tables of all groups, and those of builds over all workloads.
fn group_tables(figures: &Figures) -> Vec<GroupTable> {
    let groups = GroupTable::all(figures).into_iter();
    groups.chain(GroupTable::of_builds(figures)).collect()
}

/// The width of a value with its ratio, interval and verdict.
const CELL_WIDTH: usize = 40;

fn terminal(figures: &Figures) -> String {
    let mut out = heading(figures);
    out.push('\n');
    for table in group_tables(figures) {
        let _ = writeln!(out, "\n{}\n{}\n", table.name, table.note);
        let base = |column| table.base(column).map_or(String::new(), |it| format!("ratio to {it}"));
        let bases: Vec<String> = (0..table.peers.len()).map(base).collect();
        let headings = table.peers.iter().chain(&bases);
        let width = headings.map(String::len).max().unwrap_or_default().max(CELL_WIDTH);
        for line in [&table.peers, &bases] {
            let cells = line.iter().map(|it| format!(" {it:>width$}")).collect::<String>();
            let _ = writeln!(out, "{}", format!("{:36}{cells}", "").trim_end());
        }
        let mut parameters = "";
        for row in &table.rows {
            if parameters != row.parameters {
                let _ = writeln!(out, "{}", row.parameters);
            }
            parameters = &row.parameters;
            let cells = row.cells.iter().map(|it| {
                let spread = match it.spread.as_str() {
                    "" => String::new(),
                    spread => format!("({spread})"),
                };
                let cell =
                    format!("{:>10} {:>7} {spread:>14} {:6}", it.value, it.ratio, it.verdict);
                format!(" {cell:>width$}")
            });
            let _ = writeln!(out, "  {:34}{}", row.metric, cells.collect::<String>().trim_end());
        }
    }
    out + &failures(figures)
}

fn markdown(figures: &Figures) -> String {
    let mut out = heading(figures);
    out.push('\n');
    for table in group_tables(figures) {
        let _ = writeln!(out, "\n### {}\n\n{}\n\n{table}", table.name, table.note);
    }
    out + &failures(figures)
}

/// The tables as JSON, a line for each row.
fn tables(tables: &Tables) -> String {
    let text = serde_json::to_string(tables).unwrap_or_default();
    text.replace("{\"name\":", "\n{\"name\":").replace("{\"parameters\":", "\n{\"parameters\":")
        + "\n"
}

fn json(figures: &Figures) -> String {
    #[derive(Serialize)]
    struct Compared<'a> {
        group: &'a str,
        parameters: &'a str,
        metric: &'a str,
        peer: &'a str,
        values: Option<Spread>,
        base: &'a str,
        ratio: Option<Ratio>,
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
            let participants = figures.participants(&rows);
            compared.extend(participants.iter().map(|peer| Compared {
                group: &group.name,
                parameters: row.parameters,
                metric: &row.metric.name,
                peer,
                values: row.values(peer),
                base: figures.base(peer),
                ratio: row.ratio(peer, figures.base(peer)),
            }));
        }
    }
    let text = serde_json::to_string_pretty(&Outcome { figures, compared });
    text.expect("all keys are strings") + "\n"
}

fn heading(figures: &Figures) -> String {
    let Figures { machine, seconds, rounds, quick, peers, .. } = figures;
    let names = peers.iter().map(|peer| match peer.ours {
        true => format!("{} (version {})", peer.name, peer.version),
        false => peer.name.clone(),
    });
    let mut out = format!(
        "{}, {} processors, Linux {}; load {} before, {} after.\n{}.\n\
        {rounds} rounds, {seconds} s a measurement. A figure is the median of the rounds, followed \
        by its ratio\nto the server that the heading of the column names: above 1 is better. A \
        ratio is\n{METHOD}\n",
        machine.processor,
        machine.processors,
        machine.kernel,
        machine.load.first().map_or("?", String::as_str),
        machine.load.last().map_or("?", String::as_str),
        names.collect::<Vec<_>>().join(", "),
    );
    if peers.iter().any(|peer| figures.compares_builds(&peer.name)) {
        out += "A build is better or worse than another if the interval is above or below 1, and \
                the same\nas far as this run shows if it contains 1.\n";
    }
    if *quick {
        out += "A quick run: it checks that everything works; its figures are not meaningful.\n";
    }
    out
}

#[cfg(test)]
mod tests {
    use super::write;
    use crate::options::Format;
    use crate::report::figures::tests::figures;

    const COSTS: &str = "cost theirs 0 10\ncost ours 0 5\ncost theirs 1 12\ncost ours 1 4";

    #[test]
    fn markdown_contains_a_table() {
        let text = write(&figures(COSTS), Format::Markdown);
        let row = "| much | cost, us | 11.0 | 4.50; **2.45x** (0.19..32.2) |";
        assert!(text.contains(row), "{text}");
        assert!(
            text.contains("### Work\n\nA note.\n\n| | | theirs | ours; **ratio to theirs** |"),
            "{text}"
        );
    }

    #[test]
    fn terminal_output_has_columns() {
        let text = write(&figures(COSTS), Format::Table);
        assert!(text.contains("4.50   2.45x   (0.19..32.2)\n"), "{text}");
        assert!(text.contains("  ratio to theirs\nmuch\n"), "{text}");
        assert!(!text.contains("A build is better"), "{text}");
    }

    #[test]
    fn terminal_output_says_whether_a_build_is_better() {
        let mut figures = figures(COSTS);
        figures.peers[0].build = true;
        let text = write(&figures, Format::Table);
        assert!(text.contains("(0.19..32.2) same\n"), "{text}");
        assert!(text.contains("A build is better or worse"), "{text}");
    }

    #[test]
    fn json_contains_every_figure() {
        let text = write(&figures(COSTS), Format::Json);
        let read: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(read["figures"].as_array().map(Vec::len), Some(4), "{text}");
        assert_eq!(read["figures"][0]["better"], "less");
        assert_eq!(read["compared"][1]["base"], "theirs", "{text}");
        assert_eq!(read["compared"][1]["ratio"]["rounds"], 2, "{text}");
    }
}
