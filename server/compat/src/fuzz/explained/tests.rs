//! Examples of each known difference, most of them recorded from a server, and near misses: the same
//! command without the earlier commands that cause it, or with another reply.

use std::collections::BTreeSet;

use super::{EXPLAINED, Met, Of, Version, alone, find, seventeen_digits};
use crate::frame::Frame;
use crate::fuzz::episode::Step;
use crate::words;

/// A difference that occurred.
#[derive(Clone, Copy, Debug)]
struct Example {
    /// Commands that came before, separated by `;`.
    before: &'static str,
    /// The command.
    command: &'static str,
    /// The command that was sent last, if it is another.
    cause: &'static str,
    /// The reply of the target, with `|` for the end of a line (and `\u{a6}` for `|`).
    ours: &'static str,
    /// The reply of the reference.
    theirs: &'static str,
}

/// A known difference: examples of it, and near misses.
struct Row {
    name: &'static str,
    explained: &'static [Example],
    refused: &'static [Example],
}

/// A command with an immediate reply.
const fn replied(command: &'static str, ours: &'static str, theirs: &'static str) -> Example {
    Example { before: "", command, cause: "", ours, theirs }
}

impl Example {
    /// After these commands.
    const fn after(self, before: &'static str) -> Example {
        Example { before, ..self }
    }

    /// A command that was blocked or queued until this one came.
    const fn by(self, cause: &'static str) -> Example {
        Example { cause, ..self }
    }

    /// The name of the known difference that matches, on a reference of this version.
    fn found(&self, version: Version) -> Option<&'static str> {
        let split = |line: &str| words::split(line).expect("words");
        let step = |line: &str| Step { client: 'a', words: split(line.trim()), pass: None };
        let mut before: Vec<Step> = match self.before {
            "" => Vec::new(),
            lines => lines.split(';').map(step).collect(),
        };
        let command = split(self.command);
        before.push(step(self.command));
        if !self.cause.is_empty() {
            before.push(step(self.cause));
        }
        let frame = |text: &str| {
            let text = text.replace('|', "\r\n").replace('\u{a6}', "|");
            let mut bytes = Vec::new();
            // `\xff` in a reply is that byte.
            for (at, part) in text.split("\\xff").enumerate() {
                bytes.extend((at > 0).then_some(0xff));
                bytes.extend(part.as_bytes());
            }
            Frame::whole(&bytes).unwrap_or_else(|| panic!("one reply: {text}"))
        };
        let (ours, theirs) = (frame(self.ours), frame(self.theirs));
        let met = Met {
            words: &command,
            before: &before,
            ours: &ours,
            theirs: &theirs,
            apart_ms: 10,
            version,
        };
        find(&met).map(|it| it.name)
    }
}

/// A version with the difference, and one without it.
fn versions(of: Of) -> (Version, Option<Version>) {
    let redis = |major, minor| Version { redis: (major, minor), is_valkey: false };
    let valkey = Version { redis: (7, 2), is_valkey: true };
    match of {
        Of::Every => (redis(7, 2), None),
        Of::Before(7, 2) => (redis(7, 0), Some(redis(7, 2))),
        Of::Before(..) => unreachable!("no other version is in the table"),
        Of::Since(major, 0) => (redis(major, 0), Some(redis(major - 1, 9))),
        Of::Since(major, minor) => (redis(major, minor), Some(redis(major, minor - 1))),
        Of::Valkey => (valkey, Some(redis(7, 2))),
    }
}

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
const NO_BOUND: &str = "-ERR min or max is not a float|";
const NO_COUNT: &str = "-ERR COUNT can't be negative|";
const NO_INTEGER: &str = "-ERR value is not an integer or out of range|";
const SYNTAX: &str = "-ERR syntax error|";
const WAITS: &str = "+waits|";
const LEAST: &str = "-ERR value is out of range, value must between -9223372036854775807 and \
                     9223372036854775807|";
const ZRANK_ARITY: &str = "-ERR wrong number of arguments for 'zrank' command|";
const GETKEYS_ARITY: &str = "-ERR wrong number of arguments for 'command\u{a6}getkeys' command|";
const NO_GROUP: &str =
    "-NOGROUP No such key 'p:x1' or consumer group 'g1' in XREADGROUP with GROUP option|";
const GROUP_GONE: &str = "-NOGROUP the consumer group this client was blocked on no longer exists|";
const STREAM_GONE: &str = "-UNBLOCKED the stream key no longer exists|";
const OUT_OF_RANGE: &str = "-ERR timeout is out of range|";
const NEGATIVE: &str = "-ERR timeout is negative|";
const BELOW_DELETED: &str =
    "-ERR The ID specified in XSETID is smaller than current max_deleted_entry_id|";
const BELOW_TOP: &str =
    "-ERR The ID specified in XSETID is smaller than the target stream top item|";
/// `INFO GROUPS` of one group with no consumer, with one and with two.
const NO_CONSUMERS: &str = "*1|*4|$4|name|$2|g1|$9|consumers|:0|";
const ONE_CONSUMER: &str = "*1|*4|$4|name|$2|g1|$9|consumers|:1|";
const TWO_CONSUMERS: &str = "*1|*4|$4|name|$2|g1|$9|consumers|:2|";
/// `XINFO CONSUMERS`.
const IDLE_5: &str = "*1|*6|$4|name|$2|c1|$7|pending|:0|$4|idle|:5|";
const IDLE_500: &str = "*1|*6|$4|name|$2|c1|$7|pending|:0|$4|idle|:500|";
const READ_TWICE: &str =
    "XREADGROUP GROUP g1 c1 STREAMS <x1> >; XREADGROUP GROUP g1 c1 STREAMS <x1> >";
const IDLE_5_INACTIVE: &str = "*1|*8|$4|name|$2|c1|$7|pending|:0|$4|idle|:9|$8|inactive|:-1|";
const IDLE_500_INACTIVE: &str = "*1|*8|$4|name|$2|c1|$7|pending|:0|$4|idle|:500|$8|inactive|:-1|";
const OF_A_KEY: &str = "*1|*8|$4|name|$4|p:k1|$7|pending|:0|$4|idle|:9|$8|inactive|:-1|";
const PENDING_1_INACTIVE: &str = "*1|*8|$4|name|$2|c1|$7|pending|:1|$4|idle|:5|$8|inactive|:5|";
/// `XINFO STREAM ... FULL`, from the consumers on.
const FULL_7_0: &str = "*4|$6|length|:0|$6|groups|*1|*4|$4|name|$2|g1|$9|consumers|*1|*8|$4|name|$2|\
                        c1|$9|seen-time|:1800000000000|$9|pel-count|:0|$7|pending|*0|";
const FULL_7_2: &str = "*4|$6|length|:0|$6|groups|*1|*4|$4|name|$2|g1|$9|consumers|*1|*10|$4|name|\
                        $2|c1|$9|seen-time|:1800000000009|$11|active-time|:-1|$9|pel-count|:0|\
                        $7|pending|*0|";
const FULL_7_2_LONGER: &str = "*4|$6|length|:1|$6|groups|*1|*4|$4|name|$2|g1|$9|consumers|*1|*10|$4|name|$2|c1|$9|\
     seen-time|:1800000000009|$11|active-time|:-1|$9|pel-count|:0|$7|pending|*0|";
const FULL_EMPTY: &str = "*4|$6|length|:0|$6|groups|*1|*4|$4|name|$2|g1|$9|consumers|*0|";

const ROWS: &[Row] = &[
    Row {
        name: "scores are printed with 17 digits",
        explained: &[
            replied("ZSCORE <z1> a", "$3|0.1|", "$19|0.10000000000000001|"),
            replied("ZSCORE <z1> a", ",0.1|", ",0.10000000000000001|"),
            replied("ZADD <z1> INCR 1e-5 a", ",0.00001|", ",1.0000000000000001e-05|"),
            replied("ZINCRBY <z1> 1 a", ",18446744073709552000|", ",1.8446744073709552e+19|"),
            replied(
                "ZRANGE <z1> 0 -1 WITHSCORES",
                "*2|$1|a|$4|-0.3|",
                "*2|$1|a|$20|-0.29999999999999999|",
            ),
            replied("ZMSCORE <z1> a b", "*2|$3|0.1|$-1|", "*2|$19|0.10000000000000001|$-1|"),
            replied(
                "BZPOPMIN <z1> 0",
                "*3|$4|p:z1|$1|a|$3|0.1|",
                "*3|$4|p:z1|$1|a|$19|0.10000000000000001|",
            ),
            replied(
                "ZMPOP 1 <z1> MAX",
                "*2|$4|p:z1|*1|*2|$2|aa|$18|100000000000000000|",
                "*2|$4|p:z1|*1|*2|$2|aa|$5|1e+17|",
            ),
            replied("EVAL script 0", "*2|$1|a|$3|0.1|", "*2|$1|a|$19|0.10000000000000001|"),
        ],
        refused: &[
            // Another number; by the last digit of a double, or not in these digits.
            replied("ZSCORE <z1> a", "$3|0.1|", "$3|0.2|"),
            replied("ZSCORE <z1> a", "$3|0.1|", "$19|0.10000000000000002|"),
            replied("ZSCORE <z1> a", "$3|0.1|", "$4|0.10|"),
            replied("ZSCORE <z1> a", "$4|0.10|", "$19|0.10000000000000001|"),
            replied("ZSCORE <z1> a", "$19|0.10000000000000001|", "$3|0.1|"),
            replied("ZSCORE <z1> a", "$1|2|", "$3|2.0|"),
            replied("ZSCORE <z1> a", ",0.1|", "$19|0.10000000000000001|"),
            replied("ZSCORE <z1> a", "$-1|", "$3|0.1|"),
            // A member, though it looks like a number, or the key.
            replied(
                "ZRANGE <z1> 0 -1 WITHSCORES",
                "*2|$3|0.1|$1|1|",
                "*2|$19|0.10000000000000001|$1|1|",
            ),
            replied(
                "BZPOPMIN <z1> 0",
                "*3|$4|p:z1|$3|0.1|$1|1|",
                "*3|$4|p:z1|$19|0.10000000000000001|$1|1|",
            ),
            // Other elements.
            replied(
                "ZRANGE <z1> 0 -1 WITHSCORES",
                "*2|$1|b|$3|0.1|",
                "*2|$1|a|$19|0.10000000000000001|",
            ),
            replied("ZRANGE <z1> 0 -1 WITHSCORES", "*0|", "*2|$1|a|$19|0.10000000000000001|"),
            replied("ZCARD <z1>", ":1|", ":2|"),
            replied("LRANGE <l1> 0 -1", "*1|$3|0.1|", "*1|$19|0.10000000000000001|"),
            replied("SORT <l1>", "*1|$3|0.1|", "*1|$19|0.10000000000000001|"),
        ],
    },
    Row {
        name: "encodings of lists and sets",
        explained: &[
            replied("OBJECT ENCODING <l2>", "$8|listpack|", "$9|quicklist|").after("RPUSH <l2> a"),
            replied("object encoding <t3>", "$8|listpack|", "$9|hashtable|").after("SADD <t3> a"),
            replied("OBJECT ENCODING <k1>", "$8|listpack|", "$9|quicklist|")
                .after("RPUSH <l2> a; RENAME <l2> <k1>"),
            replied("OBJECT ENCODING <l1>", "$8|listpack|", "$9|quicklist|")
                .after("EVAL \"redis.call('rpush', '<l1>', 'a')\" 0"),
        ],
        refused: &[
            replied("OBJECT ENCODING <l2>", "$8|listpack|", "$9|quicklist|"),
            replied("OBJECT ENCODING <l2>", "$8|listpack|", "$9|quicklist|").after("RPUSH <l1> a"),
            replied("OBJECT ENCODING <h1>", "$8|listpack|", "$9|hashtable|").after("HSET <h1> f v"),
            replied("OBJECT ENCODING <l2>", "$8|listpack|", "$9|hashtable|").after("RPUSH <l2> a"),
            replied("OBJECT ENCODING <t3>", "$9|hashtable|", "$8|listpack|").after("SADD <t3> a"),
            replied("OBJECT ENCODING <t3>", "$6|intset|", "$9|hashtable|").after("SADD <t3> 1"),
            replied("OBJECT ENCODING <l2>", "$-1|", "$9|quicklist|").after("RPUSH <l2> a"),
            replied("OBJECT ENCODING <l2>", "+listpack|", "$9|quicklist|").after("RPUSH <l2> a"),
            replied("OBJECT FREQ <l2>", "$8|listpack|", "$9|quicklist|").after("RPUSH <l2> a"),
        ],
    },
    Row {
        name: "large forms of what is small",
        explained: &[
            replied("OBJECT ENCODING <z3>", "$8|listpack|", "$8|skiplist|")
                .after("ZADD <z3> 1 a; SORT <z3> ALPHA"),
            replied("OBJECT ENCODING <t3>", "$8|listpack|", "$9|hashtable|")
                .after("SDIFFSTORE <t3> <t1> <t2>"),
            replied("OBJECT ENCODING <t3>", "$6|intset|", "$9|hashtable|")
                .after("SDIFFSTORE <t3> <t1> <t2>"),
            replied("OBJECT ENCODING <l1>", "$8|listpack|", "$9|quicklist|").after("LPOP <l1>"),
            replied("OBJECT ENCODING <l1>", "$8|listpack|", "$9|quicklist|")
                .after("RESTORE <l1> 0 x"),
        ],
        refused: &[
            replied("OBJECT ENCODING <z3>", "$8|listpack|", "$8|skiplist|").after("ZADD <z3> 1 a"),
            replied("OBJECT ENCODING <z3>", "$8|listpack|", "$8|skiplist|")
                .after("SORT <z2> ALPHA"),
            replied("OBJECT ENCODING <t3>", "$8|listpack|", "$9|hashtable|").after("SADD <t3> a"),
            replied("OBJECT ENCODING <t3>", "$6|intset|", "$8|listpack|")
                .after("SDIFFSTORE <t3> <t1> <t2>"),
            replied("OBJECT ENCODING <l1>", "$8|listpack|", "$9|quicklist|").after("RPUSH <l1> a"),
            replied("OBJECT ENCODING <z3>", "$8|skiplist|", "$8|listpack|")
                .after("SORT <z3> ALPHA"),
            replied("OBJECT ENCODING <h3>", "$8|listpack|", "$9|hashtable|").after("HSET <h3> f v"),
        ],
    },
    Row {
        name: "ranks with scores",
        explained: &[
            replied("ZRANK <z1> m WITHSCORE", "*2|:0|$3|1.5|", ZRANK_ARITY),
            replied("ZRANK <z1> m withscore", "*-1|", ZRANK_ARITY),
            replied("ZRANK <z1> m WITHSCORE", "_|", ZRANK_ARITY),
            replied("zrank <z1> m WITHSCORE", WRONG_TYPE, ZRANK_ARITY),
            replied("ZRANK <z1> m 3.5", SYNTAX, ZRANK_ARITY),
            replied("ZRANK <z1> m 3.5", "+QUEUED|", ZRANK_ARITY).after("MULTI"),
            replied("ZRANK <z1> m 3.5", "-ERR Can't execute 'zrank': only ...|", ZRANK_ARITY)
                .after("SUBSCRIBE c"),
            replied(
                "COMMAND GETKEYS ZRANK <z1> m WITHSCORE",
                "*1|$4|p:z1|",
                "-ERR Invalid number of arguments specified for command|",
            ),
            replied(
                "COMMAND GETKEYS ZRANK 1 1 1 1",
                "*1|$1|1|",
                "-ERR Invalid number of arguments specified for command|",
            ),
        ],
        refused: &[
            replied("ZRANK <z1> m", ":0|", ZRANK_ARITY),
            replied("ZRANK <z1> m 3.5", "+QUEUED|", ZRANK_ARITY),
            replied("ZRANK <z1> m 3.5", "-ERR Can't execute 'zrank': only ...|", ZRANK_ARITY),
            replied("ZRANK <z1> m 3.5", "*2|:0|$3|1.5|", ZRANK_ARITY),
            replied("ZRANK <z1> m WITHSCORE", SYNTAX, ZRANK_ARITY),
            replied("ZRANK <z1> m WITHSCORE", ":0|", ZRANK_ARITY),
            replied("ZRANK <z1> m WITHSCORE", "*1|:0|", ZRANK_ARITY),
            replied("ZRANK <z1> m WITHSCORE", "*2|:0|$3|1.5|", "*-1|"),
            replied("ZREVRANK <z1> m WITHSCORE", "*2|:0|$3|1.5|", ZRANK_ARITY),
            replied("ZRANK <z1> m WITHSCORE 1", SYNTAX, ZRANK_ARITY),
            replied(
                "COMMAND GETKEYS ZRANK <z1> m WITHSCORE",
                "*1|$1|m|",
                "-ERR Invalid number of arguments specified for command|",
            ),
        ],
    },
    Row {
        name: "keys of commands without arguments",
        explained: &[
            replied(
                "COMMAND GETKEYS PING",
                "-ERR The command has no key arguments|",
                GETKEYS_ARITY,
            ),
            replied("COMMAND GETKEYS nope", "-ERR Invalid command specified|", GETKEYS_ARITY),
            replied("COMMAND GETKEYS GET", "+QUEUED|", GETKEYS_ARITY).after("MULTI"),
            replied(
                "COMMAND GETKEYS GET",
                "-ERR Invalid number of arguments specified for command|",
                GETKEYS_ARITY,
            ),
        ],
        refused: &[
            replied(
                "COMMAND GETKEYS GET k",
                "-ERR The command has no key arguments|",
                GETKEYS_ARITY,
            ),
            replied("COMMAND GETKEYS GET", "*1|$3|GET|", GETKEYS_ARITY),
            replied("COMMAND GETKEYS GET", "+QUEUED|", GETKEYS_ARITY),
            replied("COMMAND GETKEYS GET", "-ERR syntax error|", GETKEYS_ARITY),
            replied("COMMAND GETKEYS PING", "-ERR The command has no key arguments|", "*0|"),
            replied("COMMAND COUNT PING", "-ERR The command has no key arguments|", GETKEYS_ARITY),
        ],
    },
    Row {
        name: "waiting beside a key of another type",
        explained: &[
            replied("BZMPOP 0 2 <z1> <z2> MIN COUNT 1", WRONG_TYPE, "*2|$4|p:z2|*1|*2|$1|a|$1|1|")
                .by("ZADD <z2> 1 a"),
            replied("BLPOP <l1> <l2> 0", WRONG_TYPE, "*2|$4|p:l2|$1|a|").by("RPUSH <l2> a"),
            replied("BLPOP <l1> <l2> 0", WRONG_TYPE, WAITS).by("RPUSH <l2> a"),
        ],
        refused: &[
            // It was not blocked, or on one key only.
            replied("BLPOP <l1> <l2> 0", WRONG_TYPE, "*2|$4|p:l2|$1|a|"),
            replied("BLPOP <l2> 0", WRONG_TYPE, "*2|$4|p:l2|$1|a|").by("RPUSH <l2> a"),
            replied("BLMOVE <l1> <l2> LEFT LEFT 0", WRONG_TYPE, WAITS).by("RPUSH <l2> a"),
            replied("BLPOP <l1> <l2> 0", SYNTAX, "*2|$4|p:l2|$1|a|").by("RPUSH <l2> a"),
            // Served from a key that it has not named, or with another element.
            replied("BLPOP <l1> <l2> 0", WRONG_TYPE, "*2|$4|p:l3|$1|a|").by("RPUSH <l2> a"),
            replied("BLPOP <l1> <l2> 0", WRONG_TYPE, "*-1|").by("RPUSH <l2> a"),
            replied("BLPOP <l1> <l2> 0", WRONG_TYPE, SYNTAX).by("RPUSH <l2> a"),
            replied("BLPOP <l1> <l2> 0", "*2|$4|p:l2|$1|a|", WRONG_TYPE).by("RPUSH <l2> a"),
        ],
    },
    Row {
        name: "the least number",
        explained: &[
            replied("LREM <l1> -9223372036854775808 a", LEAST, ":2|"),
            replied("LPOS <l1> a RANK -9223372036854775808", LEAST, "$-1|"),
            replied("LPOS <l1> a COUNT 0 RANK -9223372036854775808", LEAST, "*0|"),
            replied("LPOS <l1> a RANK -9223372036854775808 COUNT b", LEAST, NO_COUNT),
            replied("LREM <h1> -9223372036854775808 a", LEAST, WRONG_TYPE),
        ],
        refused: &[
            replied("LREM <l1> -9223372036854775807 a", LEAST, ":2|"),
            replied("LPOS <l1> a COUNT b RANK -9223372036854775808", LEAST, NO_COUNT),
            replied("LREM <l1> -9223372036854775808 a", NO_INTEGER, ":2|"),
            replied("LREM <l1> -9223372036854775808 a", LEAST, NO_INTEGER),
            replied("LREM <l1> -9223372036854775808 a", LEAST, "$-1|"),
            replied("LREM <l1> -9223372036854775808 a", ":1|", ":2|"),
            replied("LINDEX <l1> -9223372036854775808", LEAST, "$-1|"),
        ],
    },
    Row {
        name: "bytes that are no text, in errors",
        explained: &[
            replied(
                "\"a\\xffb\"",
                "-ERR unknown command 'a\u{fffd}b', with args beginning with: |",
                "-ERR unknown command 'a\\xffb', with args beginning with: |",
            ),
            replied(
                "\"a\\x00b\" x",
                "-ERR unknown command 'a\0b', with args beginning with: 'x' |",
                "-ERR unknown command 'a', with args beginning with: 'x' |",
            ),
            replied(
                "OBJECT \"\\xff\" k",
                "-ERR unknown subcommand '\u{fffd}'. Try OBJECT HELP.|",
                "-ERR unknown subcommand '\\xff'. Try OBJECT HELP.|",
            ),
        ],
        refused: &[
            replied(
                "ab",
                "-ERR unknown command 'a\u{fffd}b', with args beginning with: |",
                "-ERR unknown command 'a\\xffb', with args beginning with: |",
            ),
            replied(
                "\"a\\xffb\"",
                "-ERR unknown command 'a\u{fffd}c', with args beginning with: |",
                "-ERR unknown command 'a\\xffb', with args beginning with: |",
            ),
            replied(
                "\"a\\xffb\"",
                "-ERR unknown command 'a\u{fffd}b'|",
                "-ERR unknown command 'a\\xffb', with args beginning with: |",
            ),
            replied(
                "\"a\\xffb\"",
                "-ERR unknown subcommand 'a\u{fffd}b'|",
                "-ERR unknown command 'a\\xffb'|",
            ),
            replied("ECHO \"a\\xffb\"", "$3|abc|", "$3|a\\xffb|"),
            replied("\"a\\xffb\"", "+OK|", "-ERR unknown command 'a\\xffb'|"),
        ],
    },
    Row {
        name: "shared integers",
        explained: &[
            replied("OBJECT REFCOUNT <k1>", ":2147483647|", ":1|").after("SET <k1> 5"),
            replied("OBJECT REFCOUNT <k1>", ":2147483647|", ":1|").after("COPY <n1> <k1>"),
        ],
        refused: &[
            replied("OBJECT REFCOUNT <k1>", ":2147483647|", ":1|"),
            replied("OBJECT REFCOUNT <k1>", ":2147483647|", ":1|").after("HSET <k1> f 5"),
            replied("OBJECT REFCOUNT <k1>", ":1|", ":2147483647|").after("SET <k1> 5"),
            replied("OBJECT REFCOUNT <k1>", ":2147483647|", ":2|").after("SET <k1> 5"),
            replied("OBJECT REFCOUNT <k1>", ":2147483647|", "$-1|").after("SET <k1> 5"),
            replied("OBJECT REFCOUNT <k1>", "$10|2147483647|", ":1|").after("SET <k1> 5"),
        ],
    },
    Row {
        name: "idle times of shared integers",
        explained: &[
            replied("OBJECT IDLETIME <n3>", ":0|", ":64|").after("SET <n3> 1; INCRBY <n3> 255")
        ],
        refused: &[
            replied("OBJECT IDLETIME <n3>", ":0|", ":64|"),
            replied("OBJECT IDLETIME <n3>", ":0|", ":64|").after("RPUSH <n3> 1"),
            replied("OBJECT IDLETIME <n3>", "$-1|", ":64|").after("SET <n3> 1"),
            replied("OBJECT IDLETIME <n3>", ":-1|", ":64|").after("SET <n3> 1"),
            replied("OBJECT FREQ <n3>", ":0|", ":64|").after("SET <n3> 1"),
        ],
    },
    Row {
        name: "references of a transaction",
        explained: &[replied("OBJECT REFCOUNT <k1>", ":1|", ":2|")
            .after("MULTI; SET <k1> v")
            .by("EXEC")],
        refused: &[
            replied("OBJECT REFCOUNT <k1>", ":1|", ":2|").after("SET <k1> v"),
            replied("OBJECT REFCOUNT <k1>", ":1|", ":2|").after("MULTI; SET <k2> v").by("EXEC"),
            replied("OBJECT REFCOUNT <k1>", ":2|", ":1|").after("MULTI; SET <k1> v").by("EXEC"),
            replied("OBJECT REFCOUNT <k1>", ":1|", ":3|").after("MULTI; SET <k1> v").by("EXEC"),
            replied("STRLEN <k1>", ":1|", ":2|").after("MULTI; SET <k1> v").by("EXEC"),
        ],
    },
    Row {
        name: "the greatest time-outs",
        explained: &[
            replied("WAIT 0 9223372036854775807", OUT_OF_RANGE, ":0|"),
            replied("XREAD BLOCK 9223372036854775807 STREAMS <x1> $", OUT_OF_RANGE, WAITS),
            replied("XREAD BLOCK 9223372036854775807 abc STREAMS <x1> 3-*", OUT_OF_RANGE, SYNTAX),
        ],
        refused: &[
            replied("WAIT 0 1000", OUT_OF_RANGE, ":0|"),
            replied("WAIT 9223372036854775807 0", OUT_OF_RANGE, ":0|"),
            replied("XREAD BLOCK 100000000000000 STREAMS <x1> $", OUT_OF_RANGE, WAITS),
            replied("XREAD STREAMS <x1> 9223372036854775807", OUT_OF_RANGE, "*-1|"),
            replied("WAIT 0 9223372036854775807", NEGATIVE, ":0|"),
            replied("WAIT 0 9223372036854775807", OUT_OF_RANGE, NEGATIVE),
            replied("WAIT 0 9223372036854775807", ":1|", ":0|"),
        ],
    },
    Row {
        name: "waiting for a stream that goes",
        explained: &[
            replied("XREADGROUP GROUP g1 c1 BLOCK 0 STREAMS <x1> >", NO_GROUP, GROUP_GONE)
                .by("XGROUP DESTROY <x1> g1"),
            replied("XREADGROUP GROUP g1 c1 BLOCK 0 STREAMS <x1> >", NO_GROUP, STREAM_GONE)
                .by("DEL <x1>"),
        ],
        refused: &[
            replied("XREADGROUP GROUP g1 c1 BLOCK 0 STREAMS <x1> >", NO_GROUP, GROUP_GONE),
            replied("XREADGROUP GROUP g1 c1 BLOCK 0 STREAMS <x1> >", "*-1|", STREAM_GONE)
                .by("DEL <x1>"),
            replied("XREADGROUP GROUP g1 c1 BLOCK 0 STREAMS <x1> >", WRONG_TYPE, STREAM_GONE)
                .by("DEL <x1>"),
            replied("XREADGROUP GROUP g1 c1 BLOCK 0 STREAMS <x1> >", NO_GROUP, WRONG_TYPE)
                .by("DEL <x1>"),
            replied("XREADGROUP GROUP g1 c1 BLOCK 0 STREAMS <x1> >", NO_GROUP, WAITS)
                .by("DEL <x1>"),
            replied("XREAD BLOCK 0 STREAMS <x1> $", NO_GROUP, STREAM_GONE).by("DEL <x1>"),
        ],
    },
    Row {
        name: "entries that are trimmed as they are added",
        explained: &[
            replied("XREAD BLOCK 0 STREAMS <x1> $", WAITS, "*1|*2|$4|p:x1|*0|")
                .by("XADD <x1> MAXLEN 0 1-1 f v"),
            replied("XREAD BLOCK 0 STREAMS <x1> $", WAITS, "%1|$4|p:x1|*0|")
                .by("XADD <x1> MINID = 12 5-0 f v"),
        ],
        refused: &[
            replied("XREAD BLOCK 0 STREAMS <x1> $", WAITS, "*1|*2|$4|p:x1|*0|")
                .by("XADD <x1> 1-1 f v"),
            replied("XREAD BLOCK 0 STREAMS <x1> $", WAITS, "*1|*2|$4|p:x1|*0|")
                .after("XADD <x1> MAXLEN 0 1-1 f v"),
            replied(
                "XREAD BLOCK 0 STREAMS <x1> $",
                WAITS,
                "*1|*2|$4|p:x1|*1|*2|$3|1-1|*2|$1|f|$1|v|",
            )
            .by("XADD <x1> MAXLEN 0 1-1 f v"),
            replied("XREAD BLOCK 0 STREAMS <x1> $", "*-1|", "*1|*2|$4|p:x1|*0|")
                .by("XADD <x1> MAXLEN 0 1-1 f v"),
            replied("XREAD BLOCK 0 STREAMS <x1> $", WAITS, "*-1|").by("XADD <x1> MAXLEN 0 1-1 f v"),
        ],
    },
    Row {
        name: "Valkey's wording",
        explained: &[
            replied(
                "WATCH k",
                "-ERR WATCH inside MULTI is not allowed|",
                "-ERR Command not allowed inside a transaction|",
            ),
            replied(
                "EVALSHA f 0",
                "-NOSCRIPT No matching script. Please use EVAL.|",
                "-NOSCRIPT No matching script.|",
            ),
        ],
        refused: &[
            replied(
                "GET k",
                "-ERR WATCH inside MULTI is not allowed|",
                "-ERR Command not allowed inside a transaction|",
            ),
            replied("WATCH k", "-ERR WATCH inside MULTI is not allowed|", "-ERR not allowed|"),
            replied("WATCH k", "+OK|", "-ERR Command not allowed inside a transaction|"),
            replied(
                "EVALSHA f 0",
                "-ERR No matching script. Please use EVAL.|",
                "-NOSCRIPT No matching script.|",
            ),
            replied(
                "EVALSHA f 0",
                "*1|-NOSCRIPT No matching script. Please use EVAL.|",
                "-NOSCRIPT No matching script.|",
            ),
        ],
    },
    Row {
        name: "reading from replicas",
        explained: &[replied(
            "READONLY",
            "-ERR This instance has cluster support disabled|",
            "+OK|",
        )],
        refused: &[
            replied("READONLY", "-ERR unknown command|", "+OK|"),
            replied("READONLY", "-ERR This instance has cluster support disabled|", ":1|"),
            replied("READONLY x", "+OK|", "-ERR This instance has cluster support disabled|"),
            replied("CLUSTER INFO", "-ERR This instance has cluster support disabled|", "+OK|"),
        ],
    },
    Row {
        name: "the last entry of a stream",
        explained: &[replied(
            "XREAD STREAMS <x1>",
            "-ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be \
             specified.|",
            "-ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must be \
             specified.|",
        )],
        refused: &[
            replied(
                "XREAD STREAMS <x1>",
                SYNTAX,
                "-ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must \
                 be specified.|",
            ),
            replied("XREAD STREAMS <x1> 1", "*-1|", "-ERR '+' is wrong|"),
            replied(
                "XREAD STREAMS <x1>",
                "-ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be \
                 specified.|",
                "-ERR '+' is wrong|",
            ),
        ],
    },
    Row {
        name: "numbers behind a blank, and hexadecimal ones",
        explained: &[
            replied("ZCOUNT <z1> \" 1\" 2", ":0|", "-ERR min or max is not a float|"),
            replied("ZADD <z1> 0x10 a", ":1|", "-ERR value is not a valid float|"),
            replied(
                "SORT <l1>",
                "*1|$4|0x10|",
                "-ERR One or more scores can't be converted into double|",
            )
            .after("RPUSH <l1> 0x10"),
        ],
        refused: &[
            replied("ZCOUNT <z1> 1 2", ":0|", "-ERR min or max is not a float|"),
            replied("ZCOUNT <z1> \" 1\" 2", SYNTAX, "-ERR min or max is not a float|"),
            replied("ZCOUNT <z1> \" 1\" 2", ":0|", NO_INTEGER),
            replied("ZCOUNT <z1> \" 1\" 2", ":0|", ":1|"),
            replied(
                "SORT <l1>",
                "*1|$2|10|",
                "-ERR One or more scores can't be converted into double|",
            )
            .after("RPUSH <l1> 10"),
        ],
    },
    Row {
        name: "lag of groups",
        explained: &[replied(
            "XINFO GROUPS <x1>",
            "*1|*4|$12|entries-read|:1|$3|lag|:2|",
            "*1|*4|$12|entries-read|$-1|$3|lag|:1|",
        )],
        refused: &[
            replied(
                "XINFO GROUPS <x1>",
                "*1|*4|$12|entries-read|:1|$7|pending|:2|",
                "*1|*4|$12|entries-read|$-1|$7|pending|:1|",
            ),
            replied("XINFO GROUPS <x1>", "*1|*2|$3|lag|$1|1|", "*1|*2|$3|lag|:1|"),
            replied("XINFO GROUPS <x1>", "*1|*2|$3|lag|:1|", "*2|*2|$3|lag|:1|*2|$3|lag|:1|"),
            replied("XRANGE <x1> - +", "*1|*2|$3|lag|:1|", "*1|*2|$3|lag|:2|"),
        ],
    },
    Row {
        name: "types that are none",
        explained: &[replied(
            "SCAN 0 COUNT 1000 TYPE none",
            "*2|$1|0|*0|",
            "-ERR unknown type name 'none'|",
        )],
        refused: &[
            replied(
                "SCAN 0 COUNT 1000 TYPE string",
                "*2|$1|0|*0|",
                "-ERR unknown type name 'string'|",
            ),
            replied("SCAN 0 COUNT 1000", "*2|$1|0|*0|", "-ERR unknown type name 'none'|"),
            replied(
                "SCAN 0 COUNT 1000 TYPE none",
                "*2|$1|0|*1|$1|k|",
                "-ERR unknown type name 'none'|",
            ),
            replied("SCAN 0 COUNT 1000 TYPE none", "*2|$1|0|*0|", SYNTAX),
            replied("SCAN 0 COUNT 1000 TYPE none", SYNTAX, "-ERR unknown type name 'none'|"),
        ],
    },
    Row {
        name: "waiting for what is stored in place of another type",
        explained: &[
            replied("BLPOP <k1> 0", "*2|$4|p:k1|$1|1|", WAITS)
                .after("SET <k1> v")
                .by("SORT <l1> STORE <k1>"),
            replied("BLMOVE <k1> <l2> LEFT LEFT 0", "$1|1|", WAITS)
                .after("SADD <k1> v")
                .by("SORT <l1> STORE <k1>"),
            replied("BZPOPMIN <k1> <z1> 0", "*3|$4|p:k1|$1|a|$1|1|", WAITS)
                .after("XADD <k1> * f v")
                .by("ZRANGESTORE <k1> <z2> 0 -1"),
            replied("BZMPOP 0 1 <k1> MIN", "*2|$4|p:k1|*1|*2|$1|a|$1|1|", WAITS)
                .after("XADD <k1> * f v")
                .by("ZUNIONSTORE <k1> 1 <z2>"),
        ],
        refused: &[
            // By another command, or to a key on which no client blocks.
            replied("BLPOP <k1> 0", "*2|$4|p:k1|$1|1|", WAITS)
                .after("SET <k1> v")
                .by("RPUSH <k1> 1"),
            replied("BLPOP <k1> 0", "*2|$4|p:k1|$1|1|", WAITS)
                .after("SET <k1> v")
                .by("SORT <l1> STORE <k2>"),
            replied("BLPOP <k1> 0", "*2|$4|p:k1|$1|1|", WAITS).after("SET <k1> v").by("SORT <k1>"),
            replied("BZPOPMIN <k1> 0", "*3|$4|p:k1|$1|a|$1|1|", WAITS)
                .after("SET <k1> v")
                .by("ZRANGESTORE <z2> <k1> 0 -1"),
            // The key did not exist before.
            replied("BLPOP <k1> 0", "*2|$4|p:k1|$1|1|", WAITS).by("SORT <l1> STORE <k1>"),
            replied("BLPOP <k1> 0", "*2|$4|p:k1|$1|1|", WAITS)
                .after("SET <k2> v; BRPOP <k1> 0")
                .by("SORT <l1> STORE <k1>"),
            replied("BZPOPMIN <k1> 0", "*3|$4|p:k1|$1|a|$1|1|", WAITS)
                .by("ZUNIONSTORE <k1> 1 <z2>"),
            // The other way round, or with another reply.
            replied("BLPOP <k1> 0", WAITS, "*2|$4|p:k1|$1|1|")
                .after("SET <k1> v")
                .by("SORT <l1> STORE <k1>"),
            replied("BLPOP <k1> 0", "*2|$4|p:k2|$1|1|", WAITS)
                .after("SET <k1> v")
                .by("SORT <l1> STORE <k1>"),
            replied("BLPOP <k1> 0", "*-1|", WAITS).after("SET <k1> v").by("SORT <l1> STORE <k1>"),
            replied("BLPOP <k1> 0", WRONG_TYPE, WAITS)
                .after("SET <k1> v")
                .by("SORT <l1> STORE <k1>"),
            replied("BLPOP <k1> 0", "*2|$4|p:k1|$1|1|", "*2|$4|p:k1|$1|2|")
                .after("SET <k1> v")
                .by("SORT <l1> STORE <k1>"),
        ],
    },
    Row {
        name: "waiting for several keys that are filled at once",
        explained: &[
            replied("BLPOP <l1> <l2> 0", "*2|$4|p:l1|$1|c|", "*2|$4|p:l2|$1|a|").by("EXEC"),
            replied("BLMPOP 0 2 <l1> <l2> LEFT", "*2|$4|p:l1|*1|$1|c|", "*2|$4|p:l2|*1|$1|a|")
                .by("EXEC"),
            replied("BZPOPMIN <z1> <z2> 0", "*3|$4|p:z1|$1|b|$1|2|", "*3|$4|p:z2|$1|a|$1|1|")
                .by("EVAL script 0"),
            replied(
                "XREAD BLOCK 0 STREAMS <x1> <x2> $ $",
                "*2|*2|$4|p:x1|*1|*2|$3|2-1|*2|$1|f|$1|v|*2|$4|p:x2|*1|*2|$3|1-1|*2|$1|f|$1|v|",
                "*1|*2|$4|p:x2|*1|*2|$3|1-1|*2|$1|f|$1|v|",
            )
            .by("EXEC"),
        ],
        refused: &[
            // From the wrong end of the same list.
            replied("BLPOP <l1> <l2> 0", "*2|$4|p:l1|$1|d|", "*2|$4|p:l1|$1|c|").by("EXEC"),
            replied("BLPOP <l1> 0", "*2|$4|p:l1|$1|d|", "*2|$4|p:l1|$1|c|").by("EXEC"),
            // From the key named last.
            replied("BLPOP <l1> <l2> 0", "*2|$4|p:l2|$1|a|", "*2|$4|p:l1|$1|c|").by("EXEC"),
            // From a key that is not named.
            replied("BLPOP <l1> <l2> 0", "*2|$4|p:l3|$1|c|", "*2|$4|p:l2|$1|a|").by("EXEC"),
            // It was not blocked.
            replied("BLPOP <l1> <l2> 0", "*2|$4|p:l1|$1|c|", "*2|$4|p:l2|$1|a|"),
            // Another shape.
            replied("BLPOP <l1> <l2> 0", "*3|$4|p:l1|$1|c|$1|d|", "*2|$4|p:l2|$1|a|").by("EXEC"),
            replied("BLPOP <l1> <l2> 0", "*-1|", "*2|$4|p:l2|$1|a|").by("EXEC"),
            replied("BLPOP <l1> <l2> 0", "*2|$4|p:l1|*1|$1|c|", "*2|$4|p:l2|$1|a|").by("EXEC"),
            replied("BLMOVE <l1> <l2> LEFT LEFT 0", "$1|c|", "$1|a|").by("EXEC"),
            // The consumers of both differ.
            replied(
                "XREAD BLOCK 0 STREAMS <x1> <x2> $ $",
                "*2|*2|$4|p:x1|*1|*2|$3|2-1|*2|$1|f|$1|v|*2|$4|p:x2|*1|*2|$3|1-1|*2|$1|f|$1|w|",
                "*1|*2|$4|p:x2|*1|*2|$3|1-1|*2|$1|f|$1|v|",
            )
            .by("EXEC"),
            replied(
                "XREAD BLOCK 0 STREAMS <x1> <x2> $ $",
                "*1|*2|$4|p:x1|*1|*2|$3|2-1|*2|$1|f|$1|v|",
                "*1|*2|$4|p:x2|*1|*2|$3|1-1|*2|$1|f|$1|v|",
            )
            .by("EXEC"),
        ],
    },
    Row {
        name: "numbers that a script has stored",
        explained: &[
            replied("GET <k1>", "$3|0.1|", "$19|0.10000000000000001|").after("EVAL script 0"),
            replied("GET <k1>", "$18|100000000000000000|", "$5|1e+17|").after("EVALSHA f 0"),
            replied("HGETALL <h1>", "*2|$3|0.1|$1|1|", "*2|$19|0.10000000000000001|$1|1|")
                .after("EVAL script 0"),
            replied("GET <k1>", "$7|-1e+300|", "$24|-1.0000000000000001e+300|")
                .after("EVAL script 0"),
        ],
        refused: &[
            replied("GET <k1>", "$3|0.1|", "$19|0.10000000000000001|").after("SET <k1> 0.1"),
            replied("GET <k1>", "$3|0.1|", "$4|0.10|").after("EVAL script 0"),
            replied("GET <k1>", "$3|0.1|", "$3|0.2|").after("EVAL script 0"),
            replied("GET <k1>", "$1|1|", "$1|2|").after("EVAL script 0"),
            replied("GET <k1>", "$-1|", "$3|0.1|").after("EVAL script 0"),
            replied("GET <k1>", "$19|0.10000000000000001|", "$3|0.1|").after("EVAL script 0"),
            replied("LRANGE <l1> 0 -1", "*1|$3|0.1|", "*1|$19|0.10000000000000001|")
                .after("EVAL script 0"),
            replied("MGET <k1> <k2>", "*1|$3|0.1|", "*2|$19|0.10000000000000001|$-1|")
                .after("EVAL script 0"),
        ],
    },
    Row {
        name: "ids below what was deleted",
        explained: &[
            replied("XSETID <x1> 2-1", BELOW_DELETED, "+OK|").after("XDEL <x1> 3-1"),
            replied("XSETID <x1> 2-1", BELOW_DELETED, "+OK|")
                .after("XSETID <x1> 9-9 ENTRIESADDED 3 MAXDELETEDID 8-1"),
            replied("XSETID <x1> 2-1", BELOW_DELETED, BELOW_TOP).after("XDEL <x1> 3-1"),
        ],
        refused: &[
            replied("XSETID <x1> 2-1", BELOW_DELETED, "+OK|").after("XADD <x1> 3-1 f v"),
            replied("XSETID <x1> 2-1", BELOW_DELETED, "+OK|").after("XSETID <x1> 9-9"),
            replied("XSETID <x1> 2-1", SYNTAX, "+OK|").after("XDEL <x1> 3-1"),
            replied("XSETID <x1> 2-1", "+OK|", BELOW_DELETED).after("XDEL <x1> 3-1"),
            replied("XSETID <x1> 2-1", BELOW_DELETED, ":1|").after("XDEL <x1> 3-1"),
            replied("XSETID <x1> 2-1", BELOW_TOP, "+OK|").after("XDEL <x1> 3-1"),
        ],
    },
    Row {
        name: "infinite time-outs",
        explained: &[
            replied("BLPOP <l1> inf", OUT_OF_RANGE, NEGATIVE),
            replied("BZMPOP inf 1 <z1> MAX", OUT_OF_RANGE, NEGATIVE),
            replied("BLMOVE <l1> <l2> LEFT LEFT 1e400", OUT_OF_RANGE, NEGATIVE),
            replied("BLPOP <l1> 1e300", OUT_OF_RANGE, NEGATIVE),
            replied("BRPOP <l1> 0x1p4000", OUT_OF_RANGE, NEGATIVE),
        ],
        refused: &[
            replied("BLPOP <l1> 1000", OUT_OF_RANGE, NEGATIVE),
            replied("BLPOP <l1> -inf", OUT_OF_RANGE, NEGATIVE),
            replied("BLPOP <l1> 0x1p9", OUT_OF_RANGE, NEGATIVE),
            replied("BLPOP <l1> 0x0p4000", OUT_OF_RANGE, NEGATIVE),
            replied("BLPOP <l1> 0x1p-4000", OUT_OF_RANGE, NEGATIVE),
            replied("BLPOP <l1> inf", NEGATIVE, OUT_OF_RANGE),
            replied("BLPOP <l1> inf", OUT_OF_RANGE, "-ERR timeout is not a float or out of range|"),
            replied("BLPOP <l1> inf", OUT_OF_RANGE, WAITS),
            replied("XREAD BLOCK inf STREAMS <x1> $", OUT_OF_RANGE, NEGATIVE),
        ],
    },
    Row {
        name: "unbalanced lists of streams",
        explained: &[
            replied(
                "XREAD STREAMS <x1> 1 2",
                "-ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be \
                 specified.|",
                "-ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be \
                 specified.|",
            ),
            replied(
                "XREADGROUP GROUP g c STREAMS <x1>",
                "-ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must \
                 be specified.|",
                "-ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be \
                 specified.|",
            ),
        ],
        refused: &[
            replied(
                "XREAD STREAMS <x1> 1 2",
                "-ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must \
                 be specified.|",
                "-ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be \
                 specified.|",
            ),
            replied(
                "XREAD STREAMS <x1> 1 2",
                SYNTAX,
                "-ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must be \
                 specified.|",
            ),
            replied(
                "XREAD STREAMS <x1> 1 2",
                "-ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be \
                 specified.|",
                "*-1|",
            ),
        ],
    },
    Row {
        name: "bits of what is not there",
        explained: &[
            replied("BITCOUNT <s1> 2 inf", NO_INTEGER, ":0|"),
            replied("BITCOUNT <s1> -0 -1 BIT", NO_INTEGER, ":0|"),
            replied("BITCOUNT <s1> 0", SYNTAX, ":0|"),
            replied("BITCOUNT <s1> 0 1 BOTH", SYNTAX, ":0|"),
            replied("BITCOUNT <l1> x 1", NO_INTEGER, WRONG_TYPE),
            replied("BITPOS <s1> 1 x", NO_INTEGER, ":-1|"),
            replied("BITPOS <s1> 0 x", NO_INTEGER, ":0|"),
            replied("BITPOS <s1> 0 0 1 BIT BIT", SYNTAX, ":0|"),
        ],
        refused: &[
            // The arguments after the key are a range.
            replied("BITCOUNT <s1> 0 -1", NO_INTEGER, ":0|"),
            replied("BITCOUNT <s1> 0 -1 BIT", SYNTAX, ":0|"),
            replied("BITCOUNT <s1>", SYNTAX, ":0|"),
            replied("BITPOS <s1> 1 0", NO_INTEGER, ":-1|"),
            replied("BITPOS <s1> 1", SYNTAX, ":-1|"),
            // The key exists.
            replied("BITCOUNT <s1> 2 inf", NO_INTEGER, ":4|"),
            replied("BITPOS <s1> 1 x", NO_INTEGER, ":3|"),
            replied("BITPOS <s1> 1 x", NO_INTEGER, ":0|"),
            replied("BITPOS <s1> 0 x", NO_INTEGER, ":-1|"),
            // Another reply.
            replied("BITCOUNT <s1> 2 inf", WRONG_TYPE, ":0|"),
            replied("BITCOUNT <s1> 2 inf", ":0|", NO_INTEGER),
            replied("BITCOUNT <s1> 2 inf", ":1|", ":0|"),
            replied("BITCOUNT <s1> 2 inf", NO_INTEGER, SYNTAX),
            replied("BITCOUNT <s1> 2 inf", NO_INTEGER, "$-1|"),
        ],
    },
    Row {
        name: "consumers that read in vain",
        explained: &[
            replied("XGROUP CREATECONSUMER <x1> g1 c1", ":0|", ":1|")
                .after("XREADGROUP GROUP g1 c1 STREAMS <x1> >"),
            replied("XINFO GROUPS <x1>", ONE_CONSUMER, NO_CONSUMERS)
                .after("XREADGROUP GROUP g1 c1 STREAMS <x1> >"),
            replied("XINFO GROUPS <x1>", ONE_CONSUMER, NO_CONSUMERS)
                .after("XAUTOCLAIM <x1> g1 c1 0 1"),
            replied("XINFO CONSUMERS <x1> g1", IDLE_5_INACTIVE, "*0|")
                .after("XCLAIM <x1> g1 c1 0 1-1"),
            replied("XINFO GROUPS <x1>", TWO_CONSUMERS, NO_CONSUMERS).after(
                "XREADGROUP GROUP g1 c1 STREAMS <x1> >; xreadgroup group g1 c2 STREAMS <x1> >",
            ),
            replied("XINFO CONSUMERS <x1> g1", IDLE_5_INACTIVE, "*0|")
                .after("XREADGROUP GROUP g1 c1 STREAMS <x1> >"),
            replied("XINFO STREAM <x1> FULL", FULL_7_2, FULL_EMPTY)
                .after("XREADGROUP GROUP g1 c1 STREAMS <x1> >"),
            replied("XINFO CONSUMERS <x1> g1", OF_A_KEY, "*0|")
                .after("XREADGROUP GROUP g1 <k1> STREAMS <x1> >"),
        ],
        refused: &[
            // Not that consumer, or not in that group.
            replied("XGROUP CREATECONSUMER <x1> g1 c1", ":0|", ":1|"),
            replied("XGROUP CREATECONSUMER <x1> g1 c1", ":0|", ":1|")
                .after("XREADGROUP GROUP g1 c2 STREAMS <x1> >"),
            replied("XGROUP CREATECONSUMER <x1> g1 c1", ":0|", ":1|")
                .after("XREADGROUP GROUP g2 c1 STREAMS <x1> >"),
            replied("XGROUP CREATECONSUMER <x1> g1 c1", ":0|", ":1|")
                .after("XCLAIM <x1> g1 c2 0 1-1"),
            replied("XGROUP CREATECONSUMER <x1> g1 c1", ":1|", ":0|")
                .after("XREADGROUP GROUP g1 c1 STREAMS <x1> >"),
            replied("XINFO GROUPS <x1>", ONE_CONSUMER, NO_CONSUMERS),
            // More than have read, fewer than there are, or another difference.
            replied("XINFO GROUPS <x1>", TWO_CONSUMERS, NO_CONSUMERS).after(
                "XREADGROUP GROUP g1 c1 STREAMS <x1> >; XREADGROUP GROUP g1 c1 STREAMS <x1> >",
            ),
            replied("XINFO GROUPS <x1>", NO_CONSUMERS, ONE_CONSUMER)
                .after("XREADGROUP GROUP g1 c1 STREAMS <x1> >"),
            replied("XINFO GROUPS <x1>", ONE_CONSUMER, "*1|*4|$4|name|$2|g2|$9|consumers|:0|")
                .after("XREADGROUP GROUP g1 c1 STREAMS <x1> >"),
            replied("XINFO CONSUMERS <x1> g1", IDLE_5_INACTIVE, "*0|"),
            replied("XINFO CONSUMERS <x1> g1", OF_A_KEY, "*0|")
                .after("XREADGROUP GROUP g1 <k2> STREAMS <x1> >"),
            replied("XINFO CONSUMERS <x1> g1", PENDING_1_INACTIVE, "*0|")
                .after("XREADGROUP GROUP g1 c1 STREAMS <x1> >"),
            replied("XINFO CONSUMERS <x1> g2", IDLE_5_INACTIVE, "*0|")
                .after("XREADGROUP GROUP g1 c1 STREAMS <x1> >"),
            replied("XINFO CONSUMERS <x1> g1", "*0|", IDLE_5)
                .after("XREADGROUP GROUP g1 c1 STREAMS <x1> >"),
            replied("XINFO STREAM <x1> FULL", FULL_7_2, FULL_EMPTY),
            replied("XINFO STREAM <x1> FULL", FULL_7_2_LONGER, FULL_EMPTY)
                .after("XREADGROUP GROUP g1 c1 STREAMS <x1> >"),
        ],
    },
    Row {
        name: "times of consumers",
        explained: &[
            replied("XINFO STREAM <x1> FULL", FULL_7_2, FULL_7_0),
            replied("XINFO CONSUMERS <x1> g1", IDLE_5_INACTIVE, IDLE_5),
            replied("XINFO CONSUMERS <x1> g1", IDLE_5_INACTIVE, IDLE_500).after(READ_TWICE),
        ],
        refused: &[
            replied("XINFO CONSUMERS <x1> g1", IDLE_5_INACTIVE, IDLE_500),
            replied("XINFO CONSUMERS <x1> g1", IDLE_5_INACTIVE, IDLE_500)
                .after("XREADGROUP GROUP g1 c1 STREAMS <x1> >"),
            replied("XINFO CONSUMERS <x1> g1", IDLE_500_INACTIVE, IDLE_5).after(READ_TWICE),
            replied("XINFO STREAM <x1> FULL", FULL_7_0, FULL_7_2),
            replied("XINFO STREAM <x1> FULL", FULL_7_2_LONGER, FULL_7_0),
            replied("XINFO STREAM <x1> FULL", FULL_7_2, FULL_EMPTY),
            replied("XINFO STREAM <x1> FULL", SYNTAX, FULL_7_0),
            replied("XINFO STREAM <x1> FULL", FULL_7_2, WRONG_TYPE),
            replied("XINFO STREAM <x1>", "*2|$6|length|:0|", "*2|$6|length|:1|"),
            replied("XINFO CONSUMERS <x1> g1", IDLE_500_INACTIVE, IDLE_5),
            replied("XINFO CONSUMERS <x1> g1", PENDING_1_INACTIVE, IDLE_5),
            replied("XINFO CONSUMERS <x1> g1", IDLE_5, IDLE_5_INACTIVE),
        ],
    },
    Row {
        name: "ranks with scores, in transactions",
        explained: &[replied("ZRANK <z1> a b c", "+QUEUED|", ZRANK_ARITY)],
        refused: &[
            replied("ZRANK <z1> a b c", ":1|", ZRANK_ARITY),
            replied("ZRANK <z1> a b c", "+QUEUED|", ":1|"),
            replied("ZRANK <z1> a", "+QUEUED|", ZRANK_ARITY),
            replied("ZCARD <z1> a b c", "+QUEUED|", ZRANK_ARITY),
        ],
    },
    Row {
        name: "hexadecimal bounds beyond all doubles",
        explained: &[replied("ZRANGEBYSCORE <z1> 0x1p4000 1", NO_BOUND, "*0|")],
        refused: &[
            replied("ZRANGEBYSCORE <z1> 0x1p4000 1", "*0|", NO_BOUND),
            replied("ZRANGEBYSCORE <z1> x 1", NO_BOUND, "*0|"),
            replied("ZRANGEBYSCORE <z1> 0x1p4000 1", NO_BOUND, SYNTAX),
        ],
    },
    Row {
        name: "the order of what is no text",
        explained: &[replied("SORT <l1> ALPHA LIMIT 0 1", "*1|$1|a|", "*1|$3|a\0b|")],
        refused: &[
            replied("SORT <l1> ALPHA LIMIT 0 1", "*1|$1|a|", "*1|$1|b|"),
            replied("SORT <l1> LIMIT 0 1", "*1|$1|a|", "*1|$3|a\0b|"),
            replied("SORT <l1> ALPHA LIMIT 0 1", "*2|$1|a|$1|b|", "*1|$3|a\0b|"),
        ],
    },
    Row {
        name: "bytes of a request, in errors",
        explained: &[
            replied("EXPIRE k 1 \"a\\x00b\"", "-ERR no a\0b|", "-ERR no a|"),
            replied("EXPIRE k 1 \"a\\r\"", "-ERR no a |", "-ERR no a|"),
        ],
        refused: &[
            replied("EXPIRE k 1 \"a\\x00b\"", "-ERR no a\0b|", "-ERR yes a|"),
            replied("EXPIRE k 1 \"a\\x00b\"", "$1|a|", "-ERR no a|"),
            replied("EXPIRE k 1 a", "-ERR no a |", "-ERR no|"),
        ],
    },
    Row {
        name: "leases compared in the millisecond in which they end",
        explained: &[
            replied("PEXPIRE <k1> 5000 GT", ":0|", ":1|").after("PEXPIRE <k1> 5000"),
            replied("PEXPIRE <k1> 5000 LT", ":1|", ":0|").after("SET <k1> v PX 5000"),
            replied("expire <k1> 5 gt", ":1|", ":0|").after("PSETEX <k1> 4995 v; GET <k1>"),
            replied("PEXPIRE <k1> 5000 GT", ":1|", ":0|").after("PEXPIRE <k1> 5000").by("EXEC"),
        ],
        refused: &[
            // Of another length, of another key, or none.
            replied("PEXPIRE <k1> 5000 GT", ":0|", ":1|").after("PEXPIRE <k1> 5011"),
            replied("PEXPIRE <k1> 5000 GT", ":0|", ":1|").after("PEXPIRE <k2> 5000"),
            replied("PEXPIRE <k1> 5000 GT", ":0|", ":1|").after("EXPIRE <k1> 5000"),
            replied("PEXPIRE <k1> 5000 GT", ":0|", ":1|"),
            // Not compared, or with another reply.
            replied("PEXPIRE <k1> 5000", ":0|", ":1|").after("PEXPIRE <k1> 5000"),
            replied("PEXPIRE <k1> 5000 NX", ":0|", ":1|").after("PEXPIRE <k1> 5000"),
            replied("PEXPIRE <k1> 5000 GT", ":0|", NO_INTEGER).after("PEXPIRE <k1> 5000"),
            replied("PEXPIREAT <k1> 5000 GT", ":0|", ":1|").after("PEXPIRE <k1> 5000"),
        ],
    },
];

#[test]
fn known_differences_are_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/differences.md");
    let text = std::fs::read_to_string(path).expect("the page is there");
    for explained in EXPLAINED {
        let found = text.lines().any(|line| line.starts_with(explained.line));
        assert!(found, "{}: no line begins with {}", explained.name, explained.line);
    }
}

#[test]
fn every_known_difference_has_examples_and_near_misses() {
    let known: Vec<&str> = EXPLAINED.iter().map(|it| it.name).collect();
    let tested: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
    assert_eq!(known, tested);
    assert_eq!(known.iter().collect::<BTreeSet<_>>().len(), known.len(), "a name is there twice");
    for row in ROWS {
        assert!(!row.explained.is_empty(), "{}: no example", row.name);
        assert!(row.refused.len() >= 3, "{}: too few near misses", row.name);
    }
}

#[test]
fn known_difference_applies_only_to_its_versions() {
    for (row, explained) in ROWS.iter().zip(EXPLAINED) {
        let (version, other) = versions(explained.of);
        for example in row.explained {
            assert_eq!(example.found(version), Some(row.name), "{example:?}");
            if let Some(other) = other {
                assert_ne!(example.found(other), Some(row.name), "{example:?} {other:?}");
            }
        }
    }
}

#[test]
fn near_miss_is_not_explained() {
    let mut explained = Vec::new();
    for (row, known) in ROWS.iter().zip(EXPLAINED) {
        let (version, _) = versions(known.of);
        for example in row.refused {
            if let Some(name) = example.found(version) {
                explained.push(format!("{}: {example:?} is explained by {name}", row.name));
            }
        }
    }
    assert!(explained.is_empty(), "{}", explained.join("\n"));
}

#[test]
fn reply_from_another_key_is_checked_on_the_reference() {
    let split = |line: &str| words::split(line).expect("words");
    let frame = |text: &str| Frame::whole(text.replace('|', "\r\n").as_bytes()).expect("a reply");
    for (command, reply, expected) in [
        ("BLPOP <l1> <l2> 0", "*2|$4|p:l2|$1|c|", "BLPOP <l2> 0"),
        (
            "BLMPOP 0 3 <l1> <l2> <l3> LEFT COUNT 2",
            "*2|$4|p:l2|*1|$1|c|",
            "BLMPOP 0 1 <l2> LEFT COUNT 2",
        ),
        ("BZPOPMAX <z1> <z2> <z1> 5", "*3|$4|p:z1|$1|a|$1|1|", "BZPOPMAX <z1> 5"),
    ] {
        assert_eq!(alone(&split(command), &frame(reply)), [(split(expected), frame(reply))]);
    }
    let (one, other) = ("*2|$4|p:x1|*1|$1|a|", "*2|$4|p:x2|*1|$1|b|");
    let command = split("XREADGROUP GROUP g c COUNT 1 BLOCK 0 STREAMS <x1> <x2> > 0-1");
    let asked = alone(&command, &frame(&format!("*2|{one}{other}")));
    let head = "XREADGROUP GROUP g c COUNT 1 BLOCK 0 STREAMS";
    assert_eq!(
        asked,
        [
            (split(&format!("{head} <x1> >")), frame(&format!("*1|{one}"))),
            (split(&format!("{head} <x2> 0-1")), frame(&format!("*1|{other}"))),
        ]
    );
    let asked = alone(&command, &frame("%2|$4|p:x1|*1|$1|a|$4|p:x2|*1|$1|b|"));
    assert_eq!(asked[1].1, frame("%1|$4|p:x2|*1|$1|b|"));
}

#[test]
fn seventeen_digits_match_printf() {
    for (number, expected) in [
        (0.1, "0.10000000000000001"),
        (-0.3, "-0.29999999999999999"),
        (1e-5, "1.0000000000000001e-05"),
        (0.0001, "0.0001"),
        (1e17, "1e+17"),
        (1e16, "10000000000000000"),
        (1e300, "1.0000000000000001e+300"),
        (1.844_674_407_370_955_2e19, "1.8446744073709552e+19"),
        (3.5, "3.5"),
        (100.0, "100"),
        (0.0, "0"),
    ] {
        assert_eq!(seventeen_digits(number), expected);
    }
}
