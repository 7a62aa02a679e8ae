//! The measured figures and the ratios between servers. Ratios are of figures of the same round,
//! because the state of the machine is comparable only within a round.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error;

use lockwheel_comparison::Machine;
use serde::{Deserialize, Serialize};

use crate::measure::metric::{Better, Metric, Reading};
use crate::measure::servers::ComparedServer;
use crate::options::Options;
use crate::report::statistics::Ratio;
use crate::workloads::workload::{self, Workload};

/// A value with its origin.
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

/// A failed measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) workload: String,
    pub(crate) peer: String,
    pub(crate) error: String,
}

/// A server of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ServerInfo {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Whether it is Lockwheel of the checkout that was measured.
    pub(crate) ours: bool,
    /// Whether it is another build of Lockwheel.
    #[serde(default)]
    pub(crate) build: bool,
    /// The server to which its ratios are; the first one if this is empty.
    #[serde(default)]
    pub(crate) base: String,
    /// The floor beside which it is shown; empty if there is none.
    #[serde(default)]
    pub(crate) floor: String,
}

/// A group of workloads in the report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) name: Cow<'static, str>,
    pub(crate) note: Cow<'static, str>,
}

/// All results of a run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) machine: Machine,
    pub(crate) seconds: f64,
    pub(crate) rounds: u32,
    pub(crate) quick: bool,
    /// The duration of the run.
    pub(crate) spent_seconds: f64,
    /// The servers.
    pub(crate) peers: Vec<ServerInfo>,
    pub(crate) groups: Vec<Group>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) failures: Vec<Failure>,
}

/// The median and the range of values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Figures {
    /// The figures of a run that begins.
    pub(crate) fn new(options: &Options, servers: &[ComparedServer]) -> Figures {
        let server_info = |server: &ComparedServer| ServerInfo {
            name: server.name.clone(),
            version: server.version.clone(),
            ours: server.is_lockwheel() && !server.is_build(),
            build: server.is_build(),
            base: server.base(servers).map_or_else(String::new, |base| base.name.clone()),
            floor: server.floor(servers).map_or_else(String::new, |floor| floor.name.clone()),
        };
        Figures {
            machine: Machine::this(),
            seconds: options.seconds(),
            rounds: options.rounds(),
            quick: options.quick,
            peers: servers.iter().map(server_info).collect(),
            ..Figures::default()
        }
    }

    /// Adds the group of a workload, unless it exists.
    pub(crate) fn add_group(&mut self, workload: &dyn Workload) {
        let name = workload.group();
        if self.groups.iter().all(|group| group.name != name) {
            self.groups.push(Group { name: name.into(), note: workload.note().into() });
        }
    }

    /// Adds the readings of a measurement.
    pub(crate) fn add(
        &mut self,
        workload: &dyn Workload,
        server: &ComparedServer,
        round: u32,
        readings: Vec<Reading>,
    ) {
        let (group, parameters) = (workload.group(), workload.parameters());
        self.figures.extend(readings.into_iter().map(|Reading { metric, value }| Figure {
            group: group.into(),
            parameters: parameters.clone(),
            peer: server.name.clone(),
            round,
            metric,
            value,
        }));
    }

    /// Adds a failed measurement.
    pub(crate) fn add_failure(&mut self, workload: &dyn Workload, peer: &str, error: &dyn Error) {
        let (workload, peer) = (workload::title(workload), peer.to_owned());
        self.failures.push(Failure { workload, peer, error: error.to_string() });
    }

    /// Whether there are figures of a workload.
    pub(crate) fn contains(&self, workload: &dyn Workload) -> bool {
        let (group, parameters) = (workload.group(), workload.parameters());
        self.figures.iter().any(|it| it.group == group && it.parameters == parameters)
    }

    /// Adds the figures of another run, which replace those of the same workloads.
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

    /// The figures of a group by parameters and metric, in the order of measurement.
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

    /// The servers that have a figure in one of the rows.
    pub(crate) fn participants(&self, rows: &[Row<'_>]) -> Vec<&str> {
        let names = self.peers.iter().map(|peer| peer.name.as_str());
        names.filter(|name| rows.iter().any(|row| row.values(name).is_some())).collect()
    }

    /// The server to which the ratios of a server are.
    pub(crate) fn base(&self, peer: &str) -> &str {
        let recorded = self.peers.iter().find(|it| it.name == peer).map(|it| it.base.as_str());
        let first = self.peers.first().map_or("", |it| &it.name);
        recorded.filter(|base| !base.is_empty()).unwrap_or(first)
    }

    /// The floor beside which a server is shown.
    pub(crate) fn floor(&self, peer: &str) -> Option<&str> {
        let floor = self.peers.iter().find(|it| it.name == peer).map(|it| it.floor.as_str());
        floor.filter(|floor| !floor.is_empty())
    }

    /// Whether a server is Lockwheel, and is compared with another build of it.
    pub(crate) fn compares_builds(&self, peer: &str) -> bool {
        let named = |name: &str| self.peers.iter().find(|it| it.name == name);
        let base = named(self.base(peer)).is_some_and(|it| it.build && it.name != peer);
        base && named(peer).is_some_and(|it| it.ours || it.build)
    }

    /// The ratios of a server over all workloads with a metric, for each metric.
    pub(crate) fn overall(&self, peer: &str) -> Vec<OverallRatio<'_>> {
        let mut metrics: Vec<OverallRatio<'_>> = Vec::new();
        for row in self.groups.iter().flat_map(|group| self.rows(&group.name)) {
            let ratios = row.ratios(peer, self.base(peer));
            if ratios.is_empty() {
                continue;
            }
            let known = metrics.iter().position(|it| it.metric == row.metric);
            let place = known.unwrap_or_else(|| {
                metrics.push(OverallRatio {
                    metric: row.metric,
                    workloads: 0,
                    rounds: BTreeMap::new(),
                });
                metrics.len() - 1
            });
            metrics[place].workloads += 1;
            for (round, ratio) in ratios {
                metrics[place].rounds.entry(round).or_default().push(ratio);
            }
        }
        metrics
    }
}

/// The ratios of two servers over several workloads.
#[derive(Clone, Debug)]
pub(crate) struct OverallRatio<'a> {
    pub(crate) metric: &'a Metric,
    /// The number of workloads.
    pub(crate) workloads: usize,
    /// The ratios of the workloads in each round.
    rounds: BTreeMap<u32, Vec<f64>>,
}

impl OverallRatio<'_> {
    /// The ratio over all workloads: that of a round is the geometric mean of the workloads. Rounds
    /// without a ratio of each workload do not count.
    pub(crate) fn ratio(&self) -> Option<Ratio> {
        let complete = self.rounds.values().filter(|ratios| ratios.len() == self.workloads);
        Ratio::of(complete.filter_map(|ratios| Some(Ratio::of(ratios.iter().copied())?.mean)))
    }
}

/// The figures of one metric of a workload, of all servers and rounds.
#[derive(Clone, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) parameters: &'a str,
    pub(crate) metric: &'a Metric,
    figures: Vec<&'a Figure>,
}

impl Row<'_> {
    /// The values of a server in all rounds.
    pub(crate) fn values(&self, peer: &str) -> Option<Spread> {
        Spread::of(self.by_round(peer).into_iter().map(|(_, value)| value).collect())
    }

    /// How many times as good a server is as another, if they are not the same.
    pub(crate) fn ratio(&self, peer: &str, base: &str) -> Option<Ratio> {
        Ratio::of(self.ratios(peer, base).into_iter().map(|(_, ratio)| ratio))
    }

    /// How many times as good a server is as another in each round in which both were measured.
    fn ratios(&self, peer: &str, base: &str) -> Vec<(u32, f64)> {
        if peer == base {
            return Vec::new();
        }
        let theirs = self.by_round(base);
        let paired = self.by_round(peer).into_iter().filter_map(|(round, value)| {
            let (_, other) = theirs.iter().find(|(theirs, _)| *theirs == round)?;
            match self.metric.better {
                Better::Less => Some((round, other / value)),
                Better::More => Some((round, value / other)),
                Better::Neither => None,
            }
        });
        paired.filter(|(_, ratio)| ratio.is_finite()).collect()
    }

    /// The mean value of each round.
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

#[cfg(test)]
pub(crate) mod tests {
    use super::{Figure, Figures, Group, ServerInfo};
    use crate::measure::metric::Metric;

    const GROUP: &str = "Work";

    /// Figures of two servers, from lines of `metric server round value`.
    pub(crate) fn figures(text: &str) -> Figures {
        let metric = |name: &str| match name {
            "rate" => Metric::rate("rate", "/s"),
            "cost" => Metric::cost("cost", "us"),
            _ => Metric::info(name, "%"),
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
        let server_info = |name: &str, ours| ServerInfo {
            name: name.to_owned(),
            version: "1".to_owned(),
            ours,
            build: false,
            base: String::new(),
            floor: String::new(),
        };
        Figures {
            peers: vec![server_info("theirs", false), server_info("ours", true)],
            groups: vec![Group { name: GROUP.into(), note: "A note.".into() }],
            figures: text.lines().map(figure).collect(),
            ..Figures::default()
        }
    }

    /// Checks the ratio of the two servers and the number of rounds in which both were measured.
    fn check(text: &str, mean: f64, rounds: usize) {
        let figures = figures(text);
        let ratio = figures.rows(GROUP)[0].ratio("ours", "theirs").expect("a ratio");
        assert!((ratio.mean - mean).abs() < 1e-9, "{text}: {ratio:?}");
        assert_eq!((ratio.rounds, ratio.interval.is_some()), (rounds, rounds > 1), "{text}");
    }

    #[test]
    fn ratio_above_one_is_better() {
        check("cost theirs 0 10\ncost ours 0 5", 2.0, 1);
        check("rate theirs 0 10\nrate ours 0 5", 0.5, 1);
    }

    #[test]
    fn ratios_are_computed_within_each_round() {
        // The machine is slower in the second round, and in one measurement of the third.
        let costs = "cost theirs 0 10\ncost ours 0 5\n\
            cost ours 1 10\ncost theirs 1 40\n\
            cost theirs 2 10\ncost ours 2 3\ncost ours 2 13\ncost theirs 2 6";
        check(costs, 2.0, 3);
    }

    #[test]
    fn overall_ratio_is_that_of_all_workloads_in_each_round() {
        let mut all = figures("cost theirs 0 8\ncost ours 0 2\ncost theirs 1 4\ncost ours 1 2");
        let mut more = figures("cost theirs 0 3\ncost ours 0 3\ncost theirs 1 9\ncost ours 1 9");
        let only = figures("cost theirs 2 1\ncost ours 2 8");
        more.figures.extend(only.figures);
        more.figures.iter_mut().for_each(|figure| figure.parameters = "more".to_owned());
        all.merge(more);
        let [overall] = &all.overall("ours")[..] else { panic!("one metric") };
        // 2 in the first round, the square root of 2 in the second; the third is incomplete.
        let ratio = overall.ratio().expect("a ratio");
        assert!((ratio.mean - 2_f64.powf(0.75)).abs() < 1e-9, "{ratio:?}");
        assert_eq!((overall.workloads, ratio.rounds), (2, 2));
    }

    #[test]
    fn builds_are_compared_with_their_base() {
        let mut all = figures("cost theirs 0 8\ncost ours 0 2");
        assert_eq!((all.base("ours"), all.compares_builds("ours")), ("theirs", false));
        all.peers[0].build = true;
        assert!(all.compares_builds("ours") && !all.compares_builds("theirs"));
        all.peers[1].base = "ours".to_owned();
        assert_eq!((all.base("ours"), all.compares_builds("ours")), ("ours", false));
    }

    #[test]
    fn informational_metrics_are_not_compared() {
        let figures = figures("share theirs 0 99\nshare ours 0 98");
        let rows = figures.rows(GROUP);
        assert_eq!(rows[0].ratio("ours", "theirs"), None);
        assert_eq!(rows[0].values("ours").map(|spread| spread.median), Some(98.0));
    }

    #[test]
    fn merged_figures_replace_those_of_the_same_workload() {
        let mut whole = figures("cost theirs 0 10\ncost ours 0 5");
        let mut later = figures("cost theirs 0 8\ncost ours 0 2");
        whole.merge(later.clone());
        assert_eq!(whole.rows(GROUP)[0].values("ours").map(|it| it.median), Some(2.0));
        later.figures.iter_mut().for_each(|figure| figure.parameters = "more".to_owned());
        whole.merge(later);
        let rows = whole.rows(GROUP);
        assert_eq!(rows.iter().map(|row| row.parameters).collect::<Vec<_>>(), ["much", "more"]);
        assert_eq!((whole.groups.len(), whole.peers.len()), (1, 2));
    }

    #[test]
    fn round_with_a_failed_server_is_not_compared() {
        check("cost theirs 0 10\ncost ours 1 1\ncost theirs 1 3", 3.0, 1);
    }
}
