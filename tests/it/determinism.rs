//! The same inputs give the same outputs: bytes, deliveries, timers, effects and states of two
//! engines with the same seed are equal, although their memory lies elsewhere. The program
//! `determinism` compares more, also commands in transactions and scripts.

use lockwheel_compat::cases::wrapping::Wrapping;
use lockwheel_engine::settings::Settings;
use lockwheel_tests::random_inputs;
use lockwheel_tests::recorded_suite::{self, Part};

const SEEDS: [u64; 2] = [1, 2];
/// The number of commands for each seed.
const COMMANDS: u64 = 3_000;

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
    match recorded_suite::compare(Part::Cases, Wrapping::None) {
        Ok(count) => assert!(count > 10_000, "only {count} inputs"),
        Err(difference) => panic!("{difference}"),
    }
}
