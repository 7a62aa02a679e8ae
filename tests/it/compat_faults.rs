//! The compatibility suite finds faults: on servers with seeded faults the cases and properties
//! that the table names fail, and on the same server without a fault none of these does.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lockwheel_compat::cases::case::Action;
use lockwheel_compat::{Options, Outcome, Report, Suite, Verdict, cases, properties};
use lockwheel_tests::faulty::{FaultyServer, SeededFault, families, faults};

/// How long each property is run.
const SECONDS: f64 = 0.5;
/// A property that has found nothing, or in which too little has happened, is run again, this many
/// times as long. It finds faults by chance: the rarest takes some seconds on an idle machine, and
/// this test runs beside others. The limit is 16 s.
const LONGER: [f64; 2] = [8.0, 32.0];
/// The time-out of replies: some faults block all clients.
const REPLY_TIMEOUT: Duration = Duration::from_secs(4);
/// The time limit of a run: the judgement must not depend on the speed of the machine.
const TIME_LIMIT: Duration = Duration::from_secs(3600);
/// The number of servers at a time.
const AT_A_TIME: usize = 8;

#[test]
fn every_fault_has_a_name_and_a_case_that_finds_it() {
    let mut names = BTreeSet::new();
    for fault in faults() {
        assert!(names.insert(fault.name), "{}: twice", fault.name);
        assert!(!fault.description.is_empty(), "{}: no description", fault.name);
        assert!(!fault.found_by.is_empty(), "{}: no case finds it", fault.name);
        let hooks =
            [fault.run.is_some(), fault.rewrite_message.is_some(), fault.on_disconnect.is_some()];
        assert!(hooks.contains(&true), "{}: no fault", fault.name);
    }
}

#[test]
fn server_without_fault_passes_the_cases_that_find_faults() {
    let finders: BTreeSet<_> =
        faults().into_iter().flat_map(|fault| fault.found_by).copied().collect();
    let report = run(None, &finders.into_iter().collect::<Vec<_>>(), SECONDS);
    let bad =
        |outcome: &&Outcome| !matches!(outcome.verdict, Verdict::Passed | Verdict::Skipped(_));
    let bad: Vec<_> = report.outcomes.iter().filter(bad).collect();
    // Cases that depend on time, and properties in which too little has happened, are run once
    // more, alone. All other failures are final.
    let is_final = |outcome: &&Outcome| match outcome.verdict {
        Verdict::Unknown(_) => false,
        _ => !depends_on_time(&outcome.name),
    };
    assert!(!bad.iter().copied().any(|outcome| is_final(&outcome)), "{}", report.text());
    let bad: Vec<_> = bad.iter().map(|outcome| outcome.name.as_str()).collect();
    if !bad.is_empty() {
        let report = run(None, &bad, SECONDS * LONGER[0]);
        assert!(report.is_green(), "{}", report.text());
    }
}

/// Whether a case of this name may fail on a busy machine: a short lease may end early in the
/// conversation; or a client counts as blocked after some milliseconds without a reply, so that the
/// next command may reach the server first.
fn depends_on_time(words: &str) -> bool {
    let cases = cases::all().expect("the cases are well-formed");
    let depends = |action: &Action| matches!(action, Action::Pass(_) | Action::Waits(_));
    let mut named = cases.iter().filter(|case| case.name.contains(words));
    named.any(|case| case.steps.iter().any(|step| depends(&step.action)))
}

/// Whether the name of a property contains these words. Properties find faults by chance.
fn is_property(words: &str) -> bool {
    properties::all().any(|property| property.name.contains(words))
}

#[test]
fn every_fault_is_found() {
    let faults = faults();
    let judged =
        at_a_time(&faults, |fault| judge(fault, fault.found_by, &bystanders(fault), SECONDS));
    let missed = faults.iter().zip(judged).flat_map(|(fault, (mut missing, mut wrong))| {
        // Those that depend on chance or on time are run again, one fault after the other, and for
        // longer. All other results are final.
        let may_change = |words: &&str| is_property(words) || depends_on_time(words);
        for longer in LONGER {
            let all_final = |names: &[&str]| !names.iter().any(may_change);
            if all_final(&missing) && all_final(&wrong) {
                break;
            }
            let (mut tried, mut suspected) = (missing.clone(), wrong.clone());
            tried.retain(may_change);
            suspected.retain(may_change);
            missing.retain(|words| !may_change(words));
            wrong.retain(|words| !may_change(words));
            let (still_missing, still_wrong) = judge(fault, &tried, &suspected, SECONDS * longer);
            missing.extend(still_missing);
            wrong.extend(still_wrong);
        }
        let missing =
            missing.into_iter().map(|words| format!("{} is missed by: {words}", fault.name));
        let wrong = wrong.into_iter().map(|words| format!("{} is found by: {words}", fault.name));
        missing.chain(wrong).collect::<Vec<_>>()
    });
    assert_eq!(missed.collect::<Vec<_>>(), Vec::<String>::new());
}

/// The finders that miss a fault, and the bystanders that wrongly find it.
fn judge(
    fault: &'static SeededFault,
    finders: &[&'static str],
    bystanders: &[&'static str],
    seconds: f64,
) -> (Vec<&'static str>, Vec<&'static str>) {
    let report = run(Some(fault), &[finders, bystanders].concat(), seconds);
    let finds = |words: &&str| failed(&report).any(|name| name.contains(*words));
    let missing = finders.iter().copied().filter(|words| !finds(words));
    let wrong = bystanders.iter().copied().filter(finds);
    (missing.collect(), wrong.collect())
}

/// The cases that find faults of other families and should not find this one. Properties are left
/// out, since they take long.
fn bystanders(fault: &SeededFault) -> Vec<&'static str> {
    let own = |family: &&[SeededFault]| family.iter().any(|other| other.name == fault.name);
    let others = families().into_iter().filter(|family| !own(family)).flatten();
    let is_case = |words: &&str| !is_property(words) && !fault.also.contains(words);
    let names: BTreeSet<_> =
        others.flat_map(|other| other.found_by).copied().filter(is_case).collect();
    names.into_iter().collect()
}

/// Lists the cases that find each fault, for adding a fault: run it with `--ignored --nocapture`.
#[test]
#[ignore = "it takes minutes, and asserts nothing"]
fn list_cases_that_find_each_fault() {
    let found = at_a_time(&faults(), |fault| {
        let report = run(Some(fault), &[], SECONDS);
        let names: Vec<_> = failed(&report).map(|name| format!("    {name}\n")).collect();
        format!("{}\n{}", fault.name, names.concat())
    });
    lockwheel_tests::say(&found.concat());
}

fn run(fault: Option<&'static SeededFault>, only: &[&str], seconds: f64) -> Report {
    let server = FaultyServer::start(fault).expect("a server");
    let mut options = Options::new(&server.url()).expect("a URL");
    options.allow_flush = true;
    options.seconds = seconds;
    options.reply_timeout = REPLY_TIMEOUT;
    options.time_limit = TIME_LIMIT;
    options.only = only.iter().map(|words| (*words).to_owned()).collect();
    let suite = Suite::new(&options).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    suite.run(&mut ()).unwrap_or_else(|error| panic!("{fault:?}: {error}"))
}

/// The names of the failed cases, as `--only` accepts them.
fn failed(report: &Report) -> impl Iterator<Item = &str> {
    let failed = |verdict: &Verdict| matches!(verdict, Verdict::Failed(_));
    let outcomes = report.outcomes.iter().filter(move |outcome| failed(&outcome.verdict));
    outcomes.map(|outcome| outcome.name.as_str())
}

/// Calls `act` with each fault, a few at a time; returns the results in order.
fn at_a_time<T: Send>(
    faults: &[&'static SeededFault],
    act: impl Fn(&'static SeededFault) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(fault) = faults.get(at) else { return done };
            done.push((at, act(fault)));
        }
    };
    let mut results: Vec<(usize, T)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_A_TIME).map(|_| scope.spawn(work)).collect();
        let done = workers.into_iter().map(|worker| worker.join().expect("it does not panic"));
        done.flatten().collect()
    });
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}
