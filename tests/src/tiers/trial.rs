//! Runs one script by both tiers, in engines and in interpreters without a server, and compares the
//! results.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lockwheel_engine::limits::SCRIPTS;
use lockwheel_scripting::{Tiers, outside_of_plans};

use super::grammar::Request;
use super::pair::{Pair, Side};
use super::recording_host::{self, InterpreterPair};

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The tiers behave alike.
    Same,
    /// The script is not valid Lua.
    NoLua,
    /// There is no plan for the script.
    Outside,
    /// The script does not end, or Lua itself behaves differently each time, because the script
    /// shows an address.
    Undetermined,
    /// The tiers differ; the text describes how.
    Differs(String),
}

/// Compares the tiers.
#[derive(Default)]
pub struct Trial {
    pair: Pair,
    interpreters: InterpreterPair,
    tiers: Tiers,
}

impl Trial {
    /// Creates new engines and interpreters.
    pub fn new() -> Trial {
        Trial::default()
    }

    /// The tiers by which the engine with plans has run the latest script.
    pub fn tiers(&self) -> Tiers {
        self.tiers
    }

    /// Runs a script with the initial keys, in one version of the protocol.
    pub fn run(&mut self, script: &str, request: &Request, protocol: u8) -> Outcome {
        let before = self.pair.tiers();
        let run = catch_unwind(AssertUnwindSafe(|| self.compare(script, request, protocol)));
        let mut outcome = run.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Outcome::Differs(format!("panic: {}", text.unwrap_or_default()))
        });
        let after = self.pair.tiers();
        self.tiers = Tiers {
            planned: after.planned.saturating_sub(before.planned),
            left: after.left.saturating_sub(before.left),
            lua: after.lua.saturating_sub(before.lua),
            disagreed: after.disagreed.saturating_sub(before.disagreed),
        };
        if outcome == Outcome::Same && self.tiers.disagreed > 0 {
            outcome = Outcome::Differs("a check of the plan, or its replay, fails".to_owned());
        }
        if matches!(outcome, Outcome::Differs(_)) {
            // Their state is unknown after a difference.
            *self = Trial { tiers: self.tiers, ..Trial::new() };
        }
        outcome
    }

    fn compare(&mut self, script: &str, request: &Request, protocol: u8) -> Outcome {
        if outside_of_plans(script.as_bytes(), &SCRIPTS).is_some() {
            // Both run it in Lua alone: one run is enough to detect panics.
            return match self.interpreters.observe_plain(script, request) {
                None => Outcome::NoLua,
                Some(_) => Outcome::Outside,
            };
        }
        let Some(observed) = self.interpreters.observe(script, request) else {
            return Outcome::NoLua;
        };
        if observed.iter().any(|observed| observed.is_endless) {
            return Outcome::Undetermined;
        }
        if observed[0] != observed[1] {
            let plain = || {
                let mut interpreter = recording_host::interpreter(false);
                let again = recording_host::observe(&mut interpreter, script, request);
                (interpreter, again.as_ref() == Some(&observed[1]))
            };
            return match is_determined(plain) {
                true => {
                    Outcome::Differs(format!("plan: {:?}\nLua: {:?}", observed[0], observed[1]))
                }
                false => Outcome::Undetermined,
            };
        }
        let seen = self.pair.observe(script, request, protocol);
        if seen.iter().any(|seen| seen.is_endless) {
            return Outcome::Undetermined;
        }
        if seen[0] != seen[1] {
            let plain = || {
                let mut side = Side::new(false);
                side.reset_keys();
                let is_same = side.observe(script, request, protocol) == seen[1];
                (side, is_same)
            };
            return match is_determined(plain) {
                true => Outcome::Differs(format!("plan: {}\nLua: {}", seen[0], seen[1])),
                false => Outcome::Undetermined,
            };
        }
        Outcome::Same
    }
}

/// Lua states in which a script must behave alike before it counts as determined. A script that
/// branches on a digit of an address does so in half of them.
const STATES: usize = 32;

/// Whether Lua behaves alike each time. `plain` runs the script in a new state and returns that
/// state with the result. The states are kept until the end, so that each has other addresses.
fn is_determined<State>(plain: impl Fn() -> (State, bool)) -> bool {
    let mut kept = Vec::new();
    (0..STATES).all(|_| {
        let (state, is_same) = plain();
        kept.push(state);
        is_same
    })
}

/// The smallest part of a script for which `fails` still returns true.
pub fn shrink(script: &str, mut fails: impl FnMut(&str) -> bool) -> String {
    let mut tokens = tokens(script);
    let mut span = tokens.len() / 2;
    while span > 0 {
        let mut at = 0;
        let mut has_shrunk = false;
        while at + span <= tokens.len() {
            let mut shorter = tokens[..at].to_vec();
            shorter.extend_from_slice(&tokens[at + span..]);
            if fails(&shorter.concat()) {
                tokens = shorter;
                has_shrunk = true;
            } else {
                at += 1;
            }
        }
        if !has_shrunk || span > 1 {
            span = if span > 12 { span / 2 } else { span - 1 };
        }
    }
    tokens.concat()
}

/// Words, signs and strings, each with the blanks after it.
fn tokens(script: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut rest = script;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '\'' | '"' => {
                let mut escaped = false;
                let end = rest[1..].find(|letter| {
                    let ends = letter == first && !escaped;
                    escaped = letter == '\\' && !escaped;
                    ends
                });
                end.map_or(rest.len(), |end| end + 2)
            }
            letter if letter.is_alphanumeric() || letter == '_' => {
                let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
                rest.find(|letter| !is_word(letter)).unwrap_or(rest.len())
            }
            letter => letter.len_utf8(),
        };
        let blanks = rest[length..].len() - rest[length..].trim_start().len();
        let (token, behind) = rest.split_at(length + blanks);
        all.push(token);
        rest = behind;
    }
    all
}
