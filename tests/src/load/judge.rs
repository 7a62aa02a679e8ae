//! Judges the histories of the locks.

#![allow(clippy::print_stdout)] // Programs show violations on their output.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use lockwheel_compat::judge::entitlement;
use lockwheel_compat::judge::history::{self, Action, Answer, Event};
use lockwheel_compat::judge::linear::{Budget, Linear};
use lockwheel_compat::judge::{Rules, ViolationKind, lock, operations};

use super::FaultSpan;
use super::clients::Record;

/// Latest end of leases of which the end is not known.
const NO_LIMIT_US: i64 = i64::MAX / 4;

/// Steps of the search for an order, of each lock.
const STEPS: u64 = 300_000;

/// Violations that are printed in full.
const SHOWN: u64 = 5;
/// Events that are printed around a violation.
const SHOWN_EVENTS: usize = 12;

/// The numbers of a campaign.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    faults: usize,
    requests: u64,
    acquired: u64,
    unknown: u64,
    /// Answers to holders that show their locks after a fault.
    found_again: u64,
    lost: u64,
    granted_twice: u64,
    other: u64,
    undecided: u64,
}

impl Totals {
    /// Answers that no server of locks may give.
    pub fn violations(&self) -> u64 {
        self.lost + self.granted_twice + self.other
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals { faults, requests, acquired, unknown, found_again, .. } = self;
        let Totals { lost, granted_twice, other, undecided, .. } = self;
        write!(
            f,
            "{faults} faults, {requests} requests, {acquired} acquired, {unknown} unknown, \
             {found_again} locks found again after faults; {lost} lost, {granted_twice} granted \
             twice, {other} other violations, {undecided} undecided"
        )
    }
}

/// What is judged.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// Its name, in the output and in the names of files.
    pub name: String,
    /// The seed of the clients.
    pub seed: u32,
    /// Whether violations are printed.
    pub shows: bool,
    /// Whether the servers must keep the locks over a fault.
    pub keeps_locks: bool,
    /// Whether a request without an answer may take effect until the end of the next fault, also
    /// if the connection was lost: another server may have got it.
    pub is_replicated: bool,
    /// Longest span by which a lease may end late.
    pub late_us: i64,
    /// The file to which the histories are added, for the second judge.
    pub history: Option<PathBuf>,
}

/// The histories that are not judged yet, and the numbers of those that are.
pub struct Judge {
    campaign: Campaign,
    faults: Vec<FaultSpan>,
    records: BTreeMap<u64, Vec<Record>>,
    judged_before: u64,
    totals: Totals,
}

impl Judge {
    /// A judge without histories.
    pub fn new(campaign: Campaign) -> Judge {
        Judge {
            campaign,
            faults: Vec::new(),
            records: BTreeMap::new(),
            judged_before: 0,
            totals: Totals::default(),
        }
    }

    /// Adds a fault, before the records of the time after it.
    pub fn add_fault(&mut self, fault: FaultSpan) {
        self.faults.push(fault);
    }

    /// Adds requests of clients.
    ///
    /// # Panics
    /// If their epoch has been judged.
    pub fn add_records(&mut self, records: Vec<Record>) {
        for record in records {
            assert!(record.epoch >= self.judged_before, "no client uses locks of ended epochs");
            self.records.entry(record.epoch).or_default().push(record);
        }
    }

    /// Judges the histories of the epochs before that one.
    pub fn judge_before(&mut self, epoch: u64) {
        self.judged_before = epoch;
        let rest = self.records.split_off(&epoch);
        let records = std::mem::replace(&mut self.records, rest).into_values().flatten();
        let mut locks: BTreeMap<String, Vec<Record>> = BTreeMap::new();
        for record in records {
            locks.entry(record.event.lock.clone()).or_default().push(record);
        }
        for (name, mut records) in locks {
            records.sort_by_key(|record| (record.event.invoked_us, record.event.returned_us));
            self.count(&records);
            let events: Vec<Event> = records.into_iter().filter_map(|it| self.event(it)).collect();
            self.judge(&name, &events);
        }
    }

    /// The numbers of what has been judged.
    pub fn totals(&self) -> Totals {
        Totals { faults: self.faults.len(), ..self.totals }
    }

    fn count(&mut self, records: &[Record]) {
        // The time at which the holder was last known to hold the lock.
        let mut held_us: BTreeMap<&str, i64> = BTreeMap::new();
        for Record { event, .. } in records {
            self.totals.requests += 1;
            let returned_us = event.returned_us.unwrap_or(i64::MAX);
            match (event.action, event.answer) {
                (_, Answer::Unknown) => {
                    self.totals.unknown += 1;
                    continue;
                }
                (Action::Acquire { .. }, Answer::Granted) => self.totals.acquired += 1,
                (_, Answer::Granted | Answer::Kept | Answer::Released) => {}
                _ => continue,
            }
            let before_us = held_us.insert(&event.client, returned_us).unwrap_or(i64::MAX);
            let between =
                |fault: &FaultSpan| before_us <= fault.begin_us && fault.end_us <= event.invoked_us;
            self.totals.found_again += u64::from(self.faults.iter().rev().any(between));
        }
    }

    /// The event, as the judges need it.
    fn event(&self, record: Record) -> Option<Event> {
        let Record { mut event, is_check, is_late, .. } = record;
        if is_check && event.answer != Answer::NotOwner {
            // It changes nothing.
            return None;
        }
        let is_late = is_late || self.campaign.is_replicated && event.answer == Answer::Unknown;
        if is_late && let Some(returned_us) = event.returned_us {
            let later = |fault: &&FaultSpan| fault.end_us >= returned_us;
            event.returned_us = self.faults.iter().find(later).map(|fault| fault.end_us);
        }
        Some(event)
    }

    fn judge(&mut self, name: &str, events: &[Event]) {
        let Campaign { keeps_locks, shows, late_us, .. } = self.campaign;
        let rules = rules(name, late_us);
        if let Some(path) = &self.campaign.history {
            let lock = format!("{}/{name}", self.campaign.name);
            let added = add_history(path, &lock, events, rules);
            added.expect("a file to which histories can be added");
        }
        let before = self.totals.violations();
        let mut problems = Vec::new();
        for violation in entitlement::judge(events, rules) {
            match violation.kind {
                ViolationKind::DoubleGrant => self.totals.granted_twice += 1,
                _ if !keeps_locks => continue,
                ViolationKind::EarlyLoss => self.totals.lost += 1,
                _ => self.totals.other += 1,
            }
            problems.push((violation.kind.to_string(), violation.event));
        }
        // A violation makes the history impossible in any order.
        if problems.is_empty() && keeps_locks {
            match lock::judge(events, rules, &mut Budget::steps(STEPS)) {
                Linear::Legal => {}
                Linear::Unknown => self.totals.undecided += 1,
                Linear::Illegal(at) => {
                    self.totals.other += 1;
                    problems.push(("no lock gives these answers".to_owned(), at));
                }
            }
        }
        if shows && before < SHOWN && !problems.is_empty() {
            self.show(name, events, &problems);
        }
    }

    fn show(&self, name: &str, events: &[Event], problems: &[(String, usize)]) {
        for (problem, at) in problems {
            println!("{}: {problem}: {}", self.campaign.name, events[*at]);
        }
        if let Some(&(_, at)) = problems.first() {
            let around = history::around(events, name, events[at].invoked_us, SHOWN_EVENTS);
            around.iter().for_each(|line| println!("    {line}"));
        }
        for fault in &self.faults {
            let within = |event: &Event| event.invoked_us <= fault.end_us;
            let after = |event: &Event| event.invoked_us >= fault.begin_us;
            if events.iter().any(within) && events.iter().any(after) {
                println!("    a fault at {}..{}", fault.begin_us, fault.end_us);
            }
        }
        let Campaign { name: campaign, seed, .. } = &self.campaign;
        let file = format!("lockwheel-load-{campaign}-{seed}-{name}.txt");
        let path = std::env::temp_dir().join(file);
        match std::fs::write(&path, history::write(events)) {
            Ok(()) => println!("    the whole history is in {}", path.display()),
            Err(error) => println!("    the history cannot be written: {error}"),
        }
    }
}

fn add_history(path: &Path, lock: &str, events: &[Event], rules: Rules) -> std::io::Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let mut out = BufWriter::new(file);
    operations::write(&mut out, lock, events, rules)?;
    out.flush()
}

/// The rules of a lock, by the kind in its name.
fn rules(name: &str, late_us: i64) -> Rules {
    let rules = Rules { late_us, ..Rules::LOCK };
    match name.split('-').next() {
        Some("lease") => Rules { reentrant: true, ..rules },
        // The watchdog renews leases by requests that are not in the history.
        Some("watchdog") => Rules { reentrant: true, late_us: NO_LIMIT_US, ..rules },
        _ => rules,
    }
}
