//! Sends the commands of a case inside a transaction or a script: the replies must be the same.

use std::collections::BTreeSet;
use std::io;

use super::case::{Action, Case, Step};
use super::pattern::Pattern;
use crate::wire::frame::Frame;
use crate::wire::{Wire, request};

/// The way in which the commands of a case are wrapped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wrapping {
    /// The command is sent unchanged.
    #[default]
    None,
    /// A transaction of its own: `MULTI`, the command, `EXEC`.
    Multi,
    /// A script that calls it with `redis.call`.
    Call,
    /// A script that calls it with `redis.pcall`.
    Pcall,
}

/// Commands that change the connection, or that have several replies or messages. If a client
/// sends one of them, none of its commands is wrapped.
const OF_CONNECTION: &[&str] = &[
    "AUTH",
    "CLIENT",
    "DISCARD",
    "EXEC",
    "HELLO",
    "MONITOR",
    "MULTI",
    "PSUBSCRIBE",
    "PUNSUBSCRIBE",
    "QUIT",
    "RESET",
    "SELECT",
    "SSUBSCRIBE",
    "SUBSCRIBE",
    "SUNSUBSCRIBE",
    "UNSUBSCRIBE",
    "UNWATCH",
    "WATCH",
];

/// Commands that Redis refuses in a script.
const NOT_IN_SCRIPTS: &[&str] = &[
    "ACL",
    "BGREWRITEAOF",
    "BGSAVE",
    "BLMOVE",
    "BLMPOP",
    "BLPOP",
    "BRPOP",
    "BRPOPLPUSH",
    "BZMPOP",
    "BZPOPMAX",
    "BZPOPMIN",
    "CLUSTER",
    "CONFIG",
    "DEBUG",
    "EVAL",
    "EVALSHA",
    "EVALSHA_RO",
    "EVAL_RO",
    "FAILOVER",
    "FCALL",
    "FCALL_RO",
    "FUNCTION",
    "LATENCY",
    "MODULE",
    "REPLICAOF",
    "ROLE",
    "SAVE",
    "SCRIPT",
    "SHUTDOWN",
    "SLAVEOF",
    "SLOWLOG",
    "WAIT",
    "WAITAOF",
];

/// Largest integer up to which Lua's numbers hold every one.
const EXACT_IN_LUA_MAX: i64 = 1 << 53;

impl Wrapping {
    /// Every way in which a command is inside something.
    pub const INSIDE: [Wrapping; 3] = [Wrapping::Multi, Wrapping::Call, Wrapping::Pcall];

    /// Whether a case has commands that can be wrapped. The cases of client libraries show how
    /// these send them.
    pub fn suits(self, case: &Case) -> bool {
        let is_wrappable = case.wrappable && case.client.is_none();
        self == Wrapping::None
            || is_wrappable && self.selected(&case.steps).iter().any(|&is_selected| is_selected)
    }

    /// The steps with a wrapped command: the client's next step must read its only reply.
    pub fn selected(self, steps: &[Step]) -> Vec<bool> {
        if self == Wrapping::None {
            return vec![false; steps.len()];
        }
        let bound: BTreeSet<&str> = steps.iter().filter_map(bound_client).collect();
        let is_selected = |(at, step): (usize, &Step)| match &step.action {
            Action::Send(client, words) => {
                let is_excluded = bound.contains(client.as_str())
                    || self.is_script() && is_refused_in_scripts(words);
                !is_excluded && is_answered_once(client, &steps[at + 1..])
            }
            _ => false,
        };
        steps.iter().enumerate().map(is_selected).collect()
    }

    /// The bytes that send a command so.
    pub fn request(self, words: &[Vec<u8>], protocol: u8) -> Vec<u8> {
        match self {
            Wrapping::None => request(words),
            Wrapping::Multi => [request(&["MULTI"]), request(words), request(&["EXEC"])].concat(),
            Wrapping::Call => scripted("call", words, protocol),
            Wrapping::Pcall => scripted("pcall", words, protocol),
        }
    }

    /// Reads the command's own reply.
    pub fn read(self, wire: &mut Wire) -> io::Result<Frame> {
        let mut first = wire.read()?;
        match self {
            Wrapping::Multi => {
                let (queued, mut executed) = (wire.read()?, wire.read()?);
                let is_refused = first.kind == b'-' || queued.kind == b'-';
                match executed.items.pop() {
                    _ if is_refused => Ok(queued),
                    Some(reply) if executed.items.is_empty() => Ok(reply),
                    _ => Ok(executed),
                }
            }
            Wrapping::Call if first.kind == b'-' => {
                // Redis adds the place to an error that a script raises.
                let text = String::from_utf8_lossy(&first.text);
                if let Some((error, place)) = text.rsplit_once(" script: ")
                    && place.ends_with("@user_script:1.")
                {
                    first.text = error.as_bytes().to_vec();
                }
                Ok(first)
            }
            _ => Ok(first),
        }
    }

    /// The expected reply, where `pattern` is the expected reply without wrapping.
    pub fn expected(self, pattern: Pattern, protocol: u8) -> Pattern {
        if self.is_script() { through_lua(pattern, protocol) } else { pattern }
    }

    fn is_script(self) -> bool {
        matches!(self, Wrapping::Call | Wrapping::Pcall)
    }
}

fn scripted(function: &str, words: &[Vec<u8>], protocol: u8) -> Vec<u8> {
    let script = format!("redis.setresp({protocol}) return redis.{function}(unpack(ARGV))");
    let head = [b"EVAL".to_vec(), script.into_bytes(), b"0".to_vec()];
    request(&[&head[..], words].concat())
}

/// The client of a step after which its commands cannot be wrapped.
fn bound_client(step: &Step) -> Option<&str> {
    match &step.action {
        Action::Raw(client, _) => Some(client),
        Action::Send(client, words) => is_one_of(words, OF_CONNECTION).then_some(client),
        _ => None,
    }
}

fn is_one_of(words: &[Vec<u8>], names: &[&str]) -> bool {
    let is_first =
        |name: &&str| words.first().is_some_and(|it| it.eq_ignore_ascii_case(name.as_bytes()));
    words.is_empty() || names.iter().any(is_first)
}

fn is_refused_in_scripts(words: &[Vec<u8>]) -> bool {
    let blocks = words.iter().any(|word| word.eq_ignore_ascii_case(b"BLOCK"));
    is_one_of(words, NOT_IN_SCRIPTS) || blocks && is_one_of(words, &["XREAD", "XREADGROUP"])
}

/// Whether the next steps are a client's reading of one reply, and it reads no other before it
/// sends again.
fn is_answered_once(client: &str, steps: &[Step]) -> bool {
    let mut next = steps.iter();
    let (mut in_resp2, mut in_resp3) = (0, 0);
    let mut is_next = true;
    for step in &mut next {
        match &step.action {
            Action::Expect(reader, version, pattern) if reader == client => {
                if !is_next || is_push(pattern) {
                    return false;
                }
                in_resp2 += u32::from(*version != Some(3));
                in_resp3 += u32::from(*version != Some(2));
            }
            Action::Send(sender, _) if sender == client => break,
            Action::Waits(other) | Action::Closed(other) if other == client => return false,
            _ => is_next = false,
        }
    }
    (in_resp2, in_resp3) == (1, 1)
}

fn is_push(pattern: &Pattern) -> bool {
    matches!(pattern, Pattern::Aggregate { kind: b'>', .. })
}

/// The pattern of a reply that a script has received and returned.
fn through_lua(pattern: Pattern, protocol: u8) -> Pattern {
    let all = |items: Vec<Pattern>| items.into_iter().map(|it| through_lua(it, protocol));
    match pattern {
        // Lua has one nil.
        Pattern::NilArray => Pattern::Nil,
        Pattern::Integer(low, high)
            if low.unsigned_abs().max(high.unsigned_abs()) > EXACT_IN_LUA_MAX.unsigned_abs() =>
        {
            Pattern::Integer(i64::MIN, i64::MAX)
        }
        Pattern::Line(b'-', _) | Pattern::ErrorPrefix(_) => error_in_script(pattern),
        Pattern::Aggregate { kind, items, open, unordered } => {
            let is_table = protocol == 3 && matches!(kind, b'%' | b'~');
            let mut items: Vec<Pattern> = all(items).collect();
            if protocol == 3 && kind == b'%' {
                items = table_of(&items);
            }
            let nil = items.iter().position(|it| *it == Pattern::Nil);
            if let Some(nil) = nil.filter(|_| protocol == 3 && kind == b'*') {
                // A nil ends a Lua table. RESP2's nil is `false`.
                items.truncate(nil);
            }
            Pattern::Aggregate { kind, items, open, unordered: unordered || is_table }
        }
        Pattern::Either(patterns) => Pattern::Either(all(patterns).collect()),
        other => other,
    }
}

/// The keys and values that a Lua table keeps of a map: no nil, and the last value of each key.
fn table_of(items: &[Pattern]) -> Vec<Pattern> {
    let pairs: Vec<&[Pattern]> = items.chunks(2).collect();
    let stays = |(at, pair): (usize, &&[Pattern])| {
        let is_replaced = pairs[at + 1..].iter().any(|later| later[0] == pair[0]);
        !is_replaced && pair.get(1) != Some(&Pattern::Nil)
    };
    let kept = pairs.iter().enumerate().filter(|it| stays((it.0, it.1)));
    kept.flat_map(|(_, pair)| pair.to_vec()).collect()
}

/// An error that `redis.call` may report itself, with its own text.
fn error_in_script(error: Pattern) -> Pattern {
    let (Pattern::Line(_, text) | Pattern::ErrorPrefix(text)) = &error else { return error };
    let own = if text.starts_with("ERR wrong number of arguments") {
        "ERR Wrong number of args calling Redis command from script"
    } else if text.starts_with("ERR unknown command") || text.starts_with("ERR unknown subcommand")
    {
        "ERR Unknown Redis command called from script"
    } else {
        return error;
    };
    Pattern::Either(vec![Pattern::Line(b'-', own.to_owned()), error])
}

#[cfg(test)]
mod tests {
    use super::{Wrapping, through_lua};
    use crate::cases::case::Case;
    use crate::cases::pattern::Pattern;

    #[test]
    fn only_commands_with_one_reply_are_wrapped() {
        let check = |text: &str, wrapping: Wrapping, expected: &[bool]| {
            let steps = Case::parse_steps(text).expect("it is well-formed");
            assert_eq!(wrapping.selected(&steps), expected, "{text}");
        };
        let answered = "a> GET k\na<2 nil\na<3 nil\n";
        check(answered, Wrapping::Multi, &[true, false, false]);
        check(answered, Wrapping::None, &[false, false, false]);
        check("a> GET k\nb> GET k\na< nil\n", Wrapping::Multi, &[false; 3]);
        check("a> BLPOP k 0\na waits\n", Wrapping::Multi, &[false; 2]);
        check("a> BLPOP k 1\na< nil-array\n", Wrapping::Multi, &[true, false]);
        check("a> BLPOP k 1\na< nil-array\n", Wrapping::Call, &[false; 2]);
        check("a> MULTI\na< +OK\na> GET k\na< +QUEUED\n", Wrapping::Call, &[false; 4]);
        check("a> GET k\na< nil\na< push [\"x\"]\n", Wrapping::Call, &[false; 3]);
    }

    #[test]
    fn replies_go_through_lua() {
        let check = |pattern: &str, protocol: u8, expected: &str| {
            let [pattern, expected] =
                [pattern, expected].map(|text| Pattern::parse(text).expect("a pattern"));
            assert_eq!(through_lua(pattern, protocol), expected);
        };
        check("nil-array", 2, "nil");
        check("[:1, nil, :2]", 2, "[:1, nil, :2]");
        check("[:1, nil, :2]", 3, "[:1]");
        check("{\"a\": :1}", 3, "unordered {\"a\": :1}");
        check("{\"a\": :1, \"b\": nil, \"a\": :2}", 3, "unordered {\"a\": :2}");
        check(
            "-ERR unknown command 'x'",
            2,
            "-ERR Unknown Redis command called from script | -ERR unknown command 'x'",
        );
    }
}
