//! The compatibility suite is green on a real server, so it requires nothing that Redis does not
//! do; and on Lockwheel, also when every reply is compared with the real server's.

use std::thread;
use std::time::Duration;

use lockwheel::Server;
use lockwheel_compat::cases::wrapping::Wrapping;
use lockwheel_compat::report::PROPERTIES;
use lockwheel_compat::{Options, Outcome, Report, Suite, Verdict, cases};
use lockwheel_tests::certificates::{Certificates, Validity};
use lockwheel_tests::frame::show;
use lockwheel_tests::redis_server::RedisServer;
use lockwheel_tests::target::{Kind, Target};
use rustls::version::{TLS12, TLS13};

/// How long each property is run: shorter than the suite's default.
const SECONDS: f64 = 0.5;
/// The time limit of a run: the judgement must not depend on the speed of the machine.
const TIME_LIMIT: Duration = Duration::from_secs(3600);

fn run(target: &Target, reference: Option<&Target>) -> Report {
    run_wrapped(target, reference, Wrapping::None)
}

/// As [`run`], without the properties.
fn run_cases(target: &Target, reference: Option<&Target>) -> Report {
    let mut options = options_of(target, reference);
    options.cases = Some(cases::all().expect("the cases are well-formed"));
    run_with(&options)
}

fn run_wrapped(target: &Target, reference: Option<&Target>, wrapping: Wrapping) -> Report {
    let mut options = options_of(target, reference);
    options.wrapping = wrapping;
    run_with(&options)
}

fn run_with(options: &Options) -> Report {
    let suite = Suite::new(options).expect("the cases are well-formed");
    suite.run(&mut ()).expect("both servers answer")
}

fn options_of(target: &Target, reference: Option<&Target>) -> Options {
    let mut options = options(&target.address().to_string());
    options.reference = reference
        .map(|server| Options::new(&server.address().to_string()).expect("an address").target);
    options
}

fn options(url: &str) -> Options {
    let mut options = Options::new(url).expect("an address");
    options.allow_flush = true;
    options.seconds = SECONDS;
    options.time_limit = TIME_LIMIT;
    options
}

#[test]
fn redis_passes_all_cases() {
    let Some(redis) = Target::redis() else { return };
    let report = run_cases(&redis, None);
    assert!(report.is_green(), "{}", report.text());
}

#[test]
fn lockwheel_passes_all_cases() {
    let Some(redis) = Target::redis() else { return };
    let lockwheel = Target::lockwheel_like(&redis, Kind::Standalone);
    let report = run(&lockwheel, Some(&redis));
    assert!(report.is_green(), "{}", report.text());
    // The properties were run on both.
    let is_fine = |answer: String| answer.starts_with("no violation found in ");
    assert!(report.verdict().into_iter().all(|(_, answer)| is_fine(answer)), "{}", report.text());
    let breaks = |notice: &String| notice.contains("the reference breaks");
    assert!(!report.notices.iter().any(breaks), "{}", report.text());
}

/// The cases of TLS are played only on a server that is reached with it, and some only with a
/// certificate.
#[test]
fn cases_of_tls_pass_on_both_servers() {
    let certificates = Certificates::new();
    certificates.issue("client", Validity::Now);
    let builder = certificates.server().config("tls-auth-clients", "optional");
    let lockwheel = builder.start().expect("lockwheel starts");
    let redis = RedisServer::start_with_tls(&certificates);
    let tls_port = lockwheel.tls_addr().expect("it listens for TLS").port();
    for port in [Some(tls_port), redis.as_ref().map(|(_, port)| *port)].into_iter().flatten() {
        let mut options = options(&format!("rediss://localhost:{port}"));
        options.target.set_tls(&certificates.client_with(Some("client"), &[&TLS13, &TLS12]));
        options.only = vec!["TLS: ".to_owned()];
        let report = Suite::new(&options).expect("well-formed cases").run(&mut ());
        let report = report.expect("the server answers");
        let is_skipped = |it: &Outcome| matches!(it.verdict, Verdict::Skipped(_));
        assert!(report.is_green(), "{}", report.text());
        assert!(!report.outcomes.iter().any(is_skipped), "{}", report.text());
    }
}

/// The cases describe what commands do inside transactions and scripts too, on both servers.
#[test]
fn commands_reply_the_same_in_transactions_and_scripts() {
    // A run mostly waits for time to pass.
    thread::scope(|scope| {
        for wrapping in Wrapping::INSIDE {
            scope.spawn(move || {
                let redis = Target::redis();
                let lockwheel = match &redis {
                    Some(redis) => Target::lockwheel_like(redis, Kind::Standalone),
                    None => Target::Lockwheel(Box::new(Server::start().expect("lockwheel starts"))),
                };
                let report = run_wrapped(&lockwheel, redis.as_ref(), wrapping);
                assert!(report.is_green(), "{wrapping:?}: {}", report.text());
            });
        }
    });
}

/// Runs the suite where Lua runs every script: it passes, and the replies equal those of plans.
#[test]
fn scripts_reply_the_same_with_and_without_plans() {
    let [plans, lua] = ["yes", "no"].map(|plans| {
        let server = Server::builder().config("script-plans", plans).start();
        Target::Lockwheel(Box::new(server.expect("lockwheel starts")))
    });
    let report = run_cases(&lua, Some(&plans));
    assert!(report.is_green(), "{}", report.text());
    let mut of_properties = options_of(&lua, None);
    of_properties.only = vec![PROPERTIES.to_owned()];
    let report = run_with(&of_properties);
    assert!(report.is_green(), "{}", report.text());
    let tiers = |server: &Target| show(&server.run("INFO lockwheel"));
    assert!(tiers(&lua).contains("scripts_planned:0\\r\\nscripts_left_to_lua:0\\r\\n"));
    assert!(!tiers(&plans).contains("scripts_planned:0\\r\\n"), "{}", tiers(&plans));
    assert!(!tiers(&plans).contains("scripts_left_to_lua:0\\r\\n"), "{}", tiers(&plans));
}
