//! What is said of what has happened: rules that must hold of all locks, each with its story, and
//! the usual mistakes of those who write locks. What breaks a rule is kept when it happens, so it
//! is not lost when the journal has forgotten its entries.

use std::fmt;

use serde::Serialize;

use crate::Engine;
use crate::limits::{JOURNAL_REMEMBERED_MAX, JOURNAL_STORY_MAX};
use crate::time::Time;

use super::Journal;
use super::entry::{Entry, story, text, who};

/// A rule that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Check {
    /// Nobody holds a lock any more.
    NoLockHeld,
    /// Nobody took a lock while another believed to have it: that is, whoever lost one came back
    /// to release or renew it when it was somebody else's.
    NeverTwoHolders,
    /// Every lock was given a lease while it was held.
    EveryLockHasALease,
    /// No lock was taken away by somebody who had not shown to be its owner.
    ReleasedOnlyByOwner,
}

impl Check {
    /// All of them.
    pub const ALL: [Check; 4] = [
        Check::NoLockHeld,
        Check::NeverTwoHolders,
        Check::EveryLockHasALease,
        Check::ReleasedOnlyByOwner,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Check::NoLockHeld => "no-lock-held",
            Check::NeverTwoHolders => "never-two-holders",
            Check::EveryLockHasALease => "every-lock-has-a-lease",
            Check::ReleasedOnlyByOwner => "released-only-by-owner",
        }
    }
}

/// What a check has come to.
#[derive(Clone, Debug, Serialize)]
pub struct CheckResult {
    /// Which.
    pub check: Check,
    /// Whether the rule holds.
    pub holds: bool,
    /// If not, what broke it first, and how often it was broken.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sentence: String,
    /// What has happened to that lock, in time order.
    pub story: Vec<Entry>,
}

/// What broke the rule, and what has happened to that lock, a line for each entry.
impl fmt::Display for CheckResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.holds {
            return write!(f, "{}: it holds", self.check.name());
        }
        write!(f, "{}: {}\n{}", self.check.name(), self.sentence, story(&self.story).trim_end())
    }
}

/// A mistake in how locks are taken, kept or let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LintRule {
    /// A lock was never given a lease: if its owner dies, it stays.
    LockWithoutLease,
    /// A lock was taken by one command and given a lease by another.
    LeaseInASecondStep,
    /// A lock was deleted without a look at whose it is.
    DeleteWithoutCheck,
    /// A lock was compared by one command and deleted by another.
    CompareAndDeleteInTwoSteps,
    /// A lease ended before its owner came to release the lock.
    LeaseShorterThanHold,
    /// A lock was renewed by somebody who had lost it.
    RenewalAfterLoss,
}

impl LintRule {
    fn sentence(self, key: &str) -> String {
        match self {
            LintRule::LockWithoutLease => format!(
                "the lock '{key}' has no lease: if its owner dies, nobody ever gets it; take it by \
                 SET key token NX PX milliseconds"
            ),
            LintRule::LeaseInASecondStep => format!(
                "the lock '{key}' got its lease by a second command: if its owner dies between the \
                 two, nobody ever gets it; take it by SET key token NX PX milliseconds"
            ),
            LintRule::DeleteWithoutCheck => format!(
                "the lock '{key}' was deleted without a look at whose it is: if the lease is over, \
                 that is somebody else's; compare and delete in one script"
            ),
            LintRule::CompareAndDeleteInTwoSteps => format!(
                "the lock '{key}' was compared by one command and deleted by another: in between \
                 it may become somebody else's; compare and delete in one script"
            ),
            LintRule::LeaseShorterThanHold => format!(
                "the lock '{key}' was lost before its owner came to release it: the lease is \
                 shorter than the work, and nobody renewed it"
            ),
            LintRule::RenewalAfterLoss => format!(
                "the lock '{key}' was renewed by somebody who had lost it: the renewal comes too \
                 late, and the work goes on without the lock"
            ),
        }
    }
}

/// A mistake that was made, at one key.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Which.
    pub rule: LintRule,
    /// The lock.
    pub key: String,
    /// What is wrong with it, and what to do.
    pub sentence: String,
    /// How often it was made.
    pub count: u64,
    /// The entries that show it for the first time, as far as they are still known.
    pub entries: Vec<Entry>,
}

#[derive(Debug)]
struct Breach {
    check: Check,
    key: String,
    seq: u64,
    sentence: String,
}

#[derive(Debug)]
struct Found {
    rule: LintRule,
    key: String,
    count: u64,
    entries: Vec<u64>,
}

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Verdicts {
    breaches: Vec<Breach>,
    findings: Vec<Found>,
}

impl Verdicts {
    /// A rule was broken.
    pub(super) fn breach(&mut self, check: Check, key: &str, seq: u64, sentence: String) {
        // The first tell most.
        if self.breaches.len() < JOURNAL_REMEMBERED_MAX {
            self.breaches.push(Breach { check, key: key.to_owned(), seq, sentence });
        }
    }

    /// A mistake was made.
    pub(super) fn find(&mut self, rule: LintRule, key: &str, entries: Vec<u64>) {
        let known = self.findings.iter_mut().find(|it| it.rule == rule && it.key == key);
        if let Some(known) = known {
            known.count += 1;
        } else if self.findings.len() < JOURNAL_REMEMBERED_MAX {
            self.findings.push(Found { rule, key: key.to_owned(), count: 1, entries });
        }
    }

    /// A lock had no lease until its end.
    pub(super) fn without_lease(&mut self, key: &str, owner: &str, entries: Vec<u64>) {
        let seq = entries.first().copied().unwrap_or_default();
        self.find(LintRule::LockWithoutLease, key, entries);
        let sentence = format!("the lock '{key}' of '{owner}' never had a lease");
        self.breach(Check::EveryLockHasALease, key, seq, sentence);
    }
}

impl Engine {
    /// What a check comes to now; `None` if no journal is kept.
    pub fn check_locks(&self, check: Check, time: Time) -> Option<CheckResult> {
        let journal = self.journal()?;
        let mut broken: Vec<(String, u64, String)> = journal
            .verdicts
            .breaches
            .iter()
            .filter(|breach| breach.check == check)
            .map(|breach| (breach.key.clone(), breach.seq, breach.sentence.clone()))
            .collect();
        let held = self.held_locks(time).into_iter();
        broken.extend(held.filter_map(|lock| {
            let taker = who(lock.client, &lock.name);
            let sentence = match (check, lock.lease_ms) {
                (Check::NoLockHeld, _) => {
                    format!("{taker} holds the lock '{}' as '{}'", lock.key, lock.owner)
                }
                (Check::EveryLockHasALease, None) => {
                    format!("the lock '{}' that {taker} holds has no lease", lock.key)
                }
                _ => return None,
            };
            Some((lock.key, u64::MAX, sentence))
        }));
        let mut verdict = CheckResult {
            check,
            holds: broken.is_empty(),
            sentence: String::new(),
            story: Vec::new(),
        };
        if let [(key, until, sentence), more @ ..] = &broken[..] {
            verdict.sentence = match more.len() {
                0 => sentence.clone(),
                more => format!("{sentence} (and {more} more)"),
            };
            verdict.story = journal.story(key, *until);
        }
        Some(verdict)
    }

    /// The mistakes that were made so far; `None` if no journal is kept.
    pub fn lint_locks(&self, time: Time) -> Option<Vec<Finding>> {
        let journal = self.journal()?;
        let shown = |rule: LintRule, key: &str, count, entries: &[u64]| Finding {
            rule,
            key: key.to_owned(),
            sentence: rule.sentence(key),
            count,
            entries: journal.by_number(entries),
        };
        let found = journal.verdicts.findings.iter();
        let mut findings: Vec<Finding> =
            found.map(|it| shown(it.rule, &it.key, it.count, &it.entries)).collect();
        for (place, lock) in &journal.locks.held {
            let seen = super::look(self, place, time);
            let [holder, ..] = &lock.holders[..] else { continue };
            let key = text(&place.1);
            let rule = LintRule::LockWithoutLease;
            let is_known = findings.iter().any(|it| it.rule == rule && it.key == key);
            if seen.is_some_and(|seen| seen.deadline_ms.is_none()) && !is_known {
                findings.push(shown(rule, &key, 1, &[holder.seq]));
            }
        }
        Some(findings)
    }
}

impl Journal {
    /// What is known of a lock up to an entry.
    fn story(&self, key: &str, until: u64) -> Vec<Entry> {
        let about = |entry: &&Entry| entry.seq <= until && entry.keys.iter().any(|it| it == key);
        let last = self.entries.iter().rev().filter(about).take(JOURNAL_STORY_MAX);
        let mut story: Vec<Entry> = last.cloned().collect();
        story.reverse();
        story
    }

    fn by_number(&self, numbers: &[u64]) -> Vec<Entry> {
        self.entries.iter().filter(|entry| numbers.contains(&entry.seq)).cloned().collect()
    }
}
