//! Runs the history of a plan.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use lockwheel_compat::judge::history;

use crate::actors::{self, Actor};
use crate::core::{Core, Event, Violation};
use crate::judge;
use crate::plan::Plan;
use crate::trace::Trace;

/// Time after the end in which clients may still read.
const AFTER_END_US: i64 = 15_000_000;

/// Time in which clients may finish what they have begun.
const FINISH_US: i64 = 1_000_000;

/// What came of a history.
#[derive(Debug)]
pub struct Outcome {
    /// What is wrong.
    pub violations: Vec<Violation>,
    /// The hash of everything that happened.
    pub hash: u64,
    /// What happened, if it was wanted.
    pub lines: Vec<String>,
    /// The requests to locks.
    pub history: Vec<history::Event>,
    /// What the nodes of a cluster have done, for the specification.
    pub nodes: lockwheel_specification::trace::Trace,
}

thread_local! {
    static PANIC: Cell<String> = const { Cell::new(String::new()) };
}

/// Panics are found, not shown.
pub fn catch_panics() {
    std::panic::set_hook(Box::new(|info| PANIC.set(info.to_string())));
}

/// Runs a history; keeps its lines if `is_story`.
pub fn run(plan: &Plan, is_story: bool) -> Outcome {
    lockwheel_defects::set(plan.defect);
    lockwheel::simulation::raft::set_seed(plan.seed);
    PANIC.take();
    let mut core = Core::new(plan, Trace::new(is_story));
    let played = catch_unwind(AssertUnwindSafe(|| play(&mut core)));
    if played.is_err() {
        core.report("panic", "a panic".to_owned());
    }
    let mut violations = std::mem::take(&mut core.violations);
    let panic = PANIC.take();
    for violation in violations.iter_mut().filter(|violation| violation.kind == "panic") {
        violation.text = format!("{}: {panic}", violation.text);
    }
    if violations.is_empty() {
        violations = judge::judge(plan, &core.history);
        violations.extend(core.native.judge());
    }
    let history = std::mem::take(&mut core.history);
    let hash = core.trace.hash();
    let lines = core.trace.lines.take().unwrap_or_default();
    let nodes = std::mem::take(&mut core.recorder.trace);
    Outcome { violations, hash, lines, history, nodes }
}

fn play(core: &mut Core) {
    let mut actors: Vec<Box<dyn Actor>> = Vec::new();
    for client in 0..core.plan.roles.len() {
        actors.push(actors::create(core, client));
    }
    let in_process: Vec<usize> = (0..actors.len())
        .filter(|client| core.plan.roles[*client].1 == crate::plan::Role::InProcess)
        .collect();
    let end_us = core.plan.end_us;
    while let Some(event) = core.next(end_us + AFTER_END_US) {
        core.is_ending = core.now_us > end_us;
        let is_of_server = matches!(
            event,
            Event::Server(..) | Event::Fault(_) | Event::Start(_) | Event::Crash(..)
        );
        if let Some((client, notices)) = core.handle(event) {
            for notice in notices {
                actors[client].notice(core, notice);
            }
        }
        if is_of_server {
            for client in &in_process {
                actors[*client].after_step(core);
            }
        }
        let is_over = core.unread == 0 && core.is_healed && core.now_us > end_us + FINISH_US;
        if is_over || !core.violations.is_empty() {
            break;
        }
    }
    actors.iter_mut().for_each(|actor| actor.end(core));
    // Clients within the process end before the process.
    drop(actors);
}
