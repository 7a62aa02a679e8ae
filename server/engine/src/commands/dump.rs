//! `DUMP` and `RESTORE`: values serialized in Redis's format.

use lockwheel_resp::Reply;

use crate::command::argument as arg;
use crate::command::{Arity, Categories, Command, Flags, Group, KeySpec, integer, is};
use crate::commands::sorted_sets::members;
use crate::commands::streams::entries;
use crate::commands::{hashes, lists, sets};
use crate::error::Error;
use crate::run::context::Context;
use crate::store::events::Events;
use crate::store::serialised::{self, Forms};
use crate::timing::time::Millis;

const KEYS: Command = Command {
    group: Group::Generic,
    categories: Categories::KEYSPACE,
    since: "2.6.0",
    ..Command::BASE
};

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "dump",
        arity: Arity::Exactly(2),
        flags: Flags::READONLY,
        keys: &[KeySpec::one(&["RO", "access"])],
        complexity: "O(N), N being the size of the value",
        tips: &["nondeterministic_output"],
        doc: "Returns a value serialized for RESTORE, on this server or another.",
        arguments: &[arg::key("key")],
        example: "SET k 1; DUMP k => \"\\x00\\xc0\\x01\\x0b\\x00...\"",
        run: dump,
        ..KEYS
    },
    Command {
        name: "restore",
        arity: Arity::AtLeast(4),
        flags: Flags::WRITE.union(Flags::DENYOOM),
        categories: Categories::KEYSPACE.union(Categories::DANGEROUS),
        keys: &[KeySpec::one(&["OW", "update"])],
        complexity: "O(N), N being the size of the value, O(N*log(N)) for sorted sets",
        doc: "Sets a key to a serialized value, with a time to live in milliseconds, or 0 for \
              none.",
        arguments: &[
            arg::key("key"),
            arg::integer("ttl"),
            arg::string("serialized-value"),
            arg::word("REPLACE").optional().since("3.0.0"),
            arg::word("ABSTTL").optional().since("5.0.0"),
            arg::integer("seconds").token("IDLETIME").optional().since("5.0.0"),
            arg::integer("frequency").token("FREQ").optional().since("5.0.0"),
        ],
        example: "RESTORE k 0 \"\\x00\\xc0\\x01\\x0b\\x00O\\xa7Z\\xc5,\\x9e\\xf8u\" => OK",
        run: restore,
        ..KEYS
    },
];

/// `DUMP`: replies with the serialized value, or nil.
fn dump(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let Some(slot) = context.read_slot(argv[1]) else { return Ok(Reply::Null) };
    context.refuse_lock(slot, "LOCK.INFO")?;
    let payload = serialised::write(context.record(slot).value());
    Ok(payload.map_or(Reply::Null, |payload| Reply::Bulk(payload.into())))
}

/// `RESTORE`: sets a key to a serialized value and replies with OK.
fn restore(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let key = argv[1];
    let options = Options::parse(&argv[4..])?;
    let found = context.find(key);
    if !options.replace && found.is_some() {
        return Err(Error::line("BUSYKEY Target key name already exists."));
    }
    context.expect_no_lock(found)?;
    let span = integer(argv[2])?;
    if span < 0 {
        return Err(Error::line("ERR Invalid TTL value, must be >= 0"));
    }
    let body = serialised::unseal(argv[3])
        .ok_or(Error::line("ERR DUMP payload version or checksum are wrong"))?;
    let value =
        serialised::read(body, forms(context)).map_err(|_| Error::line("ERR Bad data format"))?;
    let deadline = match (span, options.absolute) {
        (0, _) => None,
        (wall, true) => Some(context.time.from_wall(Millis(wall))),
        // A deadline that is too late becomes the latest possible one.
        (span, false) => Some(context.time.after(Millis(span)).unwrap_or(Millis(i64::MAX))),
    };
    let replaced = context.remove(key);
    if deadline.is_some_and(|deadline| context.time.reached(deadline)) {
        if replaced {
            context.changed(Events::GENERIC, "del", key);
        }
        return Ok(Reply::OK);
    }
    let slot = context.add(key, value.into());
    context.set_deadline_at(slot, deadline);
    context.set_usage(slot, Millis(options.idle_ms), options.frequency);
    context.changed(Events::GENERIC, "restore", key);
    Ok(Reply::OK)
}

/// The options after the payload.
#[derive(Default)]
struct Options {
    replace: bool,
    absolute: bool,
    idle_ms: i64,
    frequency: Option<u8>,
}

impl Options {
    fn parse(mut rest: &[&[u8]]) -> Result<Options, Error> {
        let mut options = Options::default();
        let (mut idle, mut frequency) = (None, None);
        while let [word, after @ ..] = rest {
            rest = after;
            if is(word, "replace") {
                options.replace = true;
            } else if is(word, "absttl") {
                options.absolute = true;
            } else {
                let [value, after @ ..] = rest else { return Err(Error::Syntax) };
                rest = after;
                if is(word, "idletime") && frequency.is_none() {
                    idle = Some(integer(value)?);
                    if idle < Some(0) {
                        return Err(Error::line("ERR Invalid IDLETIME value, must be >= 0"));
                    }
                } else if is(word, "freq") && idle.is_none() {
                    frequency = Some(integer(value)?);
                    if !(Some(0)..=Some(255)).contains(&frequency) {
                        return Err(Error::line("ERR Invalid FREQ value, must be >= 0 and <= 255"));
                    }
                } else {
                    return Err(Error::Syntax);
                }
            }
        }
        options.frequency = frequency.and_then(|frequency| u8::try_from(frequency).ok());
        options.idle_ms = idle.unwrap_or(0).saturating_mul(1000);
        Ok(options)
    }
}

/// The limits of the small forms of values.
pub fn forms(context: &Context<'_>) -> Forms {
    let (hash, seed) = hashes::forms(context);
    let (set, _) = sets::forms(context);
    let (sorted_set, _) = members::forms(context);
    let stream = entries::node_limits(context);
    Forms { hash, list: lists::small(context), set, sorted_set, stream, seed }
}

#[cfg(test)]
mod tests {
    use crate::testing::{check, check_events};

    /// The payload of the string `v`.
    const V: &str = "\"\\x00\\x01v\\x0b\\x00\\xf8\\xd7s\\xc1\\xe4\\xa7cG\"";

    #[test]
    fn restored_lease_has_the_given_time_to_live() {
        check(&format!(
            "RESTORE k 10 {V} => OK; PTTL k => 10; +9ms; GET k => \"v\"; +1ms; GET k => nil"
        ));
        check(&format!(
            "RESTORE k 1700000000010 {V} ABSTTL; +9ms; GET k => \"v\"; +1ms; GET k => nil"
        ));
        check(&format!("wall+60000ms; RESTORE k 1700000060010 {V} ABSTTL; PTTL k => 10"));
        check(&format!(
            "SET k w PX 10; RESTORE k 0 {V} REPLACE => OK; TTL k => -1; +10ms; GET k => \"v\""
        ));
        check(&format!("SET k w PX 10; +10ms; RESTORE k 0 {V} => OK; GET k => \"v\""));
        check(&format!("SET k w; RESTORE k 0 {V} => !BUSYKEY Target key name already exists."));
        check(&format!("SET k w; RESTORE k 1 {V} ABSTTL REPLACE => OK; GET k => nil"));
        check(&format!("RESTORE k 1 {V} ABSTTL => OK; GET k => nil"));
        check(&format!(
            "RESTORE k 9223372036854775807 {V} => OK; GET k => \"v\"; +10ms; GET k => \"v\""
        ));
        check(&format!("+5000ms; RESTORE k 0 {V} IDLETIME 3; OBJECT IDLETIME k => 3"));
        check(&format!("SET k v PX 10; DUMP k => {V}; +10ms; DUMP k => nil"));
    }

    #[test]
    fn commands_send_their_events() {
        check_events(&[
            (&format!("RESTORE k 0 {V}"), "new k, restore k"),
            (&format!("RESTORE k 0 {V}"), ""),
            (&format!("RESTORE k 0 {V} REPLACE"), "new k, restore k"),
            (&format!("RESTORE k 1 {V} ABSTTL REPLACE"), "del k"),
            (&format!("RESTORE k 1 {V} ABSTTL"), ""),
            ("DUMP k", "keymiss k"),
        ]);
        check(&format!("WATCH k; b> RESTORE k 0 {V}; MULTI; EXEC => nil-array"));
    }
}
