//! Scripts of the subset that plans are made of: an engine with plans and one without cannot be
//! told apart by replies, by what listeners hear, by what is counted, or by what is stored.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../src/tiers/mod.rs"]
mod tiers;

use tiers::{Pair, grammar};

/// How often each script is run.
const RUNS: usize = 3;

fuzz_target!(|data: &[u8]| {
    let mut rest = data.iter();
    let mut dice = |bound: usize| {
        let mut next = || usize::from(rest.next().copied().unwrap_or_default());
        let drawn = if bound > 256 { next() << 8 | next() } else { next() };
        drawn % bound.max(1)
    };
    let script = grammar::script(&mut dice);
    let mut pair = Pair::new();
    for command in grammar::WORLD {
        pair.run_words(command);
    }
    for _ in 0..RUNS {
        let request = grammar::request(&script, &mut dice);
        let argv: Vec<&[u8]> = request.iter().map(String::as_bytes).collect();
        pair.run(&argv);
    }
    pair.advance(dice(40_000) as i64);
    pair.compare();
});
