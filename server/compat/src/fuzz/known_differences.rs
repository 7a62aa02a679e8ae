//! The known differences from other servers, each as narrow as possible and with the line of
//! `docs/differences.md` that describes it.

use std::collections::BTreeSet;

use super::episode::{Step, called};
use super::reference::{self, is_named};
use crate::wire::frame::Frame;

/// A known difference.
pub struct KnownDifference {
    /// Its name.
    pub name: &'static str,
    /// The beginning of its line in `docs/differences.md`.
    pub line: &'static str,
    /// The commands that it concerns.
    commands: &'static [&'static str],
    /// The references that it concerns.
    references: References,
    /// Whether the states of the servers may differ afterwards, so that the episode ends.
    pub ends: bool,
    /// Whether a difference is this one: checks the command, the commands before it, and both
    /// replies.
    is: fn(&ObservedDifference<'_>) -> bool,
}

/// The difference that is confirmed on the reference: see [`alone`].
pub const SEVERAL_KEYS: &str = "waiting for several keys that are filled at once";

/// A set of references.
#[derive(Clone, Copy)]
enum References {
    Every,
    /// Those that report an older version of Redis.
    Before(u32, u32),
    /// Those that report this version of Redis or a later one.
    Since(u32, u32),
    Valkey,
}

/// A difference that occurred.
pub struct ObservedDifference<'a> {
    /// The command.
    pub words: &'a [Vec<u8>],
    /// All commands so far, of all clients. The last is the command itself, or another one if a
    /// blocked client got a reply or the command was queued.
    pub before: &'a [Step],
    /// The reply of the target; [`waits`] if there was none.
    pub ours: &'a Frame,
    /// The reply of the reference.
    pub theirs: &'a Frame,
    /// The largest time between the two requests.
    pub apart_ms: i64,
    /// The version of the reference.
    pub version: Version,
}

/// The version of a reference.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// The version of Redis that it reports.
    pub redis: (u32, u32),
    /// Whether it is a Valkey.
    pub is_valkey: bool,
}

impl ObservedDifference<'_> {
    /// The command that was sent last.
    fn cause(&self) -> &[Vec<u8>] {
        self.before.last().map_or(self.words, |step| &step.words)
    }

    /// Whether a blocked client got a reply.
    fn was_waiting(&self) -> bool {
        self.cause() != self.words
    }
}

/// The placeholder for the reply of a blocked client.
pub fn waits() -> Frame {
    Frame { kind: b'+', text: b"waits".to_vec(), items: vec![], missing: false }
}

impl References {
    fn holds(self, version: Version) -> bool {
        match self {
            References::Every => true,
            References::Before(major, minor) => version.redis < (major, minor),
            References::Since(major, minor) => version.redis >= (major, minor),
            References::Valkey => version.is_valkey,
        }
    }
}

impl std::fmt::Debug for KnownDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// Commands that block on one of several keys.
const WAITING: &[&str] =
    &["BLPOP", "BRPOP", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP", "XREAD", "XREADGROUP"];
/// Blocking commands with a time-out in seconds.
const WITH_SECONDS: &[&str] =
    &["BLPOP", "BRPOP", "BLMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP", "BLMOVE", "BRPOPLPUSH"];
/// Commands that can store any type at a key.
const OF_ANY_TYPE: &[&str] = &["RENAME", "RENAMENX", "COPY", "RESTORE", "EVAL", "EVALSHA"];
const LISTS: &[&str] =
    &["LPUSH", "RPUSH", "LINSERT", "LMOVE", "RPOPLPUSH", "BLMOVE", "BRPOPLPUSH", "SORT"];
const SETS: &[&str] =
    &["SADD", "SMOVE", "SPOP", "SREM", "SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"];
const STRINGS: &[&str] = &[
    "SET",
    "SETNX",
    "SETEX",
    "PSETEX",
    "GETSET",
    "MSET",
    "MSETNX",
    "APPEND",
    "INCR",
    "INCRBY",
    "DECR",
    "DECRBY",
    "INCRBYFLOAT",
    "SETRANGE",
    "SETBIT",
    "BITFIELD",
    "BITOP",
];

/// A time-out of more milliseconds ends after the largest time that a server can represent.
const END_OF_TIME_MS: i64 = i64::MAX - 1_700_000_000_000;
/// More seconds overflow 64 bits in milliseconds.
const END_OF_TIME_SECONDS: f64 = 9.223_372_036_854_775e15;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NO_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";

/// All known differences.
pub const KNOWN_DIFFERENCES: &[KnownDifference] = &[
    KnownDifference {
        name: "scores are printed with 17 digits",
        line: "| Scores that are no whole numbers |",
        commands: &[],
        references: References::Before(7, 2),
        ends: false,
        is: |observed| {
            let at_any_place = starts_with_any(observed.words, &["EVAL", "ZMSCORE"]);
            // [key, member, score]
            let is_triple = starts_with_any(observed.words, &["BZPOP"]);
            let is_score = |frame: &Frame, at: Option<usize>| {
                frame.kind == b','
                    || at_any_place
                    || at.is_none_or(|at| if is_triple { at == 2 } else { at % 2 == 1 })
            };
            starts_with_any(observed.words, &["Z", "BZ", "EVAL"])
                && same_but_digits(observed.ours, observed.theirs, None, &is_score)
        },
    },
    KnownDifference {
        name: "encodings of lists and sets",
        line: "| `OBJECT ENCODING` of short lists and sets |",
        commands: &["OBJECT ENCODING"],
        references: References::Before(7, 2),
        ends: false,
        is: |observed| match encodings(observed) {
            (b"listpack", b"quicklist") => key_was_in(observed, LISTS),
            (b"listpack", b"hashtable") => key_was_in(observed, SETS),
            _ => false,
        },
    },
    KnownDifference {
        name: "large forms of what is small",
        line: "| `OBJECT ENCODING` after `SORT` of a sorted set",
        commands: &["OBJECT ENCODING"],
        references: References::Every,
        ends: false,
        is: |observed| match encodings(observed) {
            (b"listpack", b"skiplist") => key_was_in(observed, &["SORT"]),
            (b"listpack" | b"intset", b"hashtable") => key_was_in(observed, &["SDIFFSTORE"]),
            (b"listpack", b"quicklist") => key_was_in(
                observed,
                &["LPOP", "RPOP", "LREM", "LTRIM", "LMPOP", "LMOVE", "BL", "BR"],
            ),
            _ => false,
        },
    },
    KnownDifference {
        name: "minus zero in large forms",
        line: "| Score `-0` after `SORT` of the sorted set |",
        commands: &[],
        references: References::Every,
        ends: true,
        is: |observed| {
            let words = called(observed.words).unwrap_or(observed.words);
            let reads_scores = starts_with_any(words, &["Z", "BZ"])
                || starts_with_any(words, &["EVAL"])
                    && ["'Z", "'BZ"].iter().any(|it| contain(words, it.as_bytes()));
            // The sorted set may have been moved since.
            let is_moved =
                observed.before.iter().any(|step| starts_with_any(&step.words, OF_ANY_TYPE));
            let was_sorted = |step: &Step| {
                starts_with_any(&step.words, &["SORT"])
                    && step.words.get(1).is_some_and(|key| is_moved || contain(words, key))
            };
            reads_scores
                && observed.before.iter().any(was_sorted)
                && same_numbers(observed.ours, observed.theirs)
        },
    },
    KnownDifference {
        name: "expired keys without a type",
        line: "| `SCAN` with `TYPE none` |",
        commands: &["SCAN"],
        references: References::Before(7, 2),
        ends: false,
        is: |observed| {
            let is_none = word_after(observed.words, "TYPE")
                .is_some_and(|word| word.eq_ignore_ascii_case(b"none"));
            is_none
                && page_of(observed.ours).is_some_and(<[Frame]>::is_empty)
                && page_of(observed.theirs).is_some_and(|page| !page.is_empty())
        },
    },
    KnownDifference {
        name: "ranks with scores",
        line: "| `ZRANK` and `ZREVRANK` with `WITHSCORE` |",
        commands: &["ZRANK", "ZREVRANK", "COMMAND GETKEYS ZRANK", "COMMAND GETKEYS ZREVRANK"],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            if is_named(observed.words, "COMMAND") {
                let keys = observed.words.len() > 5
                    && observed.ours.kind == b'*'
                    && matches!(&*observed.ours.items, [key] if is_key(key, &observed.words[3]));
                return keys
                    && is_error(
                        observed.theirs,
                        "ERR Invalid number of arguments specified for command",
                    );
            }
            let is_asked =
                observed.words.len() == 4 && observed.words[3].eq_ignore_ascii_case(b"WITHSCORE");
            let is_expected = match observed.ours.kind {
                b'*' if observed.ours.missing => is_asked,
                b'*' => is_asked && observed.ours.items.len() == 2,
                b'_' => is_asked,
                // Checks that run after the check of the number of arguments.
                b'+' => {
                    observed.ours.text == b"QUEUED" && was_sent(observed, &["MULTI"], &|_| true)
                }
                _ if is_error_with(observed.ours, "ERR Can't execute '") => {
                    was_sent(observed, &["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE"], &|_| true)
                }
                _ => {
                    is_asked && is_error(observed.ours, WRONG_TYPE)
                        || !is_asked && is_error(observed.ours, SYNTAX)
                }
            };
            observed.words.len() == 4
                && is_expected
                && is_arity_error(observed.theirs, &observed.words[0])
        },
    },
    KnownDifference {
        name: "keys of commands without arguments",
        line: "| `COMMAND GETKEYS` of a name alone |",
        commands: &["COMMAND GETKEYS"],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            let answers = [
                "ERR The command has no key arguments",
                "ERR Invalid command specified",
                "ERR Invalid number of arguments specified for command",
            ];
            // Checks that run after the check of the number of arguments.
            let is_queued =
                observed.ours.text == b"QUEUED" && was_sent(observed, &["MULTI"], &|_| true);
            observed.words.len() == 3
                && (is_queued || answers.iter().any(|answer| is_error(observed.ours, answer)))
                && is_arity_error(observed.theirs, b"command|getkeys")
        },
    },
    KnownDifference {
        name: "waiting beside a key of another type",
        line: "| A client that waits for several keys, one of which",
        commands: WAITING,
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            let goes_on = is_waiting(observed.theirs) || is_served(observed, observed.theirs);
            observed.was_waiting()
                && keys_of(observed.words).len() > 1
                && is_error(observed.ours, WRONG_TYPE)
                && goes_on
        },
    },
    KnownDifference {
        name: "the least number",
        line: "| `LREM` and `LPOS` of the least number |",
        commands: &["LREM", "LPOS"],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            let refusal = "ERR value is out of range, value must between \
                           -9223372036854775807 and 9223372036854775807";
            let least = i64::MIN.to_string().into_bytes();
            let is_tried = match is_named(observed.words, "LREM") {
                true => observed.theirs.kind == b':',
                false => observed.theirs.kind != b'-',
            };
            // It is not of that type, or an option behind is refused.
            let is_last = observed.words.last() == Some(&least);
            let is_tried = is_tried
                || is_error(observed.theirs, WRONG_TYPE)
                || !is_last
                    && is_named(observed.words, "LPOS")
                    && ["ERR COUNT can't be", "ERR MAXLEN can't be", "ERR syntax error"]
                        .iter()
                        .any(|error| is_error_with(observed.theirs, error));
            observed.words.contains(&least) && is_error(observed.ours, refusal) && is_tried
        },
    },
    KnownDifference {
        name: "bytes that are no text, in errors",
        line: "| Bytes of an unknown command's name",
        commands: &[],
        references: References::Every,
        ends: false,
        is: |observed| {
            let begins = ["ERR unknown command '", "ERR unknown subcommand '"];
            begins.iter().any(|begin| {
                is_error_with(observed.ours, begin) && is_error_with(observed.theirs, begin)
            }) && has_binary_words(observed)
                && same_but_bytes(observed)
        },
    },
    KnownDifference {
        name: "shared integers",
        line: "| `OBJECT REFCOUNT` of a small integer |",
        commands: &["OBJECT REFCOUNT"],
        references: References::Every,
        ends: false,
        is: |observed| {
            is_integer(observed.ours, "2147483647")
                && is_integer(observed.theirs, "1")
                && key_was_in(observed, STRINGS)
        },
    },
    KnownDifference {
        name: "idle times of shared integers",
        line: "| `OBJECT IDLETIME`, `FREQ` of a small integer |",
        commands: &["OBJECT IDLETIME"],
        references: References::Every,
        ends: false,
        is: |observed| {
            let are_times =
                [observed.ours, observed.theirs].map(number).iter().all(|it| *it >= Some(0));
            are_times && key_was_in(observed, STRINGS)
        },
    },
    KnownDifference {
        name: "references of a transaction",
        line: "| `OBJECT REFCOUNT` of what the same transaction",
        commands: &["OBJECT REFCOUNT"],
        references: References::Every,
        ends: false,
        is: |observed| {
            is_named(observed.cause(), "EXEC")
                && is_integer(observed.ours, "1")
                && is_integer(observed.theirs, "2")
                && key_was_in(observed, STRINGS)
        },
    },
    KnownDifference {
        name: "the greatest time-outs",
        line: "| A time-out in milliseconds that is beyond the end of time |",
        commands: &["WAIT", "XREAD", "XREADGROUP"],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            let timeout = match is_named(observed.words, "WAIT") {
                true => observed.words.get(2),
                false => word_after(observed.words, "BLOCK"),
            };
            let timeout = timeout.and_then(|word| integer(word));
            // The arguments after the time-out may be invalid as well.
            timeout.is_some_and(|ms| ms > END_OF_TIME_MS)
                && is_error(observed.ours, "ERR timeout is out of range")
                && !is_error_with(observed.theirs, "timeout")
        },
    },
    KnownDifference {
        name: "waiting for a stream that goes",
        line: "| `XREADGROUP` that waits for a stream that is removed |",
        commands: &["XREADGROUP"],
        references: References::Before(7, 2),
        ends: false,
        is: |observed| {
            let words = [
                "UNBLOCKED the stream key no longer exists",
                "NOGROUP the consumer group this client was blocked on no longer exists",
            ];
            observed.was_waiting()
                && (is_error_with(observed.ours, "NOGROUP No such key '")
                    || starts_with_any(observed.cause(), STRINGS)
                        && is_error(observed.ours, WRONG_TYPE))
                && words.iter().any(|line| is_error(observed.theirs, line))
        },
    },
    KnownDifference {
        name: "waiting for one stream twice",
        line: "| `XREAD` that waits for one stream from two entries on |",
        commands: &["XREAD"],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            let keys = keys_of(observed.words);
            let is_twice = |(at, key): (usize, &&Vec<u8>)| keys[..at].contains(key);
            observed.was_waiting()
                && keys.iter().enumerate().any(is_twice)
                && is_waiting(observed.theirs)
        },
    },
    KnownDifference {
        name: "entries that are trimmed as they are added",
        line: "| `XADD` with trimming that removes the entry itself |",
        commands: &["XREAD", "XREADGROUP"],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            let trims = |words: &[Vec<u8>]| {
                ["MAXLEN", "MINID"].iter().any(|option| word_after(words, option).is_some())
            };
            let streams = streams_of(observed.theirs);
            let is_empty = |entries: &Frame| entries.kind == b'*' && entries.items.is_empty();
            was_sent(observed, &["XADD"], &trims)
                && observed.was_waiting()
                && is_waiting(observed.ours)
                && matches!(&*streams, [(_, entries)] if is_empty(entries))
        },
    },
    KnownDifference {
        name: "Valkey's wording",
        line: "| `compat-version` other than 7.2 |",
        commands: &["WATCH", "EVAL", "EVAL_RO", "EVALSHA", "EVALSHA_RO"],
        references: References::Valkey,
        // An error with another text may end a transaction as well.
        ends: true,
        is: |observed| same_but_wording(observed.ours, observed.theirs),
    },
    KnownDifference {
        name: "maps of scripts",
        line: "| Order of a map that a script returns |",
        commands: &["EVAL", "EVAL_RO"],
        references: References::Valkey,
        ends: false,
        is: |observed| {
            contain(observed.words, b"setresp(3)")
                && with_sorted_maps(observed.ours) == with_sorted_maps(observed.theirs)
        },
    },
    KnownDifference {
        name: "reading from replicas",
        line: "| `READONLY` and `READWRITE` outside a cluster |",
        commands: &["READONLY", "READWRITE"],
        references: References::Valkey,
        ends: false,
        is: |observed| {
            let refusal = "ERR This instance has cluster support disabled";
            is_error(observed.ours, refusal)
                && observed.theirs.kind == b'+'
                && observed.theirs.text == b"OK"
        },
    },
    KnownDifference {
        name: "the last entry of a stream",
        line: "| `XREAD` from `+` |",
        commands: &["XREAD", "XREADGROUP"],
        references: References::Since(7, 4),
        ends: false,
        is: |observed| {
            let begin = "ERR Unbalanced 'xread' list of streams: for each stream key an ID";
            let end = "must be specified.";
            is_error(observed.ours, &format!("{begin} or '$' {end}"))
                && is_error(observed.theirs, &format!("{begin}, '+', or '$' {end}"))
        },
    },
    KnownDifference {
        name: "numbers behind a blank, and hexadecimal ones",
        line: "| Scores that begin with a blank or are hexadecimal |",
        commands: &[],
        references: References::Since(8, 0),
        ends: true,
        is: |observed| {
            let odd = |word: &Vec<u8>| {
                let word = String::from_utf8_lossy(word);
                word.starts_with(' ') || word.contains("0x") || word.contains("' ")
            };
            let any_odd = |words: &[Vec<u8>]| words.iter().any(odd);
            // The type of the key is checked later, and a script may fail later.
            let goes_on = observed.ours.kind != b'-'
                || is_error(observed.ours, WRONG_TYPE)
                || is_named(observed.words, "EVAL");
            let refuses = |text: &str| goes_on && refuses(observed.theirs, text);
            let is_sorted = starts_with_any(observed.words, &["SORT"]);
            any_odd(observed.words)
                && (refuses("is not a float") || refuses("is not a valid float"))
                || is_sorted
                    && refuses("converted into double")
                    && observed.before.iter().any(|step| any_odd(&step.words))
        },
    },
    KnownDifference {
        name: "lag of groups",
        line: "| `lag` and `entries-read` of `XINFO` |",
        commands: &["XINFO"],
        references: References::Since(7, 2),
        ends: false,
        is: |observed| same_but(&[b"lag", b"entries-read"], observed.ours, observed.theirs),
    },
    KnownDifference {
        name: "scores of large sorted sets",
        line: "| `ZSCAN` of a large sorted set |",
        commands: &["ZSCAN"],
        references: References::Since(7, 2),
        ends: false,
        is: |observed| {
            let is_score = |_: &Frame, at: Option<usize>| at.is_some_and(|at| at % 2 == 1);
            same_but_digits(observed.ours, observed.theirs, None, &is_score)
        },
    },
    KnownDifference {
        name: "counting bits from a place on",
        line: "| `BITCOUNT` with a start and no end |",
        commands: &["BITCOUNT"],
        references: References::Valkey,
        ends: false,
        is: |observed| {
            let counts_from = observed.words.len() == 3
                && is_error(observed.ours, SYNTAX)
                && (observed.theirs.kind == b':'
                    || is_error(observed.theirs, NO_INTEGER)
                    || is_error(observed.theirs, WRONG_TYPE));
            // Valkey reads the unit before the numbers.
            let reads_unit = observed.words.len() == 5
                && is_error(observed.ours, NO_INTEGER)
                && is_error(observed.theirs, SYNTAX);
            counts_from || reads_unit
        },
    },
    KnownDifference {
        name: "options behind a reason",
        line: "| `CLIENT UNBLOCK` with more arguments |",
        commands: &["CLIENT UNBLOCK"],
        references: References::Valkey,
        ends: true,
        is: |observed| {
            let refusal = "ERR unknown subcommand or wrong number of arguments for";
            observed.words.len() > 4
                && is_error_with(observed.ours, refusal)
                && !is_error_with(observed.theirs, refusal)
        },
    },
    KnownDifference {
        name: "places of a list beyond 32 bits",
        line: "| `LSET` of a place beyond 32 bits |",
        commands: &["LSET", "EVAL"],
        references: References::Since(7, 2),
        ends: true,
        is: |observed| {
            let is_beyond = |text: &str| {
                let numbers = text.split(|it: char| !it.is_ascii_digit() && it != '-');
                let mut numbers = numbers.filter_map(|text| text.parse::<i64>().ok());
                numbers.any(|number| i32::try_from(number).is_err())
            };
            let words = observed.words.iter().map(|word| String::from_utf8_lossy(word));
            words.into_iter().any(|word| is_beyond(&word))
                && is_error_with(observed.ours, "ERR index out of range")
                && observed.theirs.kind != b'-'
        },
    },
    KnownDifference {
        name: "keys of streams without a group",
        line: "| `COMMAND GETKEYS` of `XREAD` and `XREADGROUP` with unknown options |",
        commands: &["COMMAND GETKEYS XREAD", "COMMAND GETKEYS XREADGROUP"],
        references: References::Since(8, 0),
        ends: false,
        is: |observed| {
            observed.ours.kind == b'*'
                && is_error(observed.theirs, "ERR Invalid arguments specified for command")
        },
    },
    KnownDifference {
        name: "types that are none",
        line: "| `SCAN` of a type that is none |",
        commands: &["SCAN"],
        references: References::Valkey,
        ends: false,
        is: |observed| {
            let types = ["string", "list", "set", "zset", "hash", "stream"];
            let is_none = word_after(observed.words, "TYPE").is_some_and(|word| {
                !types.iter().any(|it| word.eq_ignore_ascii_case(it.as_bytes()))
            });
            let finds_nothing = page_of(observed.ours).is_some_and(<[Frame]>::is_empty);
            // Valkey reads the type before the options behind it.
            let is_option = |word: &Vec<u8>| word.eq_ignore_ascii_case(b"TYPE");
            let option = observed.words.iter().position(is_option);
            let is_last = option.is_some_and(|at| at + 2 == observed.words.len());
            let is_answered = finds_nothing || !is_last && is_error(observed.ours, SYNTAX);
            is_none && is_answered && is_error_with(observed.theirs, "ERR unknown type name")
        },
    },
    KnownDifference {
        name: "waiting for what is stored in place of another type",
        line: "| Clients that wait for a key that `SORT",
        commands: WITH_SECONDS,
        references: References::Every,
        ends: true,
        is: |observed| {
            let stores = ["ZRANGESTORE", "ZUNIONSTORE", "ZINTERSTORE", "ZDIFFSTORE"];
            let stored = match () {
                () if is_named(observed.cause(), "SORT") => word_after(observed.cause(), "STORE"),
                () if stores.iter().any(|name| is_named(observed.cause(), name)) => {
                    observed.cause().get(1)
                }
                () => None,
            };
            // The earlier value of the key was stored under its name.
            let was_there = |key: &Vec<u8>| {
                let before = observed.before.split_last().map_or(&[][..], |(_, before)| before);
                before.iter().any(|Step { words, .. }| {
                    !starts_with_any(words, WITH_SECONDS) && words[1..].contains(key)
                })
            };
            stored.is_some_and(|key| keys_of(observed.words).contains(&key) && was_there(key))
                && is_waiting(observed.theirs)
                && is_served(observed, observed.ours)
        },
    },
    KnownDifference {
        name: SEVERAL_KEYS,
        line: "| A client that waits for several keys that one transaction",
        commands: WAITING,
        references: References::Before(7, 2),
        ends: true,
        // Whether the target's reply is right for its key is checked on the reference: see
        // [`alone`].
        is: |observed| {
            let keys = keys_of(observed.words);
            let place = |frame: &Frame| keys.iter().position(|key| is_key(frame, key));
            if !observed.was_waiting() || observed.ours.kind != observed.theirs.kind {
                return false;
            }
            if starts_with_any(observed.words, &["X"]) {
                let (ours, theirs) = (streams_of(observed.ours), streams_of(observed.theirs));
                let all_named = ours.iter().chain(&theirs).all(|(key, _)| place(key).is_some());
                let holds_theirs = theirs.iter().all(|stream| ours.contains(stream));
                return all_named && holds_theirs && ours.len() > theirs.len();
            }
            let first = |frame: &Frame| frame.items.first().and_then(place);
            let places = (first(observed.ours), first(observed.theirs));
            is_served(observed, observed.ours)
                && is_served(observed, observed.theirs)
                && matches!(places, (Some(ours), Some(theirs)) if ours < theirs)
        },
    },
    KnownDifference {
        name: "numbers that a script has stored",
        line: "| Numbers that a script hands to a command |",
        commands: &[
            "GET", "MGET", "GETSET", "GETDEL", "GETEX", "HGET", "HMGET", "HGETALL", "HVALS",
        ],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            was_sent(observed, &["EVAL", "EVALSHA"], &|_| true)
                && same_but_digits(observed.ours, observed.theirs, None, &|frame, _| {
                    frame.kind == b'$'
                })
        },
    },
    KnownDifference {
        name: "ids below what was deleted",
        line: "| `XSETID` below an entry that was deleted |",
        commands: &["XSETID"],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            let refusal =
                "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id";
            let deleted = was_sent(observed, &["XDEL"], &|_| true)
                || was_sent(observed, &["XSETID"], &|words| {
                    word_after(words, "MAXDELETEDID").is_some()
                });
            // The next check of the command.
            let top = "ERR The ID specified in XSETID is smaller than the target stream top item";
            let is_ok = observed.theirs.kind == b'+' && observed.theirs.text == b"OK";
            deleted && is_error(observed.ours, refusal) && (is_ok || is_error(observed.theirs, top))
        },
    },
    KnownDifference {
        name: "infinite time-outs",
        line: "| A time-out of `inf` |",
        commands: WITH_SECONDS,
        references: References::Before(7, 2),
        ends: false,
        is: |observed| {
            observed.words[1..].iter().any(|word| is_endless(word))
                && is_error(observed.ours, "ERR timeout is out of range")
                && is_error(observed.theirs, "ERR timeout is negative")
        },
    },
    KnownDifference {
        name: "unbalanced lists of streams",
        line: "| `XREAD` of streams without as many ids |",
        commands: &["XREAD", "XREADGROUP"],
        references: References::Before(7, 2),
        ends: false,
        is: |observed| {
            let (name, id) = match is_named(observed.words, "XREAD") {
                true => ("xread", "$"),
                false => ("xreadgroup", ">"),
            };
            let end = "of streams: for each stream key an ID or";
            is_error(
                observed.ours,
                &format!("ERR Unbalanced '{name}' list {end} '{id}' must be specified."),
            ) && is_error(
                observed.theirs,
                &format!("ERR Unbalanced XREAD list {end} '$' must be specified."),
            )
        },
    },
    KnownDifference {
        name: "bits of what is not there",
        line: "| `BITCOUNT` and `BITPOS` of a missing key |",
        commands: &["BITCOUNT", "BITPOS"],
        references: References::Before(7, 2),
        ends: false,
        is: |observed| {
            let counts = is_named(observed.words, "BITCOUNT");
            // The arguments after the key, or after the bit, are not a range.
            let range = observed.words.get(if counts { 2 } else { 3 }..).unwrap_or_default();
            let (numbers, unit) = range.split_at(range.len().min(2));
            let is_unit = |word: &Vec<u8>| {
                ["BIT", "BYTE"].iter().any(|it| word.eq_ignore_ascii_case(it.as_bytes()))
            };
            let is_range = numbers.iter().all(|word| integer(word).is_some())
                && (unit.is_empty() || unit.len() == 1 && is_unit(&unit[0]))
                && (numbers.len() != 1 || !counts);
            let is_refused = is_error(observed.ours, NO_INTEGER) || is_error(observed.ours, SYNTAX);
            let nothing = if !counts && observed.words.get(2).is_some_and(|bit| bit == b"1") {
                "-1"
            } else {
                "0"
            };
            let is_looked_at =
                is_integer(observed.theirs, nothing) || is_error(observed.theirs, WRONG_TYPE);
            !range.is_empty() && !is_range && is_refused && is_looked_at
        },
    },
    KnownDifference {
        name: "consumers that read in vain",
        line: "| `XREADGROUP` that finds nothing, `XCLAIM`",
        // Not in scripts, where the consumer is not known.
        commands: &[
            "XGROUP CREATECONSUMER",
            "XINFO GROUPS",
            "XINFO CONSUMERS",
            "XINFO STREAM",
            "XCLAIM",
            "XAUTOCLAIM",
        ],
        references: References::Before(7, 2),
        ends: false,
        is: |observed| {
            if is_named(observed.words, "XGROUP CREATECONSUMER") {
                let reader = observed.words.get(3).zip(observed.words.get(4));
                return reader.is_some_and(|(group, name)| has_read(observed, group, name))
                    && is_integer(observed.ours, "0")
                    && is_integer(observed.theirs, "1");
            }
            if is_named(observed.words, "XINFO GROUPS") {
                return same_but(&[b"consumers"], observed.ours, observed.theirs)
                    && observed
                        .ours
                        .items
                        .iter()
                        .zip(&observed.theirs.items)
                        .all(|(ours, theirs)| has_more_readers(observed, ours, theirs));
            }
            !same_but_consumers(observed, false) && same_but_consumers(observed, true)
        },
    },
    KnownDifference {
        name: "times of consumers",
        line: "| `XINFO CONSUMERS` and `STREAM ... FULL` |",
        commands: &["XINFO STREAM", "XINFO CONSUMERS"],
        references: References::Before(7, 2),
        ends: false,
        is: |observed| same_but_consumers(observed, false),
    },
    KnownDifference {
        name: "ranks with scores, in transactions",
        line: "| `ZRANK` and `ZREVRANK` with `WITHSCORE` |",
        commands: &["ZRANK", "ZREVRANK"],
        references: References::Before(7, 2),
        ends: true,
        is: |observed| {
            observed.words.len() > 4
                && observed.ours.text == b"QUEUED"
                && is_error_with(observed.theirs, "wrong number of arguments")
        },
    },
    KnownDifference {
        name: "hexadecimal bounds beyond all doubles",
        line: "| A bound like `0x1p4000`",
        commands: &[],
        references: References::Every,
        ends: true,
        is: |observed| {
            let is_hexadecimal = |word: &Vec<u8>| String::from_utf8_lossy(word).contains("0x");
            starts_with_any(observed.words, &["Z"])
                && is_error_with(observed.ours, "min or max is not a float")
                && (observed.theirs.kind != b'-' || is_error_with(observed.theirs, "WRONGTYPE"))
                && observed.words.iter().any(is_hexadecimal)
        },
    },
    KnownDifference {
        name: "the order of what is no text",
        line: "| `SORT \u{2026} ALPHA` |",
        commands: &["SORT", "SORT_RO"],
        references: References::Every,
        ends: true,
        is: |observed| {
            let is_no_text = |byte: &u8| *byte == 0 || !byte.is_ascii();
            let mut items = observed.ours.items.iter().chain(&observed.theirs.items);
            observed.words.iter().any(|word| word.eq_ignore_ascii_case(b"ALPHA"))
                && observed.ours.items.len() == observed.theirs.items.len()
                && items.any(|item| item.text.iter().any(is_no_text))
        },
    },
    KnownDifference {
        name: "bytes of a request, in errors",
        line: "| Bytes of a request that an error repeats |",
        commands: &[],
        references: References::Every,
        ends: false,
        is: differs_in_repeated_word,
    },
    KnownDifference {
        name: "leases compared in the millisecond in which they end",
        line: "| The end of a lease |",
        commands: &["EXPIRE", "PEXPIRE"],
        references: References::Every,
        ends: true,
        is: |observed| {
            let is_asked = observed.words.get(3).is_some_and(|option| {
                ["GT", "LT"].iter().any(|it| option.eq_ignore_ascii_case(it.as_bytes()))
            });
            let are_unlike = is_integer(observed.ours, "0") && is_integer(observed.theirs, "1")
                || is_integer(observed.ours, "1") && is_integer(observed.theirs, "0");
            is_asked && are_unlike && ends_near_another_lease(observed)
        },
    },
];

/// The known difference that matches, if any.
pub fn find(observed: &ObservedDifference<'_>) -> Option<&'static KnownDifference> {
    let named = |it: &KnownDifference| {
        it.commands.is_empty() || it.commands.iter().any(|name| is_named(observed.words, name))
    };
    KNOWN_DIFFERENCES
        .iter()
        .find(|it| it.references.holds(observed.version) && named(it) && (it.is)(observed))
}

/// Whether a command may differ in a known way: the effect on the reply of a script is unknown.
pub fn may_differ(words: &[Vec<u8>]) -> bool {
    let mut commands = KNOWN_DIFFERENCES.iter().flat_map(|it| it.commands);
    commands.any(|name| is_named(words, name))
}

/// The replies that the reference must give if a reply of the target that is explained by
/// [`SEVERAL_KEYS`] is right: for each key in the target's reply, the command that blocks on this
/// key alone, and its reply.
pub fn alone(words: &[Vec<u8>], ours: &Frame) -> Vec<(Vec<Vec<u8>>, Frame)> {
    if starts_with_any(words, &["X"]) {
        let one = |(key, entries): (&Frame, &Frame)| {
            let pair = vec![key.clone(), entries.clone()];
            let items = match ours.kind {
                b'%' => pair,
                _ => vec![Frame { items: pair, ..ours.clone() }],
            };
            (key.clone(), Frame { items, ..ours.clone() })
        };
        let replies = streams_of(ours).into_iter().map(one);
        return replies
            .filter_map(|(key, reply)| Some((waiting_for(words, &key)?, reply)))
            .collect();
    }
    let alone = ours.items.first().and_then(|key| waiting_for(words, key));
    alone.map(|words| (words, ours.clone())).into_iter().collect()
}

/// The command with only one of its keys.
fn waiting_for(words: &[Vec<u8>], key: &Frame) -> Option<Vec<Vec<u8>>> {
    let keys = keys_of(words);
    let at = keys.iter().position(|word| is_key(key, word))?;
    let first = words.iter().position(|word| std::ptr::eq(word, keys[0]))?;
    let mut alone = words[..first].to_vec();
    alone.push(keys[at].clone());
    let mut rest = words[first + keys.len()..].to_vec();
    if starts_with_any(words, &["X"]) {
        rest = vec![rest.get(at)?.clone()];
    } else if starts_with_any(words, &["BLM", "BZM"]) {
        alone[first - 1] = b"1".to_vec();
    }
    alone.extend(rest);
    Some(alone)
}

// --- Commands ---

/// Whether the command's name begins with one of these.
fn starts_with_any(words: &[Vec<u8>], names: &[&str]) -> bool {
    let name = words[0].to_ascii_uppercase();
    names.iter().any(|it| name.starts_with(it.as_bytes()))
}

/// Whether an earlier command has one of these names and satisfies `is`.
fn was_sent(
    observed: &ObservedDifference<'_>,
    names: &[&str],
    is: &dyn Fn(&[Vec<u8>]) -> bool,
) -> bool {
    let named = |words: &[Vec<u8>]| names.iter().any(|name| is_named(words, name));
    observed.before.iter().any(|step| named(&step.words) && is(&step.words))
}

/// Whether an earlier command that names the command's key has one of these names, or may have
/// stored any type there.
fn key_was_in(observed: &ObservedDifference<'_>, names: &[&str]) -> bool {
    let Some(key) = observed.words.last() else { return false };
    observed.before.iter().any(|step| {
        (starts_with_any(&step.words, names) || starts_with_any(&step.words, OF_ANY_TYPE))
            && contain(&step.words[1..], key)
    })
}

/// Whether the lease that a command sets ends so close to one that an earlier command set for the
/// same key that the times of the two commands decide which is longer.
fn ends_near_another_lease(observed: &ObservedDifference<'_>) -> bool {
    let own = |step: &Step| called(&step.words).unwrap_or(&step.words).to_vec();
    let Some(at) = observed.before.iter().rposition(|step| own(step) == observed.words) else {
        return false;
    };
    let Some(mut span_ms) = lease_ms(observed.words) else { return false };
    observed.before[..at].iter().rev().any(|step| {
        span_ms = span_ms.saturating_add(pass_ms(step));
        let words = own(step);
        words.get(1) == observed.words.get(1)
            && lease_ms(&words).is_some_and(|other_ms| {
                other_ms.abs_diff(span_ms) <= observed.apart_ms.unsigned_abs()
            })
    })
}

/// The pause after a step in milliseconds.
fn pass_ms(step: &Step) -> i64 {
    step.pass.map_or(0, |span| i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
}

/// The lease that a command sets, in milliseconds.
fn lease_ms(words: &[Vec<u8>]) -> Option<i64> {
    let is = |names: &[&str]| names.iter().any(|name| is_named(words, name));
    let (span, unit_ms) = match () {
        () if is(&["PEXPIRE", "PSETEX"]) => (words.get(2)?, 1),
        () if is(&["EXPIRE", "SETEX"]) => (words.get(2)?, 1000),
        () if is(&["SET", "GETEX"]) => match word_after(words, "PX") {
            Some(span) => (span, 1),
            None => (word_after(words, "EX")?, 1000),
        },
        () => return None,
    };
    integer(span)?.checked_mul(unit_ms)
}

/// Whether an earlier command has read or claimed for this consumer.
fn has_read(observed: &ObservedDifference<'_>, group: &[u8], consumer: &[u8]) -> bool {
    readers(observed).any(|(its, reader)| is_word(group, its) && is_word(consumer, reader))
}

/// Groups and consumers that earlier commands have read or claimed for.
fn readers<'a>(observed: &ObservedDifference<'a>) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
    observed.before.iter().filter_map(|Step { words, .. }| {
        let at = match () {
            () if is_named(words, "XREADGROUP") => {
                words.iter().position(|word| word.eq_ignore_ascii_case(b"GROUP"))?
            }
            () if is_named(words, "XCLAIM") || is_named(words, "XAUTOCLAIM") => 1,
            () => return None,
        };
        Some((&**words.get(at + 1)?, &**words.get(at + 2)?))
    })
}

/// The word that follows an option.
fn word_after<'a>(words: &'a [Vec<u8>], option: &str) -> Option<&'a Vec<u8>> {
    let at = words.iter().position(|word| word.eq_ignore_ascii_case(option.as_bytes()))?;
    words.get(at + 1)
}

/// Whether one of these words contains `part`.
fn contain(words: &[Vec<u8>], part: &[u8]) -> bool {
    words.iter().any(|word| word.windows(part.len().max(1)).any(|it| it == part))
}

/// The elements in a reply of `SCAN`.
fn page_of(reply: &Frame) -> Option<&[Frame]> {
    match &*reply.items {
        [_, page] => Some(&page.items),
        _ => None,
    }
}

/// The reply with its maps in the order of their keys. In RESP2 a map is an array of names and
/// values.
fn with_sorted_maps(frame: &Frame) -> Frame {
    let mut sorted = frame.clone();
    sorted.items = frame.items.iter().map(with_sorted_maps).collect();
    let is_map = frame.kind == b'%'
        || frame.kind == b'*'
            && frame.items.len().is_multiple_of(2)
            && frame.items.iter().step_by(2).all(|name| name.kind == b'$');
    if is_map {
        let mut pairs: Vec<&[Frame]> = sorted.items.chunks(2).collect();
        pairs.sort_by(|one, other| one[0].text.cmp(&other[0].text));
        sorted.items = pairs.concat();
    }
    sorted
}

/// The keys on which a command blocks.
fn keys_of(words: &[Vec<u8>]) -> Vec<&Vec<u8>> {
    if starts_with_any(words, &["X"]) {
        let at = words.iter().position(|word| word.eq_ignore_ascii_case(b"STREAMS"));
        let behind = at.map_or(&[][..], |at| &words[at + 1..]);
        return behind[..behind.len() / 2].iter().collect();
    }
    if starts_with_any(words, &["BLMPOP", "BZMPOP"]) {
        let count = words.get(2).and_then(|word| integer(word)?.try_into().ok());
        return words.iter().skip(3).take(count.unwrap_or(0)).collect();
    }
    if starts_with_any(words, &["BLMOVE", "BRPOPLPUSH"]) {
        return words.iter().skip(1).take(1).collect();
    }
    words[1..].iter().rev().skip(1).rev().collect()
}

/// A word as an integer that Redis accepts.
fn integer(word: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(word).ok()?;
    text.parse::<i64>().ok().filter(|number| number.to_string() == text)
}

/// Whether a word is a number of seconds that overflows 64 bits in milliseconds.
fn is_endless(word: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(word) else { return false };
    // Hexadecimal: a mantissa of at least one, and an exponent of two.
    let power = || {
        let (mantissa, exponent) = text.strip_prefix("0x")?.split_once('p')?;
        let is_whole = u64::from_str_radix(mantissa, 16).is_ok_and(|number| number > 0);
        exponent.parse::<u32>().ok().filter(|_| is_whole)
    };
    text.parse::<f64>().is_ok_and(|seconds| seconds > END_OF_TIME_SECONDS)
        || power().is_some_and(|power| power > END_OF_TIME_SECONDS.log2() as u32)
}

/// Whether both are errors that repeat a word of the command and differ only in its form: Redis
/// ends it at a zero byte and removes line ends at the end.
fn differs_in_repeated_word(observed: &ObservedDifference<'_>) -> bool {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(['\r', '\n'], " ");
    let theirs = shown(&observed.theirs.text);
    let is_same = |word: &Vec<u8>| {
        let (text, end) = (shown(word), word.iter().position(|byte| *byte == 0));
        let ours = match end {
            Some(end) => shown(&observed.ours.text).replace(&text, &shown(&word[..end])),
            None => shown(&observed.ours.text),
        };
        let ends_line = word.ends_with(b"\r") || word.ends_with(b"\n");
        let is_text = end.is_none() && std::str::from_utf8(word).is_ok();
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        !is_text && ours == theirs || ends_line && words(&ours) == words(&theirs)
    };
    let are_errors = observed.ours.kind == b'-' && observed.theirs.kind == b'-';
    are_errors && observed.words.iter().any(is_same)
}

/// Whether some words are not UTF-8 or contain a zero byte.
fn has_binary_words(observed: &ObservedDifference<'_>) -> bool {
    observed.words.iter().any(|word| word.contains(&0) || std::str::from_utf8(word).is_err())
}

// --- Replies ---

/// Whether it is an error that contains this text.
fn is_error_with(frame: &Frame, text: &str) -> bool {
    frame.kind == b'-' && String::from_utf8_lossy(&frame.text).contains(text)
}

/// Whether it is exactly this error.
fn is_error(frame: &Frame, line: &str) -> bool {
    frame.kind == b'-' && frame.text == line.as_bytes()
}

/// Whether it is the error for a wrong number of arguments.
fn is_arity_error(frame: &Frame, name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name).to_lowercase();
    is_error(frame, &format!("ERR wrong number of arguments for '{name}' command"))
}

fn is_integer(frame: &Frame, text: &str) -> bool {
    frame.kind == b':' && frame.text == text.as_bytes()
}

/// Whether it is the placeholder of a blocked client: see [`ObservedDifference::ours`].
fn is_waiting(frame: &Frame) -> bool {
    *frame == waits()
}

/// Whether it is a key of this name, as an episode writes it.
fn is_key(frame: &Frame, word: &[u8]) -> bool {
    frame.kind == b'$' && is_word(&frame.text, word)
}

/// Whether a text is this word of an episode, or the key that it names.
fn is_word(text: &[u8], word: &[u8]) -> bool {
    let name = word.strip_prefix(b"<").and_then(|word| word.strip_suffix(b">"));
    let is_name = |name| text.strip_suffix(name).is_some_and(|rest| rest.ends_with(b":"));
    text == word || name.is_some_and(is_name)
}

/// Whether a blocked client got an element of one of its keys.
fn is_served(observed: &ObservedDifference<'_>, frame: &Frame) -> bool {
    let is_named_key = |key: &Frame| keys_of(observed.words).iter().any(|word| is_key(key, word));
    if starts_with_any(observed.words, &["BLMOVE", "BRPOPLPUSH"]) {
        return frame.kind == b'$' && !frame.missing;
    }
    if starts_with_any(observed.words, &["X"]) {
        let streams = streams_of(frame);
        return !streams.is_empty() && streams.iter().all(|(key, _)| is_named_key(key));
    }
    let shape = |items: &[Frame]| match items {
        [_, elements] if starts_with_any(observed.words, &["BLM", "BZM"]) => {
            !elements.items.is_empty()
        }
        [_, element] if starts_with_any(observed.words, &["BLP", "BRP"]) => element.kind == b'$',
        [_, member, score] if starts_with_any(observed.words, &["BZP"]) => {
            member.kind == b'$' && matches!(score.kind, b'$' | b',')
        }
        _ => false,
    };
    frame.kind == b'*' && frame.items.first().is_some_and(is_named_key) && shape(&frame.items)
}

/// The streams of a reply and the entries of each.
fn streams_of(frame: &Frame) -> Vec<(&Frame, &Frame)> {
    let pairs: Vec<&[Frame]> = match frame.kind {
        b'%' => frame.items.chunks(2).collect(),
        b'*' => frame.items.iter().map(|item| &*item.items).collect(),
        _ => Vec::new(),
    };
    let pair = |pair: &'_ [Frame]| matches!(pair, [_, _]);
    match pairs.iter().all(|it| pair(it)) {
        true => pairs.into_iter().map(|pair| (&pair[0], &pair[1])).collect(),
        false => Vec::new(),
    }
}

/// The encodings in the replies of the target and the reference.
fn encodings<'a>(observed: &ObservedDifference<'a>) -> (&'a [u8], &'a [u8]) {
    match (observed.ours.kind, observed.theirs.kind) {
        (b'$', b'$') => (&observed.ours.text, &observed.theirs.text),
        _ => (b"", b""),
    }
}

/// The value of a name in a map.
fn field<'a>(frame: &'a Frame, name: &[u8]) -> Option<&'a Frame> {
    frame.items.chunks_exact(2).find(|pair| pair[0].text == name).map(|pair| &pair[1])
}

fn field_mut<'a>(frame: &'a mut Frame, name: &[u8]) -> Option<&'a mut Frame> {
    frame.items.chunks_exact_mut(2).find(|pair| pair[0].text == name).map(|pair| &mut pair[1])
}

fn number(frame: &Frame) -> Option<i64> {
    (frame.kind == b':').then(|| integer(&frame.text)).flatten()
}

// --- Comparisons ---

/// Whether the target has created no more consumers in a group than have read there.
fn has_more_readers(observed: &ObservedDifference<'_>, ours: &Frame, theirs: &Frame) -> bool {
    let count = |group: &Frame| field(group, b"consumers").and_then(number);
    let (Some(ours_count), Some(theirs_count), Some(name)) =
        (count(ours), count(theirs), field(ours, b"name"))
    else {
        return false;
    };
    let of_group = readers(observed).filter(|(group, _)| is_word(&name.text, group));
    let names: BTreeSet<&[u8]> = of_group.map(|(_, consumer)| consumer).collect();
    ours_count >= theirs_count && (ours_count - theirs_count).unsigned_abs() <= names.len() as u64
}

/// Whether consumers are reported equally, except for the times that 7.0 does not report and, if
/// `ignores_unsuccessful`, for consumers that have read and never found an entry.
fn same_but_consumers(observed: &ObservedDifference<'_>, ignores_unsuccessful: bool) -> bool {
    let (mut ours, mut theirs) = (observed.ours.clone(), observed.theirs.clone());
    ours.walk(&mut |frame| {
        for name in [&b"inactive"[..], b"active-time"] {
            let mut pairs = frame.items.chunks_exact(2);
            if let Some(at) = pairs.position(|it| it[0].text == name && it[1].kind == b':') {
                frame.items.drain(2 * at..2 * at + 2);
            }
        }
    });
    if ignores_unsuccessful {
        let group = observed.words.get(3).map_or(&[][..], |group| group);
        if is_named(observed.words, "XINFO CONSUMERS") {
            remove_consumers_without_entries(observed, group, &mut ours, &theirs);
        } else if let (Some(ours), Some(theirs)) =
            (field_mut(&mut ours, b"groups"), field(&theirs, b"groups"))
        {
            for (ours, theirs) in ours.items.iter_mut().zip(&theirs.items) {
                let group = field(ours, b"name").map(|name| name.text.clone()).unwrap_or_default();
                if let (Some(ours), Some(theirs)) =
                    (field_mut(ours, b"consumers"), field(theirs, b"consumers"))
                {
                    remove_consumers_without_entries(observed, &group, ours, theirs);
                }
            }
        }
    }
    reference::pairwise(&mut ours, &mut theirs, &mut |ours, theirs| {
        take_later_seen_time(observed, ours, theirs);
    });
    reference::normalise(observed.words, &mut ours, &mut theirs, observed.apart_ms);
    ours == theirs
}

/// For a consumer that has read more than once: makes its seen-time equal if the target's is later.
/// The reference does not count a read without entries.
fn take_later_seen_time(observed: &ObservedDifference<'_>, ours: &mut Frame, theirs: &Frame) {
    let Some(name) = field(ours, b"name").map(|name| name.text.clone()) else { return };
    let is_made = |Step { words, .. }: &&Step| {
        let made = words.get(4).filter(|_| is_named(words, "XGROUP CREATECONSUMER"));
        made.is_some_and(|made| is_word(&name, made))
    };
    let reads = readers(observed).filter(|(_, consumer)| is_word(&name, consumer)).count();
    if reads == 0 || reads + observed.before.iter().filter(is_made).count() < 2 {
        return;
    }
    for (time, sign) in [(&b"seen-time"[..], 1), (b"idle", -1)] {
        if let (Some(ours), Some(theirs)) = (field_mut(ours, time), field(theirs, time))
            && let (Some(mine), Some(other)) = (number(ours), number(theirs))
            && sign * mine >= sign * other
        {
            ours.text.clone_from(&theirs.text);
        }
    }
}

/// Removes consumers that the reference lacks, that have read and that have nothing pending.
fn remove_consumers_without_entries(
    observed: &ObservedDifference<'_>,
    group: &[u8],
    ours: &mut Frame,
    theirs: &Frame,
) {
    let name = |row: &Frame| field(row, b"name").map(|name| name.text.clone()).unwrap_or_default();
    ours.items.retain(|row| {
        let count = field(row, b"pel-count").or(field(row, b"pending"));
        let is_known = theirs.items.iter().any(|it| name(it) == name(row));
        is_known || !has_read(observed, group, &name(row)) || count.and_then(number) != Some(0)
    });
}

/// Whether two errors differ only in bytes that are not UTF-8: the target shows U+FFFD, and the
/// reference ends a word at a zero byte.
fn same_but_bytes(observed: &ObservedDifference<'_>) -> bool {
    let mut ours = String::new();
    let mut is_cut = false;
    for letter in String::from_utf8_lossy(&observed.ours.text).chars() {
        is_cut = letter == '\0' || is_cut && letter != '\'';
        if !is_cut {
            ours.push(letter);
        }
    }
    ours == String::from_utf8_lossy(&observed.theirs.text)
}

/// Whether a reply is an error that contains this text, or contains one.
fn refuses(reply: &Frame, text: &str) -> bool {
    is_error_with(reply, text) || reply.items.iter().any(|item| refuses(item, text))
}

/// Words of Redis, and Valkey's in their place.
const WORDING: &[(&str, &str)] = &[
    ("WATCH inside MULTI is not allowed", "Command not allowed inside a transaction"),
    ("Lua redis lib command arguments must", "Command arguments must"),
    ("Unknown Redis command called", "Unknown command called"),
    ("args calling Redis command from script", "args calling command from script"),
    ("for this redis lib call", "for this call"),
    ("This Redis command is not allowed", "This command is not allowed"),
    ("No matching script. Please use EVAL.", "No matching script."),
];

/// Whether they differ only in such words.
fn same_but_wording(ours: &Frame, theirs: &Frame) -> bool {
    let (one, other) = (String::from_utf8_lossy(&ours.text), String::from_utf8_lossy(&theirs.text));
    let reworded = |(redis, valkey): &(&str, &str)| one.replace(redis, valkey) == other;
    ours.kind == theirs.kind
        && ours.missing == theirs.missing
        && (one == other || matches!(ours.kind, b'-' | b'$') && WORDING.iter().any(reworded))
        && ours.items.len() == theirs.items.len()
        && ours.items.iter().zip(&theirs.items).all(|(one, other)| same_but_wording(one, other))
}

/// Whether they differ only in how numbers are printed: with 17 digits by the reference, by the
/// target with the fewest unambiguous digits, or all digits of a whole number. `is_number` gets a
/// reply and its place in the array around it, and returns whether it is a number.
fn same_but_digits(
    ours: &Frame,
    theirs: &Frame,
    at: Option<usize>,
    is_number: &dyn Fn(&Frame, Option<usize>) -> bool,
) -> bool {
    let same_number = || {
        let text = std::str::from_utf8(&ours.text).ok();
        let number = text.and_then(|text| text.parse::<f64>().ok()).filter(|it| it.is_finite());
        matches!(ours.kind, b'$' | b',')
            && is_number(ours, at)
            && !(ours.text.contains(&b'.') && ours.text.ends_with(b"0"))
            && number.is_some_and(|number| {
                let shortest = digits(&ours.text) == digits(format!("{number:e}").as_bytes());
                (shortest || ours.text == format!("{number:.0}").as_bytes())
                    && theirs.text == seventeen_digits(number).as_bytes()
            })
    };
    ours.kind == theirs.kind
        && ours.missing == theirs.missing
        && (ours.text == theirs.text || same_number())
        && ours.items.len() == theirs.items.len()
        && ours
            .items
            .iter()
            .zip(&theirs.items)
            .enumerate()
            .all(|(at, (ours, theirs))| same_but_digits(ours, theirs, Some(at), is_number))
}

/// Whether they differ only in how numbers are printed: those of the reference may be negative
/// zeros, or have 17 digits.
fn same_numbers(ours: &Frame, theirs: &Frame) -> bool {
    let number = |frame: &Frame| std::str::from_utf8(&frame.text).ok()?.parse::<f64>().ok();
    ours.kind == theirs.kind
        && (ours.text == theirs.text || number(ours).is_some() && number(ours) == number(theirs))
        && ours.items.len() == theirs.items.len()
        && ours.items.iter().zip(&theirs.items).all(|(one, other)| same_numbers(one, other))
}

/// The significant digits of a number, without sign, point and exponent.
fn digits(text: &[u8]) -> Vec<u8> {
    let mantissa = text.split(|byte| *byte == b'e').next().unwrap_or_default();
    let digits: Vec<u8> = mantissa.iter().copied().filter(u8::is_ascii_digit).collect();
    let first = digits.iter().position(|digit| *digit != b'0').unwrap_or(digits.len());
    let last = digits.iter().rposition(|digit| *digit != b'0').map_or(first, |last| last + 1);
    digits[first..last].to_vec()
}

/// A number in the format `%.17g` of C's `printf`.
pub fn seventeen_digits(number: f64) -> String {
    let scientific = format!("{number:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match usize::try_from(16 - exponent) {
        Ok(decimals) if exponent >= -4 => trim(&format!("{number:.decimals$}")),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
        }
    }
}

/// Whether they differ only in the numbers after these names.
fn same_but(names: &[&[u8]], ours: &Frame, theirs: &Frame) -> bool {
    let blanked = |frame: &Frame| {
        let mut frame = frame.clone();
        frame.walk(&mut |frame| {
            for at in 1..frame.items.len() {
                let is_number =
                    matches!(frame.items[at].kind, b':' | b'_') || frame.items[at].missing;
                if names.contains(&&*frame.items[at - 1].text) && is_number {
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
mod tests;
