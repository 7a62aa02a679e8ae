//! Random sequences of rules of users have the same effect as on a real server.

use lockwheel_compat::random::Random;
use lockwheel_tests::frame::{Frame, show};
use lockwheel_tests::target::{Kind, Target};
use lockwheel_tests::wire::Wire;
use lockwheel_tests::{frame_of, words};

const ROUNDS: u64 = 60;
const RULES_MAX: u64 = 9;

/// Rules about commands. They name few commands, so that later rules meet earlier ones.
const COMMAND_RULES: &[&str] = &[
    "+get",
    "-get",
    "+set",
    "-set",
    "+config",
    "-config",
    "+config|get",
    "-config|get",
    "+CONFIG|SET",
    "+client",
    "-client",
    "+client|id",
    "-client|id",
    "-client|getname",
    "+select",
    "-select",
    "+select|0",
    "+select|1",
    "-select|1",
    "+ping|X",
    "+ping",
    "-ping",
    "+object",
    "-object|encoding",
    "+object|encoding",
    "+publish",
    "-publish",
    "+copy",
    "+eval",
    "-eval",
    "+@all",
    "-@all",
    "allcommands",
    "nocommands",
    "+@read",
    "-@read",
    "+@write",
    "-@write",
    "+@string",
    "-@string",
    "+@admin",
    "-@admin",
    "+@connection",
    "-@connection",
    "+@fast",
    "-@fast",
    "+@slow",
    "-@dangerous",
    "+@pubsub",
    "-@keyspace",
    "+get|a|b",
    "+config|none",
    "+none",
    "-@none",
    "+config|get|x",
    "+get|",
    "+GET|a",
];
/// Rules about keys and channels.
const PATTERN_RULES: &[&str] = &[
    "~a",
    "~b*",
    "%R~a",
    "%W~a",
    "%RW~b*",
    "%R~b*",
    "%W~b*",
    "%WR~a",
    "%r~*",
    "%W~*",
    "~*",
    "allkeys",
    "resetkeys",
    "RESETKEYS",
    "%~a",
    "%X~a",
    "&c",
    "&d*",
    "&*",
    "allchannels",
    "resetchannels",
];
/// Other rules.
const USER_RULES: &[&str] = &[
    "clearselectors",
    "on",
    "off",
    "nopass",
    "resetpass",
    ">p",
    ">q",
    "<p",
    "!0",
    "reset",
    "sanitize-payload",
    "skip-sanitize-payload",
    "(",
    "()",
    "none",
];

/// Commands to decide about.
const COMMANDS: &[&str] = &[
    "GET a",
    "GET b1",
    "SET a v",
    "SET b1 v",
    "SET a v GET",
    "SET b1 v XX GET",
    "COPY a b1 REPLACE",
    "COPY b1 a REPLACE",
    "CONFIG GET port",
    "CONFIG SET maxmemory 0",
    "CLIENT ID",
    "CLIENT GETNAME",
    "SELECT 0",
    "SELECT 1",
    "PING x",
    "PING",
    "OBJECT ENCODING a",
    "OBJECT FREQ b1",
    "PUBLISH c x",
    "PUBLISH d1 x",
    "STRLEN b1",
    "DEL a b1",
    "MGET a b1",
    "ECHO x",
    "DBSIZE",
];
/// Commands that are only checked, because they change the connection or the server.
const CHECKED_COMMANDS: &[&str] =
    &["SUBSCRIBE c d1", "PSUBSCRIBE d*", "PSUBSCRIBE d1", "FLUSHALL", "EVAL x 1 a", "AUTH x"];

#[test]
fn rules_in_any_sequence_have_the_effect_that_they_have_on_redis() {
    let Some(oracle) = Target::redis() else { return };
    let ours = Target::lockwheel_like(&oracle, Kind::Standalone);
    let mut counts = [0; 2];
    for round in 0..ROUNDS {
        let mut sides = [&ours, &oracle].map(Side::new);
        let rules = sequence(&mut Random::of(7, round));
        for rule in &rules {
            let [ours, oracle] =
                sides.each_mut().map(|side| side.ask(&["ACL", "SETUSER", "u", rule]));
            assert_eq!(is_error(&ours), is_error(&oracle), "round {round}: {rule} of {rules:?}");
        }
        let [ours, oracle] = sides.each_mut().map(|side| side.description("u"));
        assert_eq!(ours, oracle, "round {round}: {rules:?}");
        let [ours, oracle] = sides.each_mut().map(|side| side.decisions("u"));
        assert_eq!(ours, oracle, "round {round}: {rules:?}");
        for (_, decision) in &ours {
            counts[usize::from(*decision == "permitted")] += 1;
        }
        // The line that describes the user makes the same user on the other server.
        let [ours, mut oracle] = sides;
        let line = ours.line();
        oracle.make("v", &line);
        let [first, second] = ["u", "v"].map(|user| oracle.checks(user));
        assert_eq!(first, second, "round {round}: {} of {rules:?}", String::from_utf8_lossy(&line));
    }
    assert!(counts.iter().all(|&count| count > 500), "refused and permitted: {counts:?}");
}

/// Rules for one user, some of them wrong.
fn sequence(random: &mut Random) -> Vec<String> {
    let simple = |random: &mut Random| {
        let of = if random.once_in(2) { PATTERN_RULES } else { COMMAND_RULES };
        (*random.pick(of)).to_owned()
    };
    let count = 1 + random.below(RULES_MAX);
    let rule = |_| match random.below(8) {
        0 => (*random.pick(USER_RULES)).to_owned(),
        1 => {
            let rules: Vec<String> = (0..=random.below(4)).map(|_| simple(random)).collect();
            format!("({})", rules.join(" "))
        }
        _ => simple(random),
    };
    (0..count).map(rule).collect()
}

/// A server, with a connection that may do everything and one of the user `u`.
struct Side {
    control: Wire,
    user: Wire,
}

impl Side {
    fn new(target: &Target) -> Side {
        let mut side = Side { control: target.connect(2), user: target.connect(2) };
        side.ask(&["ACL", "DELUSER", "u", "v"]);
        side.ask(&["MSET", "a", "1", "b1", "2"]);
        side.ask(&["ACL", "SETUSER", "u", "on", "nopass"]);
        assert_eq!(side.user.ask("AUTH u x"), "+OK\r\n");
        side
    }

    fn ask(&mut self, words: &[&str]) -> Vec<u8> {
        self.control.call(words)
    }

    /// The reply to `ACL GETUSER` without the rules of commands, whose order differs in Redis 7.0,
    /// and without the flags about payloads, which it does not show for a new user. Lockwheel
    /// shows the rules `%R~* %W~*` as `%RW~*`, since further patterns may follow them.
    fn description(&mut self, user: &str) -> String {
        let mut frame = frame_of(&self.ask(&["ACL", "GETUSER", user]));
        frame.walk(&mut |it: &mut Frame| {
            if let Some(at) = it.items.iter().position(|item| item.text == b"commands") {
                it.items[at + 1].text.clear();
            }
            if let Some(at) = it.items.iter().position(|item| item.text == b"flags") {
                let flags = &mut it.items[at + 1].items;
                flags.retain(|flag| !flag.text.ends_with(b"sanitize-payload"));
                flags.sort_by(|a, b| a.text.cmp(&b.text));
            }
        });
        frame.walk(&mut |it: &mut Frame| {
            it.text = String::from_utf8_lossy(&it.text).replace("%RW~*", "~*").into_bytes();
        });
        frame.notation()
    }

    /// The rules in the line of the user `u`.
    fn line(mut self) -> Vec<u8> {
        let lines = frame_of(&self.ask(&["ACL", "LIST"])).items;
        let rules = lines.iter().find_map(|line| line.text.strip_prefix(b"user u "));
        rules.expect("the user").to_vec()
    }

    /// Makes a user with these rules.
    fn make(&mut self, user: &str, rules: &[u8]) {
        let rules = rules.split(|&byte| byte == b' ');
        let words: Vec<&[u8]> =
            [&b"ACL"[..], b"SETUSER", user.as_bytes()].into_iter().chain(rules).collect();
        assert_eq!(show(&self.control.call(&words)), show(b"+OK\r\n"));
    }

    /// What `ACL DRYRUN` replies about each command.
    fn checks(&mut self, user: &str) -> Vec<(String, &'static str)> {
        let commands = COMMANDS.iter().chain(CHECKED_COMMANDS);
        let mut check = |command: &&str| {
            let words = words(&format!("ACL DRYRUN {user} {command}"));
            let reply = self.control.call(&words);
            ((*command).to_owned(), decision(&reply, !reply.starts_with(b"+")))
        };
        commands.map(&mut check).collect()
    }

    /// The decisions about each command: when it is checked, run, and run in a script.
    fn decisions(&mut self, user: &str) -> Vec<(String, &'static str)> {
        let mut decisions = self.checks(user);
        for command in COMMANDS {
            let reply = self.user.call(&words(command));
            decisions.push((format!("run {command}"), decision(&reply, is_refusal(&reply))));
        }
        // For some sequences this is a rule after `(+eval)` or `-eval`.
        self.ask(&["ACL", "SETUSER", user, "+eval"]);
        for command in COMMANDS {
            let script = "return redis.pcall(unpack(ARGV))";
            let words = words(&format!("EVAL '{script}' 0 {command}"));
            let reply = self.user.call(&words);
            decisions.push((format!("script {command}"), decision(&reply, is_refusal(&reply))));
        }
        decisions
    }
}

fn is_error(reply: &[u8]) -> bool {
    reply.starts_with(b"-")
}

/// Whether permissions are the reason of an error. The texts of versions differ.
fn is_refusal(reply: &[u8]) -> bool {
    let text = String::from_utf8_lossy(reply);
    let reasons = ["NOPERM", "ACL failure in script", "The user executing the script"];
    is_error(reply) && reasons.iter().any(|reason| text.contains(reason))
}

/// What a reply says about permissions: permitted, or what is refused.
fn decision(reply: &[u8], is_refused: bool) -> &'static str {
    if !is_refused {
        return "permitted";
    }
    let text = String::from_utf8_lossy(reply);
    let kinds = ["key", "channel", "command"];
    kinds.into_iter().find(|kind| text.contains(kind)).unwrap_or("another refusal")
}
