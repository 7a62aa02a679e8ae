//! What came of one server, as it is kept and as the page tells it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use lockwheel_compat::report::{Report, Row, Score};
use lockwheel_compat::{Outcome, Verdict};
use serde::{Deserialize, Serialize};

/// Where what was sent and received is cut.
const COLUMNS: usize = 120;
/// So many failures are told with what was expected and what came; more are told by their names.
pub(crate) const FAULTS_IN_FULL: usize = 40;

/// What came of one server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Results {
    /// Its name and version.
    pub(crate) version: String,
    /// What it calls itself in `INFO`.
    pub(crate) announces: String,
    /// The day of the run.
    pub(crate) date: String,
    /// How long it took.
    pub(crate) seconds: u64,
    /// Of everything.
    pub(crate) all: Sum,
    /// By what it is about.
    pub(crate) families: Vec<Sum>,
    /// By the client library whose habit it is.
    pub(crate) clients: Vec<Sum>,
    /// The commands that it lacks, and how many things need each.
    pub(crate) lacking: BTreeMap<String, usize>,
    /// Why things were not tried, and how many.
    pub(crate) skipped: BTreeMap<String, usize>,
    /// What is not as it must be.
    pub(crate) failed: Vec<Fault>,
    /// In what way, and how many.
    pub(crate) kinds: BTreeMap<String, usize>,
    /// What could not be judged, and why.
    pub(crate) unknown: Vec<Fault>,
    /// The cases that ended it or after which it answered no more, and what it said.
    pub(crate) deaths: Vec<String>,
    /// What was worth saying once.
    pub(crate) notices: Vec<String>,
}

/// A row of the table.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sum {
    /// The family or client.
    pub(crate) name: String,
    /// As it must be.
    pub(crate) passed: usize,
    /// Tried, those for which a command is lacking included.
    pub(crate) tried: usize,
    /// Of those tried, what needs a command that it lacks.
    pub(crate) lacking: usize,
    /// Of those tried, what could not be judged.
    pub(crate) unknown: usize,
}

/// Something that is not as it must be.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Fault {
    /// What it is about.
    pub(crate) family: String,
    /// The client library whose habit it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<String>,
    /// What must hold.
    pub(crate) name: String,
    /// What was expected.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) expected: String,
    /// What came, or why it could not be judged.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) came: String,
}

impl Results {
    /// From a report.
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

    /// Those of a run before, if there was one.
    pub(crate) fn load(path: &Path) -> Option<Results> {
        let text = fs::read_to_string(path).ok()?;
        Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path:?}: {error}")))
    }

    /// Keeps them.
    pub(crate) fn save(&self, path: &Path) {
        let folder = path.parent().expect("it stands in a folder");
        fs::create_dir_all(folder).expect("a folder for results");
        let text = serde_json::to_string_pretty(self).expect("it can be written");
        fs::write(path, compact(&text)).expect("results are written");
    }

    /// Whether everything that was tried passed.
    pub(crate) fn is_green(&self) -> bool {
        self.all.passed == self.all.tried && self.all.passed > 0
    }

    /// In a line.
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

impl Fault {
    /// In what way it is not as it must be.
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

fn fault(outcome: &Outcome, expected: &str, came: &str) -> Fault {
    let cut = |text: &str| match text.char_indices().nth(COLUMNS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    };
    Fault {
        family: outcome.family.clone(),
        client: outcome.client.clone(),
        name: outcome.name.clone(),
        expected: cut(expected),
        came: cut(came),
    }
}

fn failed(outcome: &Outcome) -> Option<Fault> {
    let Verdict::Failed(failures) = &outcome.verdict else { return None };
    let first = failures.first()?;
    Some(fault(outcome, &first.expected, &first.came))
}

fn unknown(outcome: &Outcome) -> Option<Fault> {
    let Verdict::Unknown(reason) = &outcome.verdict else { return None };
    Some(fault(outcome, "", reason))
}

/// As this machine's clock says.
fn today() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output().expect("date runs");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
