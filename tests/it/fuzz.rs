//! Random commands get the same replies from Lockwheel and a real server, and every command is
//! generated or left out for a reason.

use std::collections::BTreeSet;

use lockwheel_compat::fuzz::grammar::Grammar;
use lockwheel_compat::fuzz::{Manner, Options, fuzz};
use lockwheel_compat::{Address, Interrupt};
use lockwheel_engine::command::CommandTable;
use lockwheel_engine::settings::{CompatVersion, Mode};
use lockwheel_tests::target::{Kind, Target};

/// The number of commands: a few seconds.
const COUNT: usize = 20_000;
const SEED: u64 = 2026;

#[test]
fn random_commands_get_the_replies_of_redis() {
    let Some(oracle) = Target::redis() else { return };
    assert_no_differences(&Target::lockwheel_like(&oracle, Kind::Standalone), &oracle);
}

/// Differences between a server and itself would be random, so that the comparison would be wrong.
#[test]
fn two_redis_servers_give_the_same_replies() {
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
fn every_command_is_generated_or_left_out_for_a_reason() {
    let grammar = Grammar::new().expect("it is well-formed");
    let mut names = BTreeSet::new();
    for &version in CompatVersion::ALL {
        for mode in [Mode::Sentinel, Mode::Standalone] {
            let entries = CommandTable::of(mode, version).entries().iter();
            names.extend(entries.map(|entry| entry.full_name.to_uppercase()));
        }
    }
    let mut unlisted = Vec::new();
    for name in &names {
        let words: Vec<&str> = name.split('|').collect();
        let is_drawn = grammar.forms().iter().any(|form| form.begins_with(&words));
        let is_left_out = (1..=words.len())
            .any(|count| grammar.left_out().contains_key(&*words[..count].join(" ")));
        if is_drawn == is_left_out {
            unlisted.push(name);
        }
    }
    assert_eq!(unlisted, Vec::<&String>::new(), "in grammar.txt not at all, or twice");
}
