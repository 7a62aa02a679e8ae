//! Runs cases and properties on a server and collects the results.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use crate::cases;
use crate::cases::case::Case;
use crate::cases::cause;
use crate::cases::player::{Performance, Setting, perform};
use crate::cases::tidy::Tidy;
use crate::cases::wrapping::Wrapping;
use crate::interrupt::Interrupt;
use crate::properties::{self, Arena, Property};
use crate::report::{Failure, Outcome, PROPERTIES, Report, Verdict};
use crate::time::{self, Deadline, REPLY_TIMEOUT};
use crate::wire::address::Address;
use crate::wire::target::{Need, Target};
use crate::wire::{Timeouts, describe, is_no_reply};

/// The number of cases that are played at a time: they mostly wait.
const JOBS: usize = 8;
/// How long each property is run.
const SECONDS: f64 = 2.0;
/// How long each property is run with `--quick`.
const QUICK_SECONDS: f64 = 0.1;
/// The number of concurrent clients of a property.
const CONNECTIONS: usize = 16;
/// The default time limit of a run: five minutes. A complete run takes about one minute, and two
/// with a reference server.
pub const TIME_LIMIT: Duration = Duration::from_secs(300);
/// The time limit of a quick run.
pub const QUICK_TIME_LIMIT: Duration = Duration::from_secs(10);
/// The part of the time of a quick run in which all properties end: two thirds.
const PROPERTIES_SHARE: f64 = 2.0 / 3.0;
/// The part of the time limit that is left for the clean-up: one tenth, at most 10 seconds.
const CLEAN_UP_SHARE: u32 = 10;
const CLEAN_UP_MAX: Duration = Duration::from_secs(10);

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server under test.
    pub target: Address,
    /// A reference server, which is right by definition: all commands are sent to both and
    /// compared.
    pub reference: Option<Address>,
    /// Run only what has one of these in its family, client or name; everything if empty.
    pub only: Vec<String>,
    /// Run only the most important of the built-in cases and properties.
    pub quick: bool,
    /// Whether scripts and functions, which belong to all databases, may be flushed.
    pub allow_flush: bool,
    /// The number of cases that are played at a time.
    pub jobs: usize,
    /// How long each property is run.
    pub seconds: f64,
    /// The number of concurrent clients of a property.
    pub connections: usize,
    /// The seed of the clients' choices in properties.
    pub seed: u64,
    /// The time within which a reply must arrive.
    pub reply_timeout: Duration,
    /// The time within which the run ends, with the clean-up.
    pub time_limit: Duration,
    /// Whether the run can be green although the target lacks a command.
    pub allow_missing: bool,
    /// Ends the run early, with clean-up.
    pub interrupt: Interrupt,
    /// The wrapping of the commands. Cases without wrappable commands are not played.
    pub wrapping: Wrapping,
    /// The cases to play instead of everything that is built in.
    pub cases: Option<Vec<Case>>,
}

/// Why a run is not possible.
#[derive(Debug)]
pub enum Error {
    /// The options are wrong.
    Usage(String),
    /// A server cannot be reached, or was lost.
    Server(Address, io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Usage(problem) => f.write_str(problem),
            Error::Server(address, error) => write!(f, "{address}: {error}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Usage(_) => None,
            Error::Server(_, error) => Some(error),
        }
    }
}

/// Receives the progress of a run. `()` ignores it.
pub trait Progress {
    /// Called first, with the number of cases and properties to run.
    fn begins(&mut self, _count: usize) {}
    /// Called when a case or property has ended.
    fn ended(&mut self, _outcome: &Outcome) {}
}

impl Progress for () {}

/// The chosen cases and properties.
pub struct Suite {
    options: Options,
    cases: Vec<Case>,
    properties: Vec<&'static Property>,
}

impl Options {
    /// The default options for the server at this URL.
    pub fn new(target: &str) -> Result<Options, Error> {
        Ok(Options {
            target: Address::parse(target).map_err(Error::Usage)?,
            reference: None,
            only: Vec::new(),
            quick: false,
            allow_flush: false,
            jobs: JOBS,
            seconds: SECONDS,
            connections: CONNECTIONS,
            seed: u64::from(nonce()),
            reply_timeout: REPLY_TIMEOUT,
            time_limit: TIME_LIMIT,
            allow_missing: false,
            interrupt: Interrupt::default(),
            wrapping: Wrapping::None,
            cases: None,
        })
    }

    /// Runs only the most important of the built-in cases and properties, the properties first and
    /// for a short time. The run ends within 10 seconds.
    pub fn set_quick(&mut self) {
        self.quick = true;
        self.seconds = QUICK_SECONDS;
        self.time_limit = QUICK_TIME_LIMIT;
    }
}

impl Suite {
    /// Chooses the cases and properties.
    pub fn new(options: &Options) -> Result<Suite, Error> {
        let built_in = options.cases.is_none();
        let cases = match (&options.cases, cases::parsed()) {
            (Some(cases), _) | (None, Ok(cases)) => cases,
            (None, Err(mistake)) => return Err(Error::Usage(mistake.to_string())),
        };
        let only: Vec<_> = options.only.iter().map(|part| part.to_lowercase()).collect();
        let chosen = |family: &str, client: Option<&str>, name: &str| {
            let client = client.map(|client| format!("{client}: ")).unwrap_or_default();
            let whole = format!("{family}: {client}{name}").to_lowercase();
            only.is_empty() || only.iter().any(|part| whole.contains(part))
        };
        let is_quick = |case: &&Case| !(built_in && options.quick) || cases::is_quick(case);
        let of_case = |case: &&Case| chosen(&case.family, case.client.as_deref(), &case.name);
        let suits = |case: &&Case| options.wrapping.suits(case);
        let cases: Vec<_> =
            cases.iter().filter(is_quick).filter(of_case).filter(suits).cloned().collect();
        let with_properties = built_in && options.wrapping == Wrapping::None;
        let of_property = |it: &&Property| {
            let is_quick = !options.quick || it.question.is_in_verdict();
            is_quick && chosen(PROPERTIES, it.client, it.name)
        };
        let properties: Vec<_> =
            properties::all().filter(|_| with_properties).filter(of_property).collect();
        if cases.is_empty() && properties.is_empty() {
            return Err(Error::Usage(format!("nothing is called {}", options.only.join(" or "))));
        }
        Ok(Suite { options: options.clone(), cases, properties })
    }

    /// The cases that will be played.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// The properties that will be run.
    pub fn properties(&self) -> &[&'static Property] {
        &self.properties
    }

    /// Runs the cases and properties. A server that cannot be reached is an error; one that gives
    /// no valid reply is reported.
    pub fn run(&self, progress: &mut dyn Progress) -> Result<Report, Error> {
        let begun_us = time::now_us();
        let limit = self.options.time_limit;
        let end = Deadline::after(limit);
        let deadline = Deadline::after(limit - (limit / CLEAN_UP_SHARE).min(CLEAN_UP_MAX));
        let mut report = match self.explore(deadline) {
            Ok((target, reference)) => {
                let ending = Mutex::default();
                let run = Run { target, reference, suite: self, deadline, ending };
                self.run_on(&run, end, progress)
            }
            Err(Error::Server(address, error)) if is_no_reply(&error) => {
                self.without_reply(&address, &error, deadline)
            }
            Err(error) => return Err(error),
        };
        report.only.clone_from(&self.options.only);
        report.quick = self.options.quick;
        report.allow_missing = self.options.allow_missing;
        report.time_limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        report.elapsed_ms = u64::try_from((time::now_us() - begun_us) / 1000).unwrap_or(0);
        Ok(report)
    }

    /// The server under test and the reference server, if there is one.
    fn explore(&self, deadline: Deadline) -> Result<(Target, Option<Target>), Error> {
        let prefix = key_prefix_of_run();
        let timeouts = Timeouts { reply: self.options.reply_timeout, deadline };
        let explore = |address: &Address| {
            let explored = Target::explore(address, &prefix, self.options.allow_flush, timeouts);
            explored.map_err(|error| Error::Server(address.clone(), error))
        };
        let target = explore(&self.options.target)?;
        Ok((target, self.options.reference.as_ref().map(explore).transpose()?))
    }

    fn run_on(&self, run: &Run<'_>, end: Deadline, progress: &mut dyn Progress) -> Report {
        progress.begins(self.cases.len() + self.properties.len());
        let cleaned: Vec<_> = run.servers().map(|server| server.until(end)).collect();
        let tidies: Vec<_> = cleaned.iter().map(|it| Tidy::new(it, &self.cases)).collect();
        let mut notices = self.notices(&run.target);
        // A quick run begins with what the verdict needs, since a slow server may not get further.
        let first = self.options.quick.then(|| self.try_all(run, &mut notices, progress));
        let mut outcomes = self.play_all(run, &tidies, progress);
        outcomes.extend(first.unwrap_or_else(|| self.try_all(run, &mut notices, progress)));
        let ending = run.ending.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (tidy, server) in tidies.into_iter().zip(run.servers()) {
            if let Err(error) = tidy.finish() {
                let (prefix, address, problem) =
                    (&server.prefix, &server.address, describe(&error));
                notices.push(format!("{prefix}* may be left on {address}: {problem}"));
            }
        }
        Report {
            target: run.target.name.clone(),
            address: run.target.place(),
            reference: run.reference.as_ref().map(|it| format!("{} at {}", it.name, it.place())),
            outcomes,
            notices,
            ending,
            ..Report::default()
        }
    }

    /// The report on a server that gives no valid reply to the first requests.
    fn without_reply(&self, address: &Address, error: &io::Error, deadline: Deadline) -> Report {
        let problem = match deadline.is_over() {
            true => format!("{}, and {}", describe(error), self.time_limit_is_over()),
            false => describe(error),
        };
        let cases = self.cases.iter().map(|case| outcome(case, Verdict::NotReached));
        let seed = self.options.seed;
        let properties = self.properties.iter().map(|it| it.outcome(seed, Verdict::NotReached));
        Report {
            target: "unknown server".to_owned(),
            address: self.options.target.to_string(),
            outcomes: cases.chain(properties).collect(),
            ending: Some(format!("{address} gives no valid reply: {problem}")),
            ..Report::default()
        }
    }

    fn time_limit_is_over(&self) -> String {
        format!("the time limit of {} is over", time::show_span(self.options.time_limit))
    }

    /// The remarks about the whole run.
    fn notices(&self, target: &Target) -> Vec<String> {
        let mut notices = Vec::new();
        let count = |of: &dyn Fn(&Case) -> bool| self.cases.iter().filter(|it| of(it)).count();
        if !target.resp3 {
            let only = count(&|case| case.protocol == Some(3));
            let rest = self.cases.len() - only;
            let all = format!("RESP3 is not spoken: {rest} cases were tried in RESP2 alone");
            notices.push(if only == 0 { all } else { format!("{all}, {only} not at all") });
        }
        let needing = count(&|case| case.needs.contains(&Need::Database));
        if !target.own_database && needing > 0 {
            notices.push(format!(
                "no empty database was found: {needing} cases that need one were not tried"
            ));
        }
        notices
    }

    /// Plays the cases that may run together, then the others one by one.
    fn play_all(
        &self,
        run: &Run<'_>,
        tidies: &[Tidy<'_>],
        progress: &mut dyn Progress,
    ) -> Vec<Outcome> {
        let mut outcomes: Vec<Option<Outcome>> = Vec::new();
        outcomes.resize_with(self.cases.len(), || None);
        let together: Vec<usize> =
            (0..self.cases.len()).filter(|&at| !self.cases[at].alone).collect();
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for _ in 0..self.options.jobs.max(1) {
                let (sender, next, together) = (sender.clone(), &next, &together);
                scope.spawn(move || {
                    while let Some(&at) = together.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let _ = sender.send((at, run.play(at, &self.cases[at])));
                    }
                });
            }
            drop(sender);
            for (at, outcome) in receiver {
                progress.ended(&outcome);
                outcomes[at] = Some(outcome);
            }
        });
        for (at, outcome) in outcomes.iter_mut().enumerate() {
            if outcome.is_none() {
                let played = run.play(at, &self.cases[at]);
                if matches!(played.verdict, Verdict::Failed(_)) {
                    // The case may have ended half way. State that cannot be restored now is
                    // reported when the run ends.
                    tidies.iter().for_each(|tidy| drop(tidy.put_back()));
                }
                progress.ended(&played);
                *outcome = Some(played);
            }
        }
        outcomes.into_iter().flatten().collect()
    }

    /// Runs the properties one by one: each needs the whole server. In a quick run, each has an
    /// equal part of the time that is left for them. A rule that the reference server breaks is
    /// noted.
    fn try_all(
        &self,
        run: &Run<'_>,
        notices: &mut Vec<String>,
        progress: &mut dyn Progress,
    ) -> Vec<Outcome> {
        let Options { seconds, connections, seed, .. } = self.options;
        let span = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let end = Deadline::after(run.deadline.remaining().mul_f64(PROPERTIES_SHARE));
        let one = |(number, property): (usize, &&'static Property)| {
            let left = u32::try_from(self.properties.len() - number).unwrap_or(u32::MAX);
            let until = match self.options.quick {
                true => Deadline::after(end.remaining() / left),
                false => run.deadline,
            };
            let judge = |server: &Target| {
                let server = server.until(until);
                let verdict = property.judge(&Arena::new(&server, number, span, connections, seed));
                let may_be_cut = matches!(verdict, Verdict::Unknown(_));
                run.unless_cut(verdict, may_be_cut, (PROPERTIES, property.name))
            };
            let verdict = match run.is_over() {
                true => Verdict::NotReached,
                false => judge(&run.target),
            };
            let verdict = match run.reference.as_ref().filter(|_| !run.is_over()) {
                Some(reference) => compared(property, verdict, &judge(reference), notices),
                None => verdict,
            };
            let outcome = property.outcome(seed, verdict);
            progress.ended(&outcome);
            outcome
        };
        self.properties.iter().enumerate().map(one).collect()
    }
}

/// The verdict on the server under test. What the reference server does is added to a failure, and
/// a rule that it breaks is added to the notices.
fn compared(
    property: &Property,
    verdict: Verdict,
    of_reference: &Verdict,
    notices: &mut Vec<String>,
) -> Verdict {
    let said = match of_reference {
        Verdict::Passed => "keeps the rule".to_owned(),
        Verdict::Failed(failures) => match failures.first() {
            Some(Failure { expected, came, .. }) => {
                format!("breaks the rule too: expected {expected}, came {came}")
            }
            None => "breaks the rule too".to_owned(),
        },
        Verdict::Lacking(command) => format!("lacks {command}"),
        Verdict::Unknown(reason) => format!("could not be judged: {reason}"),
        Verdict::Skipped(_) | Verdict::NotReached => "was not tried".to_owned(),
    };
    if matches!(of_reference, Verdict::Failed(_)) {
        notices.push(format!("the reference breaks \"{}\"", property.name));
    }
    match verdict {
        Verdict::Failed(failures) => {
            let with = |it: Failure| Failure { reference: Some(said.clone()), ..it };
            Verdict::Failed(failures.into_iter().map(with).collect())
        }
        verdict => verdict,
    }
}

/// The servers of a run.
struct Run<'a> {
    target: Target,
    reference: Option<Target>,
    suite: &'a Suite,
    /// Moment after which no case or property runs.
    deadline: Deadline,
    /// Why the run ended early.
    ending: Mutex<Option<String>>,
}

impl Run<'_> {
    fn servers(&self) -> impl Iterator<Item = &Target> {
        [Some(&self.target), self.reference.as_ref()].into_iter().flatten()
    }

    fn play(&self, at: usize, case: &Case) -> Outcome {
        if self.is_over() {
            return outcome(case, Verdict::NotReached);
        }
        let verdict = self.judge(at, case);
        let may_be_cut = matches!(verdict, Verdict::Failed(_));
        outcome(case, self.unless_cut(verdict, may_be_cut, (&case.family, &case.name)))
    }

    /// The verdict on a case or property, unless the time limit may have cut it short. A bad one
    /// may be due to a dead server, which ends the run.
    fn unless_cut(&self, verdict: Verdict, may_be_cut: bool, name: (&str, &str)) -> Verdict {
        if may_be_cut && self.deadline.is_over() {
            self.end(&self.suite.time_limit_is_over());
            return Verdict::NotReached;
        }
        if matches!(verdict, Verdict::Failed(_) | Verdict::Unknown(_)) {
            self.look_for_deaths(name);
        }
        verdict
    }

    /// Whether no further cases are played.
    fn is_over(&self) -> bool {
        if self.suite.options.interrupt.is_asked() {
            self.end("interrupted");
        } else if self.deadline.is_over() {
            self.end(&self.suite.time_limit_is_over());
        }
        self.ending.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn end(&self, reason: &str) {
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        ending.get_or_insert_with(|| reason.to_owned());
    }

    /// Ends the run if the server is dead, since all further cases would fail.
    fn look_for_deaths(&self, (family, name): (&str, &str)) {
        for server in self.servers() {
            if let Some(problem) = server.death().filter(|_| !self.deadline.is_over()) {
                let (server, place) = (&server.name, &server.address);
                let since = format!("since \"{family}: {name}\" was tried");
                self.end(&format!("{server} at {place} gives no valid reply ({problem}) {since}"));
            }
        }
    }

    fn judge(&self, at: usize, case: &Case) -> Verdict {
        for server in self.servers() {
            if let Err(reason) = server.offers(&case.needs) {
                return Verdict::Skipped(reason);
            }
        }
        let wrapping = self.suite.options.wrapping;
        let mut failures = Vec::new();
        let mut tried = false;
        for protocol in [2, 3] {
            let meant = case.protocol.is_none_or(|only| only == protocol);
            if !meant || protocol == 3 && !self.target.resp3 {
                continue;
            }
            tried = true;
            let play = |server: &Target| play_on(server, at, case, protocol, wrapping);
            let performance = play(&self.target);
            let reference = self.reference.as_ref().map(play);
            if let Some(problem) = &performance.problem
                && let Some(command) = &problem.lacking
            {
                return Verdict::Lacking(command.clone());
            }
            let failure = failure(case, protocol, performance, reference.as_ref());
            // Keys are shown with their names in the case.
            let prefix = key_prefix(&self.target, at, protocol);
            failures.extend(failure.map(|it| it.without(&prefix)));
        }
        match (tried, failures.is_empty()) {
            (false, _) => Verdict::Skipped("RESP3 is not spoken".to_owned()),
            (true, true) => Verdict::Passed,
            (true, false) => Verdict::Failed(failures),
        }
    }
}

fn outcome(case: &Case, verdict: Verdict) -> Outcome {
    Outcome {
        family: case.family.clone(),
        client: case.client.clone(),
        question: None,
        name: case.name.clone(),
        why: case.why.clone(),
        place: case.file.clone(),
        verdict,
    }
}

/// The prefix of the keys of a case in one protocol version.
fn key_prefix(server: &Target, at: usize, protocol: u8) -> String {
    format!("{}{at}-{protocol}:", server.prefix)
}

fn play_on(
    server: &Target,
    at: usize,
    case: &Case,
    protocol: u8,
    wrapping: Wrapping,
) -> Performance {
    let prefix = key_prefix(server, at, protocol);
    let key = |name: &str| format!("{prefix}{name}");
    let script = |name: &str| cases::script(name).map(str::to_owned);
    let setting = Setting { protocol, key: &key, script: &script, wrapping };
    perform(&case.steps, setting, server)
}

/// The problem of a played case, if any: a reply differs from the case or from the reference.
fn failure(
    case: &Case,
    protocol: u8,
    performance: Performance,
    reference: Option<&Performance>,
) -> Option<Failure> {
    let reference_reply = |number: usize| {
        let replies = &reference?.masked;
        let (_, frame) = replies.iter().find(|(line, _)| *line == number)?;
        Some(frame.notation())
    };
    let story = performance.transcript;
    if let Some(problem) = performance.problem {
        return Some(Failure {
            protocol: Some(protocol),
            number: Some(problem.number),
            reference: reference_reply(problem.number),
            sent: problem.sent,
            expected: problem.expected,
            came: problem.came,
            cause: problem.cause,
            story,
        });
    }
    let theirs = &reference?.masked;
    let pairs = performance.masked.iter().map(Some).chain(std::iter::repeat(None));
    let (ours, theirs) = pairs.zip(theirs).find(|(ours, theirs)| *ours != Some(*theirs))?;
    let line = case.steps.iter().find(|step| step.number == theirs.0);
    let sent = line.map(|step| step.line.clone()).unwrap_or_default();
    Some(Failure {
        protocol: Some(protocol),
        number: Some(theirs.0),
        cause: cause::of_replies(&theirs.1, ours.map(|(_, frame)| frame), protocol, &sent),
        sent,
        expected: theirs.1.notation(),
        came: ours.map_or("nothing".to_owned(), |(_, frame)| frame.notation()),
        reference: Some(theirs.1.notation()),
        story,
    })
}

/// The prefix of all keys of a run, so that no other keys are touched.
pub fn key_prefix_of_run() -> String {
    format!("compat:{:08x}:", nonce())
}

/// A number that differs between runs on one server.
fn nonce() -> u32 {
    let mut bytes = [0; 4];
    // Without entropy, concurrent runs may only disturb each other.
    let _ = getrandom::fill(&mut bytes);
    u32::from_le_bytes(bytes)
}
