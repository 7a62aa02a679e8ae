//! A run: which cases, on which servers, how many at a time, and what came of each.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::address::Address;
use super::case::Case;
use super::cases;
use super::properties::{self, Arena, Property};
use super::report::{Failure, Outcome, Report, Verdict};
use super::stage::{Performance, Setting, perform};
use super::target::{OnTarget, Target};

/// How many cases are played at a time: they wait more than they work.
const JOBS: usize = 8;
/// For how long each property is tried.
const SECONDS: f64 = 2.0;
/// How many clients contend in a property.
const CONNECTIONS: usize = 16;

/// What to run, and on what.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server under test.
    pub target: Address,
    /// A server that is right by definition: everything is sent to both and compared.
    pub reference: Option<Address>,
    /// Only what has one of these in its family, client or name; everything if there is none.
    pub only: Vec<String>,
    /// Whether scripts and functions, which belong to all databases, may be flushed.
    pub allow_flush: bool,
    /// How many cases are played at a time.
    pub jobs: usize,
    /// For how long each property is tried.
    pub seconds: f64,
    /// How many clients contend in a property.
    pub connections: usize,
    /// What decides what clients do in properties.
    pub seed: u64,
    /// The cases to play instead of everything that is built in.
    pub cases: Option<Vec<Case>>,
}

/// Why there was no run.
#[derive(Debug)]
pub enum Error {
    /// What was asked for makes no sense.
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

/// Hears how far a run has come. `()` does not listen.
pub trait Progress {
    /// So many things will be tried.
    fn begins(&mut self, _count: usize) {}
    /// One is done.
    fn ended(&mut self, _outcome: &Outcome) {}
}

impl Progress for () {}

/// What will be run.
pub struct Suite {
    options: Options,
    cases: Vec<Case>,
    properties: Vec<&'static Property>,
}

impl Options {
    /// Everything, on the server at this URL.
    pub fn new(target: &str) -> Result<Options, Error> {
        Ok(Options {
            target: Address::parse(target).map_err(Error::Usage)?,
            reference: None,
            only: Vec::new(),
            allow_flush: false,
            jobs: JOBS,
            seconds: SECONDS,
            connections: CONNECTIONS,
            seed: u64::from(nonce()),
            cases: None,
        })
    }
}

impl Suite {
    /// Chooses what to run.
    pub fn new(options: &Options) -> Result<Suite, Error> {
        let (cases, properties) = match &options.cases {
            Some(cases) => (cases.clone(), Vec::new()),
            None => {
                let cases = cases::all().map_err(|mistake| Error::Usage(mistake.to_string()))?;
                (cases, properties::all().collect())
            }
        };
        let chosen = |family: &str, client: Option<&str>, name: &str| {
            let whole = format!("{family}: {}: {name}", client.unwrap_or_default());
            let whole = whole.to_lowercase();
            options.only.is_empty()
                || options.only.iter().any(|part| whole.contains(&part.to_lowercase()))
        };
        let of_case = |case: &Case| chosen(&case.family, case.client.as_deref(), &case.name);
        let cases: Vec<_> = cases.into_iter().filter(of_case).collect();
        let of_property = |it: &&Property| chosen(properties::FAMILY, it.client, it.name);
        let properties: Vec<_> = properties.into_iter().filter(of_property).collect();
        if cases.is_empty() && properties.is_empty() {
            return Err(Error::Usage(format!("nothing is called {}", options.only.join(" or "))));
        }
        Ok(Suite { options: options.clone(), cases, properties })
    }

    /// The cases that will be played.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// The properties that will be tried.
    pub fn properties(&self) -> &[&'static Property] {
        &self.properties
    }

    /// Runs it.
    pub fn run(&self, progress: &mut dyn Progress) -> Result<Report, Error> {
        let prefix = format!("compat:{:08x}:", nonce());
        let explore = |address: &Address| {
            Target::explore(address, &prefix, self.options.allow_flush)
                .map_err(|error| Error::Server(address.clone(), error))
        };
        let target = explore(&self.options.target)?;
        let reference = self.options.reference.as_ref().map(explore).transpose()?;
        let run = Run { target, reference };
        progress.begins(self.cases.len() + self.properties.len());
        let mut outcomes = self.play_all(&run, progress);
        outcomes.extend(self.try_all(&run.target, progress));
        for server in [Some(&run.target), run.reference.as_ref()].into_iter().flatten() {
            let lost = |error| Error::Server(server.address.clone(), error);
            server.clean_up().map_err(lost)?;
        }
        Ok(Report {
            target: run.target.name.clone(),
            reference: run.reference.map(|reference| reference.name),
            outcomes,
            notices: Vec::new(),
        })
    }

    /// Those that may be played together, and then the others one by one.
    fn play_all(&self, run: &Run, progress: &mut dyn Progress) -> Vec<Outcome> {
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
                progress.ended(&played);
                *outcome = Some(played);
            }
        }
        outcomes.into_iter().flatten().collect()
    }

    /// The properties, one by one: each wants the server for itself.
    fn try_all(&self, target: &Target, progress: &mut dyn Progress) -> Vec<Outcome> {
        let Options { seconds, connections, seed, .. } = self.options;
        let span = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let one = |(number, property): (usize, &&Property)| {
            let outcome = property.judge(&Arena::new(target, number, span, connections, seed));
            progress.ended(&outcome);
            outcome
        };
        self.properties.iter().enumerate().map(one).collect()
    }
}

/// The servers of a run.
struct Run {
    target: Target,
    reference: Option<Target>,
}

impl Run {
    fn play(&self, at: usize, case: &Case) -> Outcome {
        Outcome {
            family: case.family.clone(),
            client: case.client.clone(),
            name: case.name.clone(),
            why: case.why.clone(),
            place: case.file.clone(),
            verdict: self.judge(at, case),
        }
    }

    fn judge(&self, at: usize, case: &Case) -> Verdict {
        let servers = [Some(&self.target), self.reference.as_ref()];
        for server in servers.into_iter().flatten() {
            if let Err(reason) = server.offers(&case.needs) {
                return Verdict::Skipped(reason);
            }
        }
        let mut failures = Vec::new();
        let mut tried = false;
        for protocol in [2, 3] {
            let meant = case.protocol.is_none_or(|only| only == protocol);
            if !meant || protocol == 3 && !self.target.resp3 {
                continue;
            }
            tried = true;
            let performance = play_on(&self.target, at, case, protocol);
            let reference =
                self.reference.as_ref().map(|server| play_on(server, at, case, protocol));
            if let Some(problem) = &performance.problem
                && let Some(command) = &problem.lacking
            {
                return Verdict::Lacking(command.clone());
            }
            failures.extend(failure(case, protocol, performance, reference.as_ref()));
        }
        match (tried, failures.is_empty()) {
            (false, _) => Verdict::Skipped("RESP3 is not spoken".to_owned()),
            (true, true) => Verdict::Passed,
            (true, false) => Verdict::Failed(failures),
        }
    }
}

fn play_on(server: &Target, at: usize, case: &Case, protocol: u8) -> Performance {
    let key = |name: &str| format!("{}{at}-{protocol}:{name}", server.prefix);
    let script = |name: &str| cases::script(name).map(str::to_owned);
    let setting = Setting { protocol, key: &key, script: &script };
    perform(&case.steps, setting, &mut OnTarget(server))
}

/// What is wrong with a performance, if anything: it is not what the case says, or not what the
/// reference said.
fn failure(
    case: &Case,
    protocol: u8,
    performance: Performance,
    reference: Option<&Performance>,
) -> Option<Failure> {
    let said_there = |number: usize| {
        let heard = &reference?.masked;
        let (_, frame) = heard.iter().find(|(line, _)| *line == number)?;
        Some(frame.notation())
    };
    let story = performance.transcript;
    if let Some(problem) = performance.problem {
        return Some(Failure {
            protocol: Some(protocol),
            number: Some(problem.number),
            reference: said_there(problem.number),
            sent: problem.sent,
            expected: problem.expected,
            came: problem.came,
            story,
        });
    }
    let theirs = &reference?.masked;
    let pairs = performance.masked.iter().map(Some).chain(std::iter::repeat(None));
    let (ours, theirs) = pairs.zip(theirs).find(|(ours, theirs)| *ours != Some(*theirs))?;
    let line = case.steps.iter().find(|step| step.number == theirs.0);
    Some(Failure {
        protocol: Some(protocol),
        number: Some(theirs.0),
        sent: line.map(|step| step.line.clone()).unwrap_or_default(),
        expected: theirs.1.notation(),
        came: ours.map_or("nothing".to_owned(), |(_, frame)| frame.notation()),
        reference: Some(theirs.1.notation()),
        story,
    })
}

/// Tells the runs on one server apart.
fn nonce() -> u32 {
    let mut bytes = [0; 4];
    // Without entropy two runs at the same moment may get in each other's way, and no worse.
    let _ = getrandom::fill(&mut bytes);
    u32::from_le_bytes(bytes)
}
