//! The reports of the suites, one JSON object per line, and their comparison between two servers.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;

use super::ServerProgram;

/// The status of a behaviour, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TestStatus {
    /// It passed.
    Passed,
    /// It was not tested.
    Skipped,
    /// It failed.
    Failed,
}

/// One line of a report.
#[derive(Clone, Debug, Deserialize)]
pub struct Line {
    library: String,
    version: String,
    behaviour: String,
    outcome: TestStatus,
    #[serde(default)]
    reason: String,
}

impl Line {
    /// Reads a whole report; a missing one is empty.
    pub fn read_all(path: &Path) -> Result<Vec<Line>, String> {
        let text = match fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            text => text.map_err(|error| format!("its report: {error}"))?,
        };
        let parse = |line: &str| {
            serde_json::from_str(line).map_err(|error| format!("its report: {error}: {line}"))
        };
        text.lines().filter(|line| !line.trim().is_empty()).map(parse).collect()
    }
}

/// Whether a report has a failure.
pub fn any_failed(lines: &[Line]) -> bool {
    lines.iter().any(|line| line.outcome == TestStatus::Failed)
}

/// The report with failed behaviours replaced by the results of a second run.
pub fn better(mut lines: Vec<Line>, again: Vec<Line>) -> Vec<Line> {
    let name = |line: &Line| (line.library.clone(), line.behaviour.clone());
    let failed = |line: &&Line| line.outcome == TestStatus::Failed;
    let retried: Vec<_> = lines.iter().filter(failed).map(name).collect();
    lines.retain(|line| !retried.contains(&name(line)));
    lines.extend(again.into_iter().filter(|line| retried.contains(&name(line))));
    lines
}

/// The result of one behaviour on one server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TestResult {
    /// The status.
    pub outcome: TestStatus,
    /// The reason; empty if it passed.
    pub reason: String,
}

/// The result of one behaviour on each server.
pub type TestResults = BTreeMap<ServerProgram, TestResult>;

/// A library and its version.
pub type Library = (String, String);

/// The results of one suite on each server.
#[derive(Default)]
pub struct Comparison {
    /// By library, and then by behaviour.
    pub libraries: BTreeMap<Library, BTreeMap<String, TestResults>>,
}

impl Comparison {
    /// Adds the report of one server. Of two results of one behaviour the worse counts.
    pub fn add(&mut self, kind: ServerProgram, lines: Vec<Line>) {
        for line in lines {
            let library = self.libraries.entry((line.library, line.version)).or_default();
            let verdicts = library.entry(line.behaviour).or_default();
            // The further lines are in the output of the suite.
            let reason = line.reason.lines().next().unwrap_or_default().to_owned();
            let verdict = TestResult { outcome: line.outcome, reason };
            let known = verdicts.entry(kind).or_insert_with(|| verdict.clone());
            if verdict > *known {
                *known = verdict;
            }
        }
    }

    /// Whether nothing was reported.
    pub fn is_empty(&self) -> bool {
        self.libraries.is_empty()
    }

    /// The matrix and what was skipped, for a terminal.
    #[allow(clippy::print_stdout)] // The output of the programs that run the suites.
    pub fn print(&self, language: &str, kinds: &[ServerProgram]) {
        println!("\n{language}");
        for ((library, version), behaviours) in &self.libraries {
            let mut line = format!("  {library} {version}");
            for &kind in kinds {
                line += &format!(" | {} {}", kind.name(), score(behaviours, kind));
            }
            println!("{line}");
            for (behaviour, verdicts) in behaviours {
                for (kind, verdict) in verdicts {
                    if verdict.outcome == TestStatus::Skipped {
                        println!("    skipped on {}: {behaviour}: {}", kind.name(), verdict.reason);
                    }
                }
            }
        }
    }

    /// The failures on any server, and the behaviours that pass on Redis but not on Lockwheel.
    pub fn faults(&self, kinds: &[ServerProgram]) -> Vec<String> {
        let mut faults = Vec::new();
        for ((library, _), behaviours) in &self.libraries {
            for (behaviour, verdicts) in behaviours {
                for &kind in kinds {
                    if let Some(fault) = fault(verdicts, kind) {
                        faults.push(format!("{library}: {behaviour}: {fault}"));
                    }
                }
            }
        }
        faults
    }
}

/// The problem with the result of a behaviour on one server, if any.
pub fn fault(verdicts: &TestResults, kind: ServerProgram) -> Option<String> {
    let reference = verdicts.get(&ServerProgram::Redis).map(|verdict| verdict.outcome);
    let must_pass = kind == ServerProgram::Lockwheel && reference == Some(TestStatus::Passed);
    match verdicts.get(&kind) {
        Some(TestResult { outcome: TestStatus::Failed, reason }) => {
            Some(format!("failed on {}: {reason}", kind.name()))
        }
        Some(TestResult { outcome: TestStatus::Skipped, reason }) if must_pass => {
            Some(format!("skipped on {}: {reason}", kind.name()))
        }
        None if must_pass => Some(format!("not reported on {}", kind.name())),
        _ => None,
    }
}

/// The behaviours that passed on one server, of those that were tested on any.
pub fn score(behaviours: &BTreeMap<String, TestResults>, kind: ServerProgram) -> String {
    let is =
        |verdict: Option<&TestResult>, outcome| verdict.is_some_and(|it| it.outcome == outcome);
    let passed = behaviours.values().filter(|it| is(it.get(&kind), TestStatus::Passed)).count();
    let was_tried = |verdicts: &&TestResults| {
        verdicts.values().any(|verdict| verdict.outcome != TestStatus::Skipped)
    };
    format!("{passed}/{}", behaviours.values().filter(was_tried).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(lines: &[(ServerProgram, &str)]) -> Comparison {
        let mut comparison = Comparison::default();
        for (kind, line) in lines {
            comparison.add(*kind, vec![serde_json::from_str(line).expect("a line")]);
        }
        comparison
    }

    fn line(behaviour: &str, outcome: &str) -> String {
        format!(
            r#"{{"library":"l","version":"1","behaviour":"{behaviour}","outcome":"{outcome}"}}"#
        )
    }

    fn faults(redis: &[&str], lockwheel: &[&str]) -> Vec<String> {
        let of = |kind, outcomes: &[&str]| {
            outcomes.iter().map(|outcome| (kind, line("b", outcome))).collect::<Vec<_>>()
        };
        let lines =
            [of(ServerProgram::Redis, redis), of(ServerProgram::Lockwheel, lockwheel)].concat();
        let lines: Vec<_> = lines.iter().map(|(kind, line)| (*kind, line.as_str())).collect();
        comparison(&lines).faults(&[ServerProgram::Redis, ServerProgram::Lockwheel])
    }

    #[test]
    fn behaviour_that_passes_on_redis_must_pass_on_lockwheel() {
        assert_eq!(faults(&["passed"], &["passed"]), Vec::<String>::new());
        assert_eq!(faults(&["passed"], &["failed"]), ["l: b: failed on Lockwheel: "]);
        assert_eq!(faults(&["passed"], &["skipped"]), ["l: b: skipped on Lockwheel: "]);
        assert_eq!(faults(&["passed"], &[]), ["l: b: not reported on Lockwheel"]);
        assert_eq!(faults(&["skipped"], &["skipped"]), Vec::<String>::new());
        assert_eq!(faults(&["skipped"], &["failed"]), ["l: b: failed on Lockwheel: "]);
        assert_eq!(faults(&["failed"], &["passed"]), ["l: b: failed on Redis: "]);
    }

    #[test]
    fn worse_of_two_results_counts() {
        let twice = ["failed", "passed"];
        assert_eq!(faults(&["passed"], &twice), ["l: b: failed on Lockwheel: "]);
    }

    #[test]
    fn second_run_replaces_failures() {
        let parse = |line: String| serde_json::from_str::<Line>(&line).expect("a line");
        let outcome = |first: &str, second: &str| {
            let lines = better(vec![parse(line("b", first))], vec![parse(line("b", second))]);
            lines.iter().map(|line| line.outcome).collect::<Vec<_>>()
        };
        assert_eq!(outcome("failed", "passed"), [TestStatus::Passed]);
        assert_eq!(outcome("failed", "failed"), [TestStatus::Failed]);
        assert_eq!(outcome("passed", "failed"), [TestStatus::Passed]);
    }

    #[test]
    fn score_omits_behaviours_tested_nowhere() {
        let lines = [
            (ServerProgram::Redis, line("a", "passed")),
            (ServerProgram::Lockwheel, line("a", "failed")),
            (ServerProgram::Redis, line("b", "skipped")),
            (ServerProgram::Lockwheel, line("b", "skipped")),
            (ServerProgram::Lockwheel, line("c", "passed")),
        ];
        let lines: Vec<_> = lines.iter().map(|(kind, line)| (*kind, line.as_str())).collect();
        let comparison = comparison(&lines);
        let behaviours = comparison.libraries.values().next().expect("a library");
        assert_eq!(score(behaviours, ServerProgram::Redis), "1/2");
        assert_eq!(score(behaviours, ServerProgram::Lockwheel), "1/2");
    }
}
