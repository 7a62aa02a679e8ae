//! Checks and lint rules: conditions that must hold for all locks, each with the story of the lock
//! that breaks it, and common mistakes in the use of locks. Violations are recorded when they
//! happen, so they are still known when the journal has dropped their entries.

use std::fmt;

use serde::Serialize;

use crate::Engine;
use crate::limits::{JOURNAL_REMEMBERED_MAX, JOURNAL_STORY_MAX};
use crate::time::Time;

use super::Journal;
use super::entry::{Entry, client_text, story, text};

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
}

impl Check {
    /// All checks.
    pub const ALL: [Check; 4] = [
        Check::NoLockHeld,
        Check::NeverTwoHolders,
        Check::EveryLockHasALease,
        Check::ReleasedOnlyByOwner,
    ];

    /// The name of the check.
    pub fn name(self) -> &'static str {
        match self {
            Check::NoLockHeld => "no-lock-held",
            Check::NeverTwoHolders => "never-two-holders",
            Check::EveryLockHasALease => "every-lock-has-a-lease",
            Check::ReleasedOnlyByOwner => "released-only-by-owner",
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug, Serialize)]
pub struct CheckResult {
    /// The check.
    pub check: Check,
    /// Whether the condition holds.
    pub holds: bool,
    /// If not, the first violation and the number of further ones.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sentence: String,
    /// The events of that lock, in time order.
    pub story: Vec<Entry>,
}

/// The violation and the events of the lock, one line each.
impl fmt::Display for CheckResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.holds {
            return write!(f, "{}: it holds", self.check.name());
        }
        write!(f, "{}: {}\n{}", self.check.name(), self.sentence, story(&self.story).trim_end())
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
    key: String,
    seq: u64,
    sentence: String,
}

#[derive(Debug)]
struct Mistake {
    rule: LintRule,
    key: String,
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
    /// Records a violation of a check.
    pub(super) fn break_check(&mut self, check: Check, key: &str, seq: u64, sentence: String) {
        // The first violations are the most useful.
        if self.broken_checks.len() < JOURNAL_REMEMBERED_MAX {
            self.broken_checks.push(BrokenCheck { check, key: key.to_owned(), seq, sentence });
        }
    }

    /// Records a mistake.
    pub(super) fn add_mistake(&mut self, rule: LintRule, key: &str, entries: Vec<u64>) {
        let known = self.mistakes.iter_mut().find(|it| it.rule == rule && it.key == key);
        if let Some(known) = known {
            known.count += 1;
        } else if self.mistakes.len() < JOURNAL_REMEMBERED_MAX {
            self.mistakes.push(Mistake { rule, key: key.to_owned(), count: 1, entries });
        }
    }

    /// Records a lock that never had a lease.
    pub(super) fn without_lease(&mut self, key: &str, owner: &str, entries: Vec<u64>) {
        let seq = entries.first().copied().unwrap_or_default();
        self.add_mistake(LintRule::LockWithoutLease, key, entries);
        let sentence = format!("the lock '{key}' of '{owner}' never had a lease");
        self.break_check(Check::EveryLockHasALease, key, seq, sentence);
    }
}

impl Engine {
    /// The result of a check at present; `None` if no journal is kept.
    pub fn check_locks(&self, check: Check, time: Time) -> Option<CheckResult> {
        let journal = self.journal()?;
        let mut broken: Vec<(String, u64, String)> = journal
            .violations
            .broken_checks
            .iter()
            .filter(|broken| broken.check == check)
            .map(|broken| (broken.key.clone(), broken.seq, broken.sentence.clone()))
            .collect();
        let held = self.held_locks(time).into_iter();
        broken.extend(held.filter_map(|lock| {
            let taker = client_text(lock.client, &lock.name);
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
        let mut result = CheckResult {
            check,
            holds: broken.is_empty(),
            sentence: String::new(),
            story: Vec::new(),
        };
        if let [(key, until, sentence), more @ ..] = &broken[..] {
            result.sentence = match more.len() {
                0 => sentence.clone(),
                more => format!("{sentence} (and {more} more)"),
            };
            result.story = journal.story(key, *until);
        }
        Some(result)
    }

    /// The mistakes so far; `None` if no journal is kept.
    pub fn lint_locks(&self, time: Time) -> Option<Vec<Finding>> {
        let journal = self.journal()?;
        let shown = |rule: LintRule, key: &str, count, entries: &[u64]| Finding {
            rule,
            key: key.to_owned(),
            sentence: rule.sentence(key),
            count,
            entries: journal.by_number(entries),
        };
        let found = journal.violations.mistakes.iter();
        let mut findings: Vec<Finding> =
            found.map(|it| shown(it.rule, &it.key, it.count, &it.entries)).collect();
        for (lock_key, lock) in &journal.locks.held {
            let seen = super::look(self, lock_key, time);
            let [holder, ..] = &lock.holders[..] else { continue };
            let key = text(&lock_key.1);
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
    /// The entries of a lock up to a number.
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
