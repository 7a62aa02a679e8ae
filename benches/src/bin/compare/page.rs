//! docs/performance.md: the text of `page.md` around the tables and plots of a run. It must not
//! know how anything was measured.
//!
//! A line of `page.md` that is `{{table GROUP}}`, `{{plot NAME: what it shows}}` or a word in such
//! braces stands for what this run has to say there.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::Outcome;
use crate::figures::{Figures, Row};
use crate::peers::BARE;
use crate::plots;
use crate::report::{failures, metric_name, number, table, times};

const TEXT: &str = include_str!("page.md");
/// Where the plots are, as the page sees it.
const PLOTS_FOLDER: &str = "performance";
/// What is a twentieth worse than the reference, or less, is not told from it.
const WORSE: f64 = 0.95;

/// A figure the project wants to reach: of which group, parameters and metric, and how many times
/// as good as Redis 7.0 it is to be at least, with every script in Lua and as people run it.
const TARGETS: &[(&str, &str, &str, Goal)] = &[
    ("Redisson 3 cycle", "50 connections, pipeline 1", PER_OPERATION, Goal::Times(2.0, 2.6)),
    ("Redisson 3 cycle", "50 connections, pipeline 16", PER_OPERATION, Goal::Times(3.5, 10.0)),
    ("Redisson 3 cycle", "500 connections, pipeline 1", PER_OPERATION, Goal::Times(1.9, 2.2)),
    ("Redisson 3 cycle", "500 connections, pipeline 16", PER_OPERATION, Goal::Times(3.5, 8.0)),
    (COMPARE_AND_DELETE, "50 connections, pipeline 1", PER_OPERATION, Goal::Times(1.6, 1.9)),
    (COMPARE_AND_DELETE, "50 connections, pipeline 16", PER_OPERATION, Goal::Times(3.5, 8.0)),
    ("Contended hand-off", "16 clients", PER_HAND_OFF, Goal::Times(2.0, 2.2)),
    ("Contended hand-off", "128 clients", PER_HAND_OFF, Goal::Times(2.0, 2.2)),
    ("SET PX", "50 connections, pipeline 16", PER_OPERATION, Goal::Times(4.0, 4.0)),
    ("Expiry", "1,000,000 leases that end within 10 s", "late, p99.9", Goal::AtMost(2.0)),
    ("Expiry", "1,000,000 leases that end within 10 s", "server CPU", Goal::Times(1.0, 1.0)),
    ("Many leases on one deadline", "1,000,000 leases", LONGEST_WAIT, Goal::AtMost(2.0)),
    ("Memory", "1,000,000 locks, each a hash with a lease", PER_LOCK, Goal::AtMost(120.0)),
    ("Memory", "1,000,000 locks, each a string with a lease", PER_LOCK, Goal::AtMost(110.0)),
    ("Idle", "", "server CPU", Goal::Times(10.0, 10.0)),
    ("Start", "", "process", Goal::Times(3.0, 3.0)),
    ("Start", "", "in process", Goal::AtMost(1.0)),
];
const COMPARE_AND_DELETE: &str = "SET NX PX and compare-and-delete";
const PER_OPERATION: &str = "server CPU per operation";
const PER_HAND_OFF: &str = "server CPU per hand-off";
const PER_LOCK: &str = "memory per lock";
const LONGEST_WAIT: &str = "longest wait of another client";

/// What is to be reached.
#[derive(Clone, Copy)]
enum Goal {
    /// So many times as good as the reference: with every script in Lua, and otherwise.
    Times(f64, f64),
    /// This value, or less.
    AtMost(f64),
}

/// Writes the page.
pub(crate) fn write(figures: &Figures) -> String {
    let mut out = String::new();
    for line in TEXT.lines() {
        match line.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")) {
            Some(placeholder) => out += &fill(figures, placeholder),
            None => {
                out += line;
                out.push('\n');
            }
        }
    }
    out
}

/// Draws its plots, into the folder beside it.
pub(crate) fn draw(figures: &Figures, page: &Path) -> Outcome<()> {
    let folder = page.with_file_name(PLOTS_FOLDER);
    fs::create_dir_all(&folder)?;
    for plot in plots::draw(figures)? {
        fs::write(folder.join(plot.name).with_extension("svg"), plot.svg)?;
    }
    Ok(())
}

fn fill(figures: &Figures, placeholder: &str) -> String {
    let (word, rest) = placeholder.split_once(' ').unwrap_or((placeholder, ""));
    match word {
        "machine" => machine(figures),
        "targets" => targets(figures),
        "worse" => worse(figures),
        "failures" => failures(figures),
        "others" => others(figures),
        "table" => group(figures, rest),
        "plot" => {
            let (name, shows) = rest.split_once(": ").unwrap_or((rest, ""));
            format!("![{shows}]({PLOTS_FOLDER}/{name}.svg)\n")
        }
        _ => format!("{{{{{placeholder}}}}}\n"),
    }
}

fn machine(figures: &Figures) -> String {
    let machine = &figures.machine;
    let servers = figures.peers.iter().map(|peer| match peer.ours {
        true => format!("{} {}", peer.name, peer.version),
        false => peer.name.clone(),
    });
    let load = [machine.load.first(), machine.load.last()];
    let [before, after] = load.map(|it| it.map_or("?", String::as_str));
    let mitigations = match machine.mitigations.is_empty() {
        true => "none".to_owned(),
        false => machine.mitigations.join("; "),
    };
    let rows = [
        ("Date", machine.date.clone()),
        ("Processor", format!("{}, {} of them", machine.processor, machine.processors)),
        ("Kernel", format!("Linux {}", machine.kernel)),
        ("Mitigations", mitigations),
        ("Load of the machine", format!("{before} before, {after} after")),
        ("Servers", servers.collect::<Vec<_>>().join("; ")),
        ("Rounds", format!("{}, {} s a measurement", figures.rounds, figures.seconds)),
        ("The run took", format!("{:.0} minutes", figures.spent_seconds / 60.0)),
    ];
    let mut out = "| | |\n|---|---|\n".to_owned();
    for (name, value) in rows {
        let _ = writeln!(out, "| {name} | {value} |");
    }
    if figures.quick {
        out += "\nA quick run: it shows that everything works, not what it costs.\n";
    }
    out
}

/// What the project wants, and what it has.
fn targets(figures: &Figures) -> String {
    let reference = figures.peers.iter().find(|peer| !peer.ours).map_or("", |peer| &peer.name);
    let ours: Vec<&str> = ours(figures);
    let floor = figures.peers.iter().find(|peer| peer.name == BARE).map(|peer| peer.name.as_str());
    let columns: Vec<&str> = ours.iter().copied().chain(floor).collect();
    let beside = ours.first().copied().zip(floor);
    let mut out = format!("| | | at least | {} |", columns.join(" | "));
    if let Some((peer, floor)) = beside {
        let _ = write!(out, " {peer} beside the {floor} |");
    }
    out += "\n|---|---|---:|";
    out += &"---:|".repeat(columns.len() + usize::from(beside.is_some()));
    out.push('\n');
    for (group, parameters, metric, goal) in TARGETS {
        let rows = figures.rows(group);
        let is_it = |row: &&Row<'_>| {
            row.metric.name == *metric && (parameters.is_empty() || row.parameters == *parameters)
        };
        let Some(row) = rows.iter().find(is_it) else { continue };
        let missed = |peer, missed: bool| if missed && peer != BARE { ", missed" } else { "" };
        let reached = columns.iter().map(|&peer| match goal {
            Goal::Times(..) => row.ratio(peer, reference).map_or_else(String::new, |it| {
                let missed = missed(peer, it.median < goal.of(peer, &ours));
                format!("{}{missed}", times(it.median))
            }),
            Goal::AtMost(most) => row.values(peer).map_or_else(String::new, |it| {
                format!("{}{}", number(it.median), missed(peer, it.median > *most))
            }),
        });
        let reached = reached.collect::<Vec<_>>().join(" | ");
        let what = if row.parameters.is_empty() { group } else { row.parameters };
        let wanted = goal.wanted(&row.metric.unit);
        let _ = write!(out, "| {group}: {what} | {} | {wanted} | {reached} |", metric_name(row));
        if let Some((peer, floor)) = beside {
            let ratio = row.ratio(peer, floor);
            let _ = write!(out, " {} |", ratio.map_or_else(String::new, |it| times(it.median)));
        }
        out.push('\n');
    }
    out
}

impl Goal {
    /// What is wanted of one of ours: the second has every script in Lua.
    fn of(self, peer: &str, ours: &[&str]) -> f64 {
        match self {
            Goal::Times(lua, _) if ours.get(1) == Some(&peer) => lua,
            Goal::Times(_, times) => times,
            Goal::AtMost(most) => most,
        }
    }

    fn wanted(self, unit: &str) -> String {
        match self {
            Goal::Times(lua, times) if lua < times => format!("{times}x; in Lua {lua}x"),
            Goal::Times(_, times) => format!("{times}x"),
            Goal::AtMost(most) => format!("{most} {unit} at most"),
        }
    }
}

/// Everything in which we are worse than what we are compared with.
fn worse(figures: &Figures) -> String {
    let reference = figures.peers.iter().find(|peer| !peer.ours).map_or("", |peer| &peer.name);
    let mut out = String::new();
    for group in &figures.groups {
        for row in figures.rows(&group.name) {
            for peer in ours(figures) {
                let Some(ratio) = row.ratio(peer, reference) else { continue };
                if ratio.median < WORSE {
                    let (parameters, name) = (row.parameters, metric_name(&row));
                    let times = times(ratio.median);
                    let _ =
                        writeln!(out, "- {}, {parameters}, {peer}: {name}: {times}", group.name);
                }
            }
        }
    }
    if out.is_empty() {
        return format!("Nothing that was measured is worse than with {reference}.\n");
    }
    out
}

fn ours(figures: &Figures) -> Vec<&str> {
    figures.peers.iter().filter(|peer| peer.ours).map(|peer| peer.name.as_str()).collect()
}

/// A group with its note and table.
fn group(figures: &Figures, name: &str) -> String {
    match figures.groups.iter().find(|group| group.name == name) {
        Some(group) => format!("{}\n\n{}", group.note, table(figures, name)),
        None => "Not measured in this run.\n".to_owned(),
    }
}

/// The groups that the text does not speak of.
fn others(figures: &Figures) -> String {
    let spoken_of = |name: &str| TEXT.contains(&format!("{{{{table {name}}}}}"));
    let mut out = String::new();
    for it in figures.groups.iter().filter(|it| !spoken_of(&it.name)) {
        let _ = writeln!(out, "## {}\n\n{}", it.name, group(figures, &it.name));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{TARGETS, TEXT, write};
    use crate::figures::tests::figures;
    use crate::workload::all;

    #[test]
    fn every_placeholder_is_filled() {
        let text = write(&figures("cost theirs 0 10\ncost ours 0 20"));
        assert!(!text.contains("{{"), "{text}");
        assert!(text.contains("- Work, much, ours: cost, us: 0.50x"), "{text}");
        assert!(text.contains("## Work\n\nA note.\n"), "{text}");
    }

    #[test]
    fn tables_and_targets_are_about_workloads_that_there_are() {
        let all = all();
        for line in TEXT.lines().filter_map(|line| line.strip_prefix("{{table ")) {
            let name = line.trim_end_matches("}}");
            assert!(all.iter().any(|it| it.group() == name), "{name}");
        }
        for (group, parameters, ..) in TARGETS {
            let is_it = |name: String| parameters.is_empty() || name == *parameters;
            let known = all.iter().any(|it| it.group() == *group && is_it(it.parameters()));
            assert!(known, "{group}, {parameters}");
        }
    }
}
