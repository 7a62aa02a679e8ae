//! What the fuzzer adds to the grammar of the server: which values an argument gets, which commands
//! and options it does not draw, and which it draws often.
//!
//! A command without a row here is drawn as well: the type of an argument and the group of its
//! command decide its values.

use super::kinds::ValueKind;

/// Commands that are drawn five times as often as others: most of them create keys.
pub const OFTEN: &[&str] = &[
    "EVAL",
    "EVALSHA",
    "HSET",
    "LPUSH",
    "PUBLISH",
    "RPUSH",
    "SADD",
    "SET",
    "WATCH",
    "XADD",
    "XGROUP CREATE",
    "XREADGROUP",
    "ZADD",
];

/// Optional arguments, by name or token, that are mostly drawn: without them a command has hardly
/// an effect, or its reply depends on chance.
pub const USUAL: &[(&str, &str)] = &[
    ("BITFIELD", "operation"),
    ("EVAL", "arg"),
    ("EVAL", "key"),
    ("EVALSHA", "arg"),
    ("EVALSHA", "key"),
    ("EVALSHA_RO", "arg"),
    ("EVALSHA_RO", "key"),
    ("EVAL_RO", "key"),
    ("HELLO", "arguments"),
    ("HSCAN", "COUNT"),
    ("PUBSUB CHANNELS", "pattern"),
    ("PUBSUB NUMSUB", "channel"),
    ("PUBSUB SHARDCHANNELS", "pattern"),
    ("PUBSUB SHARDNUMSUB", "shardchannel"),
    ("PUNSUBSCRIBE", "pattern"),
    ("SCAN", "COUNT"),
    ("SPOP", "count"),
    ("SSCAN", "COUNT"),
    ("SUNSUBSCRIBE", "shardchannel"),
    ("UNSUBSCRIBE", "channel"),
    ("XGROUP CREATE", "MKSTREAM"),
    ("ZSCAN", "COUNT"),
];

/// Arguments that `COMMAND DOCS` of Redis 7.0 does not mention: the command and the name.
pub const UNDOCUMENTED: &[(&str, &str)] = &[("COMMAND GETKEYS", "command")];

/// The values of an argument.
pub struct Rule {
    /// The commands; all if empty.
    pub commands: &'static [&'static str],
    /// The names of the arguments.
    pub arguments: &'static [&'static str],
    /// The condition.
    pub with: With,
    /// The kinds of values, one of which is drawn.
    pub kinds: &'static [ValueKind],
}

/// The condition of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum With {
    /// None.
    Anything,
    /// The word in front of the argument.
    Token(&'static str),
    /// An option of the command.
    Option(&'static str),
    /// The beginning of a word before the argument.
    Word(&'static str),
}

const fn rule(
    commands: &'static [&'static str],
    arguments: &'static [&'static str],
    kinds: &'static [ValueKind],
) -> Rule {
    Rule { commands, arguments, with: With::Anything, kinds }
}

const fn rule_with(
    with: With,
    commands: &'static [&'static str],
    arguments: &'static [&'static str],
    kinds: &'static [ValueKind],
) -> Rule {
    Rule { commands, arguments, with, kinds }
}

/// Which values an argument gets. The first matching rule applies; without one, the type of the
/// argument decides.
pub const RULES: &[Rule] = &[
    // Keys that the group of the command does not give.
    rule(COUNTING, &["key"], &[ValueKind::Counter]),
    rule(
        &["SET"],
        &["key"],
        &[ValueKind::String, ValueKind::String, ValueKind::String, ValueKind::Counter],
    ),
    rule(&["SORT", "SORT_RO"], &["key"], &[ValueKind::List, ValueKind::Set, ValueKind::Zset]),
    rule(&["SORT"], &["destination"], &[ValueKind::List]),
    rule(LEX, &["key"], &[ValueKind::LexSet]),
    rule_with(With::Option("BYLEX"), &["ZRANGE"], &["key"], &[ValueKind::LexSet]),
    rule_with(With::Option("BYLEX"), &["ZRANGESTORE"], &["src"], &[ValueKind::LexSet]),
    rule(
        &["ZADD", "ZREM"],
        &["key"],
        &[ValueKind::Zset, ValueKind::Zset, ValueKind::Zset, ValueKind::LexSet],
    ),
    // Ranges.
    rule(LEX, &["min", "max"], &[ValueKind::LexBound]),
    rule_with(
        With::Option("BYLEX"),
        ZRANGES,
        &["start", "stop", "min", "max"],
        &[ValueKind::LexBound],
    ),
    rule_with(
        With::Option("BYSCORE"),
        ZRANGES,
        &["start", "stop", "min", "max"],
        &[ValueKind::ScoreBound],
    ),
    rule(ZRANGES, &["start", "stop", "min", "max"], &[ValueKind::Index]),
    rule(&[], &["min", "max"], &[ValueKind::ScoreBound]),
    rule(&["XRANGE", "XREVRANGE", "XPENDING"], &["start", "end"], &[ValueKind::IdBound]),
    rule(&["XAUTOCLAIM"], &["start"], &[ValueKind::Id]),
    rule(&["SELECT"], &["index"], &[ValueKind::Database]),
    rule(&[], &["start", "stop", "end", "index", "rank"], &[ValueKind::Index]),
    // Numbers.
    rule(&["LREM"], &["count"], &[ValueKind::Index]),
    rule(&["SPOP", "SCAN", "HSCAN", "SSCAN", "ZSCAN"], &["count"], &[ValueKind::Many]),
    rule(&[], &["count", "num-matches", "len", "limit"], &[ValueKind::Count]),
    rule(&[], &["entries_added", "entries_read"], &[ValueKind::Count]),
    rule(&["BITFIELD", "BITFIELD_RO"], &["offset"], &[ValueKind::BitOffset]),
    rule(&["GETBIT", "SETBIT", "SETRANGE"], &["offset"], &[ValueKind::Offset]),
    rule(&[], &["offset"], &[ValueKind::Index]),
    rule(&["BITFIELD"], &["value"], &[ValueKind::Integer]),
    rule(&["SETBIT"], &["value"], &[ValueKind::Bit]),
    rule(&[], &["bit"], &[ValueKind::Bit]),
    rule(&[], &["encoding"], &[ValueKind::Bits]),
    rule_with(With::Word("<y"), &["ZADD"], &["score"], &[ValueKind::Zero]),
    rule(&[], &["score"], &[ValueKind::Score]),
    rule(&["ZINCRBY"], &["increment"], &[ValueKind::Score]),
    rule(&[], &["weight"], &[ValueKind::Weight]),
    rule(&[], &["numkeys"], &[ValueKind::Numkeys]),
    rule(&[], &["cursor", "numreplicas", "min-idle-time"], &[ValueKind::Zero]),
    rule(&["WAIT"], &["timeout"], &[ValueKind::Count]),
    rule(&[], &["timeout"], &[ValueKind::Timeout]),
    rule(&["XREAD", "XREADGROUP"], &["milliseconds"], &[ValueKind::Block]),
    rule(&[], &["seconds"], &[ValueKind::Seconds]),
    rule(&[], &["milliseconds"], &[ValueKind::Milliseconds]),
    rule(&[], &["unix-time-seconds"], &[ValueKind::UnixSeconds]),
    rule(&[], &["unix-time-milliseconds"], &[ValueKind::UnixMilliseconds]),
    // Elements of values.
    rule(&[], &["field"], &[ValueKind::Field]),
    rule(&[], &["element", "pivot"], &[ValueKind::Element]),
    rule(&[], &["member", "connection-name", "clientname"], &[ValueKind::Member]),
    // Streams.
    rule(&["XREAD"], &["id"], &[ValueKind::Id, ValueKind::NewId]),
    rule(&["XREADGROUP"], &["id"], &[ValueKind::Id, ValueKind::Undelivered]),
    rule(&[], &["id", "last-id", "max_deleted_entry_id"], &[ValueKind::Id]),
    rule_with(With::Option("MINID"), &["XADD", "XTRIM"], &["threshold"], &[ValueKind::Id]),
    rule(&["XADD", "XTRIM"], &["threshold"], &[ValueKind::Count]),
    rule(&[], &["group", "groupname"], &[ValueKind::Group]),
    rule(&[], &["consumer", "consumername"], &[ValueKind::Consumer]),
    // Patterns and channels.
    rule_with(With::Token("BY"), &["SORT", "SORT_RO"], &["pattern"], &[ValueKind::By]),
    rule_with(With::Token("GET"), &["SORT", "SORT_RO"], &["pattern"], &[ValueKind::Get]),
    rule(&["HSCAN", "SSCAN", "ZSCAN"], &["pattern"], &[ValueKind::Glob]),
    rule(&["KEYS", "SCAN"], &["pattern"], &[ValueKind::Pattern]),
    rule(&[], &["pattern"], &[ValueKind::ChannelPattern]),
    rule(&[], &["channel", "shardchannel"], &[ValueKind::Channel]),
    rule(&[], &["message"], &[ValueKind::Message]),
    // Scripts.
    rule(&["EVAL"], &["script"], &[ValueKind::Script, ValueKind::LockScript]),
    rule(&["EVAL_RO"], &["script"], &[ValueKind::Script]),
    rule(&[], &["script"], &[ValueKind::LockScript]),
    rule(&[], &["sha1"], &[ValueKind::Digest]),
    rule_with(With::Word("@"), &[], &["arg"], &[ValueKind::LockArgument]),
    // Others.
    rule(&["COMMAND GETKEYS"], &["command"], &[ValueKind::Command]),
    rule(&["BITOP"], &["operation"], &[ValueKind::Operation]),
    rule(&["CLIENT UNBLOCK"], &["client-id"], &[ValueKind::ClientId]),
    rule(&["CONFIG GET"], &["parameter"], &[ValueKind::Directive]),
    rule(&["HELLO"], &["protover"], &[ValueKind::Protocol]),
    rule(&["SCAN"], &["type"], &[ValueKind::Type]),
];

const COUNTING: &[&str] = &["DECR", "DECRBY", "INCR", "INCRBY", "INCRBYFLOAT"];
const LEX: &[&str] = &["ZLEXCOUNT", "ZRANGEBYLEX", "ZREMRANGEBYLEX", "ZREVRANGEBYLEX"];
const ZRANGES: &[&str] = &["ZRANGE", "ZRANGESTORE"];

/// Optional arguments, by name or token, that are not drawn, and why.
pub const LEFT_OUT_OPTIONS: &[(&str, &str, &str)] = &[
    ("CLIENT TRACKING", "BCAST", "messages are collected for as long as a server likes"),
    ("CLIENT TRACKING", "PREFIX", "belongs to BCAST"),
    ("CLIENT TRACKING", "REDIRECT", "client ids differ"),
    ("COMMAND GETKEYS", "arg", "belongs to the command"),
    ("COPY", "DB", "other databases are not ours"),
    ("HELLO", "AUTH", "the password is the server's affair"),
    ("XADD", "*", "an id made from the clock"),
    ("XADD", "~", "how much is trimmed depends on the version"),
    ("XCLAIM", "IDLE", "idle times pass"),
    ("XCLAIM", "TIME", "idle times pass"),
    ("XTRIM", "~", "how much is trimmed depends on the version"),
];

/// Commands that are not drawn, and why. A name includes its subcommands.
pub const LEFT_OUT: &[(&str, &str)] = &[
    ("ACL", "all clients share users; cases hold its forms"),
    ("AUTH", "the password is the server's affair"),
    ("BGREWRITEAOF", "it writes to the server's disk"),
    ("BGSAVE", "it writes to the server's disk"),
    ("CLIENT INFO", "addresses and ages"),
    ("CLIENT KILL", "it ends other connections; cases hold its forms"),
    ("CLIENT LIST", "addresses and ages"),
    ("CLIENT NO-TOUCH", "it shows in idle times alone"),
    ("CLIENT PAUSE", "it stops all clients"),
    ("CLIENT REPLY", "a client without replies cannot be compared; the cases test its forms"),
    ("CLIENT UNPAUSE", "it belongs to CLIENT PAUSE"),
    ("COMMAND COUNT", "servers have different commands"),
    ("COMMAND DOCS", "our own words"),
    ("COMMAND GETKEYSANDFLAGS", "flags change from release to release"),
    ("COMMAND INFO", "flags change from release to release"),
    ("COMMAND LIST", "servers have different commands"),
    ("CONFIG RESETSTAT", "all clients share it"),
    ("CONFIG REWRITE", "it writes to the server's disk"),
    ("CONFIG SET", "all clients share it"),
    ("DBSIZE", "Redis counts what has ended until it happens to look there"),
    ("DEBUG", "all clients share it"),
    ("DUMP", "the bytes are those of a version"),
    ("FAILOVER", "all clients share it"),
    ("FCALL", "functions belong to all databases; cases hold its forms"),
    ("FCALL_RO", "functions belong to all databases; cases hold its forms"),
    ("FLUSHALL", "it would empty databases that are not ours"),
    ("FLUSHDB", "it would hide what the end of an episode compares"),
    ("FUNCTION", "functions belong to all databases; cases hold its forms"),
    ("INFO", "it counts all clients"),
    ("LASTSAVE", "it belongs to SAVE"),
    ("LATENCY", "it measures the server"),
    ("LOCKWHEEL", "it controls a server for tests"),
    ("LOLWUT", "each version has its own picture"),
    ("MEMORY", "memory use differs between servers"),
    ("MIGRATE", "it connects to other servers"),
    ("MODULE", "it loads programs"),
    ("MONITOR", "it shows the commands of all clients"),
    ("MOVE", "other databases are not ours"),
    ("PSYNC", "replication"),
    ("PUBSUB NUMPAT", "it counts the patterns of all clients"),
    ("QUIT", "its end is a race with what is sent behind it; cases hold its forms"),
    ("RANDOMKEY", "chance"),
    ("REPLCONF", "replication"),
    ("REPLICAOF", "replication"),
    ("RESET", "it goes to the first database, which is not ours; cases hold it"),
    ("RESTORE", "it takes the bytes of DUMP"),
    ("RESTORE-ASKING", "it takes the bytes of DUMP"),
    ("SAVE", "it writes to the server's disk"),
    ("SCRIPT DEBUG", "it makes a client a debugger"),
    ("SCRIPT FLUSH", "all clients share scripts"),
    ("SCRIPT KILL", "all clients share scripts"),
    ("SHUTDOWN", "it ends the server"),
    ("SLAVEOF", "replication"),
    ("SLOWLOG", "all clients share it"),
    ("SWAPDB", "other databases are not ours"),
    ("SYNC", "replication"),
    ("WAITAOF", "it belongs to durability"),
];

/// Groups whose commands are not drawn, and why.
pub const LEFT_OUT_GROUPS: &[(&str, &str)] = &[
    ("cluster", "errors unless the server is a node of a cluster"),
    ("geo", "Lockwheel has no such data"),
    ("hyperloglog", "Lockwheel has no such data"),
    ("module", "commands that are not the server's own"),
    ("sentinel", "of sentinels alone"),
];

/// Why a command is not drawn, if it is not.
pub fn left_out(words: &[String], group: &str) -> Option<&'static str> {
    if words.last().is_some_and(|word| word == "HELP") {
        return Some("each server has its own help text");
    }
    let begins = |name: &str| {
        name.split(' ').enumerate().all(|(at, it)| words.get(at).is_some_and(|word| word == it))
    };
    let by_name = LEFT_OUT.iter().find(|(name, _)| begins(name));
    by_name
        .or_else(|| LEFT_OUT_GROUPS.iter().find(|(name, _)| *name == group))
        .map(|&(_, reason)| reason)
}
