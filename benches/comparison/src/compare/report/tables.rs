//! The tables of a run, as `docs/performance.md` shows them. They are created from the figures of
//! a run, or read from a file with the tables of an earlier run.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};

use crate::measure::metric::Better;
use crate::measure::servers::BARE;
use crate::report::figures::{Figures, Group, OverallRatio, Row, ServerInfo};
use crate::report::statistics::{METHOD, Ratio};

/// Smallest ratio that does not count as worse than the reference.
const WORSE: f64 = 0.95;

/// The project's targets: group, parameters, metric and the value to reach.
pub(crate) const TARGETS: &[(&str, &str, &str, Goal)] = &[
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
    (DURABLE_DELETE, "1 connection, pipeline 1", "operations", Goal::Times(0.95, 0.95)),
    (DURABLE_DELETE, "500 connections, pipeline 16", "operations", Goal::Times(1.5, 1.5)),
    (DURABLE_DELETE, "1 connection, pipeline 1", "reply, p99", Goal::Times(1.0, 1.0)),
    (DURABLE_DELETE, "500 connections, pipeline 16", "reply, p99", Goal::Times(1.0, 1.0)),
    (DURABLE_DELETE, "1 connection, pipeline 1", PER_OPERATION, Goal::Times(2.0, 2.0)),
    (DURABLE_DELETE, "50 connections, pipeline 1", PER_OPERATION, Goal::Times(2.0, 2.0)),
    (DURABLE_DELETE, "500 connections, pipeline 16", PER_OPERATION, Goal::Times(2.0, 2.0)),
    (DURABLE_REDISSON, "1 connection, pipeline 1", "operations", Goal::Times(0.95, 0.95)),
    (DURABLE_REDISSON, "500 connections, pipeline 16", "operations", Goal::Times(1.5, 1.5)),
    (DURABLE_REDISSON, "1 connection, pipeline 1", "reply, p99", Goal::Times(1.0, 1.0)),
    (DURABLE_REDISSON, "500 connections, pipeline 16", "reply, p99", Goal::Times(1.0, 1.0)),
    (DURABLE_REDISSON, "1 connection, pipeline 1", PER_OPERATION, Goal::Times(2.0, 2.0)),
    (DURABLE_REDISSON, "50 connections, pipeline 1", PER_OPERATION, Goal::Times(2.0, 2.0)),
    (DURABLE_REDISSON, "500 connections, pipeline 16", PER_OPERATION, Goal::Times(2.0, 2.0)),
    (READS, "GET, flush 0.25 ms longer", "GET, p50", Goal::Times(3.0, 3.0)),
    (READS, "GET, flush 2 ms longer", "GET, p50", Goal::Times(10.0, 10.0)),
    (READS, "refused attempt, flush 0.25 ms longer", REFUSED, Goal::Times(3.0, 3.0)),
    (READS, "refused attempt, flush 2 ms longer", REFUSED, Goal::Times(10.0, 10.0)),
    (RESTART, "", "log as written: until ready", Goal::Times(2.0, 2.0)),
    (RESTART, "", "log rewritten: until ready", Goal::Times(2.0, 2.0)),
    ("Durable: snapshot", "5,000,000 locks", "GET, longest", Goal::AtMost(5000.0)),
    ("Durable: snapshot", "5,000,000 locks", "SET NX, longest", Goal::AtMost(5000.0)),
];
const DURABLE_DELETE: &str = "Durable: SET NX PX and compare-and-delete";
const DURABLE_REDISSON: &str = "Durable: Redisson 3 cycle";
const READS: &str = "Durable: reads beside writers";
const REFUSED: &str = "refused attempt, p50";
const RESTART: &str = "Durable: restart";
const COMPARE_AND_DELETE: &str = "SET NX PX and compare-and-delete";
const PER_OPERATION: &str = "server CPU per operation";
const PER_HAND_OFF: &str = "server CPU per hand-off";
const PER_LOCK: &str = "memory per lock";
const LONGEST_WAIT: &str = "longest wait of another client";

/// A value to reach.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// A multiple of the reference: with every script in Lua, and with plans.
    Times(f64, f64),
    /// This value, or less.
    AtMost(f64),
}

/// All tables of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tables {
    /// The commit that was measured.
    pub(crate) commit: String,
    /// How the tables were obtained, if not from the figures of the run.
    #[serde(default)]
    pub(crate) source: String,
    /// How ratios are estimated, and what is in parentheses after them.
    #[serde(default = "earlier_method")]
    pub(crate) ratios: String,
    /// The machine and the run, by name.
    pub(crate) machine: Vec<(String, String)>,
    pub(crate) targets: PlainTable,
    /// Rows in which Lockwheel is worse than the reference, each with its ratio.
    pub(crate) worse: Vec<String>,
    pub(crate) groups: Vec<GroupTable>,
    /// Text about measurements that failed.
    #[serde(default)]
    pub(crate) failures: String,
}

/// A table of texts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PlainTable {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// The table of a group of workloads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct GroupTable {
    pub(crate) name: String,
    pub(crate) note: String,
    /// The servers.
    pub(crate) peers: Vec<String>,
    /// The servers to which the ratios are, for each server; if none are given, the first server.
    #[serde(default)]
    pub(crate) bases: Vec<String>,
    pub(crate) rows: Vec<TableRow>,
}

/// A metric of a workload, for every server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TableRow {
    pub(crate) parameters: String,
    /// The metric with its unit.
    pub(crate) metric: String,
    pub(crate) cells: Vec<Cell>,
}

/// A value of one server, and how it compares with another.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cell {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) value: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) ratio: String,
    /// The bounds of the ratio.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) spread: String,
    /// Whether a build is better than another.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) verdict: String,
}

impl Tables {
    /// The tables of a run.
    pub(crate) fn of(figures: &Figures) -> Tables {
        Tables {
            commit: figures.machine.commit.clone(),
            source: String::new(),
            ratios: METHOD.to_owned(),
            machine: machine(figures),
            targets: targets(figures),
            worse: worse(figures),
            groups: GroupTable::all(figures),
            failures: failures(figures),
        }
    }

    /// The table of the group with this name.
    pub(crate) fn group(&self, name: &str) -> Option<&GroupTable> {
        self.groups.iter().find(|group| group.name == name)
    }
}

impl Cell {
    /// The cell of a row for a server.
    fn of(figures: &Figures, row: &Row<'_>, peer: &str) -> Cell {
        let value = row.values(peer).map_or_else(String::new, |it| number(it.median));
        let compared = row.ratio(peer, figures.base(peer));
        Cell { value, ..Cell::of_ratio(compared, figures.compares_builds(peer)) }
    }

    /// A cell without a value.
    fn of_ratio(ratio: Option<Ratio>, compares_builds: bool) -> Cell {
        let Some(ratio) = ratio else { return Cell::default() };
        let range = |[low, high]: [f64; 2]| format!("{}..{}", multiple(low), multiple(high));
        let verdict = ratio.verdict().filter(|_| compares_builds).unwrap_or_default();
        Cell {
            value: String::new(),
            ratio: times(ratio.mean),
            spread: ratio.interval.map_or_else(String::new, range),
            verdict: verdict.to_owned(),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Cell { value, ratio, spread, verdict } = self;
        write!(f, "{value}")?;
        if !value.is_empty() && !ratio.is_empty() {
            write!(f, "; ")?;
        }
        for (part, before, after) in [(ratio, "**", "**"), (spread, " (", ")"), (verdict, " ", "")]
        {
            if !part.is_empty() {
                write!(f, "{before}{part}{after}")?;
            }
        }
        Ok(())
    }
}

impl GroupTable {
    /// The tables of all groups, each followed by that beside the floor.
    pub(crate) fn all(figures: &Figures) -> Vec<GroupTable> {
        let of_group = |group| {
            let beside_floor = GroupTable::beside_floor(figures, group);
            [Some(GroupTable::of(figures, group)), beside_floor].into_iter().flatten()
        };
        figures.groups.iter().flat_map(of_group).collect()
    }

    /// The ratios of Lockwheel to the floor, if it was measured too.
    fn beside_floor(figures: &Figures, group: &Group) -> Option<GroupTable> {
        let rows = figures.rows(&group.name);
        let participants = figures.participants(&rows);
        let beside = participants.iter().filter_map(|peer| Some((*peer, figures.floor(peer)?)));
        let beside: Vec<_> = beside.filter(|(_, floor)| participants.contains(floor)).collect();
        let cell = |row: &Row<'_>, (peer, floor)| Cell::of_ratio(row.ratio(peer, floor), false);
        let table_row = |row: &Row<'_>| TableRow {
            parameters: row.parameters.to_owned(),
            metric: row.metric.title(),
            cells: beside.iter().map(|pair| cell(row, *pair)).collect(),
        };
        let table = GroupTable {
            name: format!("{}, beside the floor", group.name),
            note: "The figures above as ratios to the floor, within each round: 0.5 is twice the \
                   time, or half the rate. The floor has one thread and one batch in flight."
                .to_owned(),
            rows: rows
                .iter()
                .filter(|row| row.metric.better != Better::Neither)
                .map(table_row)
                .collect(),
            bases: beside.iter().map(|(_, floor)| (*floor).to_owned()).collect(),
            peers: beside.iter().map(|(peer, _)| (*peer).to_owned()).collect(),
        };
        (!beside.is_empty()).then_some(table)
    }

    /// The table of a group.
    pub(crate) fn of(figures: &Figures, group: &Group) -> GroupTable {
        let rows = figures.rows(&group.name);
        let peers = figures.participants(&rows);
        let table_row = |row: &Row<'_>| TableRow {
            parameters: row.parameters.to_owned(),
            metric: row.metric.title(),
            cells: peers.iter().map(|peer| Cell::of(figures, row, peer)).collect(),
        };
        GroupTable {
            name: group.name.to_string(),
            note: group.note.to_string(),
            rows: rows.iter().map(table_row).collect(),
            bases: peers.iter().map(|peer| figures.base(peer).to_owned()).collect(),
            peers: peers.iter().map(|&peer| peer.to_owned()).collect(),
        }
    }

    /// The ratios of each build over all workloads, if another build was measured too.
    pub(crate) fn of_builds(figures: &Figures) -> Vec<GroupTable> {
        let table_row = |it: OverallRatio<'_>| TableRow {
            parameters: format!("{} workloads", it.workloads),
            metric: it.metric.title(),
            cells: vec![Cell::of_ratio(it.ratio(), true)],
        };
        let table = |peer: &str| GroupTable {
            name: format!("All workloads: {peer}"),
            note: "For each metric, the ratio over all workloads that have it: in each round, the \
                   geometric mean of those of the workloads. Of equal builds, one interval in \
                   twenty excludes 1 by chance."
                .to_owned(),
            peers: vec![peer.to_owned()],
            bases: vec![figures.base(peer).to_owned()],
            rows: figures
                .overall(peer)
                .into_iter()
                .filter(|it| it.workloads > 1)
                .map(table_row)
                .collect(),
        };
        let builds = figures.peers.iter().filter(|it| figures.compares_builds(&it.name));
        builds.map(|it| table(&it.name)).filter(|table| !table.rows.is_empty()).collect()
    }

    /// The server to which the ratios in a column are.
    pub(crate) fn base(&self, column: usize) -> Option<&str> {
        let has_ratio =
            |row: &TableRow| row.cells.get(column).is_some_and(|it| !it.ratio.is_empty());
        let base = self.bases.get(column).or_else(|| self.peers.first());
        base.filter(|_| self.rows.iter().any(has_ratio)).map(String::as_str)
    }

    /// The server to which the ratios of a server are.
    pub(crate) fn base_of(&self, peer: &str) -> Option<&str> {
        self.base(self.peers.iter().position(|name| name == peer)?)
    }

    /// The cell of a server in the row of a workload and a metric.
    pub(crate) fn cell(&self, parameters: &str, metric: &str, peer: &str) -> Option<&Cell> {
        let is_it = |row: &&TableRow| row.parameters == parameters && row.metric == metric;
        let row = self.rows.iter().find(is_it)?;
        row.cells.get(self.peers.iter().position(|name| name == peer)?)
    }
}

/// As Markdown.
impl fmt::Display for GroupTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heading = |(column, peer): (usize, &String)| match self.base(column) {
            Some(base) => format!("{peer}; **ratio to {base}**"),
            None => peer.clone(),
        };
        let headings: Vec<String> = self.peers.iter().enumerate().map(heading).collect();
        writeln!(f, "| | | {} |", headings.join(" | "))?;
        writeln!(f, "|---|---|{}", "---:|".repeat(self.peers.len()))?;
        let mut parameters = None;
        for row in &self.rows {
            let first = if parameters == Some(&row.parameters) { "" } else { &row.parameters };
            parameters = Some(&row.parameters);
            let cells: Vec<String> = row.cells.iter().map(Cell::to_string).collect();
            writeln!(f, "| {first} | {} | {} |", row.metric, cells.join(" | "))?;
        }
        Ok(())
    }
}

/// As Markdown, with texts in the first two columns and numbers in the others.
impl fmt::Display for PlainTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| {} |", self.columns.join(" | "))?;
        writeln!(f, "|---|---|{}", "---:|".repeat(self.columns.len().saturating_sub(2)))?;
        self.rows.iter().try_for_each(|row| writeln!(f, "| {} |", row.join(" | ")))
    }
}

fn machine(figures: &Figures) -> Vec<(String, String)> {
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
    let mut rows = vec![
        ("Date", machine.date.clone()),
        ("Processor", format!("{}, {} of them", machine.processor, machine.processors)),
        ("Kernel", format!("Linux {}", machine.kernel)),
        ("Mitigations", mitigations),
        ("Load of the machine", format!("{before} before, {after} after")),
        ("Servers", servers.collect::<Vec<_>>().join("; ")),
        ("Rounds", format!("{}, {} s a measurement", figures.rounds, figures.seconds)),
        ("The run took", format!("{:.0} minutes", figures.spent_seconds / 60.0)),
    ];
    if figures.quick {
        rows.push(("A quick run", "a check; its figures are not meaningful".to_owned()));
    }
    rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// The targets, and the values reached.
fn targets(figures: &Figures) -> PlainTable {
    let (reference, ours) = (reference(figures), ours(figures));
    let bare = figures.peers.iter().find(|peer| peer.name == BARE).map(|peer| peer.name.as_str());
    let peers: Vec<&str> = ours.iter().copied().chain(bare).collect();
    let ours_and_bare = ours.first().copied().zip(bare);
    let mut columns = vec![String::new(), String::new(), format!("at least, ratio to {reference}")];
    columns.extend(peers.iter().map(|&peer| peer.to_owned()));
    columns.extend(ours_and_bare.map(|(peer, bare)| format!("{peer} beside the {bare}")));
    let mut table = PlainTable { columns, rows: Vec::new() };
    for (group, parameters, metric, goal) in TARGETS {
        let rows = figures.rows(group);
        let is_it = |row: &&Row<'_>| {
            row.metric.name == *metric && (parameters.is_empty() || row.parameters == *parameters)
        };
        let Some(row) = rows.iter().find(is_it) else { continue };
        let missed = |peer, missed: bool| if missed && peer != BARE { ", missed" } else { "" };
        let reached = peers.iter().map(|&peer| match goal {
            Goal::Times(..) => row.ratio(peer, reference).map_or_else(String::new, |it| {
                let missed = missed(peer, it.mean < goal.of(peer, &ours));
                format!("{}{missed}", times(it.mean))
            }),
            Goal::AtMost(most) => row.values(peer).map_or_else(String::new, |it| {
                format!("{}{}", number(it.median), missed(peer, it.median > *most))
            }),
        });
        let parameters = if row.parameters.is_empty() { group } else { row.parameters };
        let wanted = goal.wanted(&row.metric.unit);
        let mut cells = vec![format!("{group}: {parameters}"), row.metric.title(), wanted];
        cells.extend(reached);
        cells.extend(ours_and_bare.map(|(peer, bare)| {
            row.ratio(peer, bare).map_or_else(String::new, |it| times(it.mean))
        }));
        table.rows.push(cells);
    }
    table
}

impl Goal {
    /// The multiple for a Lockwheel server: the second runs every script in Lua.
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

/// The rows in which Lockwheel is worse than the reference.
fn worse(figures: &Figures) -> Vec<String> {
    let reference = reference(figures);
    let mut worse = Vec::new();
    for group in &figures.groups {
        for row in figures.rows(&group.name) {
            for peer in ours(figures) {
                let Some(ratio) = row.ratio(peer, reference) else { continue };
                if ratio.mean < WORSE {
                    let (parameters, name) = (row.parameters, row.metric.title());
                    let times = times(ratio.mean);
                    worse.push(format!("{}, {parameters}, {peer}: {name}: {times}", group.name));
                }
            }
        }
    }
    worse
}

/// The server to which the targets are: the first that is not Lockwheel.
fn reference(figures: &Figures) -> &str {
    let is_other = |peer: &&ServerInfo| !peer.ours && !peer.build && peer.name != BARE;
    figures.peers.iter().find(is_other).map_or("", |peer| &peer.name)
}

fn ours(figures: &Figures) -> Vec<&str> {
    figures.peers.iter().filter(|peer| peer.ours).map(|peer| peer.name.as_str()).collect()
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

/// What [`Tables::ratios`] are in tables that were saved without a description.
fn earlier_method() -> String {
    "the median of the ratios within each round; the worst and the best round are in parentheses."
        .to_owned()
}

/// A number with at least three significant digits, or four decimals.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 99.95 || size == 0.0 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.0995 => 2,
        _ => 4,
    };
    format!("{value:.digits$}")
}

/// A ratio, with three decimals if it is near one.
fn multiple(ratio: f64) -> String {
    if (0.9..1.1).contains(&ratio) { format!("{ratio:.3}") } else { number(ratio) }
}

/// A ratio with its unit.
fn times(ratio: f64) -> String {
    format!("{}x", multiple(ratio))
}

#[cfg(test)]
mod tests {
    use super::{GroupTable, TARGETS, multiple, number, reference};
    use crate::report::figures::Figures;
    use crate::report::figures::tests::figures;
    use crate::workloads::list::tests::all;

    #[test]
    fn targets_refer_to_existing_workloads() {
        let all = all();
        for (group, parameters, ..) in TARGETS {
            let is_it = |name: String| parameters.is_empty() || name == *parameters;
            let known = all.iter().any(|it| it.group() == *group && is_it(it.parameters()));
            assert!(known, "{group}, {parameters}");
        }
    }

    #[test]
    fn numbers_have_three_digits() {
        let read: Vec<_> = [123_456.7, 99.96, 10.0, 9.99, 0.25, 0.0125, 0.0].map(number).into();
        assert_eq!(read, ["123457", "100", "10.0", "9.99", "0.25", "0.0125", "0"]);
        assert_eq!([1.0042, 0.99951, 1.1, 0.89].map(multiple), ["1.004", "1.000", "1.10", "0.89"]);
    }

    const COSTS: &str = "cost theirs 0 10\ncost ours 0 5\ncost theirs 1 10.1\ncost ours 1 5";

    #[test]
    fn table_names_the_base_of_each_ratio() {
        let mut all = figures(COSTS);
        let table = |all: &Figures| GroupTable::of(all, &all.groups[0]).to_string();
        let text = table(&all);
        assert!(text.starts_with("| | | theirs | ours; **ratio to theirs** |\n"), "{text}");
        all.peers[0].base = "ours".to_owned();
        all.peers[1].base = "ours".to_owned();
        let text = table(&all);
        assert!(text.starts_with("| | | theirs; **ratio to ours** | ours |\n"), "{text}");
    }

    #[test]
    fn only_builds_have_a_verdict() {
        let mut all = figures(COSTS);
        let cell = |all: &Figures| GroupTable::of(all, &all.groups[0]).rows[0].cells[1].to_string();
        assert_eq!(cell(&all), "5.00; **2.01x** (1.89..2.14)");
        assert!(GroupTable::of_builds(&all).is_empty());
        assert_eq!(reference(&all), "theirs");
        all.peers[0].build = true;
        assert_eq!(cell(&all), "5.00; **2.01x** (1.89..2.14) better");
        assert_eq!(reference(&all), "");
        let mut more = all.clone();
        more.figures.iter_mut().for_each(|figure| figure.parameters = "more".to_owned());
        all.merge(more);
        let overall = GroupTable::of_builds(&all);
        let text = overall.iter().map(GroupTable::to_string).collect::<String>();
        let row = "| 2 workloads | cost, us | **2.01x** (1.89..2.14) better |\n";
        assert!(text.contains(row), "{text}");
    }
}
