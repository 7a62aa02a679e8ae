//! The stored results of one server.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use lockwheel_compat::report::{Report, Row, Score};
use lockwheel_compat::{Outcome, Verdict};
use serde::{Deserialize, Serialize};

/// Characters of the longest request or reply; longer ones are cut.
const COLUMNS: usize = 120;
/// The number of failures that are listed with expectation and reply; others are only named.
pub(crate) const FAULTS_IN_FULL: usize = 40;

/// The results of one server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    /// Its name and version.
    pub(crate) version: String,
    /// Its name and version in `INFO`.
    pub(crate) announces: String,
    /// The day of the run.
    pub(crate) date: String,
    /// The duration of the run.
    pub(crate) seconds: u64,
    /// The total.
    pub(crate) all: Sum,
    /// By family.
    pub(crate) families: Vec<Sum>,
    /// By client library.
    pub(crate) clients: Vec<Sum>,
    /// The commands that it lacks, and the number of cases that need each.
    pub(crate) lacking: BTreeMap<String, usize>,
    /// The reasons why cases were skipped, and the number of cases.
    pub(crate) skipped: BTreeMap<String, usize>,
    /// The failures.
    pub(crate) failed: Vec<CaseProblem>,
    /// The kinds of failures, and the number of each.
    pub(crate) kinds: BTreeMap<String, usize>,
    /// The cases that could not be judged, and why.
    pub(crate) unknown: Vec<CaseProblem>,
    /// The cases at which the server crashed or hung, and its output.
    pub(crate) deaths: Vec<String>,
    /// Remarks about the whole run.
    pub(crate) notices: Vec<String>,
}

/// A row of the table.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sum {
    /// The family or client.
    pub(crate) name: String,
    /// The number that passed.
    pub(crate) passed: usize,
    /// The number that were run, including those with a missing command.
    pub(crate) tried: usize,
    /// Number of these that need a missing command.
    pub(crate) lacking: usize,
    /// Number of these that could not be judged.
    pub(crate) unknown: usize,
}

/// A case or property that has failed, or that could not be judged.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CaseProblem {
    /// The family.
    pub(crate) family: String,
    /// The client library that uses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<String>,
    /// The name of the case.
    pub(crate) name: String,
    /// The expected reply.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) expected: String,
    /// The received reply, or why it could not be judged.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) came: String,
}

impl Results {
    /// The results in a report.
    pub(crate) fn of(report: &Report, version: &str, deaths: Vec<String>) -> Results {
        let table = report.table();
        let counts = |counts: BTreeMap<&str, usize>| {
            counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
        };
        let mut failed: Vec<_> = report.outcomes.iter().filter_map(failed).collect();
        let mut kinds = BTreeMap::new();
        for fault in &failed {
            *kinds.entry(fault.kind().to_owned()).or_default() += 1;
        }
        if failed.len() > FAULTS_IN_FULL {
            for fault in &mut failed {
                (fault.expected, fault.came) = (String::new(), String::new());
            }
        }
        Results {
            version: version.to_owned(),
            announces: report.target.clone(),
            date: today(),
            seconds: report.elapsed_ms / 1000,
            all: Sum::of("All", &table.sum),
            families: table.families.iter().map(Sum::of_row).collect(),
            clients: table.clients.iter().map(Sum::of_row).collect(),
            lacking: counts(report.lacking_counts()),
            skipped: counts(report.skipped_counts()),
            failed,
            kinds,
            unknown: report.outcomes.iter().filter_map(unknown).collect(),
            deaths,
            notices: report.notices.clone(),
        }
    }

    /// The results of an earlier run, if any.
    pub(crate) fn load(path: &Path) -> Option<Results> {
        let text = fs::read_to_string(path).ok()?;
        Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}")))
    }

    /// Stores the results.
    pub(crate) fn save(&self, path: &Path) {
        let folder = path.parent().expect("the path has a folder");
        fs::create_dir_all(folder).expect("a folder for results");
        let text = serde_json::to_string_pretty(self).expect("it can be written");
        fs::write(path, compact(&text)).expect("results are written");
    }

    /// Whether all cases that were run passed.
    pub(crate) fn is_green(&self) -> bool {
        self.all.passed == self.all.tried && self.all.passed > 0
    }

    /// A summary on one line.
    pub(crate) fn in_short(&self) -> String {
        let Sum { passed, tried, lacking, unknown, .. } = &self.all;
        let deaths = match self.deaths.len() {
            0 => String::new(),
            count => format!(", died or hung {count} times"),
        };
        format!(
            "{}: {passed} of {tried} passed, {} failed, {lacking} need a command that it lacks, \
             {unknown} unknown{deaths}; {} s",
            self.version,
            self.failed.len(),
            self.seconds
        )
    }
}

/// Pretty-printed JSON with each element of the lists on one line.
fn compact(pretty: &str) -> String {
    let mut out = String::new();
    for line in pretty.lines() {
        let text = line.trim_start();
        let depth = (line.len() - text.len()) / 2;
        if depth > 2 || depth == 2 && text.starts_with('}') {
            out.push_str(if out.ends_with('{') || text.starts_with('}') { "" } else { " " });
        } else {
            out.push_str(if out.is_empty() { "" } else { "\n" });
            out.push_str(&line[..line.len() - text.len()]);
        }
        out.push_str(text);
    }
    out + "\n"
}

impl Sum {
    fn of(name: &str, score: &Score) -> Sum {
        Sum {
            name: name.to_owned(),
            passed: score.passed,
            tried: score.tried(),
            lacking: score.lacking,
            unknown: score.unknown,
        }
    }

    fn of_row(row: &Row) -> Sum {
        Sum::of(&row.name, &row.score)
    }
}

impl CaseProblem {
    /// The kind of a failure.
    fn kind(&self) -> &'static str {
        let (expected, came) = (self.expected.as_str(), self.came.as_str());
        let is_error = |text: &str| text.starts_with('-');
        let bare =
            |text: &str| text.replace('"', "").trim_start_matches(['+', ':', ',']).to_owned();
        if came.contains("nothing in time") || came.contains("os error") {
            "no answer"
        } else if came.contains("closed the connection") {
            "the connection was closed"
        } else if is_error(expected) && is_error(came) {
            "an error in other words"
        } else if is_error(came) {
            "an error where there is none"
        } else if is_error(expected) {
            "no error where there is one"
        } else if bare(expected) == bare(came) {
            "the same text as another type"
        } else {
            "another reply"
        }
    }
}

fn fault(outcome: &Outcome, expected: &str, came: &str) -> CaseProblem {
    let cut = |text: &str| match text.char_indices().nth(COLUMNS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    };
    CaseProblem {
        family: outcome.family.clone(),
        client: outcome.client.clone(),
        name: outcome.name.clone(),
        expected: cut(expected),
        came: cut(came),
    }
}

fn failed(outcome: &Outcome) -> Option<CaseProblem> {
    let Verdict::Failed(failures) = &outcome.verdict else { return None };
    let first = failures.first()?;
    Some(fault(outcome, &first.expected, &first.came))
}

fn unknown(outcome: &Outcome) -> Option<CaseProblem> {
    let Verdict::Unknown(reason) = &outcome.verdict else { return None };
    Some(fault(outcome, "", reason))
}

/// The date of this machine's clock.
fn today() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output().expect("date runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
