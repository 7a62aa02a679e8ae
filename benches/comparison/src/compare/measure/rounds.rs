//! Rounds: how often a server has written, flushed and replicated a batch of changes.

use lockwheel_comparison::Outcome;

use crate::measure::generator::Throughput;
use crate::measure::metric::{Metric, Reading};
use crate::measure::running::Running;

/// What a server counts, according to `INFO`.
#[derive(Clone, Copy)]
pub(crate) struct Rounds {
    rounds: u64,
    commits: u64,
}

impl Rounds {
    /// The rounds so far, if the server counts them.
    pub(crate) fn of(server: &Running) -> Outcome<Option<Rounds>> {
        let info = server.ask(&["INFO", "everything"])?;
        let field = |name: &str| {
            let mut values = info.lines().filter_map(|it| it.strip_prefix(name)?.strip_prefix(':'));
            values.find_map(|value| value.trim().parse().ok())
        };
        let counted = field("raft_rounds").zip(field("raft_commits"));
        Ok(counted.map(|(rounds, commits)| Rounds { rounds, commits }))
    }

    /// What has passed since, beside the processor time of some processes, each with its name.
    pub(crate) fn readings(self, since: Rounds, costs: &[(&str, Throughput)]) -> Vec<Reading> {
        let rounds = self.rounds.saturating_sub(since.rounds);
        let commits = self.commits.saturating_sub(since.commits);
        let Some((_, first)) = costs.first().filter(|_| rounds > 0) else { return Vec::new() };
        let rate = Throughput { operations: rounds, ..*first }.rate();
        let per_round = commits as f64 / rounds as f64;
        let cost = |&(name, cost): &(&str, Throughput)| {
            let cost = Throughput { operations: rounds, ..cost };
            Metric::cost(format!("{name} per round"), "us").with(cost.cpu_us())
        };
        let counted = [
            Metric::info("rounds", "/s").with(rate),
            Metric::info("commits per round", "").with(per_round),
        ];
        counted.into_iter().chain(costs.iter().map(cost)).collect()
    }
}
