//! The interface of a workload.

use lockwheel_comparison::Outcome;

use crate::measure::effort::Effort;
use crate::measure::metric::Reading;
use crate::measure::servers::ComparedServer;

/// Something that is measured on each server in turn.
pub(crate) trait Workload {
    /// The group. Workloads of one group share a table.
    fn group(&self) -> &'static str;

    /// What distinguishes it from the others of its group: "50 connections, pipeline 16".
    fn parameters(&self) -> String;

    /// The explanation above the group's table.
    fn note(&self) -> &'static str;

    /// Whether it runs scripts, so that Lockwheel is also measured with all scripts in Lua.
    fn runs_scripts(&self) -> bool {
        false
    }

    /// Whether the bare server, or the floor if there is a log, can run it, which shows the lower
    /// bound of the cost.
    fn has_lower_bound(&self) -> bool {
        false
    }

    /// Whether each server is measured twice in a round, in the order A B B A. Long workloads are
    /// measured once, in alternating order.
    fn measures_twice(&self) -> bool {
        true
    }

    /// The number of its rounds, given the requested number.
    fn rounds(&self, requested: u32) -> u32 {
        requested
    }

    /// Why a server cannot run it, if that is known before.
    fn refuses(&self, _server: &ComparedServer) -> Option<&'static str> {
        None
    }

    /// Called once before the first round, to set what must be the same for all servers.
    fn prepare(&mut self, _peers: &[&ComparedServer], _effort: &Effort) -> Outcome<()> {
        Ok(())
    }

    /// Starts the server, measures it and ends it. An unexpected reply is an error.
    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>>;
}

/// Workloads that `--only` selects together, by their name.
pub(crate) type Family = (&'static str, Vec<Box<dyn Workload>>);

/// The group and the parameters of a workload.
pub(crate) fn title(workload: &dyn Workload) -> String {
    match workload.parameters() {
        parameters if parameters.is_empty() => workload.group().to_owned(),
        parameters => format!("{}, {parameters}", workload.group()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::{Workload, title};
    use crate::measure::effort::Effort;
    use crate::measure::servers::ComparedServer;

    /// Runs a workload briefly on Lockwheel. Its values are not checked.
    pub(crate) fn check_runs(workload: &mut dyn Workload) {
        check_runs_on(&ComparedServer::lockwheel(), workload);
    }

    /// Runs a workload briefly on a server.
    pub(crate) fn check_runs_on(server: &ComparedServer, workload: &mut dyn Workload) {
        let span = Duration::from_millis(10);
        let effort = Effort { span, warm_up: span, quick: true };
        let outcome =
            workload.prepare(&[server], &effort).and_then(|()| workload.measure(server, &effort));
        let readings = outcome.unwrap_or_else(|error| panic!("{}: {error}", title(workload)));
        assert!(!readings.is_empty());
        for reading in readings {
            assert!(reading.value.is_finite(), "{}: {reading:?}", title(workload));
        }
    }
}
