//! The events of the nodes of a cluster, for the specification: `docs/specification.md` defines
//! them. Nodes show their votes, logs and leases after each step; what happens within a step is
//! taken from the log messages of `openraft`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::{Debug, Write};

use lockwheel::simulation::SimulatedServer;
use lockwheel::simulation::raft::{NodeId, Role};
use lockwheel_simulated_disk::SimulatedDisk;
use lockwheel_specification::trace::{EntryId, Event, GivenVote, Shown, Trace, What};
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Dispatch, Level, Metadata, Subscriber};

use crate::machine::{LEASE_MS, Machine};
use crate::plan::Plan;

/// Times are compared to this.
const ROUNDING_MS: u16 = 1;

/// Records the history of a cluster.
#[derive(Debug, Default)]
pub struct Recorder {
    /// The history.
    pub trace: Trace,
    /// What each node has shown last, and until when it leads by its clock.
    shown: BTreeMap<NodeId, (Shown, i64)>,
}

impl Recorder {
    /// A recorder of the history with this plan.
    pub fn new(plan: &Plan) -> Recorder {
        let first = if plan.backup_lease_us.is_some() { 1 } else { plan.servers as NodeId };
        let (promise_ms, margin_ms) = (LEASE_MS - ROUNDING_MS, LEASE_MS / 10 - 2 * ROUNDING_MS);
        let trace =
            Trace { members: (1..=first).collect(), promise_ms, margin_ms, ..Trace::default() };
        Recorder { trace, shown: BTreeMap::new() }
    }

    /// A process has started, or has failed to: the clock of its machine, and the vote that was on
    /// its disk.
    pub fn start(
        &mut self,
        now_us: i64,
        machine: &Machine,
        (slow_ppm, vote): (i64, GivenVote),
        within: Vec<What>,
    ) {
        let (node, is_in_doubt) = (machine.node_id(), machine.disk.contents("doubt").is_some());
        self.shown.remove(&node);
        self.add(now_us, node, What::Started { slow_ppm, vote, is_in_doubt });
        match &machine.server {
            // What it shows is not what is on its disk before its first step.
            Some(_) => within.into_iter().for_each(|what| self.add(now_us, node, what)),
            None => self.add(now_us, node, What::Ended(within)),
        }
    }

    /// A node has done this in a step, which may have ended its process.
    pub fn step(&mut self, now_us: i64, machine: &Machine, mut within: Vec<What>) {
        let node = machine.node_id();
        let Some(process) = &machine.server else { return };
        if machine.disk.has_crashed() || process.is_stopping() {
            if !within.is_empty() {
                self.add(now_us, node, What::Ended(within));
            }
            return;
        }
        let Some(mut shown) = show(process) else { return };
        for what in &mut within {
            if let What::Message(_, last) = what {
                *last = shown.last;
            }
        }
        within.into_iter().for_each(|what| self.add(now_us, node, what));
        let until_us = machine.clock_us() + shown.lease_us;
        let lease_us = std::mem::take(&mut shown.lease_us);
        let now = (shown, if lease_us > 0 { until_us } else { 0 });
        if self.shown.get(&node) != Some(&now) {
            self.add(now_us, node, What::Shows(Shown { lease_us, ..now.0.clone() }));
            self.shown.insert(node, now);
        }
    }

    /// A node is removed, and its disk is lost.
    pub fn remove(&mut self, now_us: i64, node: NodeId) {
        self.add(now_us, node, What::Removed);
    }

    /// A client has got an answer of a node to a request that it has sent at `asked_us`.
    pub fn answered(&mut self, now_us: i64, node: NodeId, asked_us: i64) {
        self.add(now_us, node, What::Answered(asked_us));
    }

    fn add(&mut self, at_us: i64, node: NodeId, what: What) {
        self.trace.events.push(Event { at_us, node, what });
    }
}

/// The number of an entry, if there is one.
macro_rules! entry {
    ($id:expr) => {
        $id.as_ref().map(|id| EntryId {
            term: id.leader_id.term,
            node: id.leader_id.node_id,
            index: id.index,
        })
    };
}

/// What the node of a process shows.
fn show(process: &SimulatedServer) -> Option<Shown> {
    let (node, runtime) = process.peer_port()?;
    let _entered = runtime.enter();
    let metrics = node.metrics();
    let metrics = metrics.borrow();
    let progress = node.progress();
    let progress = progress.borrow();
    let role = node.role();
    let lease = node.leads_until().map(|until| until.saturating_duration_since(Instant::now()));
    let members = &metrics.membership_config;
    let barrier = match *role.borrow() {
        Role::Leader { barrier } => Some(barrier),
        Role::Follower => None,
    };
    Some(Shown {
        vote: GivenVote {
            term: metrics.vote.leader_id.term,
            node: metrics.vote.leader_id.node_id,
            is_elected: metrics.vote.committed,
        },
        last: entry!(progress.last_log),
        applied: entry!(progress.last_applied),
        members: (entry!(members.log_id()), members.membership().get_joint_config().clone()),
        barrier,
        lease_us: lease.map_or(0, |lease| i64::try_from(lease.as_micros()).unwrap_or(i64::MAX / 2)),
    })
}

/// The vote on the disk of a node.
pub fn vote_on(disk: &SimulatedDisk) -> GivenVote {
    let file = disk.contents("vote").unwrap_or_default();
    let text = String::from_utf8_lossy(&file);
    let value = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let number = |name| value(name).and_then(|value| value.parse().ok()).unwrap_or(0);
    let (term, node) = (number("term "), number("node "));
    GivenVote { term, node, is_elected: value("committed ") == Some("yes") }
}

// --- what happens within a step ---

thread_local! {
    static WITHIN: RefCell<Within> = RefCell::new(Within::default());
    static DISPATCH: Dispatch = Dispatch::new(Messages);
}

/// What a node has done since it was last asked.
#[derive(Debug, Default)]
struct Within {
    all: Vec<What>,
    /// The nodes that tasks of replication send to, by their spans, and those that run.
    targets: BTreeMap<u64, NodeId>,
    running: Vec<NodeId>,
}

/// Runs what a node does; returns that, and what has happened.
pub fn listen<T>(run: impl FnOnce() -> T) -> (T, Vec<What>) {
    let result = DISPATCH.with(|dispatch| tracing::dispatcher::with_default(dispatch, run));
    (result, WITHIN.with_borrow_mut(|within| std::mem::take(&mut within.all)))
}

/// Reads some log messages of `openraft`.
struct Messages;

/// The kinds of messages that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Message,
    Voted,
    Reply,
    Replication,
}

fn kind(metadata: &Metadata<'_>) -> Option<Kind> {
    let has = |field| metadata.fields().field(field).is_some();
    match metadata.target() {
        "openraft::engine::engine_impl" if has("prev_log_id") && has("my_vote") => {
            Some(Kind::Message)
        }
        "openraft::engine::handler::vote_handler" if *metadata.level() == Level::INFO => {
            Some(Kind::Voted)
        }
        "openraft::replication" if has("req") && has("resp") => Some(Kind::Reply),
        "openraft::core::raft_core" if metadata.name() == "replication" => Some(Kind::Replication),
        _ => None,
    }
}

impl Subscriber for Messages {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if kind(metadata).is_some() { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        kind(metadata).is_some()
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut texts = Texts::default();
        attributes.record(&mut texts);
        WITHIN.with_borrow_mut(|within| {
            let id = within.targets.keys().next_back().map_or(1, |last| last + 1);
            within.targets.insert(id, texts.get("target").parse().unwrap_or(0));
            Id::from_u64(id)
        })
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut texts = Texts::default();
        event.record(&mut texts);
        let what = match kind(event.metadata()) {
            Some(Kind::Message) => {
                vote_of_text(texts.get("vote")).map(|vote| What::Message(vote, None))
            }
            Some(Kind::Voted) => {
                let changes = texts.get("message").strip_prefix("vote is changing from ");
                changes
                    .and_then(|text| text.split_once(" to "))
                    .and_then(|(_, to)| vote_of_text(to))
                    .map(What::Voted)
            }
            Some(Kind::Reply) if !texts.get("resp").starts_with("Higher") => {
                WITHIN.with_borrow(|within| within.running.last().copied()).map(What::Reply)
            }
            _ => None,
        };
        WITHIN.with_borrow_mut(|within| within.all.extend(what));
    }

    fn enter(&self, span: &Id) {
        WITHIN.with_borrow_mut(|within| {
            let target = within.targets.get(&span.into_u64()).copied().unwrap_or(0);
            within.running.push(target);
        });
    }

    fn exit(&self, _: &Id) {
        WITHIN.with_borrow_mut(|within| within.running.pop());
    }

    fn try_close(&self, span: Id) -> bool {
        WITHIN.with_borrow_mut(|within| within.targets.remove(&span.into_u64()));
        true
    }
}

/// The vote of a text such as `T3-N1:committed`.
fn vote_of_text(text: &str) -> Option<GivenVote> {
    let (leader, state) = text.split_once(':')?;
    let (term, node) = leader.strip_prefix('T')?.split_once("-N")?;
    let (term, node) = (term.parse().ok()?, node.parse().ok()?);
    Some(GivenVote { term, node, is_elected: state == "committed" })
}

/// The fields that are read.
#[derive(Debug, Default)]
struct Texts(BTreeMap<&'static str, String>);

impl Texts {
    fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

impl Visit for Texts {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if ["message", "vote", "resp", "target"].contains(&field.name()) {
            let mut text = String::new();
            // Writing to a string succeeds.
            let _ = write!(text, "{value:?}");
            self.0.insert(field.name(), text);
        }
    }
}
