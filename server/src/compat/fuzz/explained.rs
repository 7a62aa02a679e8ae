//! Differences that are known: each with the line of `docs/differences.md` that tells of it, and
//! as narrow as it can be told apart.

use crate::compat::frame::Frame;
use crate::compat::reference::is_named;

/// A difference that is known.
pub struct Explained {
    /// What it is called.
    pub name: &'static str,
    /// The line of `docs/differences.md` begins so.
    pub line: &'static str,
    /// The commands it is about.
    commands: &'static [&'static str],
    /// The references that it is about.
    of: Of,
    /// Whether what is there then may differ as well, so that the episode ends.
    pub ends: bool,
    is: fn(&Met<'_>) -> bool,
}

/// Which references something holds for.
#[derive(Clone, Copy)]
enum Of {
    Every,
    /// Those that announce an older version of Redis.
    Before(u32, u32),
    /// Those that announce this version of Redis or a later one.
    Since(u32, u32),
    Valkey,
}

/// A difference that was met.
pub struct Met<'a> {
    /// The command.
    pub words: &'a [Vec<u8>],
    /// The command that was sent last: another one, if a client that waited has heard something.
    pub cause: &'a [Vec<u8>],
    /// What the target said.
    pub ours: &'a Frame,
    /// What the reference said.
    pub theirs: &'a Frame,
    /// What the reference is.
    pub version: Version,
}

/// What a reference is.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// The version of Redis that it announces.
    pub redis: (u32, u32),
    /// Whether it is a Valkey.
    pub is_valkey: bool,
}

impl Of {
    fn holds(self, version: Version) -> bool {
        match self {
            Of::Every => true,
            Of::Before(major, minor) => version.redis < (major, minor),
            Of::Since(major, minor) => version.redis >= (major, minor),
            Of::Valkey => version.is_valkey,
        }
    }
}

impl std::fmt::Debug for Explained {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Those that wait for several keys.
const WAITING: &[&str] = &[
    "BLPOP",
    "BRPOP",
    "BLMPOP",
    "BZPOPMIN",
    "BZPOPMAX",
    "BZMPOP",
    "BLMOVE",
    "BRPOPLPUSH",
    "XREAD",
    "XREADGROUP",
];

/// All of them.
pub const EXPLAINED: &[Explained] = &[
    Explained {
        name: "scores are printed with 17 digits",
        line: "| Scores that are no whole numbers |",
        commands: &[],
        of: Of::Before(7, 2),
        ends: false,
        is: |met| is_any(met, &["Z", "BZ", "EVAL", "SORT"]) && same_numbers(met.ours, met.theirs),
    },
    Explained {
        name: "encodings of lists and sets",
        line: "| `OBJECT ENCODING` of short lists and sets |",
        commands: &["OBJECT ENCODING"],
        of: Of::Before(7, 2),
        ends: false,
        is: |met| {
            matches!(&*met.theirs.text, b"quicklist" | b"hashtable") && met.ours.text == b"listpack"
        },
    },
    Explained {
        name: "large forms of what is small",
        line: "| `OBJECT ENCODING` after `SORT` of a sorted set",
        commands: &["OBJECT ENCODING"],
        of: Of::Every,
        ends: false,
        is: |met| {
            matches!(&*met.theirs.text, b"quicklist" | b"hashtable" | b"skiplist")
                && matches!(&*met.ours.text, b"listpack" | b"intset")
        },
    },
    Explained {
        name: "ranks with scores",
        line: "| `ZRANK` and `ZREVRANK` with `WITHSCORE` |",
        commands: &["ZRANK", "ZREVRANK", "COMMAND GETKEYS ZRANK", "COMMAND GETKEYS ZREVRANK"],
        of: Of::Before(7, 2),
        ends: true,
        is: |met| {
            met.words.len() == 4 && has(met.theirs, "wrong number of arguments")
                || met.words.len() == 6 && has(met.theirs, "Invalid number of arguments")
        },
    },
    Explained {
        name: "keys of commands without arguments",
        line: "| `COMMAND GETKEYS` of a name alone |",
        commands: &["COMMAND GETKEYS"],
        of: Of::Before(7, 2),
        ends: true,
        is: |met| met.words.len() == 3 && has(met.theirs, "wrong number of arguments"),
    },
    Explained {
        name: "waiting beside a key of another type",
        line: "| A client that waits for several keys, one of which",
        commands: WAITING,
        of: Of::Before(7, 2),
        ends: true,
        is: |met| has(met.ours, "WRONGTYPE") && met.theirs.kind != b'-',
    },
    Explained {
        name: "the least number",
        line: "| `LREM` and `LPOS` of the least number |",
        commands: &["LREM", "LPOS"],
        of: Of::Before(7, 2),
        ends: true,
        is: |met| has(met.ours, "value must between"),
    },
    Explained {
        name: "bytes that are no text, in errors",
        line: "| Bytes of an unknown command's name",
        commands: &[],
        of: Of::Every,
        ends: false,
        is: |met| has(met.ours, "unknown ") && has(met.theirs, "unknown ") && holds_no_text(met),
    },
    Explained {
        name: "shared integers",
        line: "| `OBJECT REFCOUNT` of a small integer |",
        commands: &["OBJECT REFCOUNT"],
        of: Of::Every,
        ends: false,
        is: |met| met.ours.text == b"2147483647" && met.theirs.kind == b':',
    },
    Explained {
        name: "references of a transaction",
        line: "| `OBJECT REFCOUNT` of what the same transaction",
        commands: &["OBJECT REFCOUNT"],
        of: Of::Every,
        ends: false,
        is: |met| met.ours.text == b"1" && met.theirs.text == b"2",
    },
    Explained {
        name: "the greatest time-outs",
        line: "| A time-out in milliseconds that is beyond the end of time |",
        commands: &["WAIT", "XREAD", "XREADGROUP"],
        of: Of::Before(7, 2),
        ends: true,
        is: |met| has(met.ours, "timeout is out of range"),
    },
    Explained {
        name: "waiting for a stream that goes",
        line: "| `XREADGROUP` that waits for a stream that is removed |",
        commands: &["XREADGROUP"],
        of: Of::Before(7, 2),
        ends: false,
        is: |met| {
            says(met, "", "UNBLOCKED") || says(met, "NOGROUP", "was blocked on no longer exists")
        },
    },
    Explained {
        name: "entries that are trimmed as they are added",
        line: "| `XADD` whose trimming removes the entry itself |",
        commands: &["XREAD", "XREADGROUP"],
        of: Of::Before(7, 2),
        ends: true,
        is: |met| {
            let stream = met.theirs.items.last();
            let entries = stream.map(|it| it.items.get(1).unwrap_or(it));
            met.ours.text == b"waits" && entries.is_some_and(|it| it.items.is_empty())
        },
    },
    Explained {
        name: "Valkey's wording",
        line: "| `compat-version` other than 7.2 |",
        commands: &["WATCH", "EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO"],
        of: Of::Valkey,
        // What is refused by other words may end a transaction as well.
        ends: true,
        is: |met| same_but_wording(met.ours, met.theirs),
    },
    Explained {
        name: "reading from replicas",
        line: "| `READONLY` and `READWRITE` outside a cluster |",
        commands: &["READONLY", "READWRITE"],
        of: Of::Valkey,
        ends: false,
        is: |met| has(met.ours, "cluster support disabled"),
    },
    Explained {
        name: "the last entry of a stream",
        line: "| `XREAD` from `+` |",
        commands: &["XREAD", "XREADGROUP"],
        of: Of::Since(7, 4),
        ends: false,
        is: |met| has(met.theirs, "'+'"),
    },
    Explained {
        name: "numbers behind a blank, and hexadecimal ones",
        line: "| Scores that begin with a blank or are hexadecimal |",
        commands: &[],
        of: Of::Since(8, 0),
        ends: true,
        is: |met| {
            let odd = |word: &Vec<u8>| {
                let word = String::from_utf8_lossy(word);
                word.starts_with(' ') || word.contains("0x") || word.contains("' ")
            };
            met.words.iter().any(odd) && has(met.theirs, "is not a")
                || is_any(met, &["SORT"]) && has(met.theirs, "converted into double")
        },
    },
    Explained {
        name: "lag of groups",
        line: "| `lag` and `entries-read` of `XINFO` |",
        commands: &["XINFO"],
        of: Of::Since(7, 2),
        ends: false,
        is: |met| same_but(&[b"lag", b"entries-read"], met.ours, met.theirs),
    },
    Explained {
        name: "types that are none",
        line: "| `SCAN` of a type that is none |",
        commands: &["SCAN"],
        of: Of::Valkey,
        ends: false,
        is: |met| has(met.theirs, "unknown type name"),
    },
    Explained {
        name: "waiting for what SORT or ZRANGESTORE puts in place of another type",
        line: "| Those who wait for a key that `SORT",
        commands: WAITING,
        of: Of::Every,
        ends: true,
        is: |met| {
            let stores = ["SORT", "ZRANGESTORE"].iter().any(|name| is_named(met.cause, name));
            stores && met.theirs.text == b"waits" && met.ours.kind != b'-'
        },
    },
    Explained {
        name: "waiting for several keys that are filled at once",
        line: "| A client that waits for several keys that one transaction",
        commands: WAITING,
        of: Of::Before(7, 2),
        ends: true,
        is: |met| met.cause != met.words && met.ours.kind == b'*' && met.theirs.kind == b'*',
    },
    Explained {
        name: "numbers that a script has stored",
        line: "| Numbers that a script hands to a command |",
        commands: &[
            "GET", "MGET", "GETSET", "GETDEL", "GETEX", "HGET", "HMGET", "HGETALL", "HVALS",
        ],
        of: Of::Before(7, 2),
        ends: true,
        is: |met| same_numbers(met.ours, met.theirs),
    },
    Explained {
        name: "ids below what was deleted",
        line: "| `XSETID` below an entry that was deleted |",
        commands: &["XSETID"],
        of: Of::Before(7, 2),
        ends: true,
        is: |met| has(met.ours, "smaller than current max_deleted_entry_id"),
    },
    Explained {
        name: "infinite time-outs",
        line: "| A time-out of `inf` |",
        commands: WAITING,
        of: Of::Before(7, 2),
        ends: false,
        is: |met| says(met, "timeout is out of range", "timeout is negative"),
    },
    Explained {
        name: "unbalanced lists of streams",
        line: "| `XREAD` of streams without as many ids |",
        commands: &["XREAD", "XREADGROUP"],
        of: Of::Before(7, 2),
        ends: false,
        is: |met| says(met, "Unbalanced 'xread", "Unbalanced XREAD list"),
    },
    Explained {
        name: "bits of what is not there",
        line: "| `BITCOUNT` and `BITPOS` of a missing key |",
        commands: &["BITCOUNT", "BITPOS"],
        of: Of::Before(7, 2),
        ends: false,
        is: |met| {
            met.ours.kind == b'-' && (met.theirs.kind == b':' || has(met.theirs, "WRONGTYPE"))
        },
    },
    Explained {
        name: "consumers that read in vain",
        line: "| `XREADGROUP` that finds nothing |",
        commands: &["XGROUP CREATECONSUMER", "XINFO GROUPS", "XINFO CONSUMERS"],
        of: Of::Before(7, 2),
        ends: false,
        is: |met| {
            is_named(met.words, "XGROUP CREATECONSUMER") && met.ours.text == b"0"
                || is_named(met.words, "XINFO GROUPS")
                    && same_but(&[b"consumers"], met.ours, met.theirs)
                || is_named(met.words, "XINFO CONSUMERS") && met.ours.kind == b'*'
        },
    },
    Explained {
        name: "times of consumers",
        line: "| `XINFO CONSUMERS` and `STREAM ... FULL` |",
        commands: &["XINFO STREAM"],
        of: Of::Before(7, 2),
        ends: false,
        is: |met| met.words.len() > 3 && met.theirs.kind != b'-',
    },
];

/// The one that a difference is, if it is known.
pub fn find(met: &Met<'_>) -> Option<&'static Explained> {
    let named = |it: &Explained| {
        it.commands.is_empty() || it.commands.iter().any(|name| is_named(met.words, name))
    };
    EXPLAINED.iter().find(|it| it.of.holds(met.version) && named(it) && (it.is)(met))
}

/// Whether a command may differ in a known way: what a script makes of that is not known.
pub fn may_differ(words: &[Vec<u8>]) -> bool {
    let mut commands = EXPLAINED.iter().flat_map(|it| it.commands);
    commands.any(|name| is_named(words, name))
}

/// Whether the command's name begins with one of these.
fn is_any(met: &Met<'_>, names: &[&str]) -> bool {
    let name = met.words[0].to_ascii_uppercase();
    names.iter().any(|it| name.starts_with(it.as_bytes()))
}

/// Whether both are errors, with these words in them.
fn says(met: &Met<'_>, ours: &str, theirs: &str) -> bool {
    has(met.ours, ours) && has(met.theirs, theirs)
}

/// Whether some of its words are no text, or hold a zero byte.
fn holds_no_text(met: &Met<'_>) -> bool {
    met.words.iter().any(|word| word.contains(&0) || std::str::from_utf8(word).is_err())
}

/// Whether it is an error with these words in it.
fn has(frame: &Frame, text: &str) -> bool {
    frame.kind == b'-' && String::from_utf8_lossy(&frame.text).contains(text)
}

/// Words of Redis, and Valkey's in their place.
const WORDING: &[(&str, &str)] = &[
    ("WATCH inside MULTI is not allowed", "Command not allowed inside a transaction"),
    ("Lua redis lib command arguments must", "Command arguments must"),
    ("Unknown Redis command called", "Unknown command called"),
    ("for this redis lib call", "for this call"),
    ("This Redis command is not allowed", "This command is not allowed"),
    ("No matching script. Please use EVAL.", "No matching script."),
];

/// Whether they differ in nothing but such words.
fn same_but_wording(ours: &Frame, theirs: &Frame) -> bool {
    let (one, other) = (String::from_utf8_lossy(&ours.text), String::from_utf8_lossy(&theirs.text));
    let reworded = |(redis, valkey): &(&str, &str)| one.replace(redis, valkey) == other;
    ours.kind == theirs.kind
        && ours.missing == theirs.missing
        && (one == other || WORDING.iter().any(reworded))
        && ours.items.len() == theirs.items.len()
        && ours.items.iter().zip(&theirs.items).all(|(one, other)| same_but_wording(one, other))
}

/// Whether they differ in nothing but how numbers are printed.
fn same_numbers(ours: &Frame, theirs: &Frame) -> bool {
    let number = |frame: &Frame| {
        let text = std::str::from_utf8(&frame.text).ok()?;
        text.parse::<f64>().ok().filter(|_| matches!(frame.kind, b'$' | b','))
    };
    let same_text = ours.text == theirs.text
        || matches!((number(ours), number(theirs)), (Some(ours), Some(theirs)) if ours == theirs);
    ours.kind == theirs.kind
        && ours.missing == theirs.missing
        && same_text
        && ours.items.len() == theirs.items.len()
        && ours.items.iter().zip(&theirs.items).all(|(ours, theirs)| same_numbers(ours, theirs))
}

/// Whether they differ in nothing but what stands behind these names.
fn same_but(names: &[&[u8]], ours: &Frame, theirs: &Frame) -> bool {
    let blanked = |frame: &Frame| {
        let mut frame = frame.clone();
        frame.walk(&mut |frame| {
            for at in 1..frame.items.len() {
                if names.contains(&&*frame.items[at - 1].text) {
                    let nothing = frame.items[at - 1].clone();
                    frame.items[at] = nothing;
                }
            }
        });
        frame
    };
    blanked(ours) == blanked(theirs)
}

#[cfg(test)]
mod tests {
    use super::{EXPLAINED, Met, Version, find};
    use crate::compat::frame::Frame;
    use crate::compat::words;

    #[test]
    fn what_is_explained_is_documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/differences.md");
        let text = std::fs::read_to_string(path).expect("the page is there");
        for explained in EXPLAINED {
            let found = text.lines().any(|line| line.starts_with(explained.line));
            assert!(found, "{}: no line begins with {}", explained.name, explained.line);
        }
    }

    #[test]
    fn only_what_is_known_is_explained() {
        let check = |command: &str, ours: &str, theirs: &str, version, expected| {
            let frame = |text: &str| Frame::whole(text.as_bytes()).expect("one reply");
            let words = words::split(command).expect("words");
            let version = Version { redis: version, is_valkey: false };
            let met = Met {
                words: &words,
                cause: &words,
                ours: &frame(ours),
                theirs: &frame(theirs),
                version,
            };
            assert_eq!(find(&met).map(|it| it.name), expected, "{command}");
        };
        let digits = Some("scores are printed with 17 digits");
        check("ZSCORE z a", "$3\r\n0.1\r\n", "$19\r\n0.10000000000000001\r\n", (7, 0), digits);
        check("ZSCORE z a", "$3\r\n0.1\r\n", "$19\r\n0.10000000000000001\r\n", (7, 2), None);
        check("ZSCORE z a", "$3\r\n0.1\r\n", "$3\r\n0.2\r\n", (7, 0), None);
        check("GET k", "$3\r\n0.1\r\n", "$4\r\n0.10\r\n", (7, 2), None);
        check("ZCARD z", ":1\r\n", ":2\r\n", (7, 0), None);
    }
}
