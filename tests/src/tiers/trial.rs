//! One script, run by both tiers in every way there is, and what comes of it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use lockwheel_engine::limits::SCRIPTS;
use lockwheel_scripting::{Tiers, outside_of_plans};

use super::grammar::Request;
use super::pair::{Pair, Side};
use super::puppet::{self, Puppets};

/// What came of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nobody can tell the tiers apart.
    Same,
    /// It is no Lua.
    NoLua,
    /// There is no plan for it.
    Outside,
    /// It has no end, or Lua itself does something else each time: it shows an address.
    Undetermined,
    /// They differ, in this.
    Differs(String),
}

/// Runs scripts.
#[derive(Default)]
pub struct Trial {
    pair: Pair,
    puppets: Puppets,
    tiers: Tiers,
}

impl Trial {
    /// Engines and interpreters that have run nothing.
    pub fn new() -> Trial {
        Trial::default()
    }

    /// By which tier the engine with plans has run the latest script.
    pub fn tiers(&self) -> Tiers {
        self.tiers
    }

    /// Runs a script in a fresh world, in one version of the protocol.
    pub fn run(&mut self, script: &str, request: &Request, protocol: u8) -> Outcome {
        let before = self.pair.tiers();
        let run = catch_unwind(AssertUnwindSafe(|| self.compare(script, request, protocol)));
        let outcome = run.unwrap_or_else(|panic| {
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
        if matches!(outcome, Outcome::Differs(_)) {
            // Whatever state they are in now.
            *self = Trial { tiers: self.tiers, ..Trial::new() };
        }
        outcome
    }

    fn compare(&mut self, script: &str, request: &Request, protocol: u8) -> Outcome {
        if outside_of_plans(script.as_bytes(), &SCRIPTS).is_some() {
            // Lua alone runs it, everywhere: once is enough to see that nothing panics.
            return match self.puppets.observe_plain(script, request) {
                None => Outcome::NoLua,
                Some(_) => Outcome::Outside,
            };
        }
        let Some(heard) = self.puppets.observe(script, request) else { return Outcome::NoLua };
        if heard.iter().any(|heard| heard.is_endless) {
            return Outcome::Undetermined;
        }
        if heard[0] != heard[1] {
            let plain = || {
                let mut interpreter = puppet::interpreter(false);
                let again = puppet::observe(&mut interpreter, script, request);
                (interpreter, again.as_ref() == Some(&heard[1]))
            };
            return match is_determined(plain) {
                true => Outcome::Differs(format!("plan: {:?}\nLua: {:?}", heard[0], heard[1])),
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
                side.make_world();
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

/// Lua states in which a script has to do the same before it counts as determined: one that
/// branches on a digit of an address does so in half of them.
const STATES: usize = 32;

/// Whether Lua does the same each time: `plain` runs the script in a new state and returns that
/// with the answer. The states are kept until the end, so that each has addresses of its own.
fn is_determined<State>(plain: impl Fn() -> (State, bool)) -> bool {
    let mut kept = Vec::new();
    (0..STATES).all(|_| {
        let (state, is_same) = plain();
        kept.push(state);
        is_same
    })
}

/// The least part of a script that still fails, as `fails` says.
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

/// Words, signs and strings, each with the blanks behind it.
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
