//! A real `redis-server` that loads the export of a log has the keys, values and deadlines that
//! clients saw before the end of the server.

use lockwheel_tests::log_oracle::compare;
use lockwheel_tests::say;

/// Commands in a round: after each, the server is stopped and the log compared.
const ROUND: u64 = 2_000;
/// All commands: two rounds, so that the server restarts once.
const COMMANDS: u64 = 4_000;
/// Another number of commands: 100,000 take some minutes.
const COMMANDS_VARIABLE: &str = "LOCKWHEEL_TEST_LOG_COMMANDS";
/// Another seed.
const SEED_VARIABLE: &str = "LOCKWHEEL_TEST_LOG_SEED";

#[test]
fn redis_loads_the_state_from_an_exported_log() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let commands = number(COMMANDS_VARIABLE).unwrap_or(COMMANDS);
    match compare(number(SEED_VARIABLE).unwrap_or(1), commands, ROUND) {
        Some(Ok(report)) => {
            say(&format!("{report:?}"));
            assert!(report.commands >= commands && report.keys > 100, "{report:?}");
            assert!(report.with_deadline > 10 && report.streams > 10, "{report:?}");
        }
        Some(Err(problem)) => panic!("{problem}"),
        None => {}
    }
}
