//! Kinds of values that stand in `grammar.txt` in small letters, and how each is drawn.
//!
//! Keys are few, so that commands meet; each type has its own, and now and then a command gets one
//! of another. Leases are far away, over already, or so short that the episode waits for their
//! end, so two servers agree about them however slowly they are served.

use super::grammar::Grammar;
use super::script;
use crate::cases;
use crate::random::Random;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the kind of its name")]
pub enum Kind {
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
    Digest,
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
    Numkeys,
    Offset,
    Pattern,
    Score,
    ScoreBound,
    Script,
    Seconds,
    Set,
    Stream,
    String,
    Timeout,
    Type,
    UnixMilliseconds,
    UnixSeconds,
    Value,
    Weight,
    Zset,
}

/// Each kind's name in the grammar, and what it is drawn from; a kind without words is made up.
const KINDS: &[(&str, Kind, &[&str])] = &[
    ("bit", Kind::Bit, &["0", "1"]),
    ("bit-offset", Kind::BitOffset, &["0", "1", "7", "8", "#0", "#1", "#3", "100"]),
    ("bits", Kind::Bits, &["u1", "u4", "u8", "i8", "i16", "u32", "i64", "u63", "u64", "i65", "x"]),
    ("block", Kind::Block, &["0", "0", "0", "1", "5", "-1", "abc"]),
    ("by", Kind::By, &["<w->*", "<h->*->f1", "<none->*"]),
    ("channel", Kind::Channel, &["<c1>", "<c2>", "<d1>"]),
    ("channel-pattern", Kind::ChannelPattern, &["<c>*", "<d>?"]),
    ("client-id", Kind::ClientId, &["$id-a", "$id-b", "$id-c", "0", "abc"]),
    ("command", Kind::Command, &[]),
    ("consumer", Kind::Consumer, &["c1", "c2", "c3"]),
    ("count", Kind::Count, &["1", "2", "3", "5", "10", "0", "-1", "-2"]),
    ("counter", Kind::Counter, &["<n1>", "<n2>", "<n3>"]),
    ("digest", Kind::Digest, &[]),
    ("element", Kind::Element, ELEMENTS),
    ("field", Kind::Field, &["f1", "f2", "f3", "n", "m", ""]),
    ("float", Kind::Float, FLOATS),
    ("get", Kind::Get, &["#", "<w->*", "<h->*->f1", "<none->*"]),
    ("glob", Kind::Glob, &["*", "a*", "[ab]", "?", "f?", "none", "[^a]", "\\*"]),
    ("group", Kind::Group, &["g1", "g1", "g2"]),
    ("hash", Kind::Hash, &["<h1>", "<h2>", "<h-a>"]),
    ("id", Kind::Id, &["1-1", "2-1", "2-2", "3-*", "5-0", "7-*", "9-9", "12", "0-0", "0-1"]),
    ("id-bound", Kind::IdBound, &["-", "+", "2", "(2-1", "3-0", "7", "(9-9", "0", "x"]),
    ("index", Kind::Index, &["0", "1", "2", "3", "-1", "-2", "-3", "5", "-100", "100"]),
    ("integer", Kind::Integer, &["1", "2", "-1", "10", "-7", "0", "100", "255", "65536"]),
    ("key", Kind::Key, &["<k1>", "<k2>"]),
    ("lex-bound", Kind::LexBound, &["-", "+", "[a", "(a", "[c", "(d", "[", "(", "x"]),
    ("lex-set", Kind::LexSet, &["<y1>", "<y2>"]),
    ("list", Kind::List, &["<l1>", "<l2>"]),
    ("lock-argument", Kind::LockArgument, LOCK_ARGUMENTS),
    ("lock-script", Kind::LockScript, &[]),
    ("many", Kind::Many, &["1000", "2000", "100000"]),
    ("member", Kind::Member, ELEMENTS),
    ("message", Kind::Message, &["hello", "0", "1", "", "unlock"]),
    ("milliseconds", Kind::Milliseconds, &[]),
    ("numkeys", Kind::Numkeys, &["1"]),
    ("offset", Kind::Offset, &["0", "1", "3", "7", "8", "20", "100", "-1"]),
    ("pattern", Kind::Pattern, &["<s>*", "<h>?", "<z>[12]", "<k>[^1]", "*", "none"]),
    ("score", Kind::Score, FLOATS),
    ("score-bound", Kind::ScoreBound, BOUNDS),
    ("script", Kind::Script, &[]),
    ("seconds", Kind::Seconds, &["100", "1000", "5000", "100000", "100", "1000", "0", "-1"]),
    ("set", Kind::Set, &["<t1>", "<t2>", "<t3>"]),
    ("stream", Kind::Stream, &["<x1>", "<x2>"]),
    ("string", Kind::String, &["<s1>", "<s2>", "<s3>", "<w-a>", "<w-1>"]),
    ("timeout", Kind::Timeout, &["0", "0", "0", "1000", "0.001", "0.005", "-1", "abc", "inf"]),
    ("type", Kind::Type, &["string", "hash", "list", "set", "zset", "stream", "none"]),
    ("unix-milliseconds", Kind::UnixMilliseconds, &["4102444800000", "1", "1000000", "0", "-1"]),
    ("unix-seconds", Kind::UnixSeconds, &["4102444800", "1", "1000000", "0", "-1"]),
    ("value", Kind::Value, VALUES),
    ("weight", Kind::Weight, &["1", "2", "-1", "0.5", "inf", "0", "nan"]),
    ("zset", Kind::Zset, &["<z1>", "<z2>", "<z3>"]),
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
/// Numbers that are none, and those at the edges.
const EDGES: &[&str] = &[
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
/// One in so many values is none of its kind.
const ODD_ONE_IN: u64 = 25;
/// One in so many leases is so short that its end is waited for.
const SHORT_ONE_IN: u64 = 40;

/// What values are drawn with.
pub struct Draw<'a> {
    /// The commands that scripts are made of.
    pub grammar: &'a Grammar,
    /// Whether a lease may be drawn whose end is waited for.
    pub short_leases: bool,
    /// Set when one was drawn.
    pub drew_short_lease: bool,
    /// Whether this is drawn for another command: a script's, or `COMMAND GETKEYS`'s.
    pub nested: bool,
}

impl Kind {
    /// The kind of this name.
    pub fn named(name: &str) -> Option<Kind> {
        KINDS.iter().find(|(known, ..)| *known == name).map(|(_, kind, _)| *kind)
    }

    /// What it is drawn from.
    fn words(self) -> &'static [&'static str] {
        KINDS.iter().find(|(_, kind, _)| *kind == self).map_or(&[], |(.., words)| words)
    }

    fn is_key(self) -> bool {
        KEYS.contains(&self)
    }

    fn is_number(self) -> bool {
        matches!(
            self,
            Kind::Bit
                | Kind::Count
                | Kind::Float
                | Kind::Index
                | Kind::Integer
                | Kind::Many
                | Kind::Milliseconds
                | Kind::Offset
                | Kind::Score
                | Kind::ScoreBound
                | Kind::Seconds
                | Kind::UnixMilliseconds
                | Kind::UnixSeconds
        )
    }
}

const KEYS: &[Kind] = &[
    Kind::Counter,
    Kind::Hash,
    Kind::Key,
    Kind::List,
    Kind::Set,
    Kind::Stream,
    Kind::String,
    Kind::Zset,
];

/// Every key that an episode may use.
pub fn keys() -> impl Iterator<Item = &'static str> {
    KEYS.iter().chain(&[Kind::LexSet]).flat_map(|kind| kind.words().iter().copied())
}

impl Draw<'_> {
    /// Draws a value (for `command`, several).
    pub fn draw(&mut self, kind: Kind, dice: &mut Random, words: &mut Vec<Vec<u8>>) {
        let word = match kind {
            Kind::Command => {
                words.extend(self.nested(dice));
                return;
            }
            kind if kind.is_key() => self.key(kind, dice).into(),
            kind if kind.is_number() && dice.once_in(ODD_ONE_IN) => (*dice.pick(EDGES)).into(),
            Kind::Milliseconds => self.milliseconds(dice),
            Kind::Script => script::draw(self, dice),
            Kind::LockScript => format!("@{}", dice.pick(&lock_scripts())).into_bytes(),
            Kind::Digest if dice.once_in(10) => vec![b'0'; 40],
            Kind::Digest => format!("@{}.sha1", dice.pick(&lock_scripts())).into_bytes(),
            Kind::Element | Kind::Member | Kind::Value if dice.once_in(40) => odd_value(dice),
            kind => (*dice.pick(kind.words())).into(),
        };
        words.push(word);
    }

    /// A command within this one.
    pub fn nested(&mut self, dice: &mut Random) -> Vec<Vec<u8>> {
        let mut inner = Draw { short_leases: false, nested: true, ..*self };
        // What makes commands out of commands would not come to an end.
        let plain = |name: &str| !name.starts_with("EVAL") && name != "COMMAND";
        loop {
            let form = self.grammar.pick(dice);
            if plain(form.name()) {
                return form.draw(dice, &mut inner);
            }
        }
    }

    fn key(&self, kind: Kind, dice: &mut Random) -> &'static str {
        let kind = match dice.below(100) {
            0..=5 => *dice.pick(KEYS),
            6..=11 => Kind::Key,
            _ if kind == Kind::Key => *dice.pick(KEYS),
            _ => kind,
        };
        dice.pick::<&'static str>(kind.words())
    }

    fn milliseconds(&mut self, dice: &mut Random) -> Vec<u8> {
        if self.short_leases && dice.once_in(SHORT_ONE_IN) {
            self.drew_short_lease = true;
            return (*dice.pick(&["1", "2", "5"])).into();
        }
        (*dice.pick(&["100000", "200000", "5000000", "100000", "30000000", "0", "-1"])).into()
    }
}

/// The scripts that answer the same whenever they are asked.
pub fn lock_scripts() -> Vec<&'static str> {
    let steady = |text: &str| {
        let text = text.to_lowercase();
        !["'time'", "\"time\"", "random", "os.clock", "'*'", "\"*\""]
            .iter()
            .any(|word| text.contains(word))
    };
    cases::SCRIPTS.iter().filter(|(_, text)| steady(text)).map(|(name, _)| *name).collect()
}

fn odd_value(dice: &mut Random) -> Vec<u8> {
    match dice.below(4) {
        0 => b"x".repeat(*dice.pick(&[1, 44, 45, 63, 64, 65, 100])),
        1 => b"\xff\x00\r\n".to_vec(),
        2 => (*dice.pick(EDGES)).into(),
        _ => dice.below(100_000).to_string().into_bytes(),
    }
}

/// A number that is none, or at the edge.
pub fn edge(dice: &mut Random) -> Vec<u8> {
    (*dice.pick(EDGES)).into()
}
