//! Checks and lint rules: conditions that must hold for all locks, each with the story of the lock
//! that breaks it, and common mistakes in the use of locks. Violations are recorded when they
//! happen, so they are still known when the journal has dropped their entries.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use crate::Engine;
use crate::glob;
use crate::limits::{JOURNAL_REMEMBERED_MAX, JOURNAL_STORY_MAX};
use crate::locks::evidence::Confidence;
use crate::locks::recognise::LockEvent;
use crate::locks::table::{Holder, LockKey, LockMechanism, LockOperation, Locks, is_unique};
use crate::locks::text;
use crate::timing::time::Time;

use super::entry::{Entry, JournalEvent, client_text, story};
use super::{Journal, Record};

/// A condition that must hold for all locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Check {
    /// No lock is held any more.
    NoLockHeld,
    /// No lock was acquired while another client still believed to hold it: a client that lost a
    /// lock tried to release or renew it after another one had acquired it.
    NeverTwoHolders,
    /// Every lock had a lease while it was held.
    EveryLockHasALease,
    /// No lock was released by a client that had not proved to be its owner.
    ReleasedOnlyByOwner,
    /// No client was refused a lock that holds the client's own token, as after a lost reply.
    RefusedByOwnToken,
    /// Every client that was refused a lock has acquired it since, unless it is still held or the
    /// client has disconnected.
    NoWaiterLost,
    /// No lease expired: every lock was renewed or released before.
    RenewedBeforeExpiry,
}

impl Check {
    /// All checks.
    pub const ALL: [Check; 7] = [
        Check::NoLockHeld,
        Check::NeverTwoHolders,
        Check::EveryLockHasALease,
        Check::ReleasedOnlyByOwner,
        Check::RefusedByOwnToken,
        Check::NoWaiterLost,
        Check::RenewedBeforeExpiry,
    ];

    /// The checks of rules that hold for every correct use of locks. The others are for programs
    /// in which no client gives up, and no lease is meant to expire.
    pub const GENERAL: [Check; 5] = [
        Check::NoLockHeld,
        Check::NeverTwoHolders,
        Check::EveryLockHasALease,
        Check::ReleasedOnlyByOwner,
        Check::RefusedByOwnToken,
    ];

    /// The name of the check.
    pub fn name(self) -> &'static str {
        match self {
            Check::NoLockHeld => "no-lock-held",
            Check::NeverTwoHolders => "never-two-holders",
            Check::EveryLockHasALease => "every-lock-has-a-lease",
            Check::ReleasedOnlyByOwner => "released-only-by-owner",
            Check::RefusedByOwnToken => "refused-by-own-token",
            Check::NoWaiterLost => "no-waiter-lost",
            Check::RenewedBeforeExpiry => "renewed-before-expiry",
        }
    }
}

/// What a check is about. By default all locks, but not keys that are only possibly locks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope<'a> {
    /// Only keys that match this pattern, also those that are only possibly locks.
    pub key: Option<&'a [u8]>,
    /// Only what this client has done: its `CLIENT ID`, or its name.
    pub client: Option<&'a [u8]>,
    /// Only what entries with greater numbers have recorded.
    pub since: u64,
}

impl Scope<'_> {
    fn includes(&self, lock_key: &LockKey, clients: &[Actor], seq: u64) -> bool {
        seq > self.since
            && self.key.is_none_or(|pattern| glob::matches(pattern, &lock_key.1))
            && self.client.is_none_or(|wanted| {
                clients.iter().any(|(client, name)| is_client(wanted, *client, name))
            })
    }
}

/// Whether a client has this `CLIENT ID` or name.
pub(super) fn is_client(wanted: &[u8], client: u64, name: &str) -> bool {
    client.to_string().as_bytes() == wanted || name.as_bytes() == wanted
}

/// A client by its `CLIENT ID` and its name.
type Actor = (u64, String);

fn actor(holder: &Holder) -> Actor {
    (holder.client, holder.name.clone())
}

/// The result of a check.
#[derive(Clone, Debug, Serialize)]
pub struct CheckResult {
    /// The check.
    pub check: Check,
    /// Whether the condition holds.
    pub holds: bool,
    /// The first violation, and the number of others.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sentence: String,
    /// Violations at keys that are only possibly locks. They do not break the check.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub possible: Vec<String>,
    /// The events of that lock, in time order.
    pub story: Vec<Entry>,
    /// The number of the entry that broke the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<u64>,
    /// How many entries the journal has dropped, so that the story may lack its beginning.
    #[serde(skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The violation and the events of the lock, one line each.
impl fmt::Display for CheckResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.holds {
            write!(f, "{}: it holds", self.check.name())?;
        } else {
            let story = story(&self.story, self.at);
            writeln!(f, "{}: {}", self.check.name(), self.sentence)?;
            if self.dropped > 0 {
                writeln!(
                    f,
                    "  ({} older entries were dropped; journal-max-entries sets how many are kept)",
                    self.dropped
                )?;
            }
            write!(f, "{}", story.trim_end())?;
        }
        for sentence in &self.possible {
            write!(f, "\npossibly: {sentence}")?;
        }
        Ok(())
    }
}

/// A common mistake in the use of locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LintRule {
    /// A lock never had a lease: if its owner dies, the lock is never released.
    LockWithoutLease,
    /// A lock was acquired by one command and got its lease by another.
    LeaseInASecondStep,
    /// A lock was deleted without checking its owner.
    DeleteWithoutCheck,
    /// A lock was compared by one command and deleted by another.
    CompareAndDeleteInTwoSteps,
    /// A lease expired before the owner released the lock.
    LeaseShorterThanHold,
    /// A lock was renewed by a client that had lost it.
    RenewalAfterLoss,
}

impl LintRule {
    fn sentence(self, key: &str) -> String {
        match self {
            LintRule::LockWithoutLease => format!(
                "the lock '{key}' has no lease: if its owner dies, no client can ever acquire it; \
                 use SET key token NX PX milliseconds"
            ),
            LintRule::LeaseInASecondStep => format!(
                "the lock '{key}' got its lease by a second command: if its owner dies between the \
                 two, no client can ever acquire it; use SET key token NX PX milliseconds"
            ),
            LintRule::DeleteWithoutCheck => format!(
                "the lock '{key}' was deleted without checking its owner: after the lease has \
                 ended, that may be another client; compare and delete in one script"
            ),
            LintRule::CompareAndDeleteInTwoSteps => format!(
                "the lock '{key}' was compared by one command and deleted by another: in between \
                 another client may acquire it; compare and delete in one script"
            ),
            LintRule::LeaseShorterThanHold => format!(
                "the lock '{key}' was lost before its owner released it: the lease is shorter \
                 than the work, and it was not renewed"
            ),
            LintRule::RenewalAfterLoss => format!(
                "the lock '{key}' was renewed by a client that had lost it: the renewal came too \
                 late, and the work continued without the lock"
            ),
        }
    }
}

/// A mistake in the use of one lock.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// The rule.
    pub rule: LintRule,
    /// The key of the lock.
    pub key: String,
    /// The mistake and how to fix it.
    pub sentence: String,
    /// How many times the mistake was made.
    pub count: u64,
    /// The entries of its first occurrence, unless the journal has dropped them.
    pub entries: Vec<Entry>,
}

#[derive(Debug)]
struct BrokenCheck {
    check: Check,
    lock_key: LockKey,
    clients: Vec<Actor>,
    seq: u64,
    sentence: String,
}

#[derive(Debug)]
struct Mistake {
    rule: LintRule,
    lock_key: LockKey,
    clients: Vec<Actor>,
    count: u64,
    entries: Vec<u64>,
}

/// The violations and mistakes so far.
#[derive(Debug, Default)]
pub(super) struct Violations {
    broken_checks: Vec<BrokenCheck>,
    mistakes: Vec<Mistake>,
}

impl Violations {
    /// Judges an event of a lock, whose entry has the number `seq`.
    pub(super) fn judge(
        &mut self,
        operation: &LockOperation<'_>,
        lock_key: &LockKey,
        event: LockEvent<'_>,
        seq: u64,
    ) {
        let own = (operation.client, operation.name.to_owned());
        if let Some((check, holder, sentence)) = broken_check(operation, lock_key, event) {
            let clients = vec![own.clone(), actor(holder)];
            let lock_key = lock_key.clone();
            self.break_check(BrokenCheck { check, lock_key, clients, seq, sentence });
        }
        if let LockEvent::Released { holder, left: 0, release } = event
            && !release.had_lease
        {
            let (key, owner) = (text(&lock_key.1), text(&holder.owner));
            let sentence = format!("the lock '{key}' of '{owner}' never had a lease");
            let clients = vec![own.clone(), actor(holder)];
            let rule = LintRule::LockWithoutLease;
            self.add_mistake(rule, lock_key, clients.clone(), vec![holder.seq]);
            let (check, lock_key) = (Check::EveryLockHasALease, lock_key.clone());
            self.break_check(BrokenCheck { check, lock_key, clients, seq, sentence });
        }
        if let Some((rule, holder)) = mistake(operation, event) {
            let entries = vec![holder.seq, operation.seq, seq];
            self.add_mistake(rule, lock_key, vec![own, actor(holder)], entries);
        }
    }

    fn break_check(&mut self, broken: BrokenCheck) {
        // The first violations are the most useful.
        if self.broken_checks.len() < JOURNAL_REMEMBERED_MAX {
            self.broken_checks.push(broken);
        }
    }

    fn add_mistake(
        &mut self,
        rule: LintRule,
        lock_key: &LockKey,
        clients: Vec<Actor>,
        entries: Vec<u64>,
    ) {
        let known = self.mistakes.iter_mut().find(|it| it.rule == rule && it.lock_key == *lock_key);
        if let Some(known) = known {
            known.count += 1;
        } else if self.mistakes.len() < JOURNAL_REMEMBERED_MAX {
            let lock_key = lock_key.clone();
            self.mistakes.push(Mistake { rule, lock_key, clients, count: 1, entries });
        }
    }
}

/// The check that an event breaks, the holder concerned, and a sentence.
fn broken_check<'a>(
    operation: &LockOperation<'_>,
    lock_key: &LockKey,
    event: LockEvent<'a>,
) -> Option<(Check, &'a Holder, String)> {
    let key = text(&lock_key.1);
    let by = client_text(operation.client, operation.name);
    let name = |holder: &Holder| client_text(holder.client, &holder.name);
    Some(match event {
        LockEvent::Released { holder, release, .. } if !release.by_owner => {
            let sentence = format!("the lock '{key}' of {} was released by {by}", name(holder));
            (Check::ReleasedOnlyByOwner, holder, sentence)
        }
        LockEvent::Refused { by: token, holders } => {
            let is_own = |holder: &&Holder| is_unique(token) && holder.owner == token;
            let holder = holders.iter().find(is_own)?;
            let sentence = format!(
                "{by} was refused the lock '{key}', which holds its own token '{}' since entry \
                 #{}: the reply was lost, or the client has forgotten that it holds the lock",
                text(token),
                holder.seq
            );
            (Check::RefusedByOwnToken, holder, sentence)
        }
        LockEvent::Expired { holder } => {
            let owner = text(&holder.owner);
            let sentence = format!(
                "the lease of the lock '{key}' expired while {} held it as '{owner}'",
                name(holder)
            );
            (Check::RenewedBeforeExpiry, holder, sentence)
        }
        LockEvent::TooLate { holder, late_ms, successor: Some(next), .. } => {
            let sentence = format!(
                "{} had the lock '{key}' and still acts as its holder, but lost it {late_ms} ms \
                 ago; {} as '{}' has acquired it since",
                name(holder),
                name(next),
                text(&next.owner)
            );
            (Check::NeverTwoHolders, holder, sentence)
        }
        _ => return None,
    })
}

/// The mistake that an event shows, and the holder concerned.
fn mistake<'a>(
    operation: &LockOperation<'_>,
    event: LockEvent<'a>,
) -> Option<(LintRule, &'a Holder)> {
    Some(match event {
        LockEvent::Released { holder, release, .. } if release.unproved => {
            let rule = match release.was_read {
                true => LintRule::CompareAndDeleteInTwoSteps,
                false => LintRule::DeleteWithoutCheck,
            };
            (rule, holder)
        }
        LockEvent::Renewed { holder, lease_ms: Some(_), had_lease: false }
            if operation.mechanism == LockMechanism::Command =>
        {
            (LintRule::LeaseInASecondStep, holder)
        }
        LockEvent::TooLate { holder, releases: true, .. } => {
            (LintRule::LeaseShorterThanHold, holder)
        }
        LockEvent::TooLate { holder, .. } => (LintRule::RenewalAfterLoss, holder),
        _ => return None,
    })
}

/// A violation that a check has found.
struct FoundViolation {
    lock_key: LockKey,
    /// The last entry of its story.
    until: u64,
    /// The entry that broke the check.
    at: Option<u64>,
    sentence: String,
}

impl Engine {
    /// The result of a check at present; `None` if no journal is kept.
    pub fn check_locks(&self, check: Check, scope: Scope<'_>, time: Time) -> Option<CheckResult> {
        let journal = self.journal()?;
        let mut found = journal.violations(check, scope);
        found.extend(journal.present_violations(self, check, scope, time));
        let is_lock =
            |found: &FoundViolation| scope.key.is_some() || journal.is_lock(&found.lock_key);
        let (broken, possible): (Vec<FoundViolation>, Vec<FoundViolation>) =
            found.into_iter().partition(is_lock);
        let mut result = CheckResult {
            check,
            holds: broken.is_empty(),
            sentence: String::new(),
            possible: possible.into_iter().map(|found| found.sentence).collect(),
            story: Vec::new(),
            at: None,
            dropped: 0,
        };
        if let [first, more @ ..] = &broken[..] {
            result.sentence = match more.len() {
                0 => first.sentence.clone(),
                more => format!("{} (and {more} more)", first.sentence),
            };
            result.story = journal.record.story(&text(&first.lock_key.1), first.until);
            result.at = first.at;
            result.dropped = journal.record.dropped;
        }
        Some(result)
    }

    /// The mistakes so far; `None` if no journal is kept.
    pub fn lint_locks(&self, scope: Scope<'_>, time: Time) -> Option<Vec<Finding>> {
        let journal = self.journal()?;
        let is_meant = |lock_key: &LockKey, clients: &[Actor], entries: &[u64]| {
            let last = entries.iter().copied().max().unwrap_or_default();
            scope.includes(lock_key, clients, last)
                && (scope.key.is_some() || journal.is_lock(lock_key))
        };
        let shown = |rule: LintRule, lock_key: &LockKey, count, entries: &[u64]| {
            let key = text(&lock_key.1);
            let sentence = rule.sentence(&key);
            Finding { rule, key, sentence, count, entries: journal.record.by_number(entries) }
        };
        let found = journal.record.violations.mistakes.iter();
        let mut findings: Vec<Finding> = found
            .filter(|it| is_meant(&it.lock_key, &it.clients, &it.entries))
            .map(|it| shown(it.rule, &it.lock_key, it.count, &it.entries))
            .collect();
        for (lock_key, lock) in &journal.locks.held {
            let [holder, ..] = &lock.holders[..] else { continue };
            let rule = LintRule::LockWithoutLease;
            let key = text(&lock_key.1);
            let is_known = findings.iter().any(|it| it.rule == rule && it.key == key);
            if !is_known
                && is_meant(lock_key, &[actor(holder)], &[holder.seq])
                && journal.locks.is_without_lease(self, lock_key, time)
            {
                findings.push(shown(rule, lock_key, 1, &[holder.seq]));
            }
        }
        Some(findings)
    }
}

impl Journal {
    fn is_lock(&self, lock_key: &LockKey) -> bool {
        self.locks.confidence(lock_key).0 > Confidence::Possible
    }

    /// The recorded violations of a check.
    fn violations(&self, check: Check, scope: Scope<'_>) -> Vec<FoundViolation> {
        let broken = self.record.violations.broken_checks.iter();
        broken
            .filter(|broken| broken.check == check)
            .filter(|broken| scope.includes(&broken.lock_key, &broken.clients, broken.seq))
            .map(|broken| FoundViolation {
                lock_key: broken.lock_key.clone(),
                until: broken.seq,
                at: Some(broken.seq),
                sentence: broken.sentence.clone(),
            })
            .collect()
    }

    /// What violates a check at present.
    fn present_violations(
        &self,
        engine: &Engine,
        check: Check,
        scope: Scope<'_>,
        time: Time,
    ) -> Vec<FoundViolation> {
        let mut found = Vec::new();
        let mut add = |lock_key: &LockKey, seq, sentence| {
            let (lock_key, at) = (lock_key.clone(), Some(seq));
            found.push(FoundViolation { lock_key, until: u64::MAX, at, sentence });
        };
        for (lock_key, lock) in &self.locks.held {
            if !Locks::exists(engine, lock_key, time) {
                continue;
            }
            for holder in &lock.holders {
                let key = text(&lock_key.1);
                let taker = client_text(holder.client, &holder.name);
                let is_meant = scope.includes(lock_key, &[actor(holder)], holder.seq);
                let is_endless = || self.locks.is_without_lease(engine, lock_key, time);
                match check {
                    Check::NoLockHeld if is_meant => {
                        let owner = text(&holder.owner);
                        let sentence = format!("{taker} holds the lock '{key}' as '{owner}'");
                        add(lock_key, holder.seq, sentence);
                    }
                    Check::EveryLockHasALease if is_meant && is_endless() => {
                        let sentence = format!("the lock '{key}' that {taker} holds has no lease");
                        add(lock_key, holder.seq, sentence);
                    }
                    _ => {}
                }
            }
        }
        if check == Check::NoWaiterLost {
            for waiting in &self.locks.waiting {
                let clients = [(waiting.client, waiting.name.clone())];
                if Locks::exists(engine, &waiting.lock_key, time)
                    || engine.sessions.clients.by_serial(waiting.client).is_none()
                    || !scope.includes(&waiting.lock_key, &clients, waiting.seq)
                {
                    continue;
                }
                let sentence = format!(
                    "{} was refused the lock '{}' {} ms ago and has not acquired it, although it \
                     is free",
                    client_text(waiting.client, &waiting.name),
                    text(&waiting.lock_key.1),
                    time.now.0 - waiting.since_ms
                );
                add(&waiting.lock_key, waiting.seq, sentence);
            }
        }
        found
    }
}

impl Record {
    /// The entries of a lock up to a number, with the scripts and transactions they belong to, what
    /// happened to the clock meanwhile, and the connections of their clients.
    fn story(&self, key: &str, until: u64) -> Vec<Entry> {
        let about = |entry: &Entry| entry.seq <= until && entry.keys.iter().any(|it| it == key);
        let last = self.entries.iter().rev().filter(|entry| about(entry)).take(JOURNAL_STORY_MAX);
        let (mut begin, mut requests, mut clients) = (None, BTreeSet::new(), BTreeSet::new());
        for entry in last {
            begin = Some(entry.seq);
            requests.insert(entry.request);
            clients.insert(entry.client);
        }
        let Some(begin) = begin else { return Vec::new() };
        let entries = self.entries.iter().filter(|entry| {
            let is_in_time = entry.seq >= begin && entry.seq <= until;
            match &entry.event {
                JournalEvent::Clock { .. } => is_in_time,
                JournalEvent::Connected {}
                | JournalEvent::Disconnected {}
                | JournalEvent::Freed { .. } => is_in_time && clients.contains(&entry.client),
                _ if entry.is_request() => requests.contains(&entry.request),
                _ => entry.seq >= begin && about(entry),
            }
        });
        entries.cloned().collect()
    }

    fn by_number(&self, numbers: &[u64]) -> Vec<Entry> {
        self.entries.iter().filter(|entry| numbers.contains(&entry.seq)).cloned().collect()
    }
}
