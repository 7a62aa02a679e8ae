//! What a workload is to those who run it and tell of it, and the list of all.

use std::time::Duration;

use crate::figures::Reading;
use crate::peers::Peer;
use crate::{Outcome, cycles, expiry, handoff, latency, memory, scale, start, watchdog};

/// Something that is measured on one server after the other.
pub(crate) trait Workload {
    /// What it is about. Workloads of one group share a table.
    fn group(&self) -> &'static str;

    /// What tells it from the others of its group: "50 connections, pipeline 16".
    fn parameters(&self) -> String;

    /// What a reader of the group's table has to know.
    fn note(&self) -> &'static str;

    /// Whether scripts are a part of it, so that Lockwheel is also measured with all in Lua.
    fn runs_scripts(&self) -> bool {
        false
    }

    /// Whether a server can answer that does nothing else, which shows how little it could cost.
    fn has_floor(&self) -> bool {
        false
    }

    /// Whether each server is measured twice in a round, in the order A B B A. What takes long is
    /// measured once, and the order turns from round to round.
    fn there_and_back(&self) -> bool {
        true
    }

    /// In how many rounds it is measured, of those that were asked for.
    fn rounds(&self, asked: u32) -> u32 {
        asked
    }

    /// Called once, before the first round: for what must be the same on all of them.
    fn prepare(&mut self, _peers: &[&Peer], _effort: &Effort) -> Outcome<()> {
        Ok(())
    }

    /// Starts the server, measures, and lets it end. An answer that is not what it must be is an
    /// error.
    fn measure(&self, peer: &Peer, effort: &Effort) -> Outcome<Vec<Reading>>;
}

/// How much is done for one measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// How long is measured, where that can be chosen.
    pub(crate) span: Duration,
    /// How long the same is done before.
    pub(crate) warm_up: Duration,
    /// Whether only to show that it works: a hundredth of the locks will do.
    pub(crate) quick: bool,
}

/// Group and parameters.
pub(crate) fn title(workload: &dyn Workload) -> String {
    match workload.parameters() {
        parameters if parameters.is_empty() => workload.group().to_owned(),
        parameters => format!("{}, {parameters}", workload.group()),
    }
}

/// Every workload, in the order of the report.
pub(crate) fn all() -> Vec<Box<dyn Workload>> {
    let locks = [cycles::all(), handoff::all(), watchdog::all(), latency::all(), expiry::all()];
    let all = locks.into_iter().chain([memory::all(), start::all(), scale::all()]);
    all.flatten().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::{Effort, Workload, all, title};
    use crate::peers::Peer;

    /// Runs it briefly on Lockwheel. What it measures is not judged.
    pub(crate) fn works(workload: &mut dyn Workload) {
        let peer = Peer::lockwheel();
        let span = Duration::from_millis(10);
        let effort = Effort { span, warm_up: span, quick: true };
        let outcome =
            workload.prepare(&[&peer], &effort).and_then(|()| workload.measure(&peer, &effort));
        let readings = outcome.unwrap_or_else(|error| panic!("{}: {error}", title(workload)));
        assert!(!readings.is_empty());
        for reading in readings {
            assert!(reading.value.is_finite(), "{}: {reading:?}", title(workload));
        }
    }

    #[test]
    fn no_two_workloads_have_one_name() {
        let mut titles: Vec<_> = all().iter().map(|workload| title(workload.as_ref())).collect();
        titles.sort();
        let count = titles.len();
        titles.dedup();
        assert_eq!(titles.len(), count);
    }
}
