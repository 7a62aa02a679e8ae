//! Applies the rules of faults and of gates to requests.

use lockwheel_resp::Reply;
use serde::Serialize;

use super::rule::{FaultAction, Request, Rule, RuleConditions};
use super::writes::Writes;
use crate::command::Flags;
use crate::error::Error;
use crate::sessions::ClientId;
use crate::sessions::waiters::RuleBlock;
use crate::timing::time::{ClockOrder, Millis, Time};
use crate::{Engine, Flow, RequestOutcome};

/// The fault rules. The waits of held clients refer to them.
#[derive(Debug, Default)]
pub struct Faults {
    rules: Vec<Rule>,
    last_id: u64,
    /// The recent writes, if they can be undone.
    pub(crate) writes: Option<Box<Writes>>,
    /// Whether writes are being undone.
    pub(super) is_undoing: bool,
}

/// How a rule changes the processing of a request.
enum FaultDecision {
    /// Run the request; the rest of the action follows.
    Run(FaultAction),
    /// Return this instead of running the request.
    Instead(RequestOutcome),
}

/// A rule with its state, for display.
#[derive(Serialize)]
struct RuleStatus<'a> {
    #[serde(flatten)]
    rule: &'a Rule,
    /// The `CLIENT ID`s of the clients it holds.
    held: Vec<u64>,
}

impl Faults {
    /// No rules; `keep_writes` if writes can be undone.
    pub fn new(keep_writes: bool) -> Faults {
        Faults { writes: keep_writes.then(Box::default), ..Faults::default() }
    }

    /// Appends a rule; returns its id.
    fn add(&mut self, action: FaultAction, when: RuleConditions) -> u64 {
        self.last_id += 1;
        self.rules.push(Rule { id: self.last_id, action, when, matched: 0, fired: 0 });
        self.last_id
    }

    /// The first rule that fires for a request, with its action. Every matching rule counts the
    /// request.
    fn decide(&mut self, request: Request<'_>) -> Option<(u64, FaultAction)> {
        let mut fired = None;
        for rule in self.rules.iter_mut().filter(|rule| rule.action != FaultAction::Refuse) {
            if rule.fires(request) && fired.is_none() {
                fired = Some((rule.id, rule.action.clone()));
            }
        }
        fired
    }
}

impl Engine {
    /// Adds a rule after the others; returns its id.
    pub fn add_fault(&mut self, action: FaultAction, when: RuleConditions) -> u64 {
        self.instruments.get_or_insert_default().faults.add(action, when)
    }

    /// The rule with this id.
    pub fn fault(&self, id: u64) -> Option<&Rule> {
        self.faults()?.rules.iter().find(|rule| rule.id == id)
    }

    /// Whether writes are kept, so that a rule can lose them.
    pub fn keeps_writes(&self) -> bool {
        self.faults().is_some_and(|faults| faults.writes.is_some())
    }

    /// Whether a new connection should be refused.
    pub(crate) fn refuses_connection(&mut self) -> bool {
        let connection = Request { client: b"", client_id: 0, command: b"", keys: &[] };
        let mut rules = self.faults_mut().into_iter().flat_map(|faults| &mut faults.rules);
        rules.any(|rule| rule.action == FaultAction::Refuse && rule.fires(connection))
    }

    /// Runs a request with the rules for it.
    pub(crate) fn run_with_faults(
        &mut self,
        time: Time,
        client: ClientId,
        argv: &[&[u8]],
    ) -> RequestOutcome {
        let action = match self.decide(client, argv) {
            Some((rule, action)) => {
                self.announce_fault(rule, action.effect());
                match self.before_request(time, client, rule, action, argv) {
                    FaultDecision::Run(action) => Some(action),
                    FaultDecision::Instead(outcome) => {
                        self.note_fault(time, client, argv);
                        return outcome;
                    }
                }
            }
            None => None,
        };
        let mut outcome = self.run_for_outcome(time, client, argv);
        if action.is_some() {
            self.note_fault(time, client, argv);
        }
        match action {
            // For a blocked client, the reply that ends the wait is lost.
            Some(FaultAction::Lose) if outcome.flow != Flow::Wait => {
                self.set_loses_reply(client, false);
            }
            Some(FaultAction::LoseAndClose) => return RequestOutcome::without_reply(Flow::Close),
            Some(FaultAction::Cut { bytes }) => {
                (outcome.flow, outcome.cut_after) = (Flow::Close, Some(bytes));
            }
            Some(FaultAction::Jump { span }) if outcome.flow == Flow::Next => {
                outcome.flow = Flow::Clock(ClockOrder::Jump(span));
            }
            Some(FaultAction::LoseWrites { writes }) => {
                self.lose_writes(writes, time);
                self.note_lost_writes(time, client);
            }
            _ => {}
        }
        outcome
    }

    /// Applies the part of an action that precedes the request or replaces it.
    fn before_request(
        &mut self,
        time: Time,
        client: ClientId,
        rule: u64,
        action: FaultAction,
        argv: &[&[u8]],
    ) -> FaultDecision {
        let flow = match action {
            FaultAction::Drop => Flow::Next,
            FaultAction::Close | FaultAction::Refuse => Flow::Close,
            FaultAction::Error { line } => {
                return FaultDecision::Instead(self.answer_error(client, argv, line));
            }
            FaultAction::Delay { span } => {
                let until = time.after(span).unwrap_or(Millis(i64::MAX));
                self.hold(rule, client, Some(until))
            }
            FaultAction::Stall | FaultAction::Gate => self.hold(rule, client, None),
            FaultAction::FlushScripts => {
                self.flush_scripts();
                return FaultDecision::Run(action);
            }
            FaultAction::Lose => {
                self.set_loses_reply(client, true);
                return FaultDecision::Run(action);
            }
            FaultAction::LoseAndClose
            | FaultAction::Cut { .. }
            | FaultAction::Jump { .. }
            | FaultAction::LoseWrites { .. } => return FaultDecision::Run(action),
        };
        FaultDecision::Instead(RequestOutcome::without_reply(flow))
    }

    fn decide(&mut self, client: ClientId, argv: &[&[u8]]) -> Option<(u64, FaultAction)> {
        let state = self.sessions.get_mut(client)?;
        let has_been_held = std::mem::take(&mut state.has_been_held);
        let faults = self.instruments.as_mut().map(|instruments| &mut instruments.faults)?;
        if faults.rules.is_empty() || has_been_held {
            return None;
        }
        let command = self.commands.find(argv[0]).map(|at| {
            let sub = argv.get(1).and_then(|name| self.commands.find_subcommand(at, name));
            self.commands.entry(sub.unwrap_or(at))
        });
        // A rule must not keep a test from removing it.
        if command.is_some_and(|entry| entry.command.flags.contains(Flags::FOR_TESTS)) {
            return None;
        }
        let unknown = argv[0].to_ascii_lowercase();
        let places = command.and_then(|entry| entry.command.key_places(argv)).unwrap_or_default();
        let keys: Vec<&[u8]> = places.iter().filter_map(|&at| argv.get(at).copied()).collect();
        let request = Request {
            client: &state.name,
            client_id: client.serial,
            command: command.map_or(&unknown, |entry| entry.full_name.as_bytes()),
            keys: &keys,
        };
        faults.decide(request)
    }

    fn answer_error(&mut self, client: ClientId, argv: &[&[u8]], line: String) -> RequestOutcome {
        let error = self.break_transaction(client, Error::text(line), argv);
        let reply = self.error_reply(error);
        let mut outcome = RequestOutcome::without_reply(Flow::Next);
        if let Some(state) = self.sessions.get(client) {
            outcome.protocol = state.protocol;
            outcome.reply = (!state.is_muted()).then_some(reply);
        }
        outcome
    }

    fn hold(&mut self, rule: u64, client: ClientId, until: Option<Millis>) -> Flow {
        self.sessions.block_by_rule(client, RuleBlock::Held(rule), Reply::NOTHING, until);
        if let Some(state) = self.sessions.get_mut(client) {
            state.has_been_held = true;
        }
        for waiter in self.sessions.blocked_by(RuleBlock::Awaits(rule)) {
            self.unblock(waiter, &held_reply(client));
        }
        Flow::Again
    }

    /// Blocks a client until a rule holds another client; returns the reply if one is held already.
    pub(crate) fn await_held(&mut self, client: ClientId, rule: u64) -> Reply {
        if let Some(&held) = self.sessions.blocked_by(RuleBlock::Held(rule)).first() {
            return held_reply(held);
        }
        self.sessions.block_by_rule(client, RuleBlock::Awaits(rule), Reply::Null, None);
        Reply::NOTHING
    }

    /// The rules that match a condition, as JSON.
    pub fn show_faults(&self, chosen: impl Fn(&Rule) -> bool) -> String {
        let rules = self.faults().into_iter().flat_map(|faults| &faults.rules);
        let shown = rules.filter(|rule| chosen(rule)).map(|rule| {
            let held = self.sessions.blocked_by(RuleBlock::Held(rule.id)).into_iter();
            RuleStatus { rule, held: held.map(|id| id.serial).collect() }
        });
        serde_json::to_string(&shown.collect::<Vec<_>>()).unwrap_or_default()
    }

    /// Removes the rules that match a condition and releases the clients they hold; returns the
    /// numbers of rules and clients.
    pub fn clear_faults(&mut self, chosen: impl Fn(&Rule) -> bool) -> (usize, usize) {
        let Some(faults) = self.faults_mut() else { return (0, 0) };
        let rules = std::mem::take(&mut faults.rules).into_iter();
        let (gone, kept) = rules.partition::<Vec<Rule>, _>(chosen);
        faults.rules = kept;
        let mut freed = 0;
        for rule in &gone {
            for held in self.sessions.blocked_by(RuleBlock::Held(rule.id)) {
                self.note_freed(held, rule.id);
                self.end_wait(held);
                freed += 1;
            }
            for waiter in self.sessions.blocked_by(RuleBlock::Awaits(rule.id)) {
                self.unblock(waiter, &Reply::Null);
            }
        }
        (gone.len(), freed)
    }

    fn set_loses_reply(&mut self, client: ClientId, yes: bool) {
        if let Some(state) = self.sessions.get_mut(client) {
            state.loses_reply = yes;
        }
    }
}

fn held_reply(client: ClientId) -> Reply {
    Reply::Integer(i64::try_from(client.serial).unwrap_or(i64::MAX))
}
