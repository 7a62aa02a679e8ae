//! What the suites report, one JSON object a line, and how the two servers' reports compare.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::Deserialize;

use super::Kind;

/// How a behaviour came out. The later, the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// As it must.
    Passed,
    /// It was not tried.
    Skipped,
    /// Otherwise.
    Failed,
}

/// One line of a report.
#[derive(Clone, Debug, Deserialize)]
pub struct Line {
    library: String,
    version: String,
    behaviour: String,
    outcome: Outcome,
    #[serde(default)]
    reason: String,
}

impl Line {
    /// A whole report; a missing one is empty.
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

/// Whether a report tells of a failure.
pub fn any_failed(lines: &[Line]) -> bool {
    lines.iter().any(|line| line.outcome == Outcome::Failed)
}

/// A report in which what failed came out as it did when it was tried again.
pub fn better(mut lines: Vec<Line>, again: Vec<Line>) -> Vec<Line> {
    let name = |line: &Line| (line.library.clone(), line.behaviour.clone());
    let failed = |line: &&Line| line.outcome == Outcome::Failed;
    let retried: Vec<_> = lines.iter().filter(failed).map(name).collect();
    lines.retain(|line| !retried.contains(&name(line)));
    lines.extend(again.into_iter().filter(|line| retried.contains(&name(line))));
    lines
}

/// How one behaviour came out on one server, and why if it did not pass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Verdict {
    /// How.
    pub outcome: Outcome,
    /// Why; empty if it passed.
    pub reason: String,
}

/// How one behaviour came out on each server.
pub type Verdicts = BTreeMap<Kind, Verdict>;

/// A library and its version.
pub type Library = (String, String);

/// What one suite found on each server.
#[derive(Default)]
pub struct Comparison {
    /// By library, and then by behaviour.
    pub libraries: BTreeMap<Library, BTreeMap<String, Verdicts>>,
}

impl Comparison {
    /// Takes in what was reported of one server. What was told twice is as bad as the worse.
    pub fn add(&mut self, kind: Kind, lines: Vec<Line>) {
        for line in lines {
            let library = self.libraries.entry((line.library, line.version)).or_default();
            let verdicts = library.entry(line.behaviour).or_default();
            // What follows the first line is for whoever reads the suite's own output.
            let reason = line.reason.lines().next().unwrap_or_default().to_owned();
            let verdict = Verdict { outcome: line.outcome, reason };
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
    #[allow(clippy::print_stdout)] // It speaks to whoever runs the suites.
    pub fn print(&self, language: &str, kinds: &[Kind]) {
        println!("\n{language}");
        for ((library, version), behaviours) in &self.libraries {
            let mut line = format!("  {library} {version}");
            for &kind in kinds {
                line += &format!(" | {} {}", kind.name(), score(behaviours, kind));
            }
            println!("{line}");
            for (behaviour, verdicts) in behaviours {
                for (kind, verdict) in verdicts {
                    if verdict.outcome == Outcome::Skipped {
                        println!("    skipped on {}: {behaviour}: {}", kind.name(), verdict.reason);
                    }
                }
            }
        }
    }

    /// What failed anywhere, and what passes on Redis and not on Lockwheel.
    pub fn faults(&self, kinds: &[Kind]) -> Vec<String> {
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

/// What is wrong with how a behaviour came out on one server.
pub fn fault(verdicts: &Verdicts, kind: Kind) -> Option<String> {
    let reference = verdicts.get(&Kind::Redis).map(|verdict| verdict.outcome);
    let must_pass = kind == Kind::Lockwheel && reference == Some(Outcome::Passed);
    match verdicts.get(&kind) {
        Some(Verdict { outcome: Outcome::Failed, reason }) => {
            Some(format!("failed on {}: {reason}", kind.name()))
        }
        Some(Verdict { outcome: Outcome::Skipped, reason }) if must_pass => {
            Some(format!("skipped on {}: {reason}", kind.name()))
        }
        None if must_pass => Some(format!("not reported on {}", kind.name())),
        _ => None,
    }
}

/// How many behaviours passed on one server, of those that were tried on any.
pub fn score(behaviours: &BTreeMap<String, Verdicts>, kind: Kind) -> String {
    let is = |verdict: Option<&Verdict>, outcome| verdict.is_some_and(|it| it.outcome == outcome);
    let passed = behaviours.values().filter(|it| is(it.get(&kind), Outcome::Passed)).count();
    let was_tried =
        |verdicts: &&Verdicts| verdicts.values().any(|verdict| verdict.outcome != Outcome::Skipped);
    format!("{passed}/{}", behaviours.values().filter(was_tried).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(lines: &[(Kind, &str)]) -> Comparison {
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
        let lines = [of(Kind::Redis, redis), of(Kind::Lockwheel, lockwheel)].concat();
        let lines: Vec<_> = lines.iter().map(|(kind, line)| (*kind, line.as_str())).collect();
        comparison(&lines).faults(&[Kind::Redis, Kind::Lockwheel])
    }

    #[test]
    fn what_passes_on_redis_must_pass_on_lockwheel() {
        assert_eq!(faults(&["passed"], &["passed"]), Vec::<String>::new());
        assert_eq!(faults(&["passed"], &["failed"]), ["l: b: failed on Lockwheel: "]);
        assert_eq!(faults(&["passed"], &["skipped"]), ["l: b: skipped on Lockwheel: "]);
        assert_eq!(faults(&["passed"], &[]), ["l: b: not reported on Lockwheel"]);
        assert_eq!(faults(&["skipped"], &["skipped"]), Vec::<String>::new());
        assert_eq!(faults(&["skipped"], &["failed"]), ["l: b: failed on Lockwheel: "]);
        assert_eq!(faults(&["failed"], &["passed"]), ["l: b: failed on Redis: "]);
    }

    #[test]
    fn what_is_told_twice_is_as_bad_as_the_worse() {
        let twice = ["failed", "passed"];
        assert_eq!(faults(&["passed"], &twice), ["l: b: failed on Lockwheel: "]);
    }

    #[test]
    fn what_failed_counts_as_it_came_out_when_tried_again() {
        let parse = |line: String| serde_json::from_str::<Line>(&line).expect("a line");
        let outcome = |first: &str, second: &str| {
            let lines = better(vec![parse(line("b", first))], vec![parse(line("b", second))]);
            lines.iter().map(|line| line.outcome).collect::<Vec<_>>()
        };
        assert_eq!(outcome("failed", "passed"), [Outcome::Passed]);
        assert_eq!(outcome("failed", "failed"), [Outcome::Failed]);
        assert_eq!(outcome("passed", "failed"), [Outcome::Passed]);
    }

    #[test]
    fn a_score_leaves_out_what_was_tried_nowhere() {
        let lines = [
            (Kind::Redis, line("a", "passed")),
            (Kind::Lockwheel, line("a", "failed")),
            (Kind::Redis, line("b", "skipped")),
            (Kind::Lockwheel, line("b", "skipped")),
            (Kind::Lockwheel, line("c", "passed")),
        ];
        let lines: Vec<_> = lines.iter().map(|(kind, line)| (*kind, line.as_str())).collect();
        let comparison = comparison(&lines);
        let behaviours = comparison.libraries.values().next().expect("a library");
        assert_eq!(score(behaviours, Kind::Redis), "1/2");
        assert_eq!(score(behaviours, Kind::Lockwheel), "1/2");
    }
}
