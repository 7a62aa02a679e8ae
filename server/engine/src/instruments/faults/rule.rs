//! A fault rule: the requests it applies to, and its action. It depends only on the description of
//! a request.

use serde::Serialize;

use crate::command::{is, one_of};
use crate::error::Error;
use crate::glob;
use crate::random::Random;
use crate::timing::time::{self, Millis, SPAN_SYNTAX};

/// The action of a rule on a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum FaultAction {
    /// Run the request after a delay on the server's clock.
    Delay {
        /// The delay.
        #[serde(rename = "delay_ms")]
        span: Millis,
    },
    /// Neither run the request nor reply.
    Drop,
    /// Close the connection without running the request.
    Close,
    /// Run the request without a reply.
    Lose,
    /// Run the request, then close the connection without a reply.
    LoseAndClose,
    /// Run the request, send the first bytes of the reply, then close the connection.
    Cut {
        /// The number of bytes to send.
        bytes: usize,
    },
    /// Hold the request and all later ones of the connection, and stop reading, until the rule is
    /// cleared.
    Stall,
    /// Reply with this error without running the request.
    Error {
        /// The error line with its code, without the dash.
        line: String,
    },
    /// Remove all cached scripts, then run the request.
    FlushScripts,
    /// Run the request, then let the clock jump, as it may in Redis: see [`ClockOrder::Jump`].
    ///
    /// [`ClockOrder::Jump`]: crate::timing::time::ClockOrder::Jump
    Jump {
        /// The distance; negative to jump back.
        #[serde(rename = "jump_ms")]
        span: Millis,
    },
    /// Run the request and reply, then undo the last writes.
    LoseWrites {
        /// The number of writes.
        writes: usize,
    },
    /// Close a new connection at once. Applies to connections, not to requests.
    Refuse,
    /// Hold the request until the gate is opened, then run it.
    Gate,
}

/// A fault rule.
#[derive(Clone, Debug, Serialize)]
pub struct Rule {
    /// Its id.
    pub id: u64,
    /// Its action.
    #[serde(flatten)]
    pub action: FaultAction,
    /// The requests it applies to.
    #[serde(flatten)]
    pub when: RuleConditions,
    /// The number of requests that matched.
    pub matched: u64,
    /// The number of matching requests for which it fired.
    pub fired: u64,
}

/// The conditions of a rule, all of which must hold.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RuleConditions {
    /// Pattern for the name of the client (`CLIENT SETNAME`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The `CLIENT ID` of the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<u64>,
    /// Pattern for the command: `set`, `client|id`, `eval*`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Pattern for one of the keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Number of the only matching request to which the rule applies, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nth: Option<u64>,
    /// Most requests to which the rule applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u64>,
    /// Probability with which the rule applies to a matching request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probability: Option<f64>,
    /// The seed of the random numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    #[serde(skip)]
    random: Option<Random>,
}

/// The description of a request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The name of the client, which may be empty.
    pub client: &'a [u8],
    /// The `CLIENT ID` of the client.
    pub client_id: u64,
    /// The full name of its command, in lower case.
    pub command: &'a [u8],
    /// The keys that the request names.
    pub keys: &'a [&'a [u8]],
}

impl Rule {
    /// Whether the rule is a gate.
    pub(crate) fn is_gate(&self) -> bool {
        self.action == FaultAction::Gate
    }

    /// Whether the rule fires for a request; counts it if it matches.
    pub fn fires(&mut self, request: Request<'_>) -> bool {
        if !self.when.matches(request) {
            return false;
        }
        self.matched += 1;
        let fires = self.when.nth.is_none_or(|nth| nth == self.matched)
            && self.when.times.is_none_or(|times| self.fired < times)
            && self.when.chance_allows();
        self.fired += u64::from(fires);
        fires
    }
}

impl RuleConditions {
    /// Reads pairs of a word and a value, in the syntax of `FAULT ADD`. `seed` is the default for
    /// the random numbers.
    ///
    /// # Errors
    /// If a word is unknown or repeated, or a value is invalid.
    pub fn parse(mut words: &[&[u8]], seed: u64) -> Result<RuleConditions, Error> {
        let mut when = RuleConditions::default();
        while let [word, value, rest @ ..] = words {
            words = rest;
            match () {
                () if is(word, "client") => once(word, &mut when.client, text(value))?,
                () if is(word, "id") => once(word, &mut when.client_id, positive(value)?)?,
                () if is(word, "command") => {
                    once(word, &mut when.command, text(value).to_ascii_lowercase())?;
                }
                () if is(word, "key") => once(word, &mut when.key, text(value))?,
                () if is(word, "nth") => once(word, &mut when.nth, positive(value)?)?,
                () if is(word, "times") => once(word, &mut when.times, positive(value)?)?,
                () if is(word, "probability") => {
                    once(word, &mut when.probability, probability(value)?)?;
                }
                () if is(word, "seed") => once(word, &mut when.seed, positive(value)?)?,
                () => return Err(Error::Syntax),
            }
        }
        if !words.is_empty() {
            return Err(Error::Syntax);
        }
        if when.seed.is_some() && when.probability.is_none() {
            return Err(Error::line("ERR SEED needs PROBABILITY"));
        }
        if let Some(probability) = when.probability {
            when.set_probability(probability, when.seed.unwrap_or(seed));
        }
        Ok(when)
    }

    /// Sets the probability.
    pub fn set_probability(&mut self, probability: f64, seed: u64) {
        (self.probability, self.seed) = (Some(probability), Some(seed));
        self.random = Some(Random::new(seed));
    }

    /// Whether any condition applies to requests only, not to new connections.
    pub fn has_request_conditions(&self) -> bool {
        self.client.is_some()
            || self.client_id.is_some()
            || self.command.is_some()
            || self.key.is_some()
    }

    fn matches(&self, request: Request<'_>) -> bool {
        let like = |pattern: &Option<String>, text: &[u8]| {
            pattern.as_ref().is_none_or(|pattern| glob::matches(pattern.as_bytes(), text))
        };
        like(&self.client, request.client)
            && self.client_id.is_none_or(|id| id == request.client_id)
            && like(&self.command, request.command)
            && (self.key.is_none() || request.keys.iter().any(|key| like(&self.key, key)))
    }

    fn chance_allows(&mut self) -> bool {
        let (Some(probability), Some(random)) = (self.probability, self.random.as_mut()) else {
            return true;
        };
        // 53 random bits: the precision of a float.
        let number = (random.bits() >> 11) as f64 / (1_u64 << 53) as f64;
        number < probability
    }
}

impl FaultAction {
    /// What the action does, for the journal.
    pub(super) fn effect(&self) -> String {
        match self {
            FaultAction::Delay { span } => format!("held for {} ms", span.0),
            FaultAction::Drop => "not executed; no reply".to_owned(),
            FaultAction::Close | FaultAction::Refuse => {
                "not executed; connection closed".to_owned()
            }
            FaultAction::Lose => "executed; reply lost".to_owned(),
            FaultAction::LoseAndClose => "executed; reply lost; connection closed".to_owned(),
            FaultAction::Cut { bytes } => {
                format!("executed; {bytes} bytes of the reply sent; connection closed")
            }
            FaultAction::Stall => "held; the server reads no further".to_owned(),
            FaultAction::Error { line } => format!("not executed; reply {line}"),
            FaultAction::FlushScripts => "all scripts removed; executed".to_owned(),
            FaultAction::Jump { span } => format!("executed; clock jumps by {} ms", span.0),
            FaultAction::LoseWrites { writes } => {
                format!("executed; the last {writes} writes undone")
            }
            FaultAction::Gate => "held by the gate".to_owned(),
        }
    }

    /// Reads an action in the syntax of `FAULT ADD`; returns the remaining words.
    ///
    /// # Errors
    /// If there is no such action, or its value is invalid.
    pub fn parse<'a, 'b>(words: &'a [&'b [u8]]) -> Result<(FaultAction, &'a [&'b [u8]]), Error> {
        let [word, rest @ ..] = words else { return Err(Error::Syntax) };
        let plain = [
            ("drop", FaultAction::Drop),
            ("close", FaultAction::Close),
            ("lose", FaultAction::Lose),
            ("lose-and-close", FaultAction::LoseAndClose),
            ("stall", FaultAction::Stall),
            ("flush-scripts", FaultAction::FlushScripts),
            ("refuse", FaultAction::Refuse),
        ];
        if let Some(action) = one_of(word, plain) {
            return Ok((action, rest));
        }
        let [value, rest @ ..] = rest else { return Err(Error::Syntax) };
        let action = match () {
            () if is(word, "delay") => FaultAction::Delay { span: span(value)? },
            () if is(word, "cut") => FaultAction::Cut { bytes: count(value)? },
            () if is(word, "error") => FaultAction::Error { line: error_line(value)? },
            () if is(word, "jump") => FaultAction::Jump { span: span(value)? },
            () if is(word, "lose-writes") => FaultAction::LoseWrites { writes: count(value)? },
            () => return Err(Error::Syntax),
        };
        Ok((action, rest))
    }
}

/// Reads a span of time.
///
/// # Errors
/// If it is not written as [`SPAN_SYNTAX`] says.
pub fn span(text: &[u8]) -> Result<Millis, Error> {
    time::span(text).ok_or_else(|| Error::text(format!("ERR span is {SPAN_SYNTAX}")))
}

fn once<T>(word: &[u8], place: &mut Option<T>, value: T) -> Result<(), Error> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::text(format!("ERR {} is given twice", text(word).to_uppercase()))),
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}

/// An error line without line breaks.
fn error_line(value: &[u8]) -> Result<String, Error> {
    let line = text(value);
    match line.is_empty() || line.contains(['\r', '\n']) {
        true => Err(Error::line("ERR the line of an error is empty, or has a line break")),
        false => Ok(line),
    }
}

fn positive(value: &[u8]) -> Result<u64, Error> {
    let number = lockwheel_resp::number::parse_integer(value).filter(|&number| number > 0);
    number.and_then(|number| u64::try_from(number).ok()).ok_or(NOT_POSITIVE)
}

/// A number that may be 0.
pub fn count(value: &[u8]) -> Result<usize, Error> {
    let number = lockwheel_resp::number::parse_integer(value);
    number.and_then(|number| usize::try_from(number).ok()).ok_or(Error::NotAnInteger)
}

fn probability(value: &[u8]) -> Result<f64, Error> {
    let number = lockwheel_resp::number::parse_double(value);
    number.filter(|number| (0.0..=1.0).contains(number)).ok_or(NO_PROBABILITY)
}

const NOT_POSITIVE: Error = Error::line("ERR value is not a positive integer");
const NO_PROBABILITY: Error = Error::line("ERR probability is not a number from 0 to 1");

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&[u8]> {
        text.split_whitespace().map(str::as_bytes).collect()
    }

    fn rule(conditions: &str) -> Rule {
        let when = RuleConditions::parse(&words(conditions), 7).expect("conditions");
        Rule { id: 1, action: FaultAction::Drop, when, matched: 0, fired: 0 }
    }

    const SET: Request<'_> =
        Request { client: b"worker-1", client_id: 5, command: b"set", keys: &[b"lock:a"] };

    #[test]
    fn rule_fires_if_all_conditions_hold() {
        for (conditions, fires) in [
            ("", true),
            ("COMMAND SET", true),
            ("command s*", true),
            ("COMMAND get", false),
            ("CLIENT worker-*", true),
            ("CLIENT other", false),
            ("ID 5", true),
            ("ID 6", false),
            ("KEY lock:?", true),
            ("KEY other", false),
            ("KEY lock:a COMMAND set CLIENT worker-1 ID 5", true),
            ("KEY lock:a COMMAND set CLIENT worker-2 ID 5", false),
        ] {
            assert_eq!(rule(conditions).fires(SET), fires, "{conditions}");
        }
        assert!(!rule("KEY *").fires(Request { keys: &[], ..SET }));
    }

    #[test]
    fn rule_counts_matching_requests() {
        let fired = |conditions: &str, of: usize| {
            let mut rule = rule(conditions);
            let fired: Vec<bool> = (0..of).map(|_| rule.fires(SET)).collect();
            assert!(!rule.fires(Request { command: b"get", ..SET }) || conditions.is_empty());
            assert_eq!(rule.fired as usize, fired.iter().filter(|&&fired| fired).count());
            assert_eq!(rule.matched as usize, of);
            fired
        };
        assert_eq!(fired("COMMAND set NTH 2", 3), [false, true, false]);
        assert_eq!(fired("COMMAND set TIMES 2", 3), [true, true, false]);
        assert_eq!(fired("COMMAND set PROBABILITY 0", 3), [false; 3]);
        assert_eq!(fired("COMMAND set PROBABILITY 1", 3), [true; 3]);
        let half = |seed| fired(&format!("COMMAND set PROBABILITY 0.5 SEED {seed}"), 1_000);
        let count = half(1).iter().filter(|&&fired| fired).count();
        assert!((400..600).contains(&count), "{count}");
        assert_eq!(half(1), half(1));
        assert_ne!(half(1), half(2));
    }

    #[test]
    fn invalid_rules_are_refused() {
        for wrong in
            ["KEY", "KEY a KEY b", "NTH 0", "NTH x", "TIMES -1", "PROBABILITY 2", "SEED 5", "FOO a"]
        {
            assert!(RuleConditions::parse(&words(wrong), 7).is_err(), "{wrong}");
        }
        for wrong in
            ["", "BREAK", "DELAY", "DELAY x", "DELAY 5", "CUT -1", "LOSE-WRITES x", "JUMP 1x"]
        {
            assert!(FaultAction::parse(&words(wrong)).is_err(), "{wrong}");
        }
        assert!(FaultAction::parse(&[b"error", b"ERR two\r\nlines"]).is_err());
    }

    #[test]
    fn action_is_followed_by_its_conditions() {
        for (text, action) in [
            ("DELAY 2s KEY a", FaultAction::Delay { span: Millis(2_000) }),
            ("drop KEY a", FaultAction::Drop),
            ("CUT 3 KEY a", FaultAction::Cut { bytes: 3 }),
            ("JUMP -1h KEY a", FaultAction::Jump { span: Millis(-3_600_000) }),
            ("LOSE-WRITES 2 KEY a", FaultAction::LoseWrites { writes: 2 }),
        ] {
            let words = words(text);
            assert_eq!(
                FaultAction::parse(&words),
                Ok((action, &words[words.len() - 2..])),
                "{text}"
            );
        }
    }
}
