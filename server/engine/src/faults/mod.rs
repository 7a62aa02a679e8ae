//! Faults: what a test has ordered to go wrong, and gates at which clients are held so that a race
//! can be written down. Rules are looked at before a request passes the engine's own gates; the
//! commands of the namespace `LOCKWHEEL` are never subject to any.

pub mod rule;
pub mod writes;

use bytes::BytesMut;
use lockwheel_resp::Reply;
use lockwheel_resp::encode::encode;
use serde::Serialize;

use crate::command::Command;
use crate::context::{Caller, Context, is};
use crate::error::Error;
use crate::session::ClientId;
use crate::time::{ClockOrder, Millis, Time};
use crate::waiters::RuleBlock;
use crate::{Engine, Flow};
use rule::{Action, Request, Rule, When};
use writes::Writes;

/// The rules. Whom they hold stands in those clients' waits.
#[derive(Debug, Default)]
pub struct Faults {
    rules: Vec<Rule>,
    last_id: u64,
    /// What can be undone, if anybody may want that.
    pub(super) writes: Option<Box<Writes>>,
}

/// What a rule has made of a request.
enum FaultDecision {
    /// It is run; the rest of this is done then.
    Run(Action),
    /// It is not run now.
    Instead(Flow),
}

/// A rule as it is shown.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    rule: &'a Rule,
    /// The `CLIENT ID`s of those it holds.
    held: Vec<u64>,
}

impl Faults {
    /// No rules yet; `keep_writes` if they may be undone.
    pub fn new(keep_writes: bool) -> Faults {
        Faults { writes: keep_writes.then(Box::default), ..Faults::default() }
    }

    /// Whether requests have to be looked at.
    #[inline]
    pub(super) fn watch_requests(&self) -> bool {
        !self.rules.is_empty() || self.writes.is_some()
    }

    /// Whether writes are kept.
    pub fn keep_writes(&self) -> bool {
        self.writes.is_some()
    }

    /// Adds a rule behind the others; returns its number.
    pub fn add(&mut self, action: Action, when: When) -> u64 {
        self.last_id += 1;
        self.rules.push(Rule { id: self.last_id, action, when, matched: 0, fired: 0 });
        self.last_id
    }

    /// The rule with this number.
    pub fn rule(&self, id: u64) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.id == id)
    }

    /// Whether there is such a rule, and whether it is a gate.
    pub fn is_gate(&self, id: u64) -> Option<bool> {
        self.rule(id).map(|rule| rule.action == Action::Gate)
    }

    /// What becomes of a request: what the first rule says that is for it. All of them count it.
    fn judge(&mut self, request: Request<'_>) -> Option<(u64, Action)> {
        let mut judged = None;
        for rule in self.rules.iter_mut().filter(|rule| rule.action != Action::Refuse) {
            if rule.fires(request) && judged.is_none() {
                judged = Some((rule.id, rule.action.clone()));
            }
        }
        judged
    }
}

impl Engine {
    /// Whether somebody who connects just now is to be sent away.
    pub fn refuses_connection(&mut self) -> bool {
        let nobody = Request { client: b"", client_id: 0, command: b"", keys: &[] };
        let mut rules = self.faults.rules.iter_mut();
        rules.any(|rule| rule.action == Action::Refuse && rule.fires(nobody))
    }

    /// As [`Engine::run`], where rules may be for the request and writes may have to be kept.
    #[cold]
    pub(super) fn run_with_faults(
        &mut self,
        time: Time,
        client: ClientId,
        argv: &[&[u8]],
        out: &mut BytesMut,
    ) -> Flow {
        let action = match self.judge(client, argv) {
            Some((rule, action)) => {
                match self.before_request(time, client, rule, action, argv, out) {
                    FaultDecision::Run(action) => Some(action),
                    FaultDecision::Instead(flow) => return flow,
                }
            }
            None => None,
        };
        let sent = out.len();
        let flow = self.run_without_faults(time, client, argv, out);
        self.keep_write(time);
        match action {
            // Who waits loses what ends the wait.
            Some(Action::Lose) if flow != Flow::Wait => self.set_loses_reply(client, false),
            Some(Action::LoseAndClose) => {
                out.truncate(sent);
                return Flow::Close;
            }
            Some(Action::Cut { bytes }) => {
                out.truncate(sent.saturating_add(bytes));
                return Flow::Close;
            }
            Some(Action::Jump { span }) if flow == Flow::Next => {
                return Flow::Clock(ClockOrder::Jump(span));
            }
            Some(Action::LoseWrites { writes }) => {
                self.context_of(client, time).lose_writes(writes);
                self.note_lost_writes(time, client);
            }
            _ => {}
        }
        flow
    }

    /// What a rule does to a request before it is run, or instead.
    fn before_request(
        &mut self,
        time: Time,
        client: ClientId,
        rule: u64,
        action: Action,
        argv: &[&[u8]],
        out: &mut BytesMut,
    ) -> FaultDecision {
        let flow = match action {
            Action::Drop => Flow::Next,
            Action::Close | Action::Refuse => Flow::Close,
            Action::Error { line } => {
                self.answer_error(client, argv, line, out);
                Flow::Next
            }
            Action::Delay { span } => {
                let until = time.after(span).unwrap_or(Millis(i64::MAX));
                self.hold(rule, client, Some(until))
            }
            Action::Stall | Action::Gate => self.hold(rule, client, None),
            Action::FlushScripts => {
                self.flush_scripts();
                return FaultDecision::Run(action);
            }
            Action::Lose => {
                self.set_loses_reply(client, true);
                return FaultDecision::Run(action);
            }
            Action::LoseAndClose
            | Action::Cut { .. }
            | Action::Jump { .. }
            | Action::LoseWrites { .. } => return FaultDecision::Run(action),
        };
        FaultDecision::Instead(flow)
    }

    fn judge(&mut self, client: ClientId, argv: &[&[u8]]) -> Option<(u64, Action)> {
        let state = self.sessions.get_mut(client)?;
        let has_been_held = std::mem::take(&mut state.has_been_held);
        if self.faults.rules.is_empty() || has_been_held || is(argv[0], "lockwheel") {
            return None;
        }
        let command = self.commands.find(argv[0]).map(|at| {
            let sub = argv.get(1).and_then(|name| self.commands.find_subcommand(at, name));
            self.commands.entry(sub.unwrap_or(at))
        });
        let unknown = argv[0].to_ascii_lowercase();
        let places = command.and_then(|entry| entry.command.key_places(argv)).unwrap_or_default();
        let keys: Vec<&[u8]> = places.iter().filter_map(|&at| argv.get(at).copied()).collect();
        let request = Request {
            client: &state.name,
            client_id: client.serial,
            command: command.map_or(&unknown, |entry| entry.full_name.as_bytes()),
            keys: &keys,
        };
        self.faults.judge(request)
    }

    fn answer_error(&mut self, client: ClientId, argv: &[&[u8]], line: String, out: &mut BytesMut) {
        let is_exec = is(argv[0], "exec");
        let reply = Reply::from(self.break_transaction(client, Error::text(line), is_exec));
        self.count_error(&reply);
        if let Some(state) = self.sessions.get(client)
            && !state.is_muted()
        {
            encode(&reply, state.protocol, out);
        }
    }

    fn hold(&mut self, rule: u64, client: ClientId, until: Option<Millis>) -> Flow {
        self.block_by_rule(client, RuleBlock::Held(rule), Reply::NOTHING, until);
        if let Some(state) = self.sessions.get_mut(client) {
            state.has_been_held = true;
        }
        for waiter in self.blocked_by(RuleBlock::Awaits(rule)) {
            self.unblock(waiter, &held_reply(client));
        }
        Flow::Again
    }

    /// Has a client wait until somebody is held by a rule; its answer if somebody is already.
    pub fn await_held(&mut self, client: ClientId, rule: u64) -> Reply {
        if let Some(&held) = self.blocked_by(RuleBlock::Held(rule)).first() {
            return held_reply(held);
        }
        self.block_by_rule(client, RuleBlock::Awaits(rule), Reply::Null, None);
        Reply::NOTHING
    }

    /// The rules that `chosen` chooses, as JSON.
    pub fn show_faults(&self, chosen: impl Fn(&Rule) -> bool) -> String {
        let shown = self.faults.rules.iter().filter(|rule| chosen(rule)).map(|rule| {
            let held = self.blocked_by(RuleBlock::Held(rule.id)).into_iter();
            Shown { rule, held: held.map(|id| id.serial).collect() }
        });
        serde_json::to_string(&shown.collect::<Vec<_>>()).unwrap_or_default()
    }

    /// Removes the rules that `chosen` chooses and lets go whom they hold; returns how many rules
    /// there were, and how many clients.
    pub fn clear_faults(&mut self, chosen: impl Fn(&Rule) -> bool) -> (usize, usize) {
        let rules = std::mem::take(&mut self.faults.rules).into_iter();
        let (gone, kept) = rules.partition::<Vec<Rule>, _>(chosen);
        self.faults.rules = kept;
        let mut freed = 0;
        for rule in &gone {
            for held in self.blocked_by(RuleBlock::Held(rule.id)) {
                self.end_wait(held);
                freed += 1;
            }
            for waiter in self.blocked_by(RuleBlock::Awaits(rule.id)) {
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

    /// What a handler would work with that runs for this client now.
    fn context_of(&mut self, client: ClientId, time: Time) -> Context<'_> {
        let database = self.sessions.get(client).map_or(0, |state| state.database);
        let (caller, command) = (Caller::Client, &Command::BASE);
        Context { engine: self, client, caller, database, time, command, name: "" }
    }
}

fn held_reply(client: ClientId) -> Reply {
    Reply::Integer(i64::try_from(client.serial).unwrap_or(i64::MAX))
}
