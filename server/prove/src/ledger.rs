//! The histories that are not judged yet, and what the judged ones have shown.

use std::collections::BTreeMap;

use lockwheel_compat::judge::history::{Action, Answer, Event};
use lockwheel_compat::judge::{Rules, Violation, ViolationKind, entitlement};

use crate::cause::Cause;
use crate::record::{Change, Fault, Observation, Record};
use crate::report::{Case, HoldSpan, StoryLine, Totals};

/// The violations of which a report has the stories.
pub(crate) const CASES_MAX: usize = 40;

/// The violations of an epoch whose causes are looked for.
const EXPLAINED_MAX: usize = 100;

/// The requests of a story, apart from those that prove the violation.
const STORY_REQUESTS_MAX: usize = 8;

/// The observations of a story.
const STORY_OBSERVATIONS_MAX: usize = 6;

/// Time before a story begins from which faults and observations belong to it.
const BEFORE_STORY_US: i64 = 1_000_000;

/// Longest time by which a lease may end late. It has no limit: a late end grants no lock twice,
/// and servers without a primary let no lease end.
const NO_LIMIT_US: i64 = i64::MAX / 4;

/// The rules by which the locks of a kind are judged. Turns and waits are not: a failover may
/// change both.
pub(crate) fn judged_rules(rules: Rules) -> Rules {
    Rules { fair: false, idle_us: None, late_us: NO_LIMIT_US, ..rules }
}

/// Histories and results.
#[derive(Default)]
pub struct Ledger {
    /// By epoch and kind of lock.
    records: BTreeMap<(u64, &'static str), Vec<Record>>,
    totals: BTreeMap<&'static str, Totals>,
    cases: Vec<Case>,
    /// The error replies, by their first word.
    errors: BTreeMap<String, (u64, String)>,
}

impl Ledger {
    /// Adds requests.
    pub(crate) fn add(&mut self, records: Vec<Record>) {
        for record in records {
            self.count(record.kind, &record.event);
            if record.reply.starts_with('-') {
                let code = record.reply.split(' ').next().unwrap_or_default().to_owned();
                let (count, _) =
                    self.errors.entry(code).or_insert_with(|| (0, record.reply.clone()));
                *count += 1;
            }
            let epoch = epoch_of(&record.event.lock);
            self.records.entry((epoch, record.kind)).or_default().push(record);
        }
    }

    /// Counts a request to a lock of a kind.
    pub fn count(&mut self, kind: &'static str, event: &Event) {
        self.totals.entry(kind).or_default().count(event, event.returned_us.is_none());
    }

    /// Requests in memory.
    pub(crate) fn len(&self) -> usize {
        self.records.values().map(Vec::len).sum()
    }

    /// Whether there are histories of epochs before that one.
    pub(crate) fn has_before(&self, epoch: u64) -> bool {
        self.records.range(..(epoch, "")).next().is_some()
    }

    /// Judges the histories of the epochs before that one. No client uses their locks any more.
    pub(crate) fn judge_before(
        &mut self,
        epoch: u64,
        rules_of: &dyn Fn(&str) -> Rules,
        observations: &[Observation],
        faults: &[Fault],
    ) {
        let rest = self.records.split_off(&(epoch, ""));
        let ended = std::mem::replace(&mut self.records, rest);
        for ((_, kind), records) in ended {
            self.judge(kind, &records, judged_rules(rules_of(kind)), observations, faults);
        }
    }

    /// Judges the complete histories of locks of a kind, and adds what they show. Returns their
    /// violations, whose events are places in `records`.
    pub fn judge(
        &mut self,
        kind: &'static str,
        records: &[Record],
        rules: Rules,
        observations: &[Observation],
        faults: &[Fault],
    ) -> Vec<Violation> {
        let events: Vec<Event> = records.iter().map(|record| record.event.clone()).collect();
        let violations = entitlement::judge(&events, rules);
        let totals = self.totals.entry(kind).or_default();
        violations.iter().for_each(|violation| totals.add(violation.kind));
        self.cases.extend(cases(records, &violations, observations, faults));
        self.keep_cases();
        violations
    }

    /// Keeps the worst cases of each problem and kind, before further ones.
    fn keep_cases(&mut self) {
        self.cases.sort_by_key(Case::order);
        let mut counts: BTreeMap<(u8, String), usize> = BTreeMap::new();
        let mut placed: Vec<(usize, Case)> = Vec::new();
        for case in self.cases.drain(..) {
            let count = counts.entry((case.rank, case.kind.clone())).or_default();
            placed.push((*count, case));
            *count += 1;
        }
        placed.sort_by_key(|(place, _)| *place);
        placed.truncate(CASES_MAX);
        self.cases = placed.into_iter().map(|(_, case)| case).collect();
        self.cases.sort_by_key(Case::order);
    }

    /// The numbers of each kind.
    pub fn totals(&self) -> &BTreeMap<&'static str, Totals> {
        &self.totals
    }

    /// The numbers of all kinds together.
    pub fn sum(&self) -> Totals {
        self.totals.values().fold(Totals::default(), |sum, totals| sum.plus(*totals))
    }

    /// The violations with their stories, the worst first.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// The most frequent error reply, and how often it came.
    pub(crate) fn most_frequent_error(&self) -> Option<(u64, &str)> {
        let (count, text) = self.errors.values().max_by_key(|(count, _)| *count)?;
        Some((*count, text))
    }
}

/// The epoch in the name of a lock: see [`crate::load::key_of`].
fn epoch_of(lock: &str) -> u64 {
    let mut parts = lock.trim_end_matches('}').rsplit('-');
    parts.nth(1).and_then(|epoch| epoch.parse().ok()).unwrap_or(0)
}

impl Totals {
    /// Counts a request; as one without a reply only if `may_lack_reply`.
    pub(crate) fn count(&mut self, event: &Event, may_lack_reply: bool) {
        self.requests += 1;
        match (event.action, event.answer) {
            (Action::Acquire { .. }, Answer::Granted) => self.granted += 1,
            (_, Answer::Unknown) if may_lack_reply => self.unanswered += 1,
            _ => {}
        }
    }

    /// Counts a violation.
    pub(crate) fn add(&mut self, kind: ViolationKind) {
        let counted = match kind {
            ViolationKind::DoubleGrant => &mut self.granted_twice,
            ViolationKind::EarlyLoss => &mut self.lost_early,
            ViolationKind::NotHolder => &mut self.used_by_others,
            ViolationKind::Token => &mut self.wrong_tokens,
            ViolationKind::Count => &mut self.wrong_counts,
            ViolationKind::LateFree
            | ViolationKind::FreeRefused
            | ViolationKind::LostWakeUp
            | ViolationKind::OutOfTurn => &mut self.free_refused,
        };
        *counted += 1;
    }

    /// The sum of both.
    pub(crate) fn plus(self, other: Totals) -> Totals {
        Totals {
            requests: self.requests + other.requests,
            granted: self.granted + other.granted,
            granted_twice: self.granted_twice + other.granted_twice,
            lost_early: self.lost_early + other.lost_early,
            used_by_others: self.used_by_others + other.used_by_others,
            wrong_tokens: self.wrong_tokens + other.wrong_tokens,
            wrong_counts: self.wrong_counts + other.wrong_counts,
            free_refused: self.free_refused + other.free_refused,
            unanswered: self.unanswered + other.unanswered,
        }
    }
}

/// The violations of a history that concern safety, each with its story.
pub(crate) fn cases(
    records: &[Record],
    violations: &[Violation],
    observations: &[Observation],
    faults: &[Fault],
) -> Vec<Case> {
    let rank = |kind: ViolationKind| match kind {
        ViolationKind::DoubleGrant => Some(0),
        ViolationKind::NotHolder => Some(1),
        ViolationKind::EarlyLoss => Some(2),
        ViolationKind::Token | ViolationKind::Count => Some(3),
        ViolationKind::LateFree
        | ViolationKind::FreeRefused
        | ViolationKind::LostWakeUp
        | ViolationKind::OutOfTurn => None,
    };
    let mut ranked: Vec<(u8, &Violation)> =
        violations.iter().filter_map(|it| Some((rank(it.kind)?, it))).collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    let mut cases = Vec::new();
    let mut of_locks: BTreeMap<&str, (Vec<&Record>, Vec<Hold>)> = BTreeMap::new();
    for (rank, violation) in ranked.into_iter().take(EXPLAINED_MAX) {
        let Some(proof) = records.get(violation.event) else { continue };
        let of_lock = of_locks.entry(&violation.lock);
        let (of_lock, holds) = of_lock.or_insert_with(|| of_lock_in(records, &violation.lock));
        let conflict = Conflict::of(violation.kind, proof, of_lock, holds);
        let evidence = Evidence { records: of_lock, conflict, observations, faults };
        cases.push(evidence.case(violation, rank, holds));
    }
    cases
}

/// The requests to a lock, in order, and its holds.
fn of_lock_in<'a>(records: &'a [Record], lock: &str) -> (Vec<&'a Record>, Vec<Hold>) {
    let mut of_lock: Vec<&Record> =
        records.iter().filter(|record| record.event.lock == lock).collect();
    of_lock.sort_by_key(|record| (record.event.invoked_us, record.event.returned_us));
    let holds = holds(&of_lock);
    (of_lock, holds)
}

/// Two requests whose answers contradict each other.
struct Conflict<'a> {
    /// The earlier one; `None` if it is not known.
    first: Option<&'a Record>,
    /// The later one.
    second: &'a Record,
    /// How long two clients could rely on the lock at once.
    overlap_us: i64,
}

impl<'a> Conflict<'a> {
    /// The requests that contradict each other, of which the judge names one.
    fn of(
        kind: ViolationKind,
        proof: &'a Record,
        records: &[&'a Record],
        holds: &[Hold],
    ) -> Conflict<'a> {
        let last_grant = |is_meant: &dyn Fn(&str) -> bool| {
            let before_us = proof.event.invoked_us;
            let is_earlier = |record: &&&Record| {
                let client = &record.event.client;
                is_grant(record) && record.returned_us() <= before_us && is_meant(client)
            };
            records.iter().rev().find(is_earlier).copied()
        };
        let client = &*proof.event.client;
        let alone = |first| Conflict { first, second: proof, overlap_us: 0 };
        match kind {
            ViolationKind::DoubleGrant => Conflict::of_holds(proof, records, holds)
                .unwrap_or_else(|| alone(last_grant(&|it| it != client))),
            ViolationKind::EarlyLoss | ViolationKind::Count => {
                alone(last_grant(&|it| it == client))
            }
            ViolationKind::Token => {
                let is_earlier = |record: &&&Record| {
                    record.event.token >= proof.event.token
                        && !std::ptr::eq(**record, proof)
                        && record.returned_us() <= proof.returned_us()
                };
                let granted = records.iter().filter(is_earlier);
                alone(granted.max_by_key(|record| record.event.token).copied())
            }
            _ => alone(last_grant(&|it| it != client)),
        }
    }

    /// The hold of the client of a request, and the hold of another client at the same time that
    /// lasts longest: the last grant of the one that began earlier, and the first of the other.
    fn of_holds(proof: &'a Record, records: &[&'a Record], holds: &[Hold]) -> Option<Conflict<'a>> {
        let (client, at_us) = (&proof.event.client, proof.returned_us());
        let is_on = |hold: &&Hold| hold.span.from_us <= at_us && at_us <= hold.span.until_us;
        let own = holds.iter().filter(is_on).rfind(|hold| hold.span.client == *client)?;
        let others = holds
            .iter()
            .filter(is_on)
            .filter(|hold| hold.span.client != *client && !(hold.is_shared && own.is_shared));
        let other = others.max_by_key(|hold| hold.span.until_us)?;
        let (early, late) =
            if own.span.from_us < other.span.from_us { (own, other) } else { (other, own) };
        let second = *records.get(*late.grants.first()?)?;
        let before = |number: &&usize| {
            records.get(**number).is_some_and(|it| it.returned_us() <= second.returned_us())
        };
        let first = *records.get(*early.grants.iter().rfind(before)?)?;
        // By these two grants alone, so that they prove it.
        let until_us = lease_end_us(first).min(lease_end_us(second)).min(early.span.until_us);
        let overlap_us = until_us - second.returned_us();
        Some(Conflict { first: Some(first), second, overlap_us: overlap_us.max(0) })
    }
}

/// What proves a violation.
struct Evidence<'a> {
    /// The requests to the lock, in order.
    records: &'a [&'a Record],
    conflict: Conflict<'a>,
    observations: &'a [Observation],
    faults: &'a [Fault],
}

impl Evidence<'_> {
    fn case(&self, violation: &Violation, rank: u8, holds: &[Hold]) -> Case {
        let Conflict { first, second, overlap_us } = self.conflict;
        let at_us = second.returned_us();
        let cause = match first {
            Some(first) => Cause::of(first, second, self.observations),
            None => Cause::Unknown,
        };
        let from_us = first.map_or(at_us, |first| first.event.invoked_us);
        let near = |hold: &&Hold| hold.span.until_us >= from_us && hold.span.from_us <= at_us;
        Case {
            problem: violation.kind.to_string(),
            rank,
            kind: second.kind.to_owned(),
            lock: violation.lock.clone(),
            at_us,
            overlap_us,
            cause,
            story: self.story(from_us, at_us),
            holds: holds.iter().filter(near).map(|hold| hold.span.clone()).collect(),
        }
    }

    /// What happened to the lock from the first proving request to the second.
    fn story(&self, from_us: i64, at_us: i64) -> Vec<StoryLine> {
        let Conflict { first, second, .. } = self.conflict;
        let is_proof = |record: &Record| {
            std::ptr::eq(record, second) || first.is_some_and(|it| std::ptr::eq(it, record))
        };
        let within = |record: &&&Record| {
            let sent_us = record.event.invoked_us;
            from_us <= sent_us && sent_us <= at_us && !is_proof(record)
        };
        // Refusals and lost replies of other clients say little, and there are many.
        let mut others: Vec<&Record> = self.records.iter().filter(within).copied().collect();
        let is_of_others = |record: &Record| {
            let client = &record.event.client;
            *client != second.event.client && first.is_none_or(|it| it.event.client != *client)
        };
        others.retain(|record| {
            let says_little =
                matches!(record.event.answer, Answer::Refused { .. } | Answer::Unknown);
            !(says_little && is_of_others(record))
        });
        others.sort_by_key(|record| is_of_others(record));
        others.truncate(STORY_REQUESTS_MAX);
        let proofs = self.records.iter().copied().filter(|record| is_proof(record));
        let mut lines: Vec<StoryLine> =
            proofs.chain(others).map(|record| line_of(record, is_proof(record))).collect();
        let from_us = from_us - BEFORE_STORY_US;
        let servers: Vec<&str> = self
            .records
            .iter()
            .flat_map(|record| record.servers.iter().map(|process| &*process.address))
            .collect();
        let observed = self.observations.iter().filter(|it| {
            from_us <= it.at_us && it.at_us <= at_us && servers.contains(&&*it.server)
        });
        lines.extend(observed.rev().take(STORY_OBSERVATIONS_MAX).map(|it| StoryLine {
            at_us: it.at_us,
            actor: "observed".to_owned(),
            text: it.change.to_string(),
            server: it.server.clone(),
            is_proof: false,
        }));
        let injected = self.faults.iter().filter(|it| from_us <= it.end_us && it.begin_us <= at_us);
        lines.extend(injected.map(|fault| StoryLine {
            at_us: fault.begin_us,
            actor: "fault".to_owned(),
            text: fault.name.clone(),
            server: String::new(),
            is_proof: false,
        }));
        lines.sort_by_key(|line| line.at_us);
        lines
    }
}

/// A time in which a client could rely on a lock.
struct Hold {
    span: HoldSpan,
    is_shared: bool,
    /// The numbers of the records that granted it, in order.
    grants: Vec<usize>,
}

/// The holds of all clients. `records` are those of one lock, in order.
fn holds(records: &[&Record]) -> Vec<Hold> {
    let mut holds: Vec<Hold> = Vec::new();
    let mut current: BTreeMap<&str, usize> = BTreeMap::new();
    for (number, record) in records.iter().enumerate() {
        let Event { client, action, answer, invoked_us, .. } = &record.event;
        let hold = current.get(&**client).and_then(|&place| holds.get_mut(place));
        match (action, answer, hold) {
            (
                Action::Acquire { ttl_us, .. } | Action::Renew { ttl_us },
                Answer::Granted,
                Some(hold),
            ) => {
                hold.span.until_us = hold.span.until_us.max(invoked_us + ttl_us);
                hold.grants.push(number);
            }
            (Action::Acquire { ttl_us, shared }, Answer::Granted, None) => {
                current.insert(client, holds.len());
                let (client, from_us) = (client.clone(), record.returned_us());
                let span = HoldSpan { client, from_us, until_us: invoked_us + ttl_us };
                holds.push(Hold { span, is_shared: *shared, grants: vec![number] });
            }
            // The client gives the lock back when it asks, whatever the answer is.
            (Action::Release { .. }, answer, Some(hold)) if *answer != Answer::Kept => {
                hold.span.until_us = hold.span.until_us.min(*invoked_us);
                current.remove(&**client);
            }
            (_, Answer::NotOwner, Some(hold)) => {
                hold.span.until_us = hold.span.until_us.min(record.returned_us());
                current.remove(&**client);
            }
            _ => {}
        }
    }
    holds
}

/// What a client asked and was answered: in words, and as sent.
fn described(record: &Record) -> String {
    let Record { event, request, reply, .. } = record;
    let action = event.action;
    match &*request.replace(&event.lock, "LOCK") {
        "" => format!("{action}: {reply}"),
        request => format!("{action}: {} [{request} -> {reply}]", event.answer),
    }
}

fn line_of(record: &Record, is_proof: bool) -> StoryLine {
    let servers: Vec<&str> = record.servers.iter().map(|process| &*process.address).collect();
    StoryLine {
        at_us: record.returned_us(),
        actor: record.event.client.clone(),
        text: described(record),
        server: servers.join(", "),
        is_proof,
    }
}

/// When the lease ends that a request has begun.
fn lease_end_us(record: &Record) -> i64 {
    match record.event.action {
        Action::Acquire { ttl_us, .. } | Action::Renew { ttl_us } => {
            record.event.invoked_us.saturating_add(ttl_us)
        }
        Action::Release { .. } => record.event.invoked_us,
    }
}

fn is_grant(record: &Record) -> bool {
    let is_release = matches!(record.event.action, Action::Release { .. });
    !is_release && record.event.answer == Answer::Granted
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Change::Unreachable(reason) => write!(f, "does not answer: {reason}"),
            Change::Reachable => f.write_str("answers again"),
            Change::Restarted => f.write_str("was started again"),
            Change::BecamePrimary => f.write_str("became the primary"),
            Change::BecameReplica => f.write_str("became a replica"),
            Change::ClockMoved(by_ms) => write!(f, "its clock was moved by {by_ms} ms"),
            Change::NamedPrimary => f.write_str("is the primary, as the sentinels say"),
        }
    }
}
