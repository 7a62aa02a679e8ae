//! Decides which step begins when.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use crate::job::{Ended, Job, Outcome};
use crate::report::{self, Times};
use crate::steps::{Load, Step, Table};
use crate::tools;

/// The number of steps that may run at a time, of those that wait most of the time.
const WAITING_MAX: usize = 3;

/// The time after which an installation is killed.
const INSTALLATION_LIMIT: Duration = Duration::from_secs(900);

/// A step and the jobs before it.
struct Planned {
    job: Job,
    load: Load,
    after: Vec<String>,
    /// Whether it installs tools. What comes after it begins even if it fails, and names the tool
    /// that is missing.
    installs: bool,
    state: State,
}

impl Planned {
    /// Whether what comes after it may begin.
    fn is_over(&self) -> bool {
        self.state == State::Passed || (self.installs && self.state == State::NotPassed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Running,
    Passed,
    /// It has failed, was left out, or cannot begin.
    NotPassed,
}

/// Runs the steps, and before them what installs their tools.
///
/// # Errors
/// If a signal asks to end; all processes started here have ended then.
pub(crate) async fn run(
    table: &Table,
    steps: &[&Step],
    times: &Times,
) -> Result<Vec<Ended>, String> {
    let mut plan = plan(table, steps);
    let mut running: JoinSet<Ended> = JoinSet::new();
    let mut results = Vec::new();
    loop {
        while let Some(at) = next(&plan) {
            plan[at].state = State::Running;
            report::begins(&plan[at].job);
            running.spawn(plan[at].job.clone().run());
        }
        let ended = tokio::select! {
            ended = running.join_next() => ended,
            () = interrupted() => return Err("interrupted".to_owned()),
        };
        let Some(ended) = ended else { break };
        let ended = ended.map_err(|error| error.to_string())?;
        report::ended(&ended, times);
        let passed = ended.outcome == Outcome::Passed;
        let planned = plan.iter_mut().find(|planned| planned.job.name == ended.name);
        planned.expect("a planned job").state =
            if passed { State::Passed } else { State::NotPassed };
        results.push(ended);
        give_up(&mut plan, &mut results);
    }
    Ok(results)
}

/// The steps after the installations of what they lack.
fn plan(table: &Table, steps: &[&Step]) -> Vec<Planned> {
    let load = |name: &str| if name == tools::COMPILED { Load::Computes } else { Load::Waits };
    let installation = |(name, script): (&str, String)| Planned {
        job: Job::new(name, script, INSTALLATION_LIMIT),
        load: load(name),
        after: Vec::new(),
        installs: true,
        state: State::Pending,
    };
    let mut plan: Vec<Planned> =
        tools::installations(table, steps).into_iter().map(installation).collect();
    let installations: Vec<String> = plan.iter().map(|it| it.job.name.clone()).collect();
    for step in steps {
        let limit = Duration::from_secs(step.limit_seconds);
        let mut job = Job::new(&step.name, step.command.clone(), limit);
        job.is_nice = step.load == Load::Computes;
        job.needs = step.needs.iter().filter_map(|name| table.tool(name).cloned()).collect();
        // A step that includes another takes its place.
        let of = |name: &String| {
            let is_it = |it: &&&Step| it.name == *name || it.includes.contains(name);
            steps.iter().find(is_it).map_or(name, |it| &it.name).clone()
        };
        let mut after: Vec<String> = step.after.iter().map(of).collect();
        if job.needs.iter().any(|tool| !tools::is_installed(tool)) {
            after.extend(installations.iter().cloned());
        }
        let (load, state) = (step.load, State::Pending);
        plan.push(Planned { job, load, after, installs: false, state });
    }
    plan
}

/// The next job that can begin now.
fn next(plan: &[Planned]) -> Option<usize> {
    let running = |load| {
        let of = |planned: &&Planned| planned.state == State::Running && planned.load == load;
        plan.iter().filter(of).count()
    };
    let (computing, waiting, alone) =
        (running(Load::Computes), running(Load::Waits), running(Load::Alone));
    let is_over = |name: &String| {
        let of = |planned: &&Planned| planned.job.name == *name;
        plan.iter().find(of).is_none_or(Planned::is_over)
    };
    let is_ready =
        |planned: &Planned| planned.state == State::Pending && planned.after.iter().all(is_over);
    let has_room = |load| match load {
        _ if alone > 0 => false,
        Load::Computes => computing == 0,
        Load::Waits => waiting < WAITING_MAX,
        Load::Alone => computing + waiting == 0,
    };
    let first = |load| {
        let at = plan.iter().position(|planned| planned.load == load && is_ready(planned));
        at.filter(|_| has_room(load))
    };
    [Load::Waits, Load::Computes, Load::Alone].into_iter().find_map(first)
}

/// Ends the steps that come after one that has not passed.
fn give_up(plan: &mut [Planned], results: &mut Vec<Ended>) {
    loop {
        let lost = |name: &String| {
            let of = |it: &&Planned| it.job.name == *name;
            plan.iter().find(of).is_some_and(|it| it.state == State::NotPassed && !it.is_over())
        };
        let found = plan.iter().enumerate().find_map(|(at, planned)| {
            let cause = planned.after.iter().find(|name| lost(name))?;
            (planned.state == State::Pending).then(|| (at, cause.clone()))
        });
        let Some((at, cause)) = found else { return };
        plan[at].state = State::NotPassed;
        let outcome = Outcome::Failed(format!("not run: {cause} has not passed"));
        results.push(Ended { name: plan[at].job.name.clone(), outcome, seconds: 0 });
    }
}

/// Completes at a signal to end.
async fn interrupted() {
    let mut terminate = signal(SignalKind::terminate()).expect("a signal can be awaited");
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}
