//! Commands for deadlines: they renew a lease, return its remaining time and make it permanent.

use lockwheel_resp::Reply;

use super::time_unit::TimeUnit;
use crate::command::argument::{self as arg, Argument};
use crate::command::{Arity, Categories, Command, Flags, Group, KeySpec, LockMeaning, integer, is};
use crate::error::Error;
use crate::run::context::Context;
use crate::store::dict::Slot;
use crate::store::events::Events;
use crate::timing::time::{Millis, Time};

const EXPIRY: Command =
    Command { group: Group::Generic, categories: Categories::KEYSPACE, ..Command::BASE };

const SET_DEADLINE: Command = Command {
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::FAST),
    keys: &[KeySpec::one(&["RW", "update"])],
    ..EXPIRY
};

const GET_DEADLINE: Command = Command {
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.union(Flags::FAST),
    keys: &[KeySpec::one(&["RO", "access"])],
    ..EXPIRY
};

/// The condition of `EXPIRE` and its variants.
const CONDITION: Argument =
    arg::one_of("condition", &[arg::word("NX"), arg::word("XX"), arg::word("GT"), arg::word("LT")])
        .optional()
        .since("7.0.0");

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "expire",
        doc: "Sets the time to live of a key in seconds.",
        arguments: &[arg::key("key"), arg::integer("seconds"), CONDITION],
        lock: LockMeaning::Renew,
        example: "SET k v; EXPIRE k 10 NX; TTL k; EXPIRE k 5 GT => 0",
        run: |context, argv| expire(context, argv, TimeUnit::Seconds),
        ..SET_DEADLINE
    },
    Command {
        name: "expireat",
        since: "1.2.0",
        doc: "Sets the deadline of a key to a wall-clock time in seconds since 1970.",
        arguments: &[arg::key("key"), arg::unix_time("unix-time-seconds"), CONDITION],
        lock: LockMeaning::Renew,
        example: "SET k v; EXPIREAT k 4102444800 => 1",
        run: |context, argv| expire(context, argv, TimeUnit::UnixSeconds),
        ..SET_DEADLINE
    },
    Command {
        name: "expiretime",
        since: "7.0.0",
        doc: "Returns the deadline of a key as a wall-clock time in seconds since 1970.",
        arguments: &[arg::key("key")],
        lock: LockMeaning::Inspect,
        example: "SET k v; EXPIREAT k 4102444800; EXPIRETIME k => 4102444800",
        run: |context, argv| Ok(time_left(context, argv[1], |t, d| seconds(t.to_wall(d)))),
        ..GET_DEADLINE
    },
    Command {
        name: "persist",
        arity: Arity::Exactly(2),
        since: "2.2.0",
        doc: "Removes the deadline of a key.",
        arguments: &[arg::key("key")],
        lock: LockMeaning::Renew,
        example: "SET k v PX 10; PERSIST k => 1",
        run: persist,
        ..SET_DEADLINE
    },
    Command {
        name: "pexpire",
        since: "2.6.0",
        doc: "Sets the time to live of a key in milliseconds.",
        arguments: &[arg::key("key"), arg::integer("milliseconds"), CONDITION],
        lock: LockMeaning::Renew,
        example: "SET lock token PX 10; PEXPIRE lock 30000 => 1",
        run: |context, argv| expire(context, argv, TimeUnit::Millis),
        ..SET_DEADLINE
    },
    Command {
        name: "pexpireat",
        since: "2.6.0",
        doc: "Sets the deadline of a key to a wall-clock time in milliseconds since 1970.",
        arguments: &[arg::key("key"), arg::unix_time("unix-time-milliseconds"), CONDITION],
        lock: LockMeaning::Renew,
        example: "SET k v; PEXPIREAT k 4102444800000 => 1",
        run: |context, argv| expire(context, argv, TimeUnit::UnixMillis),
        ..SET_DEADLINE
    },
    Command {
        name: "pexpiretime",
        since: "7.0.0",
        doc: "Returns the deadline of a key as a wall-clock time in milliseconds since 1970.",
        arguments: &[arg::key("key")],
        lock: LockMeaning::Inspect,
        example: "SET k v; PEXPIREAT k 4102444800123; PEXPIRETIME k => 4102444800123",
        run: |context, argv| Ok(time_left(context, argv[1], |time, d| time.to_wall(d))),
        ..GET_DEADLINE
    },
    Command {
        name: "pttl",
        since: "2.6.0",
        doc: "Returns the remaining time to live of a key in milliseconds.",
        arguments: &[arg::key("key")],
        lock: LockMeaning::Inspect,
        example: "SET lock token PX 30000; PTTL lock => 30000",
        tips: &["nondeterministic_output"],
        run: |context, argv| Ok(time_left(context, argv[1], Time::remaining)),
        ..GET_DEADLINE
    },
    Command {
        name: "ttl",
        doc: "Returns the remaining time to live of a key in seconds, rounded.",
        arguments: &[arg::key("key")],
        lock: LockMeaning::Inspect,
        example: "SET lock token PX 29500; TTL lock => 30",
        tips: &["nondeterministic_output"],
        run: |context, argv| Ok(time_left(context, argv[1], |t, d| seconds(t.remaining(d)))),
        ..GET_DEADLINE
    },
];

/// The condition on which a deadline is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Condition {
    /// `NX`: the key has no deadline.
    only_first: bool,
    /// `XX`: the key has a deadline.
    only_next: bool,
    /// `GT`: the new deadline is later. No deadline counts as later than any other.
    only_later: bool,
    /// `LT`: the new deadline is earlier.
    only_earlier: bool,
}

impl Condition {
    #[cold]
    fn read(options: &[&[u8]]) -> Result<Condition, Error> {
        let mut condition = Condition::default();
        for option in options {
            let wanted = if is(option, "nx") {
                &mut condition.only_first
            } else if is(option, "xx") {
                &mut condition.only_next
            } else if is(option, "gt") {
                &mut condition.only_later
            } else if is(option, "lt") {
                &mut condition.only_earlier
            } else {
                let option = String::from_utf8_lossy(option);
                return Err(Error::text(format!("ERR Unsupported option {option}")));
            };
            *wanted = true;
        }
        let Condition { only_first, only_next, only_later, only_earlier } = condition;
        if only_first && (only_next || only_later || only_earlier) {
            return Err(Error::line(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if only_later && only_earlier {
            return Err(Error::line("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(condition)
    }

    fn holds(self, old: Option<Millis>, new: Millis) -> bool {
        !(self.only_first && old.is_some()
            || self.only_next && old.is_none()
            || self.only_later && old.is_none_or(|old| new <= old)
            || self.only_earlier && old.is_some_and(|old| new >= old))
    }
}

/// `EXPIRE`, `PEXPIRE`, `EXPIREAT` and `PEXPIREAT`: reply with 1 if the deadline was set, else 0.
fn expire(context: &mut Context<'_>, argv: &[&[u8]], unit: TimeUnit) -> Result<Reply, Error> {
    let key = argv[1];
    let condition = match &argv[3..] {
        [] => None,
        options => Some(Condition::read(options)?),
    };
    let Some(deadline) = unit.deadline(integer(argv[2])?, context.time) else {
        return Err(Error::InvalidExpire(context.name));
    };
    let Some(slot) = context.find_for_write(key) else { return Ok(Reply::from(false)) };
    context.refuse_lock(slot, "LOCK.RENEW")?;
    if let Some(condition) = condition {
        if !condition.holds(context.deadline_at(slot), deadline) {
            return Ok(Reply::from(false));
        }
        may_take_lock(context, slot);
    }
    if context.time.reached(deadline) {
        context.remove_and_notify(key);
    } else {
        context.set_deadline_at(slot, Some(deadline));
        context.changed(Events::GENERIC, "expire", key);
    }
    Ok(Reply::from(true))
}

/// `PERSIST`: replies with 1 if a deadline was removed, else 0.
fn persist(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let key = argv[1];
    let Some(slot) = context.find_for_write(key) else { return Ok(Reply::from(false)) };
    context.refuse_lock(slot, "LOCK.RENEW")?;
    if context.deadline_at(slot).is_none() {
        return Ok(Reply::from(false));
    }
    may_take_lock(context, slot);
    context.set_deadline_at(slot, None);
    context.changed(Events::GENERIC, "persist", key);
    Ok(Reply::from(true))
}

/// Marks the key as one that may be a lock: the reply shows the client that it is the first to
/// change the deadline.
fn may_take_lock(context: &mut Context<'_>, slot: Slot) {
    context.set_plain(slot, false);
}

/// `TTL` and its variants: reply with -2 without the key, -1 without a deadline, else the result of
/// `shown`.
fn time_left(
    context: &mut Context<'_>,
    key: &[u8],
    shown: impl Fn(Time, Millis) -> Millis,
) -> Reply {
    let Some(slot) = context.find_for_read(key) else { return Reply::Integer(-2) };
    match context.deadline_at(slot) {
        None => Reply::Integer(-1),
        Some(deadline) => Reply::Integer(shown(context.time, deadline).0),
    }
}

/// Whole seconds, rounded half up.
fn seconds(millis: Millis) -> Millis {
    Millis(millis.0.div_euclid(1000) + i64::from(millis.0.rem_euclid(1000) >= 500))
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;
    use crate::store::events::Events;
    use crate::testing::{Stage, check};

    /// Shows G7.
    #[test]
    fn lease_begun_within_a_millisecond_lasts_its_whole_time() {
        check("SET k v; +1us; PEXPIRE k 10; PTTL k => 10; +9999us; GET k => \"v\"");
        check("SET k v; +1us; PEXPIRE k 10; +10999us; GET k => nil");
        check("SET k v; +1us; PEXPIRE k 0 => 1; EXISTS k => 0");
    }

    #[test]
    fn deadline_in_the_past_deletes_the_key() {
        for command in [
            "EXPIRE k 0",
            "EXPIRE k -1",
            "PEXPIRE k 0",
            "PEXPIRE k -9223372036854775808",
            "EXPIREAT k 0",
            "PEXPIREAT k 1",
            "EXPIREAT k 1700000000",
            "PEXPIREAT k -9223372036854775808",
        ] {
            let mut stage = Stage::new(Settings::default());
            stage.engine.set_events(Events::KEYEVENT | Events::ALL);
            stage.check(&format!(
                "SET k v; b> PSUBSCRIBE *; {command} => 1; EXISTS k => 0; \
                 b< => [\"pmessage\", \"*\", \"__keyevent@0__:del\", \"k\"]; {command} => 0"
            ));
            assert_eq!(stage.engine.stats.expired_keys, 0, "{command}");
        }
        check("SET k v; PEXPIREAT k 1700000000001 => 1; GET k => \"v\"; +1ms; GET k => nil");
    }

    #[test]
    fn remaining_times_and_deadlines_are_rounded_to_seconds() {
        check("SET k v PX 1499; TTL k => 1; PEXPIRE k 1500; TTL k => 2; PEXPIRE k 499; TTL k => 0");
        check("SET k v; PEXPIREAT k 1700000001499; EXPIRETIME k => 1700000001");
        check("SET k v; PEXPIREAT k 9223372036854775807 => 1; EXPIRETIME k => 9223372036854776");
    }

    /// Shows G5, G6.
    #[test]
    fn wall_clock_step_moves_no_lease() {
        check(
            "SET k v; PEXPIRE k 10; wall+3600000ms; PTTL k => 10; +9ms; GET k => \"v\"; \
             +1ms; GET k => nil",
        );
        check(
            "SET k v; PEXPIRE k 10; wall-3600000ms; PTTL k => 10; \
             PEXPIRETIME k => 1699996400010; +10ms; GET k => nil",
        );
        check(
            "wall+3600000ms; SET k v; PEXPIREAT k 1700003600010 => 1; PTTL k => 10; \
             PEXPIRETIME k => 1700003600010; wall-3600000ms; PTTL k => 10; \
             PEXPIRETIME k => 1700000000010",
        );
        check("wall+3600000ms; SET k v; EXPIREAT k 1700003600 => 1; EXISTS k => 0");
    }

    #[test]
    fn key_due_when_it_is_set_is_gone_before_the_next_request() {
        check("DBSIZE => 0; SET k v PXAT 1 => OK; DBSIZE => 0; EXISTS k => 0");
        check("SET k v; DBSIZE => 1; GETEX k PXAT 1; DBSIZE => 0");
    }
}
