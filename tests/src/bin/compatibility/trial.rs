//! The suite on one server, which may die of it or hang: then it is started anew, what was going on
//! is tried again alone to find out what it died of, and the rest goes on without that.

use std::collections::BTreeMap;
use std::mem;
use std::time::Duration;

use leasehold::compat::case::Case;
use leasehold::compat::{
    Error, Failure, Options, Outcome, Report, Suite, UNTRIED, Verdict, cases, properties,
};

use crate::results::Results;
use crate::servers::{Running, Server, Trouble};

/// A server that dies more often is left alone: what was not tried by then is told.
const DEATHS_MAX: usize = 40;
/// How long a test double may take for a reply. Most that are late never come.
const DOUBLE_PATIENCE: Duration = Duration::from_secs(3);
/// How a failure reads when the connection was lost or the server silent.
const LOSSES: [&str; 3] =
    ["the server closed the connection", "nothing in time", "Connection refused (os error 111)"];

/// Runs it.
pub(crate) fn run(server: &Server, may_bootstrap: bool) -> Result<Results, Trouble> {
    let running = server.start(may_bootstrap)?;
    let all = cases::all().map_err(|mistake| Trouble::Died(mistake.to_string()))?;
    let mut trial = Trial {
        server,
        running,
        outcomes: BTreeMap::new(),
        deaths: Vec::new(),
        whole: Report::default(),
    };
    trial.play_all(&all)?;
    trial.try_properties()?;
    let order = all.iter().map(|case| (case.family.clone(), case.name.clone()));
    let family = properties::FAMILY.to_owned();
    let order = order.chain(properties::all().map(|it| (family.clone(), it.name.to_owned())));
    let Trial { mut whole, mut outcomes, deaths, .. } = trial;
    whole.outcomes = order.filter_map(|name| outcomes.remove(&name)).collect();
    whole.notices.dedup();
    let version = server.pinned_version().unwrap_or_else(|| whole.target.clone());
    Ok(Results::of(&whole, &version, deaths))
}

struct Trial<'s> {
    server: &'s Server,
    running: Running,
    /// By family and name.
    outcomes: BTreeMap<(String, String), Outcome>,
    deaths: Vec<String>,
    /// What holds for all rounds.
    whole: Report,
}

impl Trial<'_> {
    fn play_all(&mut self, all: &[Case]) -> Result<(), Trouble> {
        // Those that are played alone come last anyway.
        let (alone, together): (Vec<_>, Vec<_>) = all.iter().cloned().partition(|it| it.alone);
        let mut pending = [together, alone].concat();
        let mut suspects: Vec<Case> = Vec::new();
        while !(pending.is_empty() && suspects.is_empty()) {
            let by_itself = !suspects.is_empty();
            let batch = mem::take(if by_itself { &mut suspects } else { &mut pending });
            let report = self.round(|options| {
                options.cases = Some(batch.clone());
                options.jobs = if by_itself { 1 } else { options.jobs };
            })?;
            let has_died = report.ending.is_some();
            let last = report.outcomes.iter().rfind(|outcome| !is_untried(outcome)).cloned();
            for (case, outcome) in batch.into_iter().zip(report.outcomes) {
                if has_died && is_untried(&outcome) && self.deaths.len() < DEATHS_MAX {
                    if by_itself { suspects.push(case) } else { pending.push(case) }
                } else if has_died && !by_itself && is_lost(&outcome) {
                    suspects.push(case);
                } else {
                    self.keep(outcome);
                }
            }
            if has_died {
                let of = last.filter(|_| by_itself || suspects.is_empty());
                self.bury(of.as_ref())?;
            }
        }
        Ok(())
    }

    fn try_properties(&mut self) -> Result<(), Trouble> {
        for property in properties::all() {
            let report = self.round(|options| options.only = vec![property.name.to_owned()])?;
            let has_died = report.ending.is_some();
            let outcome = report.outcomes.into_iter().find(|it| it.name == property.name);
            if has_died {
                self.bury(outcome.as_ref())?;
            }
            outcome.into_iter().for_each(|outcome| self.keep(outcome));
        }
        Ok(())
    }

    /// Runs the suite once, on the server that is running.
    fn round(&mut self, choose: impl Fn(&mut Options)) -> Result<Report, Trouble> {
        let died = |error: Error| Trouble::Died(error.to_string());
        let mut options = Options::new(&self.running.url()).map_err(died)?;
        options.allow_flush = true;
        if self.server.is_double {
            options.patience = DOUBLE_PATIENCE;
        }
        choose(&mut options);
        let suite = Suite::new(&options).map_err(died)?;
        let report = suite.run(&mut ()).map_err(died)?;
        self.whole.target.clone_from(&report.target);
        self.whole.elapsed_ms += report.elapsed_ms;
        let told = report.notices.iter().filter(|it| report.ending.is_none() && is_general(it));
        for notice in told {
            if !self.whole.notices.contains(notice) {
                self.whole.notices.push(notice.clone());
            }
        }
        Ok(report)
    }

    /// Notes what it died of, if that is known, and starts another.
    fn bury(&mut self, of: Option<&Outcome>) -> Result<(), Trouble> {
        if let Some(outcome) = of {
            let words = self.running.last_words();
            let words = if words.is_empty() { words } else { format!(": `{words}`") };
            self.deaths.push(format!("{}: {}{words}", outcome.family, outcome.name));
        }
        self.running = self.server.start(false)?;
        Ok(())
    }

    fn keep(&mut self, outcome: Outcome) {
        self.outcomes.insert((outcome.family.clone(), outcome.name.clone()), outcome);
    }
}

/// Whether a notice holds for the server and not for one round.
fn is_general(notice: &str) -> bool {
    notice.contains("database")
}

fn is_untried(outcome: &Outcome) -> bool {
    matches!(&outcome.verdict, Verdict::Skipped(reason) if reason == UNTRIED)
}

/// Whether it may have failed only because the server was gone.
fn is_lost(outcome: &Outcome) -> bool {
    let lost = |failure: &Failure| LOSSES.contains(&failure.came.as_str());
    matches!(&outcome.verdict, Verdict::Failed(failures) if failures.iter().any(lost))
}
