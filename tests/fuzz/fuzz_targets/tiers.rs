//! Scripts of the subset of the plans. Checks that an engine with plans and one without give the
//! same replies, messages, statistics and keys.

#[path = "../../src/tiers/mod.rs"]
mod engines;

use engines::grammar::{self, Selection};
use engines::trial::{Outcome, Trial};

pub(crate) fn check(data: &[u8]) {
    let mut rest = data.iter();
    let mut dice = |bound: usize| {
        let mut next = || usize::from(rest.next().copied().unwrap_or_default());
        let drawn = if bound > 256 { next() << 8 | next() } else { next() };
        drawn % bound.max(1)
    };
    let script = grammar::script(Selection::All, None, &mut dice);
    let request = grammar::request(&mut dice);
    let protocol = if dice(2) == 0 { 2 } else { 3 };
    if let Outcome::Differs(difference) = Trial::new().run(&script.text, &request, protocol) {
        panic!("RESP{protocol} {request:?}\n{}\n{difference}", script.text);
    }
}
