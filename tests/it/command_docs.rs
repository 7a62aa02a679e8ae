//! `COMMAND DOCS` describes the arguments of commands as a real server does.

use std::collections::BTreeMap;

use lockwheel_compat::wire::frame::Frame;
use lockwheel_engine::settings::{CompatVersion, Settings};
use lockwheel_tests::target::{Release, Target};
use lockwheel_tests::{PROTOCOLS, say, words};

/// The commands that 7.0 does not call deprecated.
const DEPRECATED_LATER: &[&str] = &["setnx", "setex", "psetex", "quit"];

/// The commands with other arguments since 7.2, apart from `display_text`.
const CHANGED_IN_72: &[&str] = &["zrank", "zrevrank"];

/// The reference for the arguments: the last version that gives them the names that the rows have.
fn redis_70() -> Option<Target> {
    let oracle = Target::redis()?;
    let is_later = Release::parse("7.2").is_some_and(|release| oracle.version().has(release));
    if is_later {
        say("skipped: redis-server is newer than 7.0");
    }
    Some(oracle).filter(|_| !is_later)
}

fn lockwheel(version: CompatVersion) -> Target {
    let mut settings = Settings::default();
    settings.compat_version = version;
    settings.port = 0;
    let server = lockwheel::Builder::from_settings(settings).start();
    Target::Lockwheel(Box::new(server.expect("lockwheel starts")))
}

/// One field of all commands and subcommands.
fn fields(target: &Target, protocol: u8, name: &str) -> BTreeMap<String, Option<Frame>> {
    let reply = target.connect(protocol).call(&words("COMMAND DOCS"));
    let (docs, _) = Frame::first(&reply).expect("a reply").expect("a whole reply");
    let mut all = BTreeMap::new();
    collect(&docs, name, &mut all);
    all
}

fn collect(docs: &Frame, name: &str, all: &mut BTreeMap<String, Option<Frame>>) {
    for pair in docs.items.chunks(2) {
        let field = |name: &str| {
            let fields = pair[1].items.chunks(2);
            fields.into_iter().find(|it| it[0].text == name.as_bytes()).map(|it| it[1].clone())
        };
        all.insert(String::from_utf8_lossy(&pair[0].text).into_owned(), field(name));
        if let Some(subcommands) = field("subcommands") {
            collect(&subcommands, name, all);
        }
    }
}

/// The same without `display_text`, as version 7.0 has it.
fn without_display_text(frame: &Frame) -> Frame {
    let mut items: Vec<Frame> = frame.items.iter().map(without_display_text).collect();
    if let Some(at) = items.iter().position(|item| item.text == b"display_text") {
        items.drain(at..at + 2);
    }
    Frame { items, ..frame.clone() }
}

#[test]
fn arguments_are_those_of_redis() {
    let Some(oracle) = redis_70() else { return };
    let (same, later) = (lockwheel(CompatVersion::Redis70), lockwheel(CompatVersion::Redis72));
    for protocol in PROTOCOLS {
        let theirs = fields(&oracle, protocol, "arguments");
        let ours = fields(&same, protocol, "arguments");
        let ours_later = fields(&later, protocol, "arguments");
        let mut shared = 0;
        for (name, arguments) in &theirs {
            let Some(own) = ours.get(name) else { continue };
            shared += 1;
            let shown = |it: &Option<Frame>| it.as_ref().map(Frame::notation);
            assert_eq!(shown(own), shown(arguments), "{name} in RESP{protocol}");
            let own_later = ours_later[name].as_ref().map(without_display_text);
            let is_changed = CHANGED_IN_72.contains(&&**name);
            assert_eq!(own_later != *arguments, is_changed, "{name} in RESP{protocol}");
        }
        assert!(shared > 280, "{shared} commands");
    }
}

#[test]
fn deprecated_commands_are_those_of_redis() {
    let Some(oracle) = redis_70() else { return };
    let same = lockwheel(CompatVersion::Redis70);
    for protocol in PROTOCOLS {
        for name in ["deprecated_since", "doc_flags"] {
            let ours = fields(&same, protocol, name);
            for (command, theirs) in fields(&oracle, protocol, name) {
                let Some(own) = ours.get(&command) else { continue };
                if !DEPRECATED_LATER.contains(&&*command) {
                    let shown = |it: &Option<Frame>| it.as_ref().map(Frame::notation);
                    assert_eq!(shown(own), shown(&theirs), "{name} of {command}");
                }
            }
        }
    }
}
