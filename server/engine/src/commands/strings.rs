//! Commands for strings, including `SET key token NX PX lease`, the simplest lock.

use lockwheel_resp::{LongDouble, Reply};

use super::time_unit::TimeUnit;
use crate::command::argument as arg;
use crate::command::{
    Arity, Categories, Command, FindKeys, Flags, Group, KeySpec, LockMeaning, integer, is,
};
use crate::commands::conditional::Condition;
use crate::error::Error;
use crate::run::context::Context;
use crate::run::growth::fits;
use crate::settings::{CompatVersion, Vendor};
use crate::store::dict::Slot;
use crate::store::events::Events;
use crate::store::records::NewValue;
use crate::store::string_value::{StringValue, Text};
use crate::store::value::ValueRef;
use crate::timing::time::{Millis, Time};
use lockwheel_defects::defect;

const STRING: Command =
    Command { group: Group::String, categories: Categories::STRING, ..Command::BASE };

const WRITE: Flags = Flags::WRITE.union(Flags::DENYOOM);
const FAST_WRITE: Flags = WRITE.union(Flags::FAST);
const PLAIN_WRITE: Flags = WRITE.union(Flags::PLAIN_WRITE);
const FAST_READ: Flags = Flags::READONLY.union(Flags::FAST);

const CHANGED_KEY: &[KeySpec] = &[KeySpec::one(&["RW", "access", "update"])];
const READ_KEY: &[KeySpec] = &[KeySpec::one(&["RO", "access"])];

/// Keys and values, alternating, from the first argument on.
const fn pairs(flags: &'static [&'static str]) -> KeySpec {
    KeySpec { flags, begin: 1, find: FindKeys::Range { last: -1, step: 2 } }
}

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "append",
        arity: Arity::Exactly(3),
        flags: FAST_WRITE,
        keys: &[KeySpec::one(&["RW", "insert"])],
        since: "2.0.0",
        complexity: "O(1), amortized, beside the bytes that are appended",
        doc: "Appends bytes to a string; returns its new length.",
        arguments: &[arg::key("key"), arg::string("value")],
        example: "SET k ab; APPEND k cd => 4",
        run: append,
        ..STRING
    },
    Command {
        name: "decr",
        arity: Arity::Exactly(2),
        flags: FAST_WRITE,
        keys: CHANGED_KEY,
        doc: "Subtracts one from an integer.",
        arguments: &[arg::key("key")],
        example: "SET k 5; DECR k => 4",
        adds_nothing: Some(is_string),
        run: decr,
        ..STRING
    },
    Command {
        name: "decrby",
        arity: Arity::Exactly(3),
        flags: FAST_WRITE,
        keys: CHANGED_KEY,
        doc: "Subtracts a number from an integer.",
        arguments: &[arg::key("key"), arg::integer("decrement")],
        example: "SET k 5; DECRBY k 3 => 2",
        adds_nothing: Some(is_string),
        run: decrby,
        ..STRING
    },
    Command {
        name: "get",
        arity: Arity::Exactly(2),
        flags: FAST_READ,
        keys: READ_KEY,
        doc: "Returns the string at a key.",
        arguments: &[arg::key("key")],
        lock: LockMeaning::Inspect,
        example: "SET k v; GET k => \"v\"",
        run: get,
        ..STRING
    },
    Command {
        name: "getdel",
        arity: Arity::Exactly(2),
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(&["RW", "access", "delete"])],
        since: "6.2.0",
        doc: "Returns the string at a key and removes the key.",
        arguments: &[arg::key("key")],
        lock: LockMeaning::Release,
        example: "SET k v; GETDEL k => \"v\"",
        run: getdel,
        ..STRING
    },
    Command {
        name: "getex",
        arity: Arity::AtLeast(2),
        flags: Flags::WRITE.union(Flags::FAST),
        keys: CHANGED_KEY,
        since: "6.2.0",
        doc: "Returns the string at a key and sets or clears its deadline.",
        arguments: &[
            arg::key("key"),
            arg::one_of(
                "expiration",
                &[
                    arg::integer("seconds").token("EX"),
                    arg::integer("milliseconds").token("PX"),
                    arg::unix_time("unix-time-seconds").token("EXAT"),
                    arg::unix_time("unix-time-milliseconds").token("PXAT"),
                    arg::word("PERSIST"),
                ],
            )
            .optional(),
        ],
        lock: LockMeaning::Renew,
        example: "SET k v; GETEX k PX 30000 => \"v\"",
        run: getex,
        ..STRING
    },
    Command {
        name: "getrange",
        arity: Arity::Exactly(4),
        flags: Flags::READONLY,
        keys: READ_KEY,
        since: "2.4.0",
        complexity: "O(N) in the length of the part",
        doc: "Returns a part of a string; negative positions count from its end.",
        arguments: &[arg::key("key"), arg::integer("start"), arg::integer("end")],
        example: "SET k abcdef; GETRANGE k 1 -2 => \"bcde\"",
        run: getrange,
        ..STRING
    },
    Command {
        name: "getset",
        arity: Arity::Exactly(3),
        flags: FAST_WRITE,
        keys: CHANGED_KEY,
        deprecated: Some(("6.2.0", "`SET` with `GET`")),
        doc: "Sets a key to a string and returns its previous string.",
        arguments: &[arg::key("key"), arg::string("value")],
        lock: LockMeaning::Acquire,
        example: "SET k old; GETSET k new => \"old\"",
        adds_nothing: Some(|old, argv| fits_string(old, argv[2])),
        run: getset,
        ..STRING
    },
    Command {
        name: "incr",
        arity: Arity::Exactly(2),
        flags: FAST_WRITE,
        keys: CHANGED_KEY,
        doc: "Adds one to an integer.",
        arguments: &[arg::key("key")],
        example: "INCR k => 1",
        adds_nothing: Some(is_string),
        run: incr,
        ..STRING
    },
    Command {
        name: "incrby",
        arity: Arity::Exactly(3),
        flags: FAST_WRITE,
        keys: CHANGED_KEY,
        doc: "Adds a number to an integer.",
        arguments: &[arg::key("key"), arg::integer("increment")],
        example: "SET k 5; INCRBY k 3 => 8",
        adds_nothing: Some(is_string),
        run: incrby,
        ..STRING
    },
    Command {
        name: "incrbyfloat",
        arity: Arity::Exactly(3),
        flags: FAST_WRITE,
        keys: CHANGED_KEY,
        since: "2.6.0",
        doc: "Adds a number to a decimal number.",
        arguments: &[arg::key("key"), arg::double("increment")],
        example: "SET k 0.1; INCRBYFLOAT k 0.2 => \"0.3\"",
        run: incrbyfloat,
        ..STRING
    },
    Command {
        name: "lcs",
        arity: Arity::AtLeast(3),
        flags: Flags::READONLY,
        keys: &[KeySpec {
            flags: &["RO", "access"],
            begin: 1,
            find: FindKeys::Range { last: 1, step: 1 },
        }],
        since: "7.0.0",
        complexity: "O(N*M) in the lengths of the two strings",
        doc: "Finds the longest common subsequence of two strings.",
        arguments: &[
            arg::key("key1"),
            arg::key("key2"),
            arg::word("LEN").optional(),
            arg::word("IDX").optional(),
            arg::integer("len").token("MINMATCHLEN").optional(),
            arg::word("WITHMATCHLEN").optional(),
        ],
        example: "MSET a ohmytext b mynewtext; LCS a b => \"mytext\"",
        run: lcs,
        ..STRING
    },
    Command {
        name: "mget",
        arity: Arity::AtLeast(2),
        flags: FAST_READ,
        keys: &[KeySpec::all(&["RO", "access"])],
        complexity: "O(N) in the number of keys",
        tips: &["request_policy:multi_shard"],
        doc: "Returns the strings at several keys.",
        arguments: &[arg::key("key").multiple()],
        lock: LockMeaning::Inspect,
        example: "SET k v; MGET k missing => [\"v\", nil]",
        run: mget,
        ..STRING
    },
    Command {
        name: "mset",
        arity: Arity::AtLeast(3),
        flags: PLAIN_WRITE,
        keys: &[pairs(&["OW", "update"])],
        since: "1.0.1",
        complexity: "O(N) in the number of keys",
        tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
        doc: "Sets several keys to strings.",
        arguments: &[arg::block("key_value", &[arg::key("key"), arg::string("value")]).multiple()],
        lock: LockMeaning::Acquire,
        example: "MSET k v l w => OK",
        run: mset,
        ..STRING
    },
    Command {
        name: "msetnx",
        arity: Arity::AtLeast(3),
        flags: WRITE,
        keys: &[pairs(&["OW", "insert"])],
        since: "1.0.1",
        complexity: "O(N) in the number of keys",
        doc: "Sets several keys to strings, unless one of them exists.",
        arguments: &[arg::block("key_value", &[arg::key("key"), arg::string("value")]).multiple()],
        lock: LockMeaning::Acquire,
        example: "SET k v; MSETNX k w l w => 0",
        run: msetnx,
        ..STRING
    },
    Command {
        name: "psetex",
        arity: Arity::Exactly(4),
        flags: PLAIN_WRITE,
        keys: &[KeySpec::one(&["OW", "update"])],
        since: "2.6.0",
        deprecated: Some(("2.6.12", "`SET` with `PX`")),
        doc: "Sets a key to a string with a time to live in milliseconds.",
        arguments: &[arg::key("key"), arg::integer("milliseconds"), arg::string("value")],
        lock: LockMeaning::Acquire,
        example: "PSETEX k 30000 v => OK",
        adds_nothing: Some(|old, argv| fits_string(old, argv[3])),
        run: psetex,
        ..STRING
    },
    Command {
        name: "set",
        arity: Arity::AtLeast(3),
        flags: PLAIN_WRITE,
        keys: &[KeySpec::one(&["RW", "access", "update", "variable_flags"])],
        key_flags: Some(|argv| {
            let reads = argv[3..].iter().any(|option| is(option, "get"));
            if reads { &["RW", "access", "update"] } else { &["OW", "update"] }
        }),
        doc: "Sets a key to a string, optionally with conditions and a time to live.",
        arguments: &[
            arg::key("key"),
            arg::string("value"),
            arg::one_of(
                "condition",
                &[
                    arg::word("NX"),
                    arg::word("XX"),
                    arg::string("comparison-value").token("IFEQ").since("8.1.0").of(Vendor::Valkey),
                    arg::string("ifeq-value").token("IFEQ").since("8.4.0").of(Vendor::Redis),
                    arg::string("ifne-value").token("IFNE").since("8.4.0").of(Vendor::Redis),
                    arg::string("ifdeq-digest").token("IFDEQ").since("8.4.0").of(Vendor::Redis),
                    arg::string("ifdne-digest").token("IFDNE").since("8.4.0").of(Vendor::Redis),
                ],
            )
            .optional()
            .since("2.6.12"),
            arg::word("GET").optional().since("6.2.0"),
            arg::one_of(
                "expiration",
                &[
                    arg::integer("seconds").token("EX").since("2.6.12"),
                    arg::integer("milliseconds").token("PX").since("2.6.12"),
                    arg::unix_time("unix-time-seconds").token("EXAT").since("6.2.0"),
                    arg::unix_time("unix-time-milliseconds").token("PXAT").since("6.2.0"),
                    arg::word("KEEPTTL").since("6.0.0"),
                ],
            )
            .optional(),
        ],
        lock: LockMeaning::Acquire,
        example: "SET lock token NX PX 30000; SET lock other NX PX 30000 => nil",
        adds_nothing: Some(|old, argv| fits_string(old, argv[2])),
        run: set,
        ..STRING
    },
    Command {
        name: "setex",
        arity: Arity::Exactly(4),
        flags: PLAIN_WRITE,
        keys: &[KeySpec::one(&["OW", "update"])],
        since: "2.0.0",
        deprecated: Some(("2.6.12", "`SET` with `EX`")),
        doc: "Sets a key to a string with a time to live in seconds.",
        arguments: &[arg::key("key"), arg::integer("seconds"), arg::string("value")],
        lock: LockMeaning::Acquire,
        example: "SETEX k 30 v => OK",
        adds_nothing: Some(|old, argv| fits_string(old, argv[3])),
        run: setex,
        ..STRING
    },
    Command {
        name: "setnx",
        arity: Arity::Exactly(3),
        flags: FAST_WRITE,
        keys: &[KeySpec::one(&["OW", "insert"])],
        deprecated: Some(("2.6.12", "`SET` with `NX`")),
        doc: "Sets a key to a string, unless the key exists.",
        arguments: &[arg::key("key"), arg::string("value")],
        lock: LockMeaning::Acquire,
        example: "SETNX lock token; SETNX lock other => 0",
        adds_nothing: Some(|_, _| true),
        run: setnx,
        ..STRING
    },
    Command {
        name: "setrange",
        arity: Arity::Exactly(4),
        flags: WRITE,
        keys: &[KeySpec::one(&["RW", "update"])],
        since: "2.2.0",
        complexity: "O(N) in the bytes that are written",
        doc: "Overwrites a part of a string; returns its new length.",
        arguments: &[arg::key("key"), arg::integer("offset"), arg::string("value")],
        example: "SET k abcd; SETRANGE k 1 xy => 4",
        run: setrange,
        ..STRING
    },
    Command {
        name: "strlen",
        arity: Arity::Exactly(2),
        flags: FAST_READ,
        keys: &[KeySpec::one(&["RO"])],
        since: "2.2.0",
        doc: "Returns the length of a string.",
        arguments: &[arg::key("key")],
        example: "SET k value; STRLEN k => 5",
        run: strlen,
        ..STRING
    },
    Command {
        name: "substr",
        arity: Arity::Exactly(4),
        flags: Flags::READONLY,
        keys: READ_KEY,
        complexity: "O(N) in the length of the part",
        deprecated: Some(("2.0.0", "`GETRANGE`")),
        doc: "The former name of GETRANGE.",
        arguments: &[arg::key("key"), arg::integer("start"), arg::integer("end")],
        example: "SET k abcdef; SUBSTR k 1 -2 => \"bcde\"",
        run: getrange,
        ..STRING
    },
];

// --- whole strings ---

/// See [`Command::adds_nothing`]: a number that replaces a value is short.
fn is_string(old: ValueRef<'_>, _: &[&[u8]]) -> bool {
    matches!(old, ValueRef::String(_))
}

/// See [`Command::adds_nothing`].
fn fits_string(old: ValueRef<'_>, new: &[u8]) -> bool {
    matches!(old, ValueRef::String(text) if fits(text.len(), new))
}

/// `GET`: replies with the string, or nil without the key.
fn get(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    context.reply_with(argv[1], |value| match value {
        ValueRef::String(text) => Ok(Some(text.bytes())),
        _ => Err(Error::WrongType),
    })
}

/// `STRLEN`: replies with the length of the string, 0 without the key.
fn strlen(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    Ok(context.read_as::<StringValue>(argv[1])?.map_or(0, Text::len).into())
}

/// `GETSET`: sets a string and replies with the previous one, or nil.
fn getset(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let found = context.find(argv[1]);
    context.expect_no_lock(found)?;
    let old = get(context, argv)?;
    store(context, argv[1], found, argv[2], Expiry::Clear);
    Ok(old)
}

/// `GETDEL`: removes a string and replies with it, or nil without the key.
fn getdel(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let old = get(context, argv)?;
    if old != Reply::Null {
        context.remove_and_notify(argv[1]);
    }
    Ok(old)
}

/// `GETEX`: replies with the string, or nil, and sets or clears its deadline.
fn getex(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let key = argv[1];
    let mut options = Options::default();
    options.read_all(context, &argv[2..], false)?;
    let value = get(context, argv)?;
    // The deadline is not even parsed if the key does not exist.
    let Some(slot) = context.find(key) else { return Ok(value) };
    match options.expiry {
        DeadlineOption::Set(unit, amount) => {
            let deadline = deadline(unit, amount, context.time, context.name)?;
            if context.time.reached(deadline) {
                context.remove_and_notify(key);
            } else {
                context.set_deadline_at(slot, Some(deadline));
                context.changed(Events::GENERIC, "expire", key);
            }
        }
        DeadlineOption::Persist if context.deadline(key).flatten().is_some() => {
            context.set_deadline_at(slot, None);
            context.changed(Events::GENERIC, "persist", key);
        }
        DeadlineOption::Persist | DeadlineOption::Keep | DeadlineOption::Absent => {}
    }
    Ok(value)
}

/// `SET`: replies with OK, or nil if the conditions are not met; with `GET`, with the old string.
fn set(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let mut options = Options::default();
    options.read_all(context, &argv[3..], true)?;
    let expiry = match options.expiry {
        DeadlineOption::Set(unit, amount) => {
            Expiry::At(deadline(unit, amount, context.time, context.name)?)
        }
        DeadlineOption::Keep => Expiry::Keep,
        DeadlineOption::Persist | DeadlineOption::Absent => Expiry::Clear,
    };
    if options.get || options.condition.is_some() {
        return set_with_old_value(context, argv, &options, expiry);
    }
    let found = context.find(argv[1]);
    if !options.admits(found) {
        note_refusal(context, found);
        return Ok(Reply::Null);
    }
    context.expect_no_lock(found)?;
    if options.only_new {
        context.make_conditional();
    } else if !options.only_existing {
        store_plainly(context, argv[1], found, argv[2], expiry);
        return Ok(Reply::OK);
    }
    store(context, argv[1], found, argv[2], expiry);
    Ok(Reply::OK)
}

/// `SET` with `GET` or a condition on the value.
#[cold]
fn set_with_old_value(
    context: &mut Context<'_>,
    argv: &[&[u8]],
    options: &Options<'_>,
    expiry: Expiry,
) -> Result<Reply, Error> {
    let (key, value) = (argv[1], argv[2]);
    let found = context.find(key);
    if options.admits(found) {
        context.expect_no_lock(found)?;
    }
    let old = if options.get { Some(get(context, argv)?) } else { None };
    if !options.admits(found) {
        note_refusal(context, found);
        return Ok(old.unwrap_or(Reply::Null));
    }
    if options.only_new {
        context.make_conditional();
    }
    if let Some(condition) = options.condition {
        let found = context.find_to_write::<StringValue>(key)?;
        if !found.map_or(Ok(condition.holds_without_key()), |(_, value)| condition.holds(value))? {
            return Ok(old.unwrap_or(Reply::Null));
        }
    }
    store(context, key, found, value, expiry);
    Ok(old.unwrap_or(Reply::OK))
}

/// `SETNX`: replies with 1 if the key was set, 0 if it exists.
fn setnx(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let found = context.find(argv[1]);
    if found.is_none() {
        context.make_conditional();
        store(context, argv[1], found, argv[2], Expiry::Clear);
    } else {
        note_refusal(context, found);
    }
    Ok(found.is_none().into())
}

/// Notes that the command has not set the key in `found`: if it is a lock, it was refused.
fn note_refusal(context: &mut Context<'_>, found: Option<Slot>) {
    if let Some(slot) = found {
        context.note_refused_lock(slot);
    }
}

/// `SETEX`: sets a string for seconds and replies with OK.
fn setex(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    set_for(context, argv, TimeUnit::Seconds)
}

/// `PSETEX`: sets a string for milliseconds and replies with OK.
fn psetex(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    set_for(context, argv, TimeUnit::Millis)
}

fn set_for(context: &mut Context<'_>, argv: &[&[u8]], unit: TimeUnit) -> Result<Reply, Error> {
    let deadline = deadline(unit, argv[2], context.time, context.name)?;
    let found = context.find(argv[1]);
    context.expect_no_lock(found)?;
    store_plainly(context, argv[1], found, argv[3], Expiry::At(deadline));
    Ok(Reply::OK)
}

/// The effect of a command on the deadline of the key it sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    /// Removes it.
    Clear,
    /// Keeps it.
    Keep,
    /// Sets it.
    At(Millis),
}

/// Sets a key, `found` just before or missing, to a string and sends the events.
#[inline(always)]
fn store(context: &mut Context<'_>, key: &[u8], found: Option<Slot>, value: &[u8], expiry: Expiry) {
    let slot = context.put(key, found, NewValue::Text(value));
    finish_store(context, key, slot, expiry);
}

/// As [`store`], without a condition: the key stays plain, or a new key is plain, if the call is a
/// plain write.
#[inline(never)]
fn store_plainly(
    context: &mut Context<'_>,
    key: &[u8],
    found: Option<Slot>,
    value: &[u8],
    expiry: Expiry,
) {
    let is_plain =
        context.writes_plainly() && found.is_none_or(|slot| context.record(slot).is_plain());
    let slot = context.put(key, found, NewValue::Text(value));
    if is_plain {
        context.set_plain(slot, true);
    }
    finish_store(context, key, slot, expiry);
}

#[inline(always)]
fn finish_store(context: &mut Context<'_>, key: &[u8], slot: Slot, expiry: Expiry) {
    if defect!(LocksCountAsPlain) {
        context.set_plain(slot, true);
    }
    match expiry {
        Expiry::Keep => {}
        Expiry::Clear => context.set_deadline_at(slot, None),
        Expiry::At(deadline) => context.set_deadline_at(slot, Some(deadline)),
    }
    context.changed(Events::STRING, "set", key);
    if matches!(expiry, Expiry::At(_)) {
        context.event(Events::GENERIC, "expire", key);
    }
}

fn reply(value: Text<'_>) -> Reply {
    Reply::bulk(value.bytes())
}

// --- options ---

/// The options of `SET` and `GETEX`.
#[derive(Clone, Copy, Debug, Default)]
struct Options<'a> {
    only_new: bool,
    only_existing: bool,
    condition: Option<Condition<'a>>,
    get: bool,
    expiry: DeadlineOption<'a>,
}

impl<'a> Options<'a> {
    /// Parses the options of `SET` or, unless `sets`, of `GETEX`.
    #[inline(always)]
    fn read_all(
        &mut self,
        context: &Context<'_>,
        arguments: &[&'a [u8]],
        sets: bool,
    ) -> Result<(), Error> {
        let mut rest = arguments;
        while let Some((&word, behind)) = rest.split_first() {
            let operand = behind.first().copied();
            let takes_operand = match (TimeUnit::of_option(word), operand) {
                (Some(unit), Some(amount)) => self.read_deadline(DeadlineOption::Set(unit, amount)),
                (None, _) if sets => self.read(word, operand, context.settings().compat_version),
                (None, _) if is(word, "persist") => self.read_deadline(DeadlineOption::Persist),
                _ => None,
            };
            let Some(takes_operand) = takes_operand else { return Err(Error::Syntax) };
            rest = if takes_operand { &behind[1..] } else { behind };
        }
        Ok(())
    }

    /// Whether `NX` and `XX` allow the command, given whether the key was found.
    fn admits(&self, found: Option<Slot>) -> bool {
        !(self.only_new && found.is_some() || self.only_existing && found.is_none())
    }

    /// Parses an option that only `SET` has. `None` if it is not allowed here, else whether it
    /// takes the next argument.
    #[inline(never)]
    fn read(
        &mut self,
        word: &[u8],
        operand: Option<&'a [u8]>,
        version: CompatVersion,
    ) -> Option<bool> {
        let is_free = !(self.only_new || self.only_existing || self.condition.is_some());
        if matches!(word, [b'n' | b'N', b'x' | b'X']) && (self.only_new || is_free) {
            self.only_new = true;
        } else if is(word, "xx") && (self.only_existing || is_free) {
            self.only_existing = true;
        } else if is(word, "get") {
            self.get = true;
        } else if is(word, "keepttl") {
            return self.read_deadline(DeadlineOption::Keep);
        } else {
            let condition = Condition::named(word, operand?)?;
            self.condition =
                Some(condition).filter(|it| is_free && it.is_supported_by_set(version));
            return self.condition.map(|_| true);
        }
        Some(false)
    }

    /// As `read`, for an option about the deadline.
    fn read_deadline(&mut self, option: DeadlineOption<'a>) -> Option<bool> {
        if !self.expiry.admits(option) {
            return None;
        }
        self.expiry = option;
        Some(matches!(option, DeadlineOption::Set(..)))
    }
}

/// The option about the deadline, if there is one. Its amount is not parsed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DeadlineOption<'a> {
    #[default]
    Absent,
    Keep,
    Persist,
    Set(TimeUnit, &'a [u8]),
}

impl DeadlineOption<'_> {
    /// Whether `other` may follow this option: the same kind may be repeated, and the last one
    /// applies.
    fn admits(self, other: DeadlineOption<'_>) -> bool {
        match (self, other) {
            (DeadlineOption::Absent, _) => true,
            (DeadlineOption::Set(unit, _), DeadlineOption::Set(other, _)) => unit == other,
            (option, other) => option == other,
        }
    }
}

/// Parses an amount and returns its deadline; refuses amounts that are not positive or too large.
fn deadline(
    unit: TimeUnit,
    amount: &[u8],
    time: Time,
    name: &'static str,
) -> Result<Millis, Error> {
    let amount = integer(amount)?;
    if amount <= 0 {
        return Err(Error::InvalidExpire(name));
    }
    match unit.deadline(amount, time) {
        Some(deadline) => Ok(deadline),
        None => Err(Error::InvalidExpire(name)),
    }
}

// --- several keys ---

/// `MGET`: replies with the strings; nil for missing keys and other types.
fn mget(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let mut replies = Vec::with_capacity(argv.len() - 1);
    for key in &argv[1..] {
        // A value of another type counts as missing here.
        replies.push(context.read_as::<StringValue>(key).ok().flatten().map_or(Reply::Null, reply));
    }
    Ok(Reply::Array(replies))
}

/// `MSET`: sets several strings and replies with OK.
fn mset(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let pairs = keys_with_values(context, argv)?;
    for &[key, _] in pairs {
        let found = context.find(key);
        context.expect_no_lock(found)?;
    }
    for &[key, value] in pairs {
        let found = context.find(key);
        store_plainly(context, key, found, value, Expiry::Clear);
    }
    Ok(Reply::OK)
}

/// `MSETNX`: replies with 1 if the keys were set, 0 if one of them exists.
fn msetnx(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let mut pairs = keys_with_values(context, argv)?.iter();
    if pairs.any(|&[key, _]| context.find(key).is_some()) {
        return Ok(false.into());
    }
    context.make_conditional();
    mset(context, argv)?;
    Ok(true.into())
}

fn keys_with_values<'a, 'b>(
    context: &Context<'_>,
    argv: &'b [&'a [u8]],
) -> Result<&'b [[&'a [u8]; 2]], Error> {
    match argv[1..].as_chunks() {
        (pairs, []) => Ok(pairs),
        _ => Err(Error::Arity(context.name.to_owned())),
    }
}

// --- parts ---

/// `APPEND`: replies with the new length.
fn append(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (key, more) = (argv[1], argv[2]);
    let bytes_max = context.settings().proto_max_bulk_len_bytes;
    let length = match context.find_to_write::<StringValue>(key)? {
        Some((slot, value)) => {
            string_end(value.len() as u64, more, bytes_max)?;
            let offset = value.len();
            if more.is_empty() {
                // Counts as a change, as in Redis.
                context.touch(key);
            }
            context.patch(slot, offset, more)?
        }
        None => {
            context.add(key, NewValue::Text(more));
            more.len()
        }
    };
    context.changed(Events::STRING, "append", key);
    Ok(length.into())
}

/// `GETRANGE` and `SUBSTR`: reply with a part of the string, which may be empty.
fn getrange(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (first, last) = (integer(argv[2])?, integer(argv[3])?);
    let Some(value) = context.read_as::<StringValue>(argv[1])? else { return Ok(Reply::bulk("")) };
    let bytes = value.bytes();
    let length = bytes.len() as i64;
    let from_start = |place: i64| if place < 0 { place.saturating_add(length) } else { place };
    let first_at = from_start(first).max(0);
    // An end before the first byte means the first byte, unless start and end are reversed.
    let last_at = from_start(last).max(0).min(length - 1);
    let reversed = first < 0 && last < 0 && first > last;
    if reversed || first_at > last_at {
        return Ok(Reply::bulk(""));
    }
    Ok(Reply::bulk(&bytes[first_at as usize..=last_at as usize]))
}

/// `SETRANGE`: replies with the new length.
fn setrange(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (key, patch) = (argv[1], argv[3]);
    let offset = u64::try_from(integer(argv[2])?).map_err(|_| Error::OutOfRange("offset"))?;
    let bytes_max = context.settings().proto_max_bulk_len_bytes;
    let found = context.find_to_write::<StringValue>(key)?;
    if patch.is_empty() {
        return Ok(found.map_or(0, |(_, value)| value.len()).into());
    }
    let end = string_end(offset, patch, bytes_max)?;
    let length = match found {
        Some((slot, _)) => context.patch(slot, end - patch.len(), patch)?,
        None => {
            let mut bytes = zeros(end)?;
            bytes[end - patch.len()..].copy_from_slice(patch);
            context.add(key, NewValue::Value(StringValue::Raw(bytes).into()));
            end
        }
    };
    context.changed(Events::STRING, "setrange", key);
    Ok(length.into())
}

/// This number of zero bytes.
pub(super) fn zeros(length: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| Error::OutOfMemory)?;
    bytes.resize(length, 0);
    Ok(bytes)
}

/// The end of a string with `more` at `offset`, if it may be that long.
fn string_end(offset: u64, more: &[u8], bytes_max: u64) -> Result<usize, Error> {
    let end = offset.checked_add(more.len() as u64).filter(|&end| end <= bytes_max);
    end.and_then(|end| usize::try_from(end).ok())
        .ok_or(Error::line("ERR string exceeds maximum allowed size (proto-max-bulk-len)"))
}

// --- numbers ---

/// `INCR`: replies with the new value.
fn incr(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    add(context, argv[1], 1)
}

/// `DECR`: replies with the new value.
fn decr(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    add(context, argv[1], -1)
}

/// `INCRBY`: replies with the new value.
fn incrby(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    add(context, argv[1], integer(argv[2])?)
}

/// `DECRBY`: replies with the new value.
fn decrby(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let negated = integer(argv[2])?.checked_neg();
    add(context, argv[1], negated.ok_or(Error::line("ERR decrement would overflow"))?)
}

fn add(context: &mut Context<'_>, key: &[u8], increment: i64) -> Result<Reply, Error> {
    let found = context.find_to_write::<StringValue>(key)?;
    let old = found.map_or(Some(0), |(_, value)| value.integer());
    let slot = found.map(|(slot, _)| slot);
    let sum = old.ok_or(Error::NotAnInteger)?.checked_add(increment).ok_or(Error::Overflow)?;
    set_or_add(context, key, slot, NewValue::Text(itoa::Buffer::new().format(sum).as_bytes()));
    context.changed(Events::STRING, "incrby", key);
    Ok(sum.into())
}

/// `INCRBYFLOAT`: replies with the new value as a string.
fn incrbyfloat(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let key = argv[1];
    let found = context.find_to_write::<StringValue>(key)?;
    let slot = found.map(|(slot, _)| slot);
    let old = match found {
        Some((_, value)) => LongDouble::parse(value.bytes()).ok_or(Error::NotAFloat)?,
        None => LongDouble::ZERO,
    };
    let increment = LongDouble::parse(argv[2]).ok_or(Error::NotAFloat)?;
    let sum = old.checked_add(increment).ok_or(Error::NotFinite)?.to_string();
    // Not stored as an integer even if it is one, as `OBJECT ENCODING` shows.
    set_or_add(context, key, slot, NewValue::Float(sum.as_bytes()));
    context.changed(Events::STRING, "incrbyfloat", key);
    Ok(Reply::bulk(sum))
}

/// Sets the value of a key that was `found` just before or is missing.
fn set_or_add(context: &mut Context<'_>, key: &[u8], found: Option<Slot>, value: NewValue<'_>) {
    match found {
        Some(slot) => context.set_value(slot, value),
        None => drop(context.add(key, value)),
    }
}

// --- common subsequences ---

/// `LCS`: replies with a longest common subsequence, its length (`LEN`) or its ranges (`IDX`).
fn lcs(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let left = bytes_for_lcs(context, argv[1]);
    let right = bytes_for_lcs(context, argv[2]);
    let (left, right) = (left?, right?);
    let (mut only_length, mut places, mut with_lengths) = (false, false, false);
    let mut length_min = 0;
    let mut rest = argv[3..].iter();
    while let Some(&word) = rest.next() {
        match word {
            word if is(word, "idx") => places = true,
            word if is(word, "len") => only_length = true,
            word if is(word, "withmatchlen") => with_lengths = true,
            word if is(word, "minmatchlen") => {
                length_min = integer(rest.next().ok_or(Error::Syntax)?)?;
            }
            _ => return Err(Error::Syntax),
        }
    }
    if places && only_length {
        return Err(Error::line(
            "ERR If you want both the length and indexes, please just use IDX.",
        ));
    }
    let bytes_max = context.settings().proto_max_bulk_len_bytes;
    let pairs = common_pairs(&left, &right, bytes_max)?;
    if only_length {
        return Ok(pairs.len().into());
    }
    if !places {
        return Ok(Reply::bulk(pairs.iter().rev().map(|&(at, _)| left[at]).collect::<Vec<_>>()));
    }
    let matches = pairs
        .chunk_by(|after, before| *after == (before.0 + 1, before.1 + 1))
        .filter(|run| run.len() as i64 >= length_min)
        .map(|run| range_reply(run, with_lengths))
        .collect();
    Ok(Reply::Map(vec![
        (Reply::bulk("matches"), Reply::Array(matches)),
        (Reply::bulk("len"), pairs.len().into()),
    ]))
}

fn bytes_for_lcs(context: &mut Context<'_>, key: &[u8]) -> Result<Vec<u8>, Error> {
    match context.read_as::<StringValue>(key) {
        Ok(value) => Ok(value.map_or_else(Vec::new, |value| value.bytes().to_vec())),
        Err(_) => Err(Error::line("ERR The specified keys must contain string values")),
    }
}

/// The ranges that a run of pairs, the last first, covers in both strings.
fn range_reply(run: &[(usize, usize)], with_length: bool) -> Reply {
    let (Some(&last), Some(&first)) = (run.first(), run.last()) else {
        return Reply::Array(Vec::new());
    };
    let mut parts = vec![
        Reply::Array(vec![first.0.into(), last.0.into()]),
        Reply::Array(vec![first.1.into(), last.1.into()]),
    ];
    parts.extend(with_length.then(|| Reply::from(run.len())));
    Reply::Array(parts)
}

/// The positions of a longest common subsequence, the last first. The table of lengths for all
/// prefixes of both strings may not take more than `bytes_max`.
fn common_pairs(left: &[u8], right: &[u8], bytes_max: u64) -> Result<Vec<(usize, usize)>, Error> {
    const TOO_LARGE: Error =
        Error::line("ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len");
    let width = right.len() + 1;
    let cells = (left.len() + 1).checked_mul(width).ok_or(TOO_LARGE)?;
    if (cells as u64).saturating_mul(size_of::<u32>() as u64) > bytes_max {
        return Err(TOO_LARGE);
    }
    let mut lengths = vec![0_u32; cells];
    for (i, l) in left.iter().enumerate() {
        for (j, r) in right.iter().enumerate() {
            lengths[(i + 1) * width + j + 1] = if l == r {
                lengths[i * width + j] + 1
            } else {
                lengths[i * width + j + 1].max(lengths[(i + 1) * width + j])
            };
        }
    }
    let (mut i, mut j) = (left.len(), right.len());
    let mut pairs = Vec::new();
    while i > 0 && j > 0 {
        if left[i - 1] == right[j - 1] {
            (i, j) = (i - 1, j - 1);
            pairs.push((i, j));
        } else if lengths[(i - 1) * width + j] > lengths[i * width + j - 1] {
            i -= 1;
        } else {
            j -= 1;
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;
    use crate::store::value::ValueRef;
    use crate::testing::{Stage, check_events};

    #[test]
    fn encoding_follows_the_last_change() {
        for (commands, encoding) in [
            ("SET k 123", "int"),
            ("SET k 0123", "embstr"),
            ("SET k 12345678901234567890123456789012345678901234", "embstr"),
            ("SET k 123456789012345678901234567890123456789012345", "raw"),
            ("SET k abc; APPEND k \"\"", "raw"),
            ("APPEND k 12", "int"),
            ("SETRANGE k 0 12", "raw"),
            ("SETRANGE k 0 12; INCR k", "int"),
            ("SET k 1; SETRANGE k 0 \"\"", "int"),
            ("SET k 3; INCRBYFLOAT k 1", "embstr"),
        ] {
            let mut stage = Stage::new(Settings::default());
            stage.check(commands);
            let slot = stage.engine.writer.keyspace().find(0, b"k").expect("set by the commands");
            let record = stage.engine.writer.keyspace().database(0).record(slot);
            let ValueRef::String(value) = record.value() else { panic!("no string: {record:?}") };
            assert_eq!(value.encoding(), encoding, "{commands}");
        }
    }

    #[test]
    fn commands_send_their_events() {
        check_events(&[
            ("SET k v", "new k, set k"),
            ("SET k v EX 100", "set k, expire k"),
            ("SET k w KEEPTTL", "set k"),
            ("SET n v PX 100 GET", "keymiss n, new n, set n, expire n"),
            ("SETNX k v", ""),
            ("SETNX k2 v", "new k2, set k2"),
            ("PSETEX k3 10000 v", "new k3, set k3, expire k3"),
            ("GETEX k PERSIST", "persist k"),
            ("GETEX k PERSIST", ""),
            ("GETEX k EX 100", "expire k"),
            ("GETEX k", ""),
            ("GETEX k PXAT 1", "del k"),
            ("GETEX k PXAT 1", "keymiss k"),
            ("GETDEL k2", "del k2"),
            ("GETDEL k2", "keymiss k2"),
            ("GETSET k5 v", "keymiss k5, new k5, set k5"),
            ("MSET a 1 b 2 a 3", "new a, set a, new b, set b, set a"),
            ("MSETNX c 1 e 2", "new c, set c, new e, set e"),
            ("MGET c zz", "keymiss zz"),
            ("APPEND k6 \"\"", "new k6, append k6"),
            ("SETRANGE k7 0 \"\"", ""),
            ("SETRANGE k7 1 x", "new k7, setrange k7"),
            ("STRLEN zz", "keymiss zz"),
            ("INCR i", "new i, incrby i"),
            ("DECRBY i 0", "incrby i"),
            ("INCRBYFLOAT i 1.5", "incrbyfloat i"),
            ("INCR i", ""),
            ("LCS zz yy", "keymiss zz, keymiss yy"),
        ]);
    }
}
