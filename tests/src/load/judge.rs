//! Judges the histories of the locks: with the ledger of `lockwheel prove`, and for an order that
//! a correct lock allows.

#![allow(clippy::print_stdout)] // Programs show violations on their output.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use lockwheel_compat::judge::history::{self, Answer, Event};
use lockwheel_compat::judge::linear::{Budget, Linear};
use lockwheel_compat::judge::{Rules, ViolationKind, lock, operations};
use lockwheel_prove::report::{self, Format, Report};
use lockwheel_prove::{Fault, Ledger};

use super::clients::Record;

/// Latest end of leases of which the end is not known.
const NO_LIMIT_US: i64 = i64::MAX / 4;

/// Steps of the search for an order, of each lock.
const STEPS: u64 = 300_000;

/// Locks with violations whose requests are printed.
const SHOWN: usize = 5;
/// Events that are printed around a violation.
const SHOWN_EVENTS: usize = 12;

/// The numbers of a campaign.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    faults: usize,
    /// Answers to holders that show their locks after a fault.
    found_again: u64,
    /// Histories without such violations which no correct lock has in any order.
    impossible: u64,
    undecided: u64,
    /// The numbers of the ledger.
    of_ledger: report::Totals,
}

impl Totals {
    /// Answers that no server of locks may give.
    pub fn violations(&self) -> u64 {
        self.of_ledger.lost_early + self.of_ledger.granted_twice + self.other()
    }

    fn other(&self) -> u64 {
        let report::Totals { used_by_others, wrong_tokens, wrong_counts, free_refused, .. } =
            self.of_ledger;
        used_by_others + wrong_tokens + wrong_counts + free_refused + self.impossible
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals { faults, found_again, undecided, .. } = self;
        let report::Totals { requests, granted, unanswered, lost_early, granted_twice, .. } =
            self.of_ledger;
        write!(
            f,
            "{faults} faults, {requests} requests, {granted} acquired, {unanswered} unknown, \
             {found_again} locks found again after faults; {lost_early} lost, {granted_twice} \
             granted twice, {} other violations, {undecided} undecided",
            self.other()
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
    /// The number of clients.
    pub clients: usize,
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

/// The histories that are not judged yet, and what those that are have shown.
pub struct Judge {
    campaign: Campaign,
    faults: Vec<Fault>,
    records: BTreeMap<u64, Vec<Record>>,
    judged_before: u64,
    ledger: Ledger,
    /// The numbers that the ledger does not have.
    totals: Totals,
    /// The times of the first and of the last request.
    span_us: Option<[i64; 2]>,
    findings: Vec<Finding>,
}

/// A lock with violations.
struct Finding {
    lock: String,
    events: Vec<Event>,
    /// What is wrong with the answers to these events.
    problems: Vec<(String, usize)>,
}

impl Judge {
    /// A judge without histories.
    pub fn new(campaign: Campaign) -> Judge {
        Judge {
            campaign,
            faults: Vec::new(),
            records: BTreeMap::new(),
            judged_before: 0,
            ledger: Ledger::default(),
            totals: Totals::default(),
            span_us: None,
            findings: Vec::new(),
        }
    }

    /// Adds a fault, before the records of the time after it. No earlier request than its start was
    /// affected, and no request that a client gave up before its end takes effect after that.
    pub fn add_fault(&mut self, fault: Fault) {
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
            let (kind, rules) = kind_of(&name, self.campaign.late_us);
            self.count(kind, &records);
            let events: Vec<Event> = records.into_iter().filter_map(|it| self.event(it)).collect();
            self.judge(name, kind, events, rules);
        }
    }

    /// The numbers of what has been judged.
    pub fn totals(&self) -> Totals {
        let of_ledger = self.required(self.ledger.sum());
        Totals { faults: self.faults.len(), of_ledger, ..self.totals }
    }

    /// Without what the servers need not keep.
    fn required(&self, totals: report::Totals) -> report::Totals {
        if self.campaign.keeps_locks {
            return totals;
        }
        let report::Totals { requests, granted, granted_twice, unanswered, .. } = totals;
        let others = report::Totals::default();
        report::Totals { requests, granted, granted_twice, unanswered, ..others }
    }

    fn count(&mut self, kind: &'static str, records: &[Record]) {
        // The time at which the holder was last known to hold the lock.
        let mut held_us: BTreeMap<&str, i64> = BTreeMap::new();
        for Record { event, .. } in records {
            let [first_us, last_us] = self.span_us.get_or_insert([event.invoked_us; 2]);
            *first_us = event.invoked_us.min(*first_us);
            *last_us = event.invoked_us.max(*last_us);
            // A library does not say whether a server replied with an error.
            let answered_us = event.returned_us.filter(|_| event.answer != Answer::Unknown);
            self.ledger.count(kind, &Event { returned_us: answered_us, ..event.clone() });
            if !matches!(event.answer, Answer::Granted | Answer::Kept | Answer::Released) {
                continue;
            }
            let returned_us = event.returned_us.unwrap_or(i64::MAX);
            let before_us = held_us.insert(&event.client, returned_us).unwrap_or(i64::MAX);
            let between =
                |fault: &Fault| before_us <= fault.begin_us && fault.end_us <= event.invoked_us;
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
            let later = |fault: &&Fault| fault.end_us >= returned_us;
            event.returned_us = self.faults.iter().find(later).map(|fault| fault.end_us);
        }
        Some(event)
    }

    fn judge(&mut self, name: String, kind: &'static str, events: Vec<Event>, rules: Rules) {
        let keeps_locks = self.campaign.keeps_locks;
        if let Some(path) = &self.campaign.history {
            let lock = format!("{}/{name}", self.campaign.name);
            let added = add_history(path, &lock, &events, rules);
            added.expect("a file to which histories can be added");
        }
        let of_history = |event: &Event| lockwheel_prove::Record::of_history(kind, event.clone());
        let records: Vec<_> = events.iter().map(of_history).collect();
        let mut violations = self.ledger.judge(kind, &records, rules, &[], &self.faults);
        violations.retain(|it| keeps_locks || it.kind == ViolationKind::DoubleGrant);
        let problems = violations.iter().map(|it| (it.kind.to_string(), it.event));
        let mut problems: Vec<(String, usize)> = problems.collect();
        // A violation makes the history impossible in any order.
        if problems.is_empty() && keeps_locks {
            match lock::judge(&events, rules, &mut Budget::steps(STEPS)) {
                Linear::Legal => {}
                Linear::Unknown => self.totals.undecided += 1,
                Linear::Illegal(at) => {
                    self.totals.impossible += 1;
                    problems.push(("no lock gives these answers".to_owned(), at));
                }
            }
        }
        if !problems.is_empty() && self.findings.len() < SHOWN {
            self.findings.push(Finding { lock: name, events, problems });
        }
    }

    /// Prints the worst cases as `lockwheel prove` does, and the requests to some locks with
    /// violations. Their whole histories are written to files.
    pub fn print_findings(&self) {
        let report = self.report();
        if !report.cases.is_empty() {
            print!("{}", report.write(Format::Text));
        }
        let Campaign { name: campaign, seed, .. } = &self.campaign;
        for Finding { lock, events, problems } in &self.findings {
            for (problem, at) in problems {
                println!("{campaign}: {problem}: {}", events[*at]);
            }
            if let Some(&(_, at)) = problems.first() {
                let around = history::around(events, lock, events[at].invoked_us, SHOWN_EVENTS);
                around.iter().for_each(|line| println!("    {line}"));
            }
            let file = format!("lockwheel-load-{campaign}-{seed}-{lock}.txt");
            let path = std::env::temp_dir().join(file);
            match std::fs::write(&path, history::write(events)) {
                Ok(()) => println!("    the whole history is in {}", path.display()),
                Err(error) => println!("    the history cannot be written: {error}"),
            }
        }
    }

    /// The report of the ledger. The servers that answered are not known.
    fn report(&self) -> Report {
        let Campaign { name, seed, clients, keeps_locks, .. } = &self.campaign;
        let [first_us, last_us] = self.span_us.unwrap_or_default();
        let kinds = self.ledger.totals().iter();
        let kinds = kinds.map(|(kind, totals)| ((*kind).to_owned(), self.required(*totals)));
        let double_grant = ViolationKind::DoubleGrant.to_string();
        let is_required = |case: &&report::Case| *keeps_locks || case.problem == double_grant;
        Report {
            target: format!("{name}, seed {seed}, first request at {first_us}"),
            started_us: first_us,
            seconds: (last_us - first_us) as f64 / 1e6,
            clients: *clients,
            totals: self.totals().of_ledger,
            kinds: kinds.collect(),
            cases: self.ledger.cases().iter().filter(is_required).cloned().collect(),
            faults: self.faults.clone(),
            not_exercised: vec!["The libraries name no servers, so causes are unknown.".to_owned()],
            ..Report::default()
        }
    }
}

fn add_history(path: &Path, lock: &str, events: &[Event], rules: Rules) -> std::io::Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let mut out = BufWriter::new(file);
    operations::write(&mut out, lock, events, rules)?;
    out.flush()
}

/// The kind of a lock, which begins its name, and its rules.
fn kind_of(name: &str, late_us: i64) -> (&'static str, Rules) {
    let rules = Rules { late_us, ..Rules::LOCK };
    match name.split('-').next() {
        Some("lease") => ("lease", Rules { reentrant: true, ..rules }),
        // The watchdog renews leases by requests that are not in the history.
        Some("watchdog") => ("watchdog", Rules { reentrant: true, late_us: NO_LIMIT_US, ..rules }),
        _ => ("plain", rules),
    }
}

#[cfg(test)]
mod tests {
    use lockwheel_compat::judge::history;
    use lockwheel_prove::Fault;
    use lockwheel_prove::report::Format;

    use super::{Campaign, Judge, Record};

    const LATE_US: i64 = 250_000;

    /// A judge of these requests, which has judged them. A fault lasted from 1 to 2 seconds.
    fn judge(campaign: &Campaign, text: &str) -> Judge {
        let mut judge = Judge::new(campaign.clone());
        let (name, effects) = ("SIGKILL".to_owned(), Vec::new());
        judge.add_fault(Fault { name, begin_us: 1_000_000, end_us: 2_000_000, effects });
        let record = |event| Record { epoch: 0, event, is_check: false, is_late: false };
        let events = history::read(text).expect("a history");
        judge.add_records(events.into_iter().map(record).collect());
        judge.judge_before(1);
        judge
    }

    fn campaign() -> Campaign {
        Campaign {
            name: "a test".to_owned(),
            seed: 1,
            clients: 2,
            keeps_locks: true,
            is_replicated: false,
            late_us: LATE_US,
            history: None,
        }
    }

    /// What is found if servers must keep locks, and if they need not.
    #[track_caller]
    fn assert_found(text: &str, kept: &str, otherwise: &str) {
        for (keeps_locks, expected) in [(true, kept), (false, otherwise)] {
            let judge = judge(&Campaign { keeps_locks, ..campaign() }, text);
            let totals = judge.totals();
            let shown = totals.to_string();
            let (_, found) = shown.split_once("; ").expect("what is found");
            assert_eq!(found, format!("{expected}, 0 undecided"), "{text}");
            let is_found = expected != NOTHING;
            assert_eq!(totals.violations() > 0, is_found, "{text}");
            assert_eq!(!judge.findings.is_empty(), is_found, "{text}");
        }
    }

    const NOTHING: &str = "0 lost, 0 granted twice, 0 other violations";

    #[test]
    fn violations_are_counted() {
        let taken = "100..200 plain-0-1 a.1 acquire 9s granted\n";
        let again = "3000000..3000100 plain-0-1 b.1 acquire 9s granted";
        let twice = "0 lost, 1 granted twice, 0 other violations";
        assert_found(&format!("{taken}{again}"), twice, twice);
        let lost = "3000000..3000100 plain-0-1 a.1 release not-owner";
        let found = "1 lost, 0 granted twice, 0 other violations";
        assert_found(&format!("{taken}{lost}"), found, NOTHING);
        let found = "0 lost, 0 granted twice, 1 other violations";
        let refused = "9300000..9300100 plain-0-1 b.1 acquire 9s refused";
        assert_found(&format!("{taken}{refused}"), found, NOTHING);
        let other = "3000000..3000100 plain-0-1 b.1 release released";
        assert_found(&format!("{taken}{other}"), found, NOTHING);
    }

    #[test]
    fn correct_answers_are_no_violations() {
        let watched = "100..200 watchdog-0-1 a.1 acquire 1s granted\n\
            9300000..9300100 watchdog-0-1 b.1 acquire 1s refused";
        assert_found(watched, NOTHING, NOTHING);
        let twice = "100..200 lease-0-1 a.1 acquire 9s granted\n\
            300..400 lease-0-1 a.1 acquire 9s granted\n\
            500..600 lease-0-1 a.1 release kept";
        assert_found(twice, NOTHING, NOTHING);
        assert_found("100..200 plain-0-1 a.1 acquire 9s granted", NOTHING, NOTHING);
    }

    #[test]
    fn request_without_an_answer_may_take_effect_until_the_end_of_a_fault() {
        let text = "100..200 plain-0-1 a.1 acquire 9s unknown\n\
            300..400 plain-0-1 b.1 acquire 100ms granted\n\
            2100000..2100100 plain-0-1 b.1 acquire 9s refused";
        let violations = |is_replicated| {
            judge(&Campaign { is_replicated, ..campaign() }, text).totals().violations()
        };
        assert_eq!(violations(true), 0);
        assert_eq!(violations(false), 1);
    }

    #[test]
    fn checks_and_locks_found_again_are_counted_but_change_nothing() {
        let mut judge = judge(&campaign(), "100..200 plain-0-1 a.1 acquire 9s granted");
        let event = history::read("2100000..2100100 plain-1-1 a.1 renew 0s granted");
        let event = event.expect("a history").remove(0);
        let grant = history::read("300..400 plain-1-1 a.1 acquire 9s granted").expect("a history");
        let other = history::read("2200000..2200100 plain-1-1 b.1 acquire 9s refused");
        let events = [grant, vec![event], other.expect("a history")].concat().into_iter();
        let record = |(at, event)| Record { epoch: 1, event, is_check: at == 1, is_late: false };
        judge.add_records(events.enumerate().map(record).collect());
        judge.judge_before(2);
        let expected = "1 faults, 4 requests, 2 acquired, 0 unknown, 1 locks found again after \
            faults; 0 lost, 0 granted twice, 0 other violations, 0 undecided";
        assert_eq!(judge.totals().to_string(), expected);
    }

    #[test]
    fn worst_case_is_shown_as_in_a_report() {
        let text = "100..200 plain-0-1 a.1 acquire 9s granted\n\
            3000000..3000100 plain-0-1 b.1 acquire 9s granted";
        let report = judge(&campaign(), text).report().write(Format::Text);
        assert!(report.starts_with("Locks granted twice: 1 of 2. Locks lost early: 0.\n"));
        for line in ["  fault           SIGKILL", "*  3,000,000  b.1", "a test, seed 1"] {
            assert!(report.contains(line), "{line}: {report}");
        }
    }
}
