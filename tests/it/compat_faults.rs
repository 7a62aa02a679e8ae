//! The compatibility suite can see: on servers with seeded faults the cases and properties that
//! the table names fail, and on the same server without a fault nothing does.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use lockwheel_compat::case::Action;
use lockwheel_compat::{Options, Outcome, Report, Suite, Verdict, cases, properties};
use lockwheel_tests::faulty::{Fault, FaultyServer, families, faults};

/// For how long each property is tried.
const SECONDS: f64 = 0.5;
/// How many times as long a property is tried that has found nothing, or in which too little has
/// happened. It finds by chance: the rarest find takes some seconds on a machine that does nothing
/// else, and this test runs beside others. 16 s are the bound.
const LONGER: [f64; 2] = [8.0, 32.0];
/// How long a reply may take: some faults keep everybody waiting.
const PATIENCE: Duration = Duration::from_secs(4);
/// How many servers are tried at a time.
const AT_A_TIME: usize = 4;

#[test]
fn every_fault_has_a_name_and_somebody_who_finds_it() {
    let mut names = BTreeSet::new();
    for fault in faults() {
        assert!(names.insert(fault.name), "{}: twice", fault.name);
        assert!(!fault.what.is_empty(), "{}: what is wrong?", fault.name);
        assert!(!fault.found_by.is_empty(), "{}: nobody finds it", fault.name);
        let hooks = [fault.run.is_some(), fault.tell.is_some(), fault.leave.is_some()];
        assert!(hooks.contains(&true), "{}: nothing is wrong", fault.name);
    }
}

#[test]
fn without_a_fault_everything_passes() {
    let report = run(None, &[], SECONDS);
    let bad =
        |outcome: &&Outcome| !matches!(outcome.verdict, Verdict::Passed | Verdict::Skipped(_));
    let bad: Vec<_> = report.outcomes.iter().filter(bad).collect();
    // What depends on time, and a property in which too little has happened, is tried once more, by
    // itself. All others have failed for good.
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

/// Whether a busy machine may fail a case of this name. Time passes in it, and a short lease may
/// end early in the conversation; or a client waits, which is taken for certain after some
/// milliseconds of silence, so that the next command may reach the server first.
fn depends_on_time(words: &str) -> bool {
    let cases = cases::all().expect("the cases are well-formed");
    let depends = |action: &Action| matches!(action, Action::Pass(_) | Action::Waits(_));
    let mut named = cases.iter().filter(|case| case.name.contains(words));
    named.any(|case| case.steps.iter().any(|step| depends(&step.action)))
}

/// Whether a property has this in its name, which finds by chance.
fn is_property(words: &str) -> bool {
    properties::all().any(|property| property.name.contains(words))
}

#[test]
fn every_fault_is_found() {
    let faults = faults();
    let judged =
        at_a_time(&faults, |fault| judge(fault, fault.found_by, &bystanders(fault), SECONDS));
    let missed = faults.iter().zip(judged).flat_map(|(fault, (mut blind, mut misled))| {
        // Those that depend on chance or on time are tried again, one fault after the other, and
        // for longer. What else was missed or found wrongly stays so.
        let may_change = |words: &&str| is_property(words) || depends_on_time(words);
        for longer in LONGER {
            let all_final = |names: &[&str]| !names.iter().any(may_change);
            if all_final(&blind) && all_final(&misled) {
                break;
            }
            let (mut tried, mut suspected) = (blind.clone(), misled.clone());
            tried.retain(may_change);
            suspected.retain(may_change);
            blind.retain(|words| !may_change(words));
            misled.retain(|words| !may_change(words));
            let (still_blind, still_misled) = judge(fault, &tried, &suspected, SECONDS * longer);
            blind.extend(still_blind);
            misled.extend(still_misled);
        }
        let blind = blind.into_iter().map(|words| format!("{} is missed by: {words}", fault.name));
        let misled = misled.into_iter().map(|words| format!("{} is found by: {words}", fault.name));
        blind.chain(misled).collect::<Vec<_>>()
    });
    assert_eq!(missed.collect::<Vec<_>>(), Vec::<String>::new());
}

/// Who of those that must find a fault does not, and who of those that must not does.
fn judge(
    fault: &'static Fault,
    finders: &[&'static str],
    bystanders: &[&'static str],
    seconds: f64,
) -> (Vec<&'static str>, Vec<&'static str>) {
    let report = run(Some(fault), &[finders, bystanders].concat(), seconds);
    let finds = |words: &&str| failed(&report).any(|name| name.contains(*words));
    let blind = finders.iter().copied().filter(|words| !finds(words));
    let misled = bystanders.iter().copied().filter(finds);
    (blind.collect(), misled.collect())
}

/// The cases that find faults of other families, and should not find this one. No properties:
/// those take their time.
fn bystanders(fault: &Fault) -> Vec<&'static str> {
    let own = |family: &&[Fault]| family.iter().any(|other| other.name == fault.name);
    let others = families().into_iter().filter(|family| !own(family)).flatten();
    let is_case = |words: &&str| !is_property(words) && !fault.also.contains(words);
    let names: BTreeSet<_> =
        others.flat_map(|other| other.found_by).copied().filter(is_case).collect();
    names.into_iter().collect()
}

/// Shows who finds what, for whoever adds a fault: run it with `--ignored --nocapture`.
#[test]
#[ignore = "it takes minutes, and asserts nothing"]
fn who_finds_what() {
    let found = at_a_time(&faults(), |fault| {
        let report = run(Some(fault), &[], SECONDS);
        let names: Vec<_> = failed(&report).map(|name| format!("    {name}\n")).collect();
        format!("{}\n{}", fault.name, names.concat())
    });
    lockwheel_tests::say(&found.concat());
}

fn run(fault: Option<&'static Fault>, only: &[&str], seconds: f64) -> Report {
    let server = FaultyServer::start(fault).expect("a server");
    let mut options = Options::new(&server.url()).expect("a URL");
    options.allow_flush = true;
    options.seconds = seconds;
    options.patience = PATIENCE;
    options.only = only.iter().map(|words| (*words).to_owned()).collect();
    let suite = Suite::new(&options).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
    suite.run(&mut ()).unwrap_or_else(|error| panic!("{fault:?}: {error}"))
}

/// What has failed, each as `--only` knows it.
fn failed(report: &Report) -> impl Iterator<Item = &str> {
    let failed = |verdict: &Verdict| matches!(verdict, Verdict::Failed(_));
    let outcomes = report.outcomes.iter().filter(move |outcome| failed(&outcome.verdict));
    outcomes.map(|outcome| outcome.name.as_str())
}

/// Does something with each fault, a few at a time; the results in order.
fn at_a_time<T: Send>(
    faults: &[&'static Fault],
    act: impl Fn(&'static Fault) -> T + Sync,
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
