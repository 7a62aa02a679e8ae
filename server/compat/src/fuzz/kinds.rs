//! The kinds of values, and the values of each. There are few keys, so that commands use the same
//! ones.

use crate::random::Random;

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the kind of its name")]
pub enum ValueKind {
    Bit,
    BitOffset,
    Bits,
    Block,
    By,
    Channel,
    ChannelPattern,
    ClientId,
    Command,
    Consumer,
    Count,
    Counter,
    Database,
    Digest,
    Directive,
    Element,
    Field,
    Float,
    Get,
    Glob,
    Group,
    Hash,
    Id,
    IdBound,
    Index,
    Integer,
    Key,
    LexBound,
    LexSet,
    List,
    LockArgument,
    LockScript,
    Many,
    Member,
    Message,
    Milliseconds,
    NewId,
    Numkeys,
    Offset,
    Operation,
    Pattern,
    Protocol,
    Score,
    ScoreBound,
    Script,
    Seconds,
    Set,
    Stream,
    String,
    Timeout,
    Type,
    Undelivered,
    UnixMilliseconds,
    UnixSeconds,
    Value,
    Weight,
    Zero,
    Zset,
}

/// The values of each kind; a kind without values is generated.
const KINDS: &[(ValueKind, &[&str])] = &[
    (ValueKind::Bit, &["0", "1"]),
    (ValueKind::BitOffset, &["0", "1", "7", "8", "#0", "#1", "#3", "100"]),
    (ValueKind::Bits, &["u1", "u4", "u8", "i8", "i16", "u32", "i64", "u63", "u64", "i65", "x"]),
    (ValueKind::Block, &["0", "0", "0", "1", "5", "-1", "abc"]),
    (ValueKind::By, &["<w->*", "<h->*->f1", "<none->*"]),
    (ValueKind::Channel, &["<c1>", "<c2>", "<d1>"]),
    (ValueKind::ChannelPattern, &["<c>*", "<d>?"]),
    (ValueKind::ClientId, &["$id-a", "$id-b", "$id-c", "0", "abc"]),
    (ValueKind::Command, &[]),
    (ValueKind::Consumer, &["c1", "c2", "c3"]),
    (ValueKind::Count, &["1", "2", "3", "5", "10", "0", "-1", "-2"]),
    (ValueKind::Counter, &["<n1>", "<n2>", "<n3>"]),
    (ValueKind::Database, &["abc", "-1", "99999"]),
    (ValueKind::Digest, &[]),
    (
        ValueKind::Directive,
        &["maxmemory-policy", "zset-max-listpack-*", "hash-max-listpack-entries", "nothing"],
    ),
    (ValueKind::Element, ELEMENTS),
    (ValueKind::Field, &["f1", "f2", "f3", "n", "m", ""]),
    (ValueKind::Float, FLOATS),
    (ValueKind::Get, &["#", "<w->*", "<h->*->f1", "<none->*"]),
    (ValueKind::Glob, &["*", "a*", "[ab]", "?", "f?", "none", "[^a]", "\\*"]),
    (ValueKind::Group, &["g1", "g1", "g2"]),
    (ValueKind::Hash, &["<h1>", "<h2>", "<h-a>"]),
    (ValueKind::Id, &["1-1", "2-1", "2-2", "3-*", "5-0", "7-*", "9-9", "12", "0-0", "0-1"]),
    (ValueKind::IdBound, &["-", "+", "2", "(2-1", "3-0", "7", "(9-9", "0", "x"]),
    (ValueKind::Index, &["0", "1", "2", "3", "-1", "-2", "-3", "5", "-100", "100"]),
    (ValueKind::Integer, &["1", "2", "-1", "10", "-7", "0", "100", "255", "65536"]),
    (ValueKind::Key, &["<k1>", "<k2>"]),
    (ValueKind::LexBound, &["-", "+", "[a", "(a", "[c", "(d", "[", "(", "x"]),
    (ValueKind::LexSet, &["<y1>", "<y2>"]),
    (ValueKind::List, &["<l1>", "<l2>"]),
    (ValueKind::LockArgument, LOCK_ARGUMENTS),
    (ValueKind::LockScript, &[]),
    (ValueKind::Many, &["1000", "2000", "100000"]),
    (ValueKind::Member, ELEMENTS),
    (ValueKind::Message, &["hello", "0", "1", "", "unlock"]),
    (ValueKind::Milliseconds, &[]),
    (ValueKind::NewId, &["$"]),
    (ValueKind::Numkeys, &["1"]),
    (ValueKind::Offset, &["0", "1", "3", "7", "8", "20", "100", "-1"]),
    (ValueKind::Operation, &["AND", "OR", "XOR", "NOT", "not"]),
    (ValueKind::Pattern, &["<s>*", "<h>?", "<z>[12]", "<k>[^1]", "*", "none"]),
    (ValueKind::Protocol, &["2", "3", "4", "abc"]),
    (ValueKind::Score, FLOATS),
    (ValueKind::ScoreBound, BOUNDS),
    (ValueKind::Script, &[]),
    (ValueKind::Seconds, &["100", "1000", "5000", "100000", "100", "1000", "0", "-1"]),
    (ValueKind::Set, &["<t1>", "<t2>", "<t3>"]),
    (ValueKind::Stream, &["<x1>", "<x2>"]),
    (ValueKind::String, &["<s1>", "<s2>", "<s3>", "<w-a>", "<w-1>"]),
    (ValueKind::Timeout, &["0", "0", "0", "1000", "0.001", "0.005", "-1", "abc", "inf"]),
    (ValueKind::Type, &["string", "hash", "list", "set", "zset", "stream", "none"]),
    (ValueKind::Undelivered, &[">"]),
    (ValueKind::UnixMilliseconds, &["4102444800000", "1", "1000000", "0", "-1"]),
    (ValueKind::UnixSeconds, &["4102444800", "1", "1000000", "0", "-1"]),
    (ValueKind::Value, VALUES),
    (ValueKind::Weight, &["1", "2", "-1", "0.5", "inf", "0", "nan"]),
    (ValueKind::Zero, &["0"]),
    (ValueKind::Zset, &["<z1>", "<z2>", "<z3>"]),
];

const ELEMENTS: &[&str] =
    &["a", "b", "c", "d", "e", "1", "2", "10", "-5", "", "aa", "3.5", "abcdefghijklmnop"];
const VALUES: &[&str] = &[
    "v",
    "token-1",
    "token-2",
    "1",
    "10",
    "-3",
    "0.5",
    "",
    "hello world",
    "\u{7f}x",
    "9223372036854775807",
    "a-value-of-more-than-forty-four-bytes-which-is-raw-then",
];
const FLOATS: &[&str] = &[
    "1",
    "2",
    "0",
    "-1",
    "0.1",
    "1.5",
    "-0.3",
    "3e2",
    "1e17",
    "1e-5",
    "3.14159265358979",
    "inf",
    "-inf",
    "-0",
    "1e300",
    "100000",
    "0.30000000000000004",
];
const BOUNDS: &[&str] = &["-inf", "+inf", "0", "1", "(1", "2", "(2", "0.1", "(0.1", "-1", "300"];
const LOCK_ARGUMENTS: &[&str] = &["token-1", "token-2", "100000", "200000", "-1", "0", "300000"];
/// Words that are not numbers, and numbers at the limits.
pub(super) const EDGES: &[&str] = &[
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551615",
    "4294967296",
    "-4294967297",
    "1.5",
    "abc",
    "",
    " 1",
    "1 ",
    "+1",
    "01",
    "-0",
    "1e3",
    "nan",
    "inf",
    "0x10",
];

impl ValueKind {
    /// The values of the kind.
    pub(super) fn words(self) -> &'static [&'static str] {
        KINDS.iter().find(|(kind, _)| *kind == self).map_or(&[], |(_, words)| words)
    }

    /// The kind of the keys that the commands of a group use.
    pub fn key_of_group(group: &str) -> ValueKind {
        match group {
            "string" | "bitmap" => ValueKind::String,
            "hash" => ValueKind::Hash,
            "list" => ValueKind::List,
            "set" => ValueKind::Set,
            "sorted-set" => ValueKind::Zset,
            "stream" => ValueKind::Stream,
            _ => ValueKind::Key,
        }
    }

    pub(super) fn is_key(self) -> bool {
        KEYS.contains(&self)
    }

    pub(super) fn is_number(self) -> bool {
        matches!(
            self,
            ValueKind::Bit
                | ValueKind::Count
                | ValueKind::Float
                | ValueKind::Index
                | ValueKind::Integer
                | ValueKind::Many
                | ValueKind::Milliseconds
                | ValueKind::Offset
                | ValueKind::Score
                | ValueKind::ScoreBound
                | ValueKind::Seconds
                | ValueKind::UnixMilliseconds
                | ValueKind::UnixSeconds
        )
    }
}

pub(super) const KEYS: &[ValueKind] = &[
    ValueKind::Counter,
    ValueKind::Hash,
    ValueKind::Key,
    ValueKind::List,
    ValueKind::Set,
    ValueKind::Stream,
    ValueKind::String,
    ValueKind::Zset,
];

/// Every key that an episode may use.
pub fn keys() -> impl Iterator<Item = &'static str> {
    KEYS.iter().chain(&[ValueKind::LexSet]).flat_map(|kind| kind.words().iter().copied())
}

/// A word that is not a number, or a number at the limits.
pub fn edge(random: &mut Random) -> Vec<u8> {
    (*random.pick(EDGES)).into()
}
