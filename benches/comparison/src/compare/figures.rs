//! What was measured, every figure of it, and how servers stand to each other: figures of one round
//! are paired, since only within a round is the machine the same. It must not know how they are
//! told.

use std::borrow::Cow;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::options::Options;
use crate::peers::Peer;
use crate::workload::{self, Workload};

/// Which way a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Better {
    /// Costs: time, bytes.
    Less,
    /// Rates.
    More,
    /// It explains others, and is not compared.
    Neither,
}

/// What a figure says: its name, its unit, and which way it is better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Metric {
    pub(crate) name: String,
    pub(crate) unit: Cow<'static, str>,
    pub(crate) better: Better,
}

impl Metric {
    pub(crate) fn less(name: impl Into<String>, unit: &'static str) -> Metric {
        Metric { name: name.into(), unit: unit.into(), better: Better::Less }
    }

    pub(crate) fn more(name: impl Into<String>, unit: &'static str) -> Metric {
        Metric { name: name.into(), unit: unit.into(), better: Better::More }
    }

    pub(crate) fn told(name: impl Into<String>, unit: &'static str) -> Metric {
        Metric { name: name.into(), unit: unit.into(), better: Better::Neither }
    }

    /// With a value.
    pub(crate) fn is(self, value: f64) -> Reading {
        Reading { metric: self, value }
    }
}

/// One value, of one measurement.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) metric: Metric,
    pub(crate) value: f64,
}

/// A value, and where it comes from.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) group: Cow<'static, str>,
    pub(crate) parameters: String,
    pub(crate) peer: String,
    pub(crate) round: u32,
    #[serde(flatten)]
    pub(crate) metric: Metric,
    pub(crate) value: f64,
}

/// Something that could not be measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) workload: String,
    pub(crate) peer: String,
    pub(crate) error: String,
}

/// A server of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Entrant {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) ours: bool,
}

/// The machine, and how busy others kept it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The commit of the checkout that was measured.
    #[serde(default)]
    pub(crate) commit: String,
    pub(crate) processor: String,
    pub(crate) processors: usize,
    pub(crate) kernel: String,
    /// What the kernel does about the processor's faults, and what that costs all servers alike.
    pub(crate) mitigations: Vec<String>,
    /// The day of the run.
    pub(crate) date: String,
    /// Before the run and after it: above two, others were at work too.
    pub(crate) load: Vec<String>,
}

/// A group of workloads, as the report introduces it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) name: Cow<'static, str>,
    pub(crate) note: Cow<'static, str>,
}

/// Everything that came of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) machine: Machine,
    pub(crate) seconds: f64,
    pub(crate) rounds: u32,
    pub(crate) quick: bool,
    /// How long the run has taken.
    pub(crate) spent_seconds: f64,
    /// What the others are compared with comes first.
    pub(crate) peers: Vec<Entrant>,
    pub(crate) groups: Vec<Group>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) failures: Vec<Failure>,
}

/// A middle and how far the values lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Figures {
    /// None yet.
    pub(crate) fn new(options: &Options, peers: &[Peer]) -> Figures {
        let entrant = |peer: &Peer| {
            let (name, version) = (peer.name.clone(), peer.version.clone());
            Entrant { name, version, ours: peer.ours }
        };
        Figures {
            machine: Machine::this(),
            seconds: options.seconds(),
            rounds: options.rounds(),
            quick: options.quick,
            peers: peers.iter().map(entrant).collect(),
            ..Figures::default()
        }
    }

    /// The run is over.
    pub(crate) fn end(&mut self) {
        self.machine.load.push(Machine::load());
    }

    /// What follows is of this workload.
    pub(crate) fn announce(&mut self, workload: &dyn Workload) {
        let name = workload.group();
        if self.groups.iter().all(|group| group.name != name) {
            self.groups.push(Group { name: name.into(), note: workload.note().into() });
        }
    }

    /// What one measurement brought.
    pub(crate) fn add(
        &mut self,
        workload: &dyn Workload,
        peer: &Peer,
        round: u32,
        readings: Vec<Reading>,
    ) {
        let (group, parameters) = (workload.group(), workload.parameters());
        self.figures.extend(readings.into_iter().map(|Reading { metric, value }| Figure {
            group: group.into(),
            parameters: parameters.clone(),
            peer: peer.name.clone(),
            round,
            metric,
            value,
        }));
    }

    /// What one measurement did not bring.
    pub(crate) fn failed(&mut self, workload: &dyn Workload, peer: &str, error: &dyn Error) {
        let (workload, peer) = (workload::title(workload), peer.to_owned());
        self.failures.push(Failure { workload, peer, error: error.to_string() });
    }

    /// Whether something of a workload has been measured.
    pub(crate) fn hold(&self, workload: &dyn Workload) -> bool {
        let (group, parameters) = (workload.group(), workload.parameters());
        self.figures.iter().any(|it| it.group == group && it.parameters == parameters)
    }

    /// Takes over what another run has measured, in place of what is known of the same workloads.
    pub(crate) fn merge(&mut self, other: Figures) {
        let is_of = |it: &Figure, other: &Figure| {
            it.group == other.group && it.parameters == other.parameters
        };
        self.figures.retain(|it| !other.figures.iter().any(|new| is_of(it, new)));
        self.figures.extend(other.figures);
        self.failures.extend(other.failures);
        self.spent_seconds += other.spent_seconds;
        for group in other.groups {
            if self.groups.iter().all(|known| known.name != group.name) {
                self.groups.push(group);
            }
        }
        for peer in other.peers {
            if self.peers.iter().all(|known| known.name != peer.name) {
                self.peers.push(peer);
            }
        }
    }

    /// The figures of a group by parameters and metric, in the order in which they came.
    pub(crate) fn rows(&self, group: &str) -> Vec<Row<'_>> {
        let mut rows: Vec<Row<'_>> = Vec::new();
        for figure in self.figures.iter().filter(|figure| figure.group == group) {
            let (parameters, metric) = (figure.parameters.as_str(), &figure.metric);
            let same = |row: &&mut Row<'_>| row.parameters == parameters && row.metric == metric;
            match rows.iter_mut().find(same) {
                Some(row) => row.figures.push(figure),
                None => rows.push(Row { parameters, metric, figures: vec![figure] }),
            }
        }
        rows
    }
}

/// The figures of all servers and rounds that say the same of the same workload.
#[derive(Clone, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) parameters: &'a str,
    pub(crate) metric: &'a Metric,
    figures: Vec<&'a Figure>,
}

impl Row<'_> {
    /// What a server reached in the rounds.
    pub(crate) fn values(&self, peer: &str) -> Option<Spread> {
        Spread::of(self.by_round(peer).into_iter().map(|(_, value)| value).collect())
    }

    /// How many times as good a server is as another, round for round.
    pub(crate) fn ratio(&self, peer: &str, reference: &str) -> Option<Spread> {
        let theirs = self.by_round(reference);
        let paired = self.by_round(peer).into_iter().filter_map(|(round, value)| {
            let (_, other) = theirs.iter().find(|(theirs, _)| *theirs == round)?;
            match self.metric.better {
                Better::Less => Some(other / value),
                Better::More => Some(value / other),
                Better::Neither => None,
            }
        });
        Spread::of(paired.filter(|ratio| ratio.is_finite()).collect())
    }

    /// The mean of what was measured in each round.
    fn by_round(&self, peer: &str) -> Vec<(u32, f64)> {
        let mut rounds: Vec<(u32, Vec<f64>)> = Vec::new();
        for figure in self.figures.iter().filter(|figure| figure.peer == peer) {
            match rounds.iter_mut().find(|(round, _)| *round == figure.round) {
                Some((_, values)) => values.push(figure.value),
                None => rounds.push((figure.round, vec![figure.value])),
            }
        }
        let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
        rounds.into_iter().map(|(round, values)| (round, mean(values))).collect()
    }
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => f64::midpoint(values[middle - 1], values[middle]),
            _ => values[middle],
        };
        Some(Spread { median, least, most })
    }
}

/// The commit of the checkout, and whether it was changed; nothing outside a checkout.
pub(crate) fn git_commit() -> String {
    let arguments = ["describe", "--always", "--dirty", "--exclude=*"];
    let output = Command::new("git").args(arguments).output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

impl Machine {
    fn this() -> Machine {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cpu_info = read("/proc/cpuinfo");
        let named = |line: &str| line.starts_with("model name");
        let model =
            cpu_info.lines().find(|line| named(line)).and_then(|line| line.split_once(": "));
        Machine {
            commit: git_commit(),
            processor: model.map_or("?", |(_, model)| model.trim()).to_owned(),
            processors: cpu_info.lines().filter(|line| line.starts_with("processor")).count(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            mitigations: Machine::mitigations(),
            date: Machine::date(),
            load: vec![Machine::load()],
        }
    }

    /// Each fault that costs something to live with, and how that is done.
    fn mitigations() -> Vec<String> {
        let folder = std::fs::read_dir("/sys/devices/system/cpu/vulnerabilities");
        let told = |path: PathBuf| {
            let state = std::fs::read_to_string(&path).ok()?;
            let state = state.trim().strip_prefix("Mitigation: ")?;
            let how = state.split([';', ',']).next().unwrap_or_default();
            let fault = path.file_name()?.to_string_lossy().replace('_', " ");
            Some(format!("{fault}: {how}"))
        };
        let paths = folder.into_iter().flatten().flatten().map(|entry| entry.path());
        let mut all: Vec<String> = paths.filter_map(told).collect();
        all.sort();
        all
    }

    fn date() -> String {
        let output = Command::new("date").args(["--utc", "+%F"]).output();
        let date = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        date.unwrap_or_default()
    }

    /// The mean number of threads that ran or would have, of the last minute.
    fn load() -> String {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        load.split(' ').next().unwrap_or_default().to_owned()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Entrant, Figure, Figures, Group, Metric, Spread};

    const GROUP: &str = "Work";

    /// Two servers; the figures are written `metric peer round value`.
    pub(crate) fn figures(text: &str) -> Figures {
        let metric = |name: &str| match name {
            "rate" => Metric::more("rate", "/s"),
            "cost" => Metric::less("cost", "us"),
            _ => Metric::told(name, "%"),
        };
        let figure = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            Figure {
                group: GROUP.into(),
                parameters: "much".to_owned(),
                peer: words[1].to_owned(),
                round: words[2].parse().expect("a round"),
                metric: metric(words[0]),
                value: words[3].parse().expect("a value"),
            }
        };
        let entrant =
            |name: &str, ours| Entrant { name: name.to_owned(), version: "1".to_owned(), ours };
        Figures {
            peers: vec![entrant("theirs", false), entrant("ours", true)],
            groups: vec![Group { name: GROUP.into(), note: "A note.".into() }],
            figures: text.lines().map(figure).collect(),
            ..Figures::default()
        }
    }

    fn check(text: &str, expected: [f64; 3]) {
        let figures = figures(text);
        let rows = figures.rows(GROUP);
        let [median, least, most] = expected;
        let ratio = rows[0].ratio("ours", "theirs");
        assert_eq!(ratio, Some(Spread { median, least, most }), "{text}");
    }

    #[test]
    fn a_ratio_above_one_is_good_for_whoever_it_is_of() {
        check("cost theirs 0 10\ncost ours 0 5", [2.0, 2.0, 2.0]);
        check("rate theirs 0 10\nrate ours 0 5", [0.5, 0.5, 0.5]);
    }

    #[test]
    fn ratios_are_of_one_round_each() {
        // The machine was three times as slow in the second round, and for one turn of the third.
        let costs = "cost theirs 0 10\ncost ours 0 5\n\
            cost ours 1 10\ncost theirs 1 30\n\
            cost theirs 2 10\ncost ours 2 3\ncost ours 2 5\ncost theirs 2 6";
        check(costs, [2.0, 2.0, 3.0]);
    }

    #[test]
    fn what_is_only_told_is_not_compared() {
        let figures = figures("share theirs 0 99\nshare ours 0 98");
        let rows = figures.rows(GROUP);
        assert_eq!(rows[0].ratio("ours", "theirs"), None);
        assert_eq!(rows[0].values("ours").map(|spread| spread.median), Some(98.0));
    }

    #[test]
    fn runs_are_put_together() {
        let mut whole = figures("cost theirs 0 10\ncost ours 0 5");
        let mut later = figures("cost theirs 0 8\ncost ours 0 2");
        whole.merge(later.clone());
        assert_eq!(whole.rows(GROUP)[0].ratio("ours", "theirs").map(|it| it.median), Some(4.0));
        later.figures.iter_mut().for_each(|figure| figure.parameters = "more".to_owned());
        whole.merge(later);
        let rows = whole.rows(GROUP);
        assert_eq!(rows.iter().map(|row| row.parameters).collect::<Vec<_>>(), ["much", "more"]);
        assert_eq!((whole.groups.len(), whole.peers.len()), (1, 2));
    }

    #[test]
    fn a_round_that_one_of_them_failed_in_does_not_count() {
        check("cost theirs 0 10\ncost ours 1 1\ncost theirs 1 3", [3.0, 3.0, 3.0]);
    }
}
