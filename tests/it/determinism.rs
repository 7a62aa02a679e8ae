//! The same inputs give the same outputs: bytes, deliveries, timers and states of two engines with
//! the same seed are equal, although their memory lies elsewhere.

use lockwheel_compat::{Options, Suite};
use lockwheel_engine::settings::Settings;
use lockwheel_engine::time::Time;
use lockwheel_tests::faulty::{FaultyServer, SEED};
use lockwheel_tests::random_inputs;
use lockwheel_tests::replay::{Input, Twins};

const SEEDS: [u64; 2] = [1, 2];
/// The number of commands for each seed: a few seconds. The program `determinism` sends more.
const COMMANDS: u64 = 3_000;
/// How long each property is run.
const SECONDS: f64 = 0.2;

#[test]
fn random_commands_have_the_same_effect_twice() {
    for seed in SEEDS {
        if let Err(difference) = random_inputs::compare(&Settings::default(), seed, COMMANDS) {
            panic!("{difference}");
        }
    }
}

#[test]
fn compatibility_cases_have_the_same_effect_twice() {
    let (server, inputs) = FaultyServer::recorded().expect("a server");
    let mut options = Options::new(&server.url()).expect("an address");
    options.allow_flush = true;
    options.seconds = SECONDS;
    Suite::new(&options).expect("the cases are well-formed").run(&mut ()).expect("it answers");
    drop(server);
    let lines: Vec<String> =
        inputs.lock().expect("the server has stopped").iter().map(Input::to_string).collect();
    let Ok(Input::Time { lease_us, wall_us }) = Input::parse(&lines[0]) else {
        panic!("not a time: {}", lines[0]);
    };
    let begin = Time::from_micros(lease_us, wall_us);
    let mut twins = Twins::new(&Settings::default(), begin, SEED);
    match twins.replay(lines.iter().map(String::as_str)) {
        Ok(count) => assert!(count > 10_000, "only {count} inputs"),
        Err(difference) => panic!("{difference}"),
    }
}
