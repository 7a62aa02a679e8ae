//! Commands drawn by chance have the same replies on Lockwheel and on a real server, and every
//! command is drawn or left out for a reason.

use std::collections::BTreeSet;

use lockwheel_compat::fuzz::grammar::Grammar;
use lockwheel_compat::fuzz::{Manner, Options, fuzz};
use lockwheel_compat::{Address, Interrupt};
use lockwheel_engine::command::CommandTable;
use lockwheel_engine::settings::{CompatVersion, Mode};
use lockwheel_tests::target::{Kind, Target};

/// How many commands are drawn: a few seconds' worth.
const COUNT: usize = 20_000;
const SEED: u64 = 2026;

#[test]
fn lockwheel_answers_chance_as_redis_does() {
    let Some(oracle) = Target::redis() else { return };
    assert_no_differences(&Target::lockwheel_like(&oracle, Kind::Standalone), &oracle);
}

/// A fuzzer that finds differences between a server and itself would accuse us of what is chance.
#[test]
fn nothing_that_is_drawn_is_left_to_chance() {
    let (Some(one), Some(other)) = (Target::redis(), Target::redis()) else { return };
    assert_no_differences(&one, &other);
}

fn assert_no_differences(target: &Target, reference: &Target) {
    let address = |target: &Target| {
        Address::parse(&format!("redis://{}", target.address())).expect("an address")
    };
    let options = Options {
        target: address(target),
        reference: address(reference),
        count: COUNT,
        seed: SEED,
        manner: Manner::Grammar,
        interrupt: Interrupt::default(),
    };
    let report = fuzz(&options, &mut ()).expect("both can be reached");
    assert!(report.is_green(), "{}", report.text());
    assert!(report.commands >= COUNT, "{} commands", report.commands);
}

#[test]
fn every_command_is_drawn_or_left_out_for_a_reason() {
    let grammar = Grammar::new().expect("it is well-formed");
    let mut names = BTreeSet::new();
    for &version in CompatVersion::ALL {
        for mode in [Mode::Sentinel, Mode::Standalone] {
            let entries = CommandTable::of(mode, version).entries().iter();
            names.extend(entries.map(|entry| entry.full_name.to_uppercase()));
        }
    }
    let mut strangers = Vec::new();
    for name in &names {
        let words: Vec<&str> = name.split('|').collect();
        let is_drawn = grammar.forms().iter().any(|form| form.begins_with(&words));
        let is_left_out = (1..=words.len())
            .any(|count| grammar.left_out().contains_key(&*words[..count].join(" ")));
        if is_drawn == is_left_out {
            strangers.push(name);
        }
    }
    assert_eq!(strangers, Vec::<&String>::new(), "in grammar.txt not at all, or twice");
}
