//! The parts of replies in which two correct servers may differ. Everything else is compared byte
//! for byte.

use crate::wire::frame::Frame;

/// How far below the reply of the reference a remaining time may be in a printed case. The case is
/// played later, on a machine that may be busy; its leases last 90 seconds at least.
const PRINTED_APART_MS: i64 = 5_000;
/// The least number in the reply of a script that counts as a remaining time in milliseconds.
const LEASE_LEAST_MS: i64 = 90_000;

/// A part of a reply in which servers may differ.
pub struct Normalisation {
    /// Its name.
    pub name: &'static str,
    /// Why servers may differ.
    pub reason: &'static str,
    /// The commands, by their first words; `EVAL @` is `EVAL` of a named script.
    pub commands: &'static [&'static str],
    /// How a case writes the rest of the reply.
    pub leaves: Leaves,
    /// Makes the part equal in two replies. Times may differ by this many milliseconds.
    apply: fn(&mut Frame, &mut Frame, i64),
}

/// The expectation that a case can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// An integer within this distance.
    Near(i64),
    /// The same elements in any order.
    Unordered,
    /// Anything.
    Anything,
}

/// All normalisations.
pub const NORMALISATIONS: &[Normalisation] = &[
    Normalisation {
        name: "remaining milliseconds",
        reason: "time passes between the requests to the two servers: they agree within that time",
        commands: &["PTTL", "PEXPIRETIME"],
        leaves: Leaves::Near(PRINTED_APART_MS),
        apply: |ours, theirs, apart_ms| near(ours, theirs, 1, apart_ms),
    },
    Normalisation {
        name: "remaining seconds",
        reason: "as with milliseconds",
        commands: &["TTL", "EXPIRETIME"],
        leaves: Leaves::Near(PRINTED_APART_MS / 1000),
        // Both are rounded to a second.
        apply: |ours, theirs, apart_ms| near(ours, theirs, 0, apart_ms / 1000 + 1),
    },
    Normalisation {
        name: "remaining time in the reply of a script",
        reason: "lock scripts answer with PTTL: as with milliseconds, from 90 seconds on",
        commands: &["EVAL @", "EVALSHA @", "EVALSHA_RO @", "EVAL_RO @"],
        leaves: Leaves::Near(PRINTED_APART_MS),
        apply: |ours, theirs, apart_ms| {
            pairwise(ours, theirs, &mut |ours, theirs| {
                near(ours, theirs, LEASE_LEAST_MS, apart_ms);
            });
        },
    },
    Normalisation {
        name: "present",
        reason: "as with the remaining time",
        commands: &["TIME"],
        leaves: Leaves::Anything,
        apply: present,
    },
    Normalisation {
        name: "idle seconds",
        reason: "as with the remaining time; both count whole seconds of a clock of seconds",
        commands: &["OBJECT IDLETIME"],
        leaves: Leaves::Anything,
        apply: |ours, theirs, apart_ms| near(ours, theirs, 0, apart_ms / 1000 + 2),
    },
    Normalisation {
        name: "moment",
        reason: "the time of an event: as with the remaining time",
        commands: &["XPENDING", "XINFO"],
        leaves: Leaves::Anything,
        apply: moments,
    },
    Normalisation {
        name: "identity",
        reason: "names that a server assigns: client ids, addresses, its own offset",
        commands: &["CLIENT ID", "CLIENT INFO", "CLIENT LIST", "ROLE"],
        leaves: Leaves::Anything,
        apply: |ours, theirs, _| shapes(ours, theirs),
    },
    Normalisation {
        name: "greeting",
        reason: "a server's own name, version and modules, and the client's id",
        commands: &["HELLO"],
        leaves: Leaves::Anything,
        apply: |ours, theirs, _| {
            for frame in [&mut *ours, &mut *theirs] {
                let modules = frame.items.iter().position(|item| item.text == b"modules");
                if let Some(modules) = modules.and_then(|at| frame.items.get_mut(at + 1)) {
                    modules.items.clear();
                }
            }
            shapes(ours, theirs);
        },
    },
    Normalisation {
        name: "unordered",
        reason: "sets and hashes have no order",
        commands: &[
            "SMEMBERS",
            "SINTER",
            "SUNION",
            "SDIFF",
            "HKEYS",
            "HVALS",
            "KEYS",
            "PUBSUB CHANNELS",
            "PUBSUB SHARDCHANNELS",
        ],
        leaves: Leaves::Unordered,
        apply: |ours, theirs, _| [ours, theirs].into_iter().for_each(|frame| sort(frame, 1)),
    },
    Normalisation {
        name: "unordered pairs",
        reason: "as with sets",
        commands: &["HGETALL", "CONFIG GET"],
        leaves: Leaves::Unordered,
        apply: |ours, theirs, _| [ours, theirs].into_iter().for_each(|frame| sort(frame, 2)),
    },
    Normalisation {
        name: "unordered page",
        reason: "as with sets",
        commands: &["SCAN", "SSCAN"],
        leaves: Leaves::Anything,
        apply: |ours, theirs, _| {
            let pages = ours.items.iter_mut().chain(&mut theirs.items);
            pages.for_each(|frame| sort(frame, 1));
        },
    },
    Normalisation {
        name: "unordered page of pairs",
        reason: "as with sets",
        commands: &["HSCAN", "ZSCAN"],
        leaves: Leaves::Anything,
        apply: |ours, theirs, _| {
            let pages = ours.items.iter_mut().chain(&mut theirs.items);
            pages.for_each(|frame| sort(frame, 2));
        },
    },
    Normalisation {
        name: "random",
        reason: "which members are picked is random: their number and types are not",
        commands: &["SPOP", "SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER", "RANDOMKEY"],
        leaves: Leaves::Anything,
        apply: |ours, theirs, _| shapes(ours, theirs),
    },
];

/// The normalisations for a command.
pub fn applying<W: AsRef<[u8]>>(words: &[W]) -> impl Iterator<Item = &'static Normalisation> {
    NORMALISATIONS.iter().filter(move |it| it.commands.iter().any(|name| is_named(words, name)))
}

/// Makes equal the parts in which the replies of two servers to a command may differ. `apart_ms` is
/// the largest difference of times: the measured one, not an estimate.
pub fn normalise<W: AsRef<[u8]>>(words: &[W], ours: &mut Frame, theirs: &mut Frame, apart_ms: i64) {
    if is_help(words) && ours.kind == theirs.kind {
        ours.clone_from(theirs);
    }
    for normalisation in applying(words) {
        (normalisation.apply)(ours, theirs, apart_ms);
    }
}

/// Commands with replies that are compared only by type and number of elements: their values are
/// random or specific to the server.
const BY_SHAPE: &[&str] = &["DBSIZE", "DUMP", "FUNCTION DUMP", "INFO", "MEMORY USAGE", "RANDOMKEY"];

/// Whether only the shapes of replies to this command are compared.
pub(super) fn is_compared_by_shape(words: &[Vec<u8>]) -> bool {
    BY_SHAPE.iter().any(|name| is_named(words, name))
}

/// Whether it asks for the help text, which differs between servers.
fn is_help<W: AsRef<[u8]>>(words: &[W]) -> bool {
    words.len() == 2 && words[1].as_ref().eq_ignore_ascii_case(b"HELP")
}

/// Whether a command begins with these words.
pub fn is_named<W: AsRef<[u8]>>(words: &[W], name: &str) -> bool {
    let mut words = words.iter().map(AsRef::as_ref);
    name.split(' ').all(|part| {
        words.next().is_some_and(|word| match part {
            "@" => word.first() == Some(&b'@'),
            part => word.eq_ignore_ascii_case(part.as_bytes()),
        })
    })
}

/// Makes two integers equal if both are at least `least` and differ by at most `apart`.
fn near(ours: &mut Frame, theirs: &mut Frame, least: i64, apart: i64) {
    let number = |frame: &Frame| {
        let text = std::str::from_utf8(&frame.text).ok()?;
        text.parse::<i64>().ok().filter(|&number| frame.kind == b':' && number >= least)
    };
    if let (Some(a), Some(b)) = (number(ours), number(theirs))
        && a.abs_diff(b) <= apart.unsigned_abs()
    {
        ours.text.clone_from(&theirs.text);
    }
}

/// Calls `apply` on each pair of nodes at the same place of two trees.
pub(crate) fn pairwise(
    ours: &mut Frame,
    theirs: &mut Frame,
    apply: &mut dyn FnMut(&mut Frame, &mut Frame),
) {
    for (ours, theirs) in ours.items.iter_mut().zip(&mut theirs.items) {
        pairwise(ours, theirs, apply);
    }
    apply(ours, theirs);
}

/// Removes the values, so that only types and numbers of elements are compared.
pub(crate) fn shapes(ours: &mut Frame, theirs: &mut Frame) {
    for frame in [ours, theirs] {
        frame.walk(&mut |frame| {
            if frame.kind != b'-' {
                frame.text.clear();
            }
        });
    }
}

/// The reply of TIME: seconds and microseconds.
fn present(ours: &mut Frame, theirs: &mut Frame, apart_ms: i64) {
    let moment_us = |frame: &Frame| {
        let number = |item: &Frame| {
            let text = std::str::from_utf8(&item.text).ok()?;
            text.parse::<i64>().ok().filter(|&number| item.kind == b'$' && number >= 0)
        };
        let [seconds, micros] = &*frame.items else { return None };
        let micros = number(micros).filter(|&micros| micros < 1_000_000)?;
        Some(number(seconds)?.checked_mul(1_000_000)? + micros)
    };
    if let (Some(a), Some(b)) = (moment_us(ours), moment_us(theirs))
        && a.abs_diff(b) <= (apart_ms * 1000).unsigned_abs()
    {
        ours.items.clone_from(&theirs.items);
    }
}

/// Idle times and times of events: the value after their name, or in pending entries.
fn moments(ours: &mut Frame, theirs: &mut Frame, apart_ms: i64) {
    const NAMES: &[&[u8]] = &[b"idle", b"inactive", b"seen-time", b"active-time"];
    pairwise(ours, theirs, &mut |ours, theirs| {
        let items = ours.items.len().min(theirs.items.len());
        for at in 1..items {
            let named = NAMES.contains(&&*theirs.items[at - 1].text);
            // [id, consumer, idle, times], [id, idle, times]
            let is_id = theirs.items[0].text.contains(&b'-') && theirs.items[0].kind == b'$';
            let pending = is_id && matches!((items, at), (4, 2) | (3, 1));
            if named || pending {
                let (mine, other) = (&mut ours.items[at], &mut theirs.items[at]);
                near(mine, other, 0, apart_ms);
            }
        }
    });
}

/// Sorts the elements of a reply in groups of `step`.
pub(crate) fn sort(frame: &mut Frame, step: usize) {
    let mut parts: Vec<_> = frame.items.chunks(step).map(<[Frame]>::to_vec).collect();
    parts.sort();
    frame.items = parts.concat();
}

#[cfg(test)]
mod tests {
    use super::normalise;
    use crate::wire::frame::Frame;
    use crate::words;

    /// The time between the requests to the two servers.
    const APART_MS: i64 = 20;

    fn agree(command: &str, ours: &str, theirs: &str) -> bool {
        let frame = |text: &str| Frame::whole(text.as_bytes()).expect("one reply");
        let (mut ours, mut theirs) = (frame(ours), frame(theirs));
        let words = words::split(command).expect("words");
        normalise(&words, &mut ours, &mut theirs, APART_MS);
        ours == theirs
    }

    #[test]
    fn times_may_differ_by_measured_span_only() {
        assert!(agree("PTTL k", ":99990\r\n", ":99970\r\n"));
        assert!(agree("PTTL k", ":99970\r\n", ":99990\r\n"));
        assert!(!agree("PTTL k", ":99990\r\n", ":99969\r\n"));
        assert!(!agree("PTTL k", ":-1\r\n", ":1\r\n"));
        assert!(!agree("PTTL k", ":-2\r\n", ":-1\r\n"));
        assert!(!agree("PTTL k", "$2\r\n20\r\n", ":20\r\n"));
        assert!(agree("PEXPIRETIME k", ":1800000000000\r\n", ":1800000000020\r\n"));
        assert!(!agree("PEXPIRETIME k", ":1800000000000\r\n", ":1800000000021\r\n"));
        assert!(agree("TTL k", ":99\r\n", ":100\r\n"));
        assert!(!agree("TTL k", ":98\r\n", ":100\r\n"));
        assert!(!agree("TTL k", ":-1\r\n", ":0\r\n"));
        assert!(agree("OBJECT IDLETIME k", ":0\r\n", ":2\r\n"));
        assert!(!agree("OBJECT IDLETIME k", ":0\r\n", ":3\r\n"));
        assert!(agree("EVAL @x 0", ":99990\r\n", ":99970\r\n"));
        assert!(!agree("EVAL @x 0", ":99990\r\n", ":99969\r\n"));
        assert!(!agree("EVAL @x 0", ":1\r\n", ":2\r\n"));
        assert!(!agree("EVAL x 0", ":99990\r\n", ":99989\r\n"));
        assert!(!agree("INCR k", ":99990\r\n", ":99989\r\n"));
        let time = |seconds: &str, micros: &str| {
            format!("*2\r\n${}\r\n{seconds}\r\n${}\r\n{micros}\r\n", seconds.len(), micros.len())
        };
        assert!(agree("TIME", &time("1800000000", "999999"), &time("1800000001", "19998")));
        assert!(!agree("TIME", &time("1800000000", "999999"), &time("1800000001", "20000")));
        assert!(!agree("TIME", &time("1800000000", "1000000"), &time("1800000001", "0")));
        let idle = |ms: i64| {
            format!("*1\r\n*6\r\n+name\r\n$1\r\nc\r\n+pending\r\n:0\r\n+idle\r\n:{ms}\r\n")
        };
        assert!(agree("XINFO CONSUMERS x g", &idle(0), &idle(20)));
        assert!(!agree("XINFO CONSUMERS x g", &idle(0), &idle(21)));
        let pending = |ms: i64| format!("*1\r\n*4\r\n$3\r\n1-1\r\n$1\r\nc\r\n:{ms}\r\n:1\r\n");
        assert!(agree("XPENDING x g - + 9", &pending(5), &pending(20)));
        assert!(!agree("XPENDING x g - + 9", &pending(5), &pending(26)));
    }

    #[test]
    fn only_listed_parts_may_differ() {
        assert!(agree("SMEMBERS s", "*2\r\n:1\r\n:2\r\n", "*2\r\n:2\r\n:1\r\n"));
        assert!(!agree("SMEMBERS s", "*2\r\n:1\r\n:2\r\n", "*2\r\n:2\r\n:2\r\n"));
        assert!(!agree("LRANGE s", "*2\r\n:1\r\n:2\r\n", "*2\r\n:2\r\n:1\r\n"));
        assert!(agree("SPOP s", "$1\r\na\r\n", "$1\r\nb\r\n"));
        assert!(!agree("SPOP s", "$-1\r\n", "$1\r\nb\r\n"));
        assert!(!agree("SPOP s", "-ERR a\r\n", "-ERR b\r\n"));
        assert!(agree("CLIENT HELP", "*1\r\n+a\r\n", "*1\r\n+b\r\n"));
    }
}
