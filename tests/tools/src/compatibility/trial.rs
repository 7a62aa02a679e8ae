//! Runs the suite on one server, which may crash or hang. It is then started again, the cases that
//! were in progress are run alone to find the cause, and the run continues without that case.

use std::collections::BTreeMap;
use std::mem;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use lockwheel_compat::cases::case::Case;
use lockwheel_compat::report::PROPERTIES;
use lockwheel_compat::wire::target::Need;
use lockwheel_compat::{
    Error, Failure, Interrupt, Options, Outcome, Report, Suite, Verdict, cases, properties,
};

use crate::page::code;
use crate::results::Results;
use crate::servers::{Running, Server, ServerError};

/// Maximum number of crashes. The run then ends, and the remaining cases are reported as not run.
const CRASHES_MAX: usize = 40;
/// Maximum time of a run, for servers that hang: each hang costs a time-out.
const TRIAL_MAX: Duration = Duration::from_secs(10 * 60);
/// The time-out of replies of test doubles: shorter, since most of their late replies never arrive.
const DOUBLE_REPLY_TIMEOUT: Duration = Duration::from_secs(3);
/// The texts of failures by a lost connection or a missing reply.
const LOSSES: [&str; 3] =
    ["the server closed the connection", "nothing in time", "Connection refused (os error 111)"];

/// Runs the suite on a server.
pub(crate) fn run(server: &Server, may_bootstrap: bool) -> Result<Results, ServerError> {
    let running = server.start(may_bootstrap)?;
    let all = cases::all().map_err(|mistake| ServerError::Failed(mistake.to_string()))?;
    let mut trial = Trial {
        server,
        running,
        outcomes: BTreeMap::new(),
        crashes: Vec::new(),
        restarts: 0,
        interrupt: Interrupt::default(),
        whole: Report::default(),
    };
    let in_time = end_after(TRIAL_MAX, trial.interrupt.clone());
    let (with_tls, without): (Vec<_>, Vec<_>) = all.iter().cloned().partition(needs_tls);
    trial.play_all(without, false)?;
    trial.play_all(with_tls, true)?;
    trial.try_properties()?;
    drop(in_time);
    let Trial { mut whole, mut outcomes, crashes, .. } = trial;
    let cases = all.iter().map(|case| name(&case.family, case.client.as_deref(), &case.name));
    let properties =
        properties::all().map(|property| name(PROPERTIES, property.client, property.name));
    whole.outcomes = cases.chain(properties).filter_map(|name| outcomes.remove(&name)).collect();
    whole.notices.dedup();
    let version = server.pinned_version().unwrap_or_else(|| whole.target.clone());
    Ok(Results::of(&whole, &version, crashes))
}

/// The family, the client library if any, and the name of a case.
type Name = (String, Option<String>, String);

fn name(family: &str, client: Option<&str>, name: &str) -> Name {
    (family.to_owned(), client.map(str::to_owned), name.to_owned())
}

struct Trial<'s> {
    server: &'s Server,
    running: Running,
    outcomes: BTreeMap<Name, Outcome>,
    /// The cases that crashed the server, with the last line of its errors.
    crashes: Vec<String>,
    restarts: usize,
    /// Interrupts a run that takes too long.
    interrupt: Interrupt,
    /// The target, the time and the notices of all rounds together.
    whole: Report,
}

impl Trial<'_> {
    /// Runs cases until each has an outcome. If the server crashes, the cases that were in progress
    /// are run again one after another, to find the one that crashed it.
    fn play_all(&mut self, all: Vec<Case>, with_tls: bool) -> Result<(), ServerError> {
        // Cases that are played alone come last anyway.
        let (alone, together): (Vec<_>, Vec<_>) = all.into_iter().partition(|case| case.alone);
        let mut pending = [together, alone].concat();
        let mut suspects: Vec<Case> = Vec::new();
        while !(pending.is_empty() && suspects.is_empty()) {
            let is_search = !suspects.is_empty();
            let batch = mem::take(if is_search { &mut suspects } else { &mut pending });
            let report = self.round(with_tls, |options| {
                options.cases = Some(batch.clone());
                options.jobs = if is_search { 1 } else { options.jobs };
            })?;
            let may_go_on = self.restarts < CRASHES_MAX && !self.interrupt.is_asked();
            let has_crashed = report.ending.is_some();
            let last = report.outcomes.iter().rfind(|outcome| !is_untried(outcome)).cloned();
            for (case, outcome) in batch.into_iter().zip(report.outcomes) {
                if has_crashed && may_go_on && is_untried(&outcome) {
                    if is_search { suspects.push(case) } else { pending.push(case) }
                } else if has_crashed && may_go_on && !is_search && is_lost(&outcome) {
                    suspects.push(case);
                } else {
                    self.keep(outcome);
                }
            }
            if has_crashed && !self.interrupt.is_asked() {
                let cause = last.filter(|_| is_search || suspects.is_empty());
                self.restart_after_crash(cause.as_ref())?;
            }
        }
        Ok(())
    }

    fn try_properties(&mut self) -> Result<(), ServerError> {
        for property in properties::all() {
            let only = vec![property.name.to_owned()];
            let report = self.round(false, |options| options.only.clone_from(&only))?;
            let has_crashed = report.ending.is_some();
            let outcome = report.outcomes.into_iter().find(|outcome| outcome.name == property.name);
            if has_crashed && !self.interrupt.is_asked() {
                self.restart_after_crash(outcome.as_ref())?;
            }
            outcome.into_iter().for_each(|outcome| self.keep(outcome));
        }
        Ok(())
    }

    /// Runs the suite once, on the running server; through its port for TLS if it has one and that
    /// is wanted.
    fn round(
        &mut self,
        with_tls: bool,
        choose: impl Fn(&mut Options),
    ) -> Result<Report, ServerError> {
        let failed = |error: Error| ServerError::Failed(error.to_string());
        let tls_address = self.running.tls_address().filter(|_| with_tls);
        let address = tls_address.unwrap_or_else(|| self.running.address());
        let mut options = Options::new(&address.to_string()).map_err(failed)?;
        options.target = address;
        options.allow_flush = true;
        options.interrupt = self.interrupt.clone();
        options.time_limit = TRIAL_MAX;
        if self.server.is_double {
            options.reply_timeout = DOUBLE_REPLY_TIMEOUT;
        }
        choose(&mut options);
        let suite = Suite::new(&options).map_err(failed)?;
        let report = suite.run(&mut ()).map_err(failed)?;
        self.whole.target.clone_from(&report.target);
        self.whole.elapsed_ms += report.elapsed_ms;
        let is_complete = report.ending.is_none();
        let general = report.notices.iter().filter(|notice| is_complete && is_general(notice));
        for notice in general {
            if !self.whole.notices.contains(notice) {
                self.whole.notices.push(notice.clone());
            }
        }
        Ok(report)
    }

    /// Records the case that crashed the server, if known, and starts the server again.
    fn restart_after_crash(&mut self, cause: Option<&Outcome>) -> Result<(), ServerError> {
        if let Some(outcome) = cause {
            let line = self.running.error_line().map(|line| format!(": {}", code(&line)));
            let line = line.unwrap_or_default();
            self.crashes.push(format!("{}: {}{line}", outcome.family, outcome.name));
        }
        self.restarts += 1;
        self.running = self.server.start(false)?;
        Ok(())
    }

    fn keep(&mut self, outcome: Outcome) {
        let name = name(&outcome.family, outcome.client.as_deref(), &outcome.name);
        self.outcomes.insert(name, outcome);
    }
}

/// Interrupts the run after `span`, unless the returned value is dropped before.
fn end_after(span: Duration, interrupt: Interrupt) -> mpsc::Sender<()> {
    let (in_time, end) = mpsc::channel();
    thread::spawn(move || {
        if end.recv_timeout(span) == Err(RecvTimeoutError::Timeout) {
            interrupt.ask();
        }
    });
    in_time
}

fn needs_tls(case: &Case) -> bool {
    case.needs.contains(&Need::Tls)
}

/// Whether a notice holds for the server, not for one round.
fn is_general(notice: &str) -> bool {
    notice.contains("database")
}

fn is_untried(outcome: &Outcome) -> bool {
    matches!(outcome.verdict, Verdict::NotReached)
}

/// Whether a case may have failed only because the server had crashed.
fn is_lost(outcome: &Outcome) -> bool {
    let lost = |failure: &Failure| LOSSES.contains(&failure.came.as_str());
    matches!(&outcome.verdict, Verdict::Failed(failures) if failures.iter().any(lost))
}
