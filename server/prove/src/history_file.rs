//! Histories of locks from elsewhere: reads them and judges them as those of a run.
//!
//! `docs/prove.md` describes the JSON format. Text has the lines of
//! [`lockwheel_compat::judge::history`]; its locks are not reentrant and have one holder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use lockwheel_compat::judge::history::{self, Action, Answer, Event};
use lockwheel_compat::judge::{Rules, Violation, entitlement};
use lockwheel_compat::recipes;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::ledger;
use crate::record::Record;
use crate::report::{Case, Report, Totals};

/// The version of the format that this program reads.
const FORMAT: u32 = 1;

/// The name of a rule for all locks that no other rule names.
const ANY_LOCK: &str = "*";

/// What a report names instead of a kind of lock.
const KIND: &str = "history";

/// The violations that are considered for the report, which has [`ledger::CASES_MAX`].
const CONSIDERED_MAX: usize = 200;

/// The longest name of a lock or client, in bytes.
const NAME_BYTES_MAX: usize = 1000;

/// The greatest number of holds.
const COUNT_MAX: i64 = 1 << 53;

/// The largest time or lease in a history: 285 years, exact in every language with JSON.
const TIME_MAX_US: i64 = 1 << 53;

/// Judges a history, which `name` identifies in the report.
///
/// # Errors
/// The event that is wrong, and what is allowed there.
pub fn judge(name: &str, text: &str) -> Result<Report, String> {
    let Document { rules, events, .. } = read(text)?;
    for (index, event) in events.iter().enumerate() {
        check(event).map_err(|problem| format!("event {}: {problem}", index + 1))?;
    }
    let mut of_locks: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, event) in events.iter().enumerate() {
        of_locks.entry(&event.lock).or_default().push(index);
    }
    if let Some(lock) = rules.keys().find(|it| *it != ANY_LOCK && !of_locks.contains_key(&***it)) {
        return Err(format!("rules: no event has the lock {lock:?}"));
    }
    let mut totals = Totals::default();
    // A reply that says nothing counts as none.
    events.iter().for_each(|event| totals.count(event, true));
    let mut violations: Vec<Violation> = Vec::new();
    for (lock, indexes) in &of_locks {
        let rule = rules.get(*lock).or_else(|| rules.get(ANY_LOCK)).copied().unwrap_or_default();
        let history: Vec<Event> = indexes.iter().map(|&index| events[index].clone()).collect();
        let found = entitlement::judge(&history, rule.rules()).into_iter();
        violations.extend(found.map(|it| Violation { event: indexes[it.event], ..it }));
    }
    violations.iter().for_each(|violation| totals.add(violation.kind));
    violations.sort_by_key(|violation| (violation.kind, violation.at_us));
    violations.truncate(CONSIDERED_MAX);
    Ok(report(name, events, totals, &violations))
}

fn report(name: &str, events: Vec<Event>, totals: Totals, violations: &[Violation]) -> Report {
    let clients: BTreeSet<&str> = events.iter().map(|event| &*event.client).collect();
    let clients = clients.len();
    let started_us = events.iter().map(|event| event.invoked_us).min().unwrap_or(0);
    let records: Vec<Record> =
        events.into_iter().map(|event| Record::of_history(KIND, event)).collect();
    let span_us = records.iter().map(Record::returned_us).max().unwrap_or(0) - started_us;
    let mut cases = ledger::cases(&records, violations, &[], &[]);
    cases.sort_by_key(Case::order);
    cases.truncate(ledger::CASES_MAX);
    Report {
        target: name.to_owned(),
        started_us,
        seconds: span_us as f64 / 1e6,
        clients,
        totals,
        kinds: vec![(KIND.to_owned(), totals)],
        cases,
        not_exercised: vec![
            "A history names no servers and no faults, so causes are unknown.".to_owned(),
            "Only the requests of this history were judged.".to_owned(),
        ],
        ..Report::default()
    }
}

/// What no history can contain.
fn check(event: &Event) -> Result<(), String> {
    for (field, name) in [("lock", &event.lock), ("client", &event.client)] {
        let is_short = (1..=NAME_BYTES_MAX).contains(&name.len());
        if !is_short || name.chars().any(char::is_control) {
            let limits = format!("1 to {NAME_BYTES_MAX} bytes without control characters");
            return Err(format!("the name of a {field} has {limits}"));
        }
    }
    let (lease_us, allowed): (_, &[&str]) = match event.action {
        Action::Acquire { ttl_us, .. } => (Some(ttl_us), &["granted", "refused", "unknown"]),
        Action::Renew { ttl_us } => (Some(ttl_us), &["granted", "not-owner", "unknown"]),
        Action::Release { ttl_us } => (ttl_us, &["released", "kept", "not-owner", "unknown"]),
    };
    let answer = match event.answer {
        Answer::Refused { .. } => "refused".to_owned(),
        answer => answer.to_string(),
    };
    if !allowed.contains(&&*answer) {
        let allowed = allowed.join(", ");
        return Err(format!("the answer is {answer}; for this action it is one of {allowed}"));
    }
    if lease_us.is_some_and(|lease_us| !(1..=TIME_MAX_US).contains(&lease_us)) {
        return Err("the lease is not positive, or too long".to_owned());
    }
    if event.count.is_some_and(|count| !(0..=COUNT_MAX).contains(&count)) {
        return Err(format!("the count is not between 0 and {COUNT_MAX}"));
    }
    let range = -TIME_MAX_US..=TIME_MAX_US;
    let returned_us = event.returned_us.unwrap_or(event.invoked_us);
    if !range.contains(&event.invoked_us) || !range.contains(&returned_us) {
        return Err(format!("a time is not between -{TIME_MAX_US} and {TIME_MAX_US}"));
    }
    if returned_us < event.invoked_us {
        return Err("returned_us is before invoked_us".to_owned());
    }
    Ok(())
}

fn read(text: &str) -> Result<Document, String> {
    if !text.trim_start().starts_with('{') {
        let events = history::read(text).map_err(|error| error.to_string())?;
        return not_empty(Document { format: FORMAT, rules: Rulebook::new(), events });
    }
    let document: Document = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if document.format != FORMAT {
        let format = document.format;
        return Err(format!("format {format} is unknown: this program reads format {FORMAT}"));
    }
    not_empty(document)
}

fn not_empty(document: Document) -> Result<Document, String> {
    if document.events.is_empty() { Err("it has no events".to_owned()) } else { Ok(document) }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: u32,
    #[serde(default, deserialize_with = "rulebook")]
    rules: Rulebook,
    #[serde(deserialize_with = "events")]
    events: Vec<Event>,
}

/// The rules of locks, by their names.
type Rulebook = BTreeMap<String, Rule>;

#[derive(Clone, Copy, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Rule {
    reentrant: bool,
    permits: usize,
}

impl Default for Rule {
    fn default() -> Rule {
        Rule { reentrant: false, permits: 1 }
    }
}

impl Rule {
    /// The rules of the judge; clocks and leases are as inexact as in a run.
    fn rules(self) -> Rules {
        let Rule { reentrant, permits } = self;
        ledger::judged_rules(Rules { reentrant, permits, ..recipes::SET_NX.rules })
    }
}

/// An event as it is written in JSON.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenEvent {
    lock: String,
    client: String,
    action: WrittenAction,
    lease_ms: Option<i64>,
    #[serde(default)]
    shared: bool,
    invoked_us: i64,
    returned_us: Option<i64>,
    answer: Option<WrittenAnswer>,
    token: Option<i64>,
    count: Option<i64>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WrittenAction {
    Acquire,
    Renew,
    Release,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WrittenAnswer {
    Granted,
    Refused,
    Released,
    Kept,
    NotOwner,
    Unknown,
}

impl WrittenEvent {
    fn event(self) -> Result<Event, String> {
        let lease_us = match self.lease_ms.map(|lease_ms| lease_ms.checked_mul(1000)) {
            Some(None) => return Err("lease_ms is too large".to_owned()),
            lease_us => lease_us.flatten(),
        };
        let needed_us = || lease_us.ok_or("to acquire and to renew, lease_ms is needed".to_owned());
        let action = match self.action {
            WrittenAction::Acquire => Action::Acquire { ttl_us: needed_us()?, shared: self.shared },
            WrittenAction::Renew => Action::Renew { ttl_us: needed_us()? },
            WrittenAction::Release => Action::Release { ttl_us: lease_us },
        };
        if self.shared && self.action != WrittenAction::Acquire {
            return Err("only an acquire can be shared".to_owned());
        }
        let answer = match self.answer {
            Some(WrittenAnswer::Granted) => Answer::Granted,
            Some(WrittenAnswer::Refused) => Answer::Refused { remaining_us: None },
            Some(WrittenAnswer::Released) => Answer::Released,
            Some(WrittenAnswer::Kept) => Answer::Kept,
            Some(WrittenAnswer::NotOwner) => Answer::NotOwner,
            Some(WrittenAnswer::Unknown) => Answer::Unknown,
            None if self.returned_us.is_none() => Answer::Unknown,
            None => return Err("a request that returned has an answer".to_owned()),
        };
        if self.returned_us.is_none() && answer != Answer::Unknown {
            return Err("an event with an answer has returned_us".to_owned());
        }
        let mut event = Event::asked(&self.lock, &self.client, action, self.invoked_us);
        event.returned_us = self.returned_us;
        event.answer = answer;
        event.token = self.token;
        event.count = self.count;
        Ok(event)
    }
}

/// Reads events one by one, so that errors have their numbers.
fn events<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Event>, D::Error> {
    struct Events;
    impl<'de> Visitor<'de> for Events {
        type Value = Vec<Event>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array of events")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<Event>, A::Error> {
            let mut events = Vec::new();
            loop {
                let named = |problem: &dyn fmt::Display| {
                    A::Error::custom(format!("event {}: {problem}", events.len() + 1))
                };
                match items.next_element::<WrittenEvent>().map_err(|error| named(&error))? {
                    Some(written) => {
                        let event = written.event().map_err(|problem| named(&problem))?;
                        events.push(event);
                    }
                    None => return Ok(events),
                }
            }
        }
    }
    deserializer.deserialize_seq(Events)
}

/// Reads rules one by one, so that errors have the names of their locks.
fn rulebook<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rulebook, D::Error> {
    struct RulesByLock;
    impl<'de> Visitor<'de> for RulesByLock {
        type Value = Rulebook;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object with a rule for each lock")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut items: A) -> Result<Rulebook, A::Error> {
            let mut rules = Rulebook::new();
            while let Some(lock) = items.next_key::<String>()? {
                let named = |problem: &dyn fmt::Display| {
                    A::Error::custom(format!("rules, {lock:?}: {problem}"))
                };
                let rule: Rule = items.next_value().map_err(|error| named(&error))?;
                if rule.permits == 0 {
                    return Err(named(&"permits is at least 1"));
                }
                if rules.contains_key(&lock) {
                    return Err(named(&"it is written twice"));
                }
                rules.insert(lock, rule);
            }
            Ok(rules)
        }
    }
    deserializer.deserialize_map(RulesByLock)
}

#[cfg(test)]
mod tests {
    use super::judge;

    /// A document with these rules and events.
    fn document(rules: &str, events: &[&str]) -> String {
        format!(r#"{{"format": 1, "rules": {{{rules}}}, "events": [{}]}}"#, events.join(",\n"))
    }

    fn grant(client: &str, invoked_us: i64, more: &str) -> String {
        let returned_us = invoked_us + 100;
        format!(
            r#"{{"lock": "invoice", "client": "{client}", "action": "acquire", "lease_ms": 30000,
                "invoked_us": {invoked_us}, "returned_us": {returned_us},
                "answer": "granted"{more}}}"#
        )
    }

    /// Found violations: granted twice, lost early, wrong tokens.
    #[track_caller]
    fn found(text: &str) -> [u64; 3] {
        let totals = judge("a file", text).expect("well-formed").totals;
        [totals.granted_twice, totals.lost_early, totals.wrong_tokens]
    }

    #[test]
    fn double_grant_is_found_in_both_forms() {
        let events = [grant("a", 0, ""), grant("b", 5_000_000, "")];
        let json = document("", &[&events[0], &events[1]]);
        let text = "0..100 invoice a acquire 30s granted\n\
                    5000000..5000100 invoice b acquire 30s granted\n";
        for history in [&*json, text] {
            assert_eq!(found(history), [1, 0, 0], "{history}");
            let report = judge("a file", history).expect("well-formed");
            assert!(report.is_of_history() && !report.is_green());
            let [case] = &report.cases[..] else { panic!("{:?}", report.cases) };
            assert_eq!((&*case.lock, case.at_us), ("invoice", 5_000_100));
            let clients: Vec<_> = case.holds.iter().map(|hold| &*hold.client).collect();
            assert_eq!(clients, ["a", "b"]);
            let story: Vec<_> = case.story.iter().map(|line| &*line.text).collect();
            assert_eq!(story, ["acquire 30s: granted", "acquire 30s: granted"]);
        }
    }

    #[test]
    fn rules_apply_to_the_locks_that_they_name() {
        let twice = [grant("a", 0, ""), grant("b", 5_000_000, "")];
        let twice = [&*twice[0], &*twice[1]];
        assert_eq!(found(&document(r#""invoice": {"permits": 2}"#, &twice)), [0, 0, 0]);
        assert_eq!(found(&document(r#""*": {"permits": 2}"#, &twice)), [0, 0, 0]);
        let both = r#""*": {"permits": 2}, "invoice": {}"#;
        assert_eq!(found(&document(both, &twice)), [1, 0, 0]);
        let again = [grant("a", 0, ""), grant("a", 5_000_000, "")];
        let again = [&*again[0], &*again[1]];
        assert_eq!(found(&document(r#""invoice": {"reentrant": true}"#, &again)), [0, 0, 0]);
        assert_eq!(found(&document("", &again)), [1, 0, 0]);
    }

    #[test]
    fn tokens_must_grow() {
        let events = [
            grant("a", 0, r#", "token": 7"#),
            r#"{"lock": "invoice", "client": "a", "action": "release", "invoked_us": 200,
                "returned_us": 300, "answer": "released"}"#
                .to_owned(),
            grant("b", 400, r#", "token": 7"#),
        ];
        let events: Vec<&str> = events.iter().map(|event| &**event).collect();
        assert_eq!(found(&document("", &events)), [0, 0, 1]);
    }

    #[test]
    fn request_without_reply_accuses_none() {
        let lost = r#"{"lock": "invoice", "client": "a", "action": "acquire", "lease_ms": 30000,
            "invoked_us": 0, "returned_us": null}"#;
        let text = document("", &[lost, &grant("b", 5_000_000, "")]);
        let report = judge("a file", &text).expect("well-formed");
        assert!(report.is_green());
        let totals = report.totals;
        assert_eq!((totals.requests, totals.granted, totals.unanswered), (2, 1, 1));
    }

    #[test]
    fn errors_name_the_event_and_what_is_allowed() {
        let good = grant("a", 0, "");
        let of_second = |from: &str, to: &str| document("", &[&good, &good.replace(from, to)]);
        for (text, expected) in [
            (of_second("acquire", "take"), "event 2: unknown variant `take`, expected one of"),
            (of_second("\"granted\"", "\"yes\""), "`not-owner`, `unknown`"),
            (of_second("lease_ms", "ttl"), "event 2: unknown field `ttl`, expected one of `lock`"),
            (of_second("30000", "0"), "event 2: the lease is not positive"),
            (of_second("30000", "9223372036854775807"), "event 2: lease_ms is too large"),
            (of_second("granted", "released"), "it is one of granted, refused, unknown"),
            (of_second("\"invoked_us\": 0", "\"invoked_us\": 900"), "returned_us is before"),
            (of_second("100", "null"), "event 2: an event with an answer has returned_us"),
            (of_second("invoice", ""), "event 2: the name of a lock has 1 to 1000 bytes"),
            (of_second("acquire", "release"), "event 2: the answer is granted; for this action"),
            (document("\"other\": {}", &[&good]), "rules: no event has the lock \"other\""),
            (document("\"invoice\": {\"permits\": 0}", &[&good]), "permits is at least 1"),
            (document("\"invoice\": {\"fair\": true}", &[&good]), "unknown field `fair`"),
            (document("", &[]), "it has no events"),
            (document("", &[&good]).replace(": 1,", ": 2,"), "this program reads format 1"),
            ("{".to_owned(), "line 1 column 1"),
            ("1..2 l a acquire granted".to_owned(), "line 1: invalid action"),
            ("1..2 l a renew 1s released".to_owned(), "event 1: the answer is released"),
        ] {
            let error = judge("a file", &text).expect_err(&text);
            assert!(error.contains(expected), "{expected}: {error}");
            assert_eq!(error.lines().count(), 1, "{error}");
        }
    }
}
