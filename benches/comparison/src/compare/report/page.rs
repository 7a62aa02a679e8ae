//! Writes `docs/performance.md`: the text of `page.md` around the tables and plots of a run, the
//! costs of a timer (`benches/results/wheel.json`), and single values of profiles and tables of
//! experiments (`profiles.json` and `experiments.json` there). Writes `docs/durability.md` from
//! `durability.md` and the tables of a run with logs.
//!
//! These lines of the texts are replaced by a part of the results: `{{table GROUP}}`,
//! `{{experiment NAME}}`, `{{plot NAME: what it shows}}` and single words in such braces. Within a
//! line, `{{value NAME}}` is replaced by a value.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use lockwheel_comparison::Outcome;
use serde::Deserialize;

use crate::options::Format;
use crate::report::figures::Figures;
use crate::report::plots;
use crate::report::tables::Tables;
use crate::report::wheel;

const TEXT: &str = include_str!("page.md");
const DURABILITY: &str = include_str!("durability.md");
/// The text in place of an unknown value.
const UNKNOWN: &str = "(unknown value)";
const PROFILES: &str = include_str!("../../../../results/profiles.json");
const EXPERIMENTS: &str = include_str!("../../../../results/experiments.json");
/// The folder of the plots, relative to the page.
const PLOTS_FOLDER: &str = "performance";

/// The rows of the summary: a label, and the group, parameters and metric of the row with its
/// values.
const SUMMARY: &[(&str, &str, &str, &str)] = &[
    (
        "Redisson lock and unlock, 50 connections: server CPU, us",
        "Redisson 3 cycle",
        "50 connections, pipeline 1",
        "server CPU per operation, us",
    ),
    (
        "the same in pipelines of 16: server CPU, us",
        "Redisson 3 cycle",
        "50 connections, pipeline 16",
        "server CPU per operation, us",
    ),
    (
        "`SET NX PX` and compare-and-delete, 50 connections: server CPU, us",
        "SET NX PX and compare-and-delete",
        "50 connections, pipeline 1",
        "server CPU per operation, us",
    ),
    (
        "hand-off of a lock that 128 clients want: server CPU, us",
        "Contended hand-off",
        "128 clients",
        "server CPU per hand-off, us",
    ),
    (
        "`expired` event of 1,000,000 leases within 10 s: late, median, ms",
        "Expiry",
        "1,000,000 leases that end within 10 s",
        "late, p50, ms",
    ),
    (
        "the same: late, p99.9, ms",
        "Expiry",
        "1,000,000 leases that end within 10 s",
        "late, p99.9, ms",
    ),
    (
        "1,000,000 leases on one deadline: longest wait of another client, ms",
        "Many leases on one deadline",
        "1,000,000 leases",
        "longest wait of another client, ms",
    ),
    (
        "memory of a lock (hash with a lease), bytes",
        "Memory",
        "1,000,000 locks, each a hash with a lease",
        "memory per lock, B",
    ),
    ("start of the process, ms", "Start", "median of 9", "process, ms"),
];
/// The servers of the summary.
const REFERENCE: &str = "Redis 7.0.15";
const OURS: &str = "Lockwheel";

/// Single values, entered by hand, each with its source.
#[derive(Deserialize)]
struct Profiles {
    commit: String,
    source: String,
    values: BTreeMap<String, ProfileValue>,
}

#[derive(Deserialize)]
struct ProfileValue {
    value: String,
    how: String,
}

/// A table of an experiment, entered by hand, with the commit it was measured at.
#[derive(Deserialize)]
struct Experiment {
    commit: String,
    how: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// The function that writes the page of a format; `None` if the format is not that of a page.
pub(crate) fn of(format: Format) -> Option<fn(&Tables) -> String> {
    match format {
        Format::Page => Some(write),
        Format::Durability => Some(write_durability),
        Format::Table | Format::Markdown | Format::Json | Format::Tables => None,
    }
}

/// Writes `docs/performance.md`.
pub(crate) fn write(tables: &Tables) -> String {
    fill_in(TEXT, tables)
}

/// Writes `docs/durability.md`.
pub(crate) fn write_durability(tables: &Tables) -> String {
    fill_in(DURABILITY, tables)
}

fn fill_in(text: &str, tables: &Tables) -> String {
    let profiles: Profiles = serde_json::from_str(PROFILES).expect("profiles.json is valid");
    let mut out = String::new();
    for line in text.lines() {
        match line.strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}")) {
            Some(placeholder) if !placeholder.contains("}}") => {
                out += &fill(tables, &profiles, placeholder);
            }
            _ => {
                out += &insert_values(&profiles, line);
                out.push('\n');
            }
        }
    }
    out
}

/// Draws the plots of the page into the folder beside it.
pub(crate) fn draw(figures: &Figures, page: &Path) -> Outcome<()> {
    let folder = page.with_file_name(PLOTS_FOLDER);
    fs::create_dir_all(&folder)?;
    for plot in plots::draw(figures)? {
        fs::write(folder.join(plot.name).with_extension("svg"), plot.svg)?;
    }
    Ok(())
}

fn fill(tables: &Tables, profiles: &Profiles, placeholder: &str) -> String {
    let (word, rest) = placeholder.split_once(' ').unwrap_or((placeholder, ""));
    match word {
        "summary" => summary(tables),
        "machine" => machine(tables),
        "targets" => tables.targets.to_string(),
        "worse" => worse(tables),
        "failures" => tables.failures.clone(),
        "others" => others(tables),
        "ratios" => format!("{}\n", tables.ratios),
        "wheel" => wheel::table(),
        "profiles" => sources(profiles),
        "table" => group(tables, rest),
        "experiment" => experiment(rest),
        "value" => format!("{}\n", value(profiles, rest)),
        "plot" => {
            let (name, shows) = rest.split_once(": ").unwrap_or((rest, ""));
            format!("![{shows}]({PLOTS_FOLDER}/{name}.svg)\n")
        }
        _ => format!("{{{{{placeholder}}}}}\n"),
    }
}

/// Replaces each `{{value NAME}}` of a line.
fn insert_values(profiles: &Profiles, line: &str) -> String {
    let mut parts = line.split("{{value ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("}}").unwrap_or((part, ""));
        out += value(profiles, name);
        out += rest;
    }
    out
}

fn value<'a>(profiles: &'a Profiles, name: &str) -> &'a str {
    profiles.values.get(name).map_or(UNKNOWN, |profile| profile.value.as_str())
}

/// The sources of the single values.
fn sources(profiles: &Profiles) -> String {
    let mut out = format!("Commit {}. {}\n\n", profiles.commit, profiles.source);
    out += "| Value | | Measured by |\n|---|---:|---|\n";
    for (name, ProfileValue { value, how }) in &profiles.values {
        let _ = writeln!(out, "| {name} | {value} | {how} |");
    }
    out
}

/// The table of an experiment.
fn experiment(name: &str) -> String {
    let experiments: BTreeMap<String, Experiment> =
        serde_json::from_str(EXPERIMENTS).expect("experiments.json is valid");
    let Some(Experiment { commit, how, columns, rows }) = experiments.get(name) else {
        return format!("{UNKNOWN}\n");
    };
    let mut out = format!("{how} Commit {commit}.\n\n");
    let _ = writeln!(out, "| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len()));
    rows.iter().for_each(|row| out += &format!("| {} |\n", row.join(" | ")));
    out
}

/// The most important results.
fn summary(tables: &Tables) -> String {
    let mut out =
        format!("| | {REFERENCE} | {OURS} | ratio to {REFERENCE} |\n|---|---:|---:|---:|\n");
    for (label, group, parameters, metric) in SUMMARY {
        let Some(group) = tables.group(group) else { continue };
        let cell = |peer| group.cell(parameters, metric, peer);
        let (Some(theirs), Some(ours)) = (cell(REFERENCE), cell(OURS)) else { continue };
        if group.base_of(OURS) != Some(REFERENCE) {
            continue;
        }
        let _ = writeln!(out, "| {label} | {} | {} | {} |", theirs.value, ours.value, ours.ratio);
    }
    out
}

fn machine(tables: &Tables) -> String {
    let mut out = "| | |\n|---|---|\n".to_owned();
    let _ = writeln!(out, "| Commit | {} |", tables.commit);
    if !tables.source.is_empty() {
        let _ = writeln!(out, "| Source | {} |", tables.source);
    }
    for (name, value) in &tables.machine {
        let _ = writeln!(out, "| {name} | {value} |");
    }
    out
}

/// The rows in which Lockwheel is worse than the reference.
fn worse(tables: &Tables) -> String {
    if tables.worse.is_empty() {
        return format!("No measured value is worse than with {REFERENCE}.\n");
    }
    tables.worse.iter().map(|line| format!("- {line}\n")).collect()
}

/// A group with its note and table.
fn group(tables: &Tables, name: &str) -> String {
    match tables.group(name) {
        Some(group) => format!("{}\n\n{group}", group.note),
        None => "Not measured in this run.\n".to_owned(),
    }
}

/// The groups that the text does not name.
fn others(tables: &Tables) -> String {
    let is_named = |name: &str| TEXT.contains(&format!("{{{{table {name}}}}}"));
    let mut out = String::new();
    for name in tables.groups.iter().map(|group| &group.name).filter(|name| !is_named(name)) {
        let _ = writeln!(out, "## {name}\n\n{}", group(tables, name));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{DURABILITY, TEXT, UNKNOWN, write, write_durability};
    use crate::report::figures::tests::figures;
    use crate::report::saved;
    use crate::report::tables::Tables;
    use crate::workloads::list::tests::all;
    use std::path::Path;

    #[test]
    fn every_placeholder_is_filled() {
        let text = write(&Tables::of(&figures("cost theirs 0 10\ncost ours 0 20")));
        assert!(!text.contains("{{"), "{text}");
        assert!(text.contains("- Work, much, ours: cost, us: 0.50x"), "{text}");
        assert!(text.contains("## Work\n\nA note.\n"), "{text}");
    }

    #[test]
    fn tables_refer_to_existing_workloads() {
        let all = all();
        let lines = TEXT.lines().chain(DURABILITY.lines());
        for line in lines.filter_map(|line| line.strip_prefix("{{table ")) {
            let name = line.trim_end_matches("}}");
            assert!(all.iter().any(|it| it.group() == name), "{name}");
        }
    }

    #[test]
    fn page_is_generated_from_the_saved_results() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let tables = saved::read_tables(&folder.join("../results/comparison.json"));
        let page = write(&tables.expect("results"));
        assert!(
            page.contains("ratio to Redis 7.0.15 |\n|---|---:|---:|---:|\n| Redisson"),
            "no summary"
        );
        assert!(!page.contains(UNKNOWN), "page.md names a value that profiles.json lacks");
        let written = std::fs::read_to_string(folder.join("../../docs/performance.md"));
        assert!(
            written.is_ok_and(|written| written == page),
            "docs/performance.md is outdated: its section \"The run\" explains how to write it"
        );
    }

    #[test]
    fn durability_page_is_generated_from_the_saved_results() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        // `compare render FILE --format tables` makes them from the figures of a run.
        let tables = saved::read_tables(&folder.join("../results/durability.json"));
        let written = std::fs::read_to_string(folder.join("../../docs/durability.md"));
        assert!(
            written.is_ok_and(|written| written == write_durability(&tables.expect("results"))),
            "docs/durability.md is outdated: its section \"The run\" explains how to write it"
        );
    }
}
