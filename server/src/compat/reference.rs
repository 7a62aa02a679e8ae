//! By what two servers' replies to one command may differ and still agree. Everything else is
//! compared byte for byte.

use super::frame::Frame;

/// How far apart two servers may be when they are asked for the same moment: they are asked one
/// after the other, on a machine that may be busy.
const APART_MS: i64 = 5_000;
/// A number of milliseconds that a script tells of a lease is not less than this.
const LEASE_LEAST_MS: i64 = 90_000;

/// Something that two servers need not agree about.
pub struct Normalisation {
    /// What it is called.
    pub name: &'static str,
    /// Why there is no agreement to be had.
    pub reason: &'static str,
    /// The commands it holds for, by their first words; `EVAL @` is `EVAL` of a named script.
    pub commands: &'static [&'static str],
    /// How a case writes what is left of the reply.
    pub leaves: Leaves,
    apply: fn(&mut Frame, &mut Frame),
}

/// What a case can expect of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// An integer that far to either side.
    Near(i64),
    /// The same things in any order.
    Unordered,
    /// Anything.
    Anything,
}

/// All of them.
pub const NORMALISATIONS: &[Normalisation] = &[
    Normalisation {
        name: "remaining milliseconds",
        reason: "time passes between the two servers' turns: they agree within five seconds",
        commands: &["PTTL", "PEXPIRETIME"],
        leaves: Leaves::Near(APART_MS),
        apply: |ours, theirs| near(ours, theirs, 1, APART_MS),
    },
    Normalisation {
        name: "remaining seconds",
        reason: "as with milliseconds",
        commands: &["TTL", "EXPIRETIME"],
        leaves: Leaves::Near(APART_MS / 1000),
        apply: |ours, theirs| near(ours, theirs, 1, APART_MS / 1000),
    },
    Normalisation {
        name: "remaining time told by a script",
        reason: "lock scripts answer with PTTL: from 90 seconds on, within five seconds",
        commands: &["EVAL @", "EVALSHA @", "EVALSHA_RO @", "EVAL_RO @"],
        leaves: Leaves::Near(APART_MS),
        apply: |ours, theirs| {
            pairwise(ours, theirs, &mut |ours, theirs| {
                near(ours, theirs, LEASE_LEAST_MS, APART_MS);
            });
        },
    },
    Normalisation {
        name: "moment",
        reason: "it says when something was asked or done",
        commands: &["TIME", "OBJECT IDLETIME", "XPENDING", "XINFO"],
        leaves: Leaves::Anything,
        apply: moments,
    },
    Normalisation {
        name: "identity",
        reason: "what a server calls things: client ids, addresses, its own offset",
        commands: &["CLIENT ID", "CLIENT INFO", "CLIENT LIST", "ROLE"],
        leaves: Leaves::Anything,
        apply: shapes,
    },
    Normalisation {
        name: "greeting",
        reason: "a server's own name, version and modules, and the client's id",
        commands: &["HELLO"],
        leaves: Leaves::Anything,
        apply: |ours, theirs| {
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
        reason: "sets and hashes have no order, and each server's is its own",
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
        apply: |ours, theirs| [ours, theirs].into_iter().for_each(|frame| sort(frame, 1)),
    },
    Normalisation {
        name: "unordered pairs",
        reason: "as with sets",
        commands: &["HGETALL", "CONFIG GET"],
        leaves: Leaves::Unordered,
        apply: |ours, theirs| [ours, theirs].into_iter().for_each(|frame| sort(frame, 2)),
    },
    Normalisation {
        name: "unordered page",
        reason: "as with sets",
        commands: &["SCAN", "SSCAN"],
        leaves: Leaves::Anything,
        apply: |ours, theirs| {
            let pages = ours.items.iter_mut().chain(&mut theirs.items);
            pages.for_each(|frame| sort(frame, 1));
        },
    },
    Normalisation {
        name: "unordered page of pairs",
        reason: "as with sets",
        commands: &["HSCAN", "ZSCAN"],
        leaves: Leaves::Anything,
        apply: |ours, theirs| {
            let pages = ours.items.iter_mut().chain(&mut theirs.items);
            pages.for_each(|frame| sort(frame, 2));
        },
    },
    Normalisation {
        name: "random",
        reason: "which members are picked is chance: how many and of what type is not",
        commands: &["SPOP", "SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER", "RANDOMKEY"],
        leaves: Leaves::Anything,
        apply: shapes,
    },
];

/// Those that hold for a command.
pub fn applying<W: AsRef<[u8]>>(words: &[W]) -> impl Iterator<Item = &'static Normalisation> {
    NORMALISATIONS.iter().filter(move |it| it.commands.iter().any(|name| is_named(words, name)))
}

/// Takes out of two servers' replies to a command what they need not agree about.
pub fn normalise<W: AsRef<[u8]>>(words: &[W], ours: &mut Frame, theirs: &mut Frame) {
    if is_help(words) && ours.kind == theirs.kind {
        ours.clone_from(theirs);
    }
    for normalisation in applying(words) {
        (normalisation.apply)(ours, theirs);
    }
}

/// Whether it asks for a text of help, which each server words as it likes.
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

/// Makes two integers from `least` on the same if they are no farther apart than `apart`.
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

/// Calls `apply` on every two replies that stand at the same place of two trees.
fn pairwise(ours: &mut Frame, theirs: &mut Frame, apply: &mut dyn FnMut(&mut Frame, &mut Frame)) {
    for (ours, theirs) in ours.items.iter_mut().zip(&mut theirs.items) {
        pairwise(ours, theirs, apply);
    }
    apply(ours, theirs);
}

/// Leaves the types of things and how many there are.
fn shapes(ours: &mut Frame, theirs: &mut Frame) {
    for frame in [ours, theirs] {
        frame.walk(&mut |frame| {
            if frame.kind != b'-' {
                frame.text.clear();
            }
        });
    }
}

/// Moments stand for themselves (`TIME`, `OBJECT IDLETIME`), behind their name, or in the entries
/// of what is pending.
fn moments(ours: &mut Frame, theirs: &mut Frame) {
    const NAMES: &[&[u8]] = &[b"idle", b"inactive", b"seen-time", b"active-time"];
    near(ours, theirs, 0, APART_MS);
    pairwise(ours, theirs, &mut |ours, theirs| {
        let items = ours.items.len().min(theirs.items.len());
        let is_time = |items: &[Frame]| {
            let number = |item: &Frame| {
                item.kind == b'$'
                    && !item.text.is_empty()
                    && item.text.iter().all(u8::is_ascii_digit)
            };
            matches!(items, [a, b] if number(a) && number(b))
        };
        if is_time(&ours.items) && is_time(&theirs.items) {
            ours.items.clone_from(&theirs.items);
        }
        for at in 1..items {
            let named = NAMES.contains(&&*theirs.items[at - 1].text);
            // [id, consumer, idle, times], [id, idle, times]
            let is_id = theirs.items[0].text.contains(&b'-') && theirs.items[0].kind == b'$';
            let pending = is_id && matches!((items, at), (4, 2) | (3, 1));
            if named || pending {
                let (mine, other) = (&mut ours.items[at], &mut theirs.items[at]);
                near(mine, other, 0, APART_MS);
            }
        }
    });
}

/// Sorts what a reply holds, in steps of so many.
pub(super) fn sort(frame: &mut Frame, step: usize) {
    let mut parts: Vec<_> = frame.items.chunks(step).map(<[Frame]>::to_vec).collect();
    parts.sort();
    frame.items = parts.concat();
}

#[cfg(test)]
mod tests {
    use super::normalise;
    use crate::compat::frame::Frame;
    use crate::compat::words;

    fn agree(command: &str, ours: &str, theirs: &str) -> bool {
        let frame = |text: &str| Frame::whole(text.as_bytes()).expect("one reply");
        let (mut ours, mut theirs) = (frame(ours), frame(theirs));
        normalise(&words::split(command).expect("words"), &mut ours, &mut theirs);
        ours == theirs
    }

    #[test]
    fn only_what_is_named_may_differ() {
        assert!(agree("PTTL k", ":99990\r\n", ":99000\r\n"));
        assert!(!agree("PTTL k", ":99990\r\n", ":9000\r\n"));
        assert!(!agree("PTTL k", ":-1\r\n", ":1\r\n"));
        assert!(!agree("TTL k", ":99\r\n", ":90\r\n"));
        assert!(!agree("INCR k", ":99990\r\n", ":99000\r\n"));
        assert!(agree("EVAL @x 0", ":99990\r\n", ":99000\r\n"));
        assert!(!agree("EVAL @x 0", ":1\r\n", ":2\r\n"));
        assert!(!agree("EVAL x 0", ":99990\r\n", ":99000\r\n"));
        assert!(agree("SMEMBERS s", "*2\r\n:1\r\n:2\r\n", "*2\r\n:2\r\n:1\r\n"));
        assert!(!agree("LRANGE s", "*2\r\n:1\r\n:2\r\n", "*2\r\n:2\r\n:1\r\n"));
        assert!(agree("SPOP s", "$1\r\na\r\n", "$1\r\nb\r\n"));
        assert!(!agree("SPOP s", "$-1\r\n", "$1\r\nb\r\n"));
        assert!(!agree("SPOP s", "-ERR a\r\n", "-ERR b\r\n"));
        assert!(agree("CLIENT HELP", "*1\r\n+a\r\n", "*1\r\n+b\r\n"));
    }
}
