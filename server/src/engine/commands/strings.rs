//! Commands for strings: among them `SET key token NX PX lease`, the plainest lock there is.

use leasehold_resp::Reply;

use crate::engine::command::{Arity, Categories, Command, Flags, Group, KeySpec};
use crate::engine::context::{Context, integer, is};
use crate::engine::error::Error;
use crate::engine::keyspace::string::StringValue;
use crate::engine::keyspace::value::Value;
use crate::engine::notify::Events;
use crate::engine::time::{Millis, Time};

const STRING: Command =
    Command { group: Group::String, categories: Categories::STRING, ..Command::BASE };

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "get",
        arity: Arity::Exactly(2),
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::one(&["RO", "access"])],
        doc: "Returns the string at a key.",
        example: "SET k v; GET k => \"v\"",
        run: get,
        ..STRING
    },
    Command {
        name: "set",
        arity: Arity::AtLeast(3),
        flags: Flags::WRITE.union(Flags::DENYOOM),
        keys: &[KeySpec::one(&["RW", "access", "update", "variable_flags"])],
        doc: "Sets a key to a string, on conditions and for a time if asked.",
        example: "SET lock token NX PX 30000; SET lock other NX PX 30000 => nil",
        run: set,
        ..STRING
    },
];

fn get(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    Ok(match context.read_string(argv[1])? {
        Some(value) => Reply::bulk(value.bytes()),
        None => Reply::Null,
    })
}

/// What a command says about the deadline of the key it sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expiry {
    /// None is left.
    Clear,
    /// Whatever was there stays.
    Keep,
    /// This one.
    At(Millis),
}

fn set(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (key, value) = (argv[1], argv[2]);
    let (mut only_new, mut only_old, mut get) = (false, false, false);
    let mut expiry = None;
    let mut options = argv[3..].iter();
    while let Some(&option) = options.next() {
        if is(option, "nx") && !only_old {
            only_new = true;
        } else if is(option, "xx") && !only_new {
            only_old = true;
        } else if is(option, "get") {
            get = true;
        } else if is(option, "keepttl") && expiry.is_none() {
            expiry = Some(Expiry::Keep);
        } else if let (Some(unit), None, Some(&amount)) =
            (Unit::of(option), expiry, options.as_slice().first())
        {
            options.next();
            expiry = Some(Expiry::At(unit.deadline(amount, context.time, "set")?));
        } else {
            return Err(Error::Syntax);
        }
    }
    let exists = context.find(key).is_some();
    let old = if get {
        match context.read_string(key)? {
            Some(value) => Reply::bulk(value.bytes()),
            None => Reply::Null,
        }
    } else {
        Reply::OK
    };
    if (only_new && exists) || (only_old && !exists) {
        return Ok(if get { old } else { Reply::Null });
    }
    store(context, key, value, expiry.unwrap_or(Expiry::Clear));
    Ok(old)
}

/// Sets a key to a string and tells of it.
fn store(context: &mut Context<'_>, key: &[u8], value: &[u8], expiry: Expiry) {
    let value = Value::String(StringValue::new(value));
    match expiry {
        Expiry::Clear => context.set(key, value),
        Expiry::Keep | Expiry::At(_) => {
            context.replace(key, value);
        }
    }
    context.changed(Events::STRING, "set", key);
    if let Expiry::At(deadline) = expiry {
        context.set_deadline(key, Some(deadline));
        context.engine.notify(Events::GENERIC, "expire", context.database, key);
    }
}

/// How an option gives a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Seconds,
    Millis,
    UnixSeconds,
    UnixMillis,
}

impl Unit {
    fn of(option: &[u8]) -> Option<Unit> {
        [
            ("ex", Unit::Seconds),
            ("px", Unit::Millis),
            ("exat", Unit::UnixSeconds),
            ("pxat", Unit::UnixMillis),
        ]
        .into_iter()
        .find_map(|(word, unit)| is(option, word).then_some(unit))
    }

    /// Reads the amount; refuses what is not in the future of the year 0 or beyond what fits.
    fn deadline(self, amount: &[u8], time: Time, name: &'static str) -> Result<Millis, Error> {
        let amount = integer(amount)?;
        if amount <= 0 {
            return Err(Error::InvalidExpire(name));
        }
        let millis = match self {
            Unit::Seconds | Unit::UnixSeconds => amount.checked_mul(1000),
            Unit::Millis | Unit::UnixMillis => Some(amount),
        };
        let deadline = match (self, millis) {
            (Unit::Seconds | Unit::Millis, Some(span)) => time.after(Millis(span)),
            (Unit::UnixSeconds | Unit::UnixMillis, Some(wall)) => {
                Some(time.from_wall(Millis(wall)))
            }
            (_, None) => None,
        };
        deadline.ok_or(Error::InvalidExpire(name))
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::testing::check;

    #[test]
    fn set_with_conditions() {
        check("SET k a NX => OK; SET k b NX => nil; SET k c XX => OK; GET k => \"c\"");
        check("SET k a GET => nil; SET k b GET => \"a\"; SET k c NX GET => \"b\"");
        check("SET k a NX XX => !ERR syntax error; SET k a PX => !ERR syntax error");
    }

    #[test]
    fn set_for_a_time() {
        check("SET k v PX 10; +9ms; GET k => \"v\"; +1ms; GET k => nil");
        check("SET k v PX 10; SET k w KEEPTTL; +10ms; GET k => nil");
        check("SET k v PX 10; SET k w; +10ms; GET k => \"w\"");
        check("SET k v PX 0 => !ERR invalid expire time in 'set' command");
        check("SET k v EX 9223372036854775807 => !ERR invalid expire time in 'set' command");
    }
}
