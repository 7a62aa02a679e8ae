//! Scripts of the subset of the plans. Checks that an engine with plans and one without give the
//! same replies, messages, statistics and keys.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../src/tiers/mod.rs"]
mod tiers;

use tiers::grammar::{self, Selection};
use tiers::trial::{Outcome, Trial};

fuzz_target!(|data: &[u8]| {
    let mut rest = data.iter();
    let mut dice = |bound: usize| {
        let mut next = || usize::from(rest.next().copied().unwrap_or_default());
        let drawn = if bound > 256 { next() << 8 | next() } else { next() };
        drawn % bound.max(1)
    };
    let script = grammar::script(Selection::All, None, &mut dice);
    let request = grammar::request(&mut dice);
    let protocol = if dice(2) == 0 { 2 } else { 3 };
    if let Outcome::Differs(what) = Trial::new().run(&script.text, &request, protocol) {
        panic!("RESP{protocol} {request:?}\n{}\n{what}", script.text);
    }
});
