//! Random commands get the same replies from Lockwheel and a real server, and every command that
//! Lockwheel describes is generated unless the fuzzer's rules leave it out for a reason.

use std::collections::BTreeSet;

use lockwheel_compat::fuzz::generate::episode;
use lockwheel_compat::fuzz::grammar::{self, Form, Grammar};
use lockwheel_compat::fuzz::{Manner, Options, fuzz, rules};
use lockwheel_compat::wire::frame::Frame;
use lockwheel_compat::{Address, Interrupt};
use lockwheel_engine::settings::{CompatVersion, Settings};
use lockwheel_tests::target::{Kind, Target};
use lockwheel_tests::words;

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

/// The reply of Lockwheel to `COMMAND DOCS`.
fn docs(version: CompatVersion) -> Frame {
    let mut settings = Settings::default();
    settings.compat_version = version;
    settings.port = 0;
    let server = lockwheel::Builder::from_settings(settings).start().expect("lockwheel starts");
    let target = Target::Lockwheel(Box::new(server));
    let reply = target.connect(2).call(&words("COMMAND DOCS"));
    Frame::first(&reply).expect("a reply").expect("a whole reply").0
}

/// The grammar with all options.
fn grammar(version: CompatVersion) -> Grammar {
    Grammar::new(&docs(version), (u32::MAX, 0), |_| true)
}

#[test]
fn every_command_is_generated() {
    let grammar = grammar(CompatVersion::default());
    let mut missing: BTreeSet<String> = grammar.forms().iter().map(Form::full_name).collect();
    assert!(missing.len() > 190, "{} commands", missing.len());
    for number in 0..200 {
        for step in episode(&grammar, 1, number).steps {
            let word = |word: &Vec<u8>| String::from_utf8_lossy(word).to_uppercase();
            let words: Vec<String> = step.words.iter().take(2).map(word).collect();
            missing.remove(&words.join(" "));
            missing.remove(&words[0]);
        }
    }
    assert_eq!(missing, BTreeSet::new());
}

/// What the fuzzer adds to the grammar concerns commands and arguments that exist.
#[test]
fn rules_of_the_fuzzer_are_used() {
    let docs: Vec<Frame> = CompatVersion::ALL.iter().map(|&version| docs(version)).collect();
    let names: BTreeSet<String> = docs.iter().flat_map(grammar::names).collect();
    let names: BTreeSet<String> =
        names.iter().map(|name| name.replace('|', " ").to_uppercase()).collect();
    let grammar = grammar(CompatVersion::default());
    let has = |command: &str, argument: &str| {
        let forms = grammar.forms().iter().filter(|form| form.full_name() == command);
        forms
            .flat_map(Form::arguments)
            .any(|it| it.name == argument || it.token.as_deref() == Some(argument))
    };
    let mut unused = Vec::new();
    for rule in rules::RULES {
        for argument in rule.arguments {
            let all = grammar.forms().iter().map(Form::full_name);
            let mut commands =
                all.filter(|it| rule.commands.is_empty() || rule.commands.contains(&&**it));
            if !commands.any(|command| has(&command, argument)) {
                unused.push(format!("{:?} {argument}", rule.commands));
            }
        }
        let unknown = rule.commands.iter().filter(|command| !names.contains(**command));
        unused.extend(unknown.map(|command| (*command).to_owned()));
    }
    let named = rules::OFTEN.iter().chain(rules::USUAL.iter().map(|(command, _)| command));
    let named = named.chain(rules::LEFT_OUT_OPTIONS.iter().map(|(command, ..)| command));
    unused.extend(named.filter(|it| !names.contains(**it)).map(|it| (*it).to_owned()));
    assert_eq!(unused, Vec::<String>::new());
}
