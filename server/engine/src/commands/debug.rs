//! `DEBUG`: commands that the tests of clients and of Redis use.

use bytes::Bytes;
use lockwheel_resp::{Protocol, Reply, number};
use lockwheel_scripting::LogLevel;
use sha1::{Digest, Sha1};

use crate::command::{Arity, Command, Flags, Group, integer, is};
use crate::commands::unknown_form;
use crate::error::Error;
use crate::limits::{DEBUG_KEYS_MAX, DEBUG_VALUE_BYTES_MAX};
use crate::run::context::Context;
use crate::store::records::NewValue;
use crate::store::serialised;
use crate::timing::time::Millis;

/// The family's rows.
pub const COMMANDS: &[Command] = &[Command {
    name: "debug",
    arity: Arity::AtLeast(2),
    flags: Flags::ADMIN
        .union(Flags::NOSCRIPT)
        .union(Flags::LOADING)
        .union(Flags::STALE)
        .union(Flags::PROTECTED)
        .union(Flags::INTERNAL),
    complexity: "that of the subcommand",
    doc: "A container for commands for tests.",
    example: "DEBUG SLEEP 0 => !ERR DEBUG command not allowed. ...",
    run: debug,
    group: Group::Server,
    ..Command::BASE
}];

const HELP: &[&str] = &[
    "CHANGE-REPL-ID",
    "    Draws a new replication id.",
    "DIGEST",
    "    Returns a digest of the databases: zeros if they are empty.",
    "DIGEST-VALUE <key> [<key> ...]",
    "    Returns digests of the values of keys: zeros for those that do not exist.",
    "ERROR <line>",
    "    Replies with that error.",
    "HELP",
    "    Lists the subcommands.",
    "LOG <message>",
    "    Writes the message to the log of the server.",
    "OBJECT <key>",
    "    Returns how the value of a key is stored.",
    "POPULATE <count> [<prefix>] [<size>]",
    "    Creates strings of that size with the names <prefix>:<number>, key:<number> by default.",
    "PROTOCOL <type>",
    "    Replies with a value of the type: array, bignum, double, false, integer, map, null, push,",
    "    set, string, true, verbatim.",
    "RELOAD",
    "    Writes all keys as a snapshot does, removes them, and reads them back.",
    "SET-ACTIVE-EXPIRE (0|1)",
    "    Selects whether keys are removed at their deadline (1), or when next accessed (0).",
    "SLEEP <seconds>",
    "    Blocks the server for that time.",
];

/// Longest sleep: a longer one serves no test, and nothing else could end it.
const SLEEP_SECONDS_MAX: f64 = 3600.0;

/// `DEBUG`: replies with the result of the subcommand.
fn debug(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    match &argv[1..] {
        [name] if is(name, "help") => Ok(super::help_of("DEBUG", HELP)),
        [name, line] if is(name, "error") => {
            Err(Error::text(String::from_utf8_lossy(line).into_owned()))
        }
        [name, message] if is(name, "log") => {
            let text = format!("DEBUG LOG: {}", String::from_utf8_lossy(message));
            context.log(LogLevel::Warning, text);
            Ok(Reply::OK)
        }
        [name, seconds] if is(name, "sleep") => {
            let seconds = number::parse_double(seconds).unwrap_or(0.0);
            let millis = seconds.clamp(0.0, SLEEP_SECONDS_MAX) * 1000.0;
            if millis > 0.0 {
                (context.engine().process.sleep)(Millis(millis.ceil() as i64));
            }
            Ok(Reply::OK)
        }
        [name] if is(name, "reload") => {
            context.reload().map_err(|error| Error::text(format!("ERR {error}")))?;
            Ok(Reply::OK)
        }
        [name, on] if is(name, "set-active-expire") => {
            let on = integer(on).unwrap_or(0) != 0;
            context.set_active_expiry(on);
            Ok(Reply::OK)
        }
        [name] if is(name, "change-repl-id") => {
            context.change_replication_id();
            Ok(Reply::OK)
        }
        [name] if is(name, "digest") => Ok(digest(context)),
        [name, keys @ ..] if is(name, "digest-value") => {
            Ok(Reply::Array(keys.iter().map(|key| digest_of_value(context, key)).collect()))
        }
        [name, key] if is(name, "object") => object(context, key),
        [name, kind] if is(name, "protocol") => example(context, kind),
        [name, count, options @ ..] if is(name, "populate") && options.len() <= 2 => {
            populate(context, count, options)
        }
        _ => Err(unknown_form("DEBUG", argv[1])),
    }
}

/// `DEBUG DIGEST`: replies with 40 hex digits, equal for equal databases.
fn digest(context: &mut Context<'_>) -> Reply {
    let keyspace = context.keyspace();
    let is_empty = (0..keyspace.count()).all(|number| keyspace.database(number).is_empty());
    let digest = if is_empty { 0 } else { context.engine().digest().0 };
    Reply::Simple(format!("{digest:040x}").into())
}

/// The digest of a key, for `DEBUG DIGEST-VALUE`.
fn digest_of_value(context: &mut Context<'_>, key: &[u8]) -> Reply {
    let is_there = context.find(key).is_some();
    let contents = context.keyspace().contents_of(context.database, key);
    let digest = match contents.filter(|_| is_there) {
        None => [0; 20],
        Some(contents) => <[u8; 20]>::from(Sha1::digest(contents)),
    };
    Reply::Simple(digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into())
}

/// `DEBUG OBJECT`: replies with a line about the value of a key. Its place is that in the table.
fn object(context: &mut Context<'_>, key: &[u8]) -> Result<Reply, Error> {
    let slot = context.find(key).ok_or(Error::line("ERR no such key"))?;
    let record = context.record(slot);
    let encoding = record.value().encoding();
    let length = serialised::write(record.value())
        .map_or(0, |payload| payload.len() - serialised::SEAL_BYTES - 1);
    let idle_seconds = record.idle(context.time.now).0 / 1000;
    let used_seconds = context.time.wall_us.div_euclid(1_000_000) - idle_seconds;
    let line = format!(
        "Value at:{:#x} refcount:1 encoding:{encoding} serializedlength:{length} lru:{} \
         lru_seconds_idle:{idle_seconds}",
        slot,
        used_seconds & super::info::LRU_CLOCK_MAX,
    );
    Ok(Reply::Simple(line.into()))
}

/// `DEBUG POPULATE`: creates keys that do not exist, and replies with OK.
fn populate(context: &mut Context<'_>, count: &[u8], options: &[&[u8]]) -> Result<Reply, Error> {
    let bounded = |argument: &[u8], max: usize| {
        let number = number::parse_integer(argument).and_then(|it| usize::try_from(it).ok());
        let positive = Error::line("ERR value is out of range, must be positive");
        number.filter(|&number| number <= max).ok_or(positive)
    };
    let count = bounded(count, DEBUG_KEYS_MAX)?;
    let prefix = options.first().copied().unwrap_or(b"key");
    let size = options.get(1).map(|size| bounded(size, DEBUG_VALUE_BYTES_MAX)).transpose()?;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for number in 0..count {
        key.clear();
        key.extend_from_slice(prefix);
        key.extend_from_slice(format!(":{number}").as_bytes());
        if context.find(&key).is_some() {
            continue;
        }
        value.clear();
        value.extend_from_slice(format!("value:{number}").as_bytes());
        if let Some(size) = size.filter(|&size| size > 0) {
            value.resize(size, 0);
        }
        context.add(&key, NewValue::Text(&value));
    }
    Ok(Reply::OK)
}

/// `DEBUG PROTOCOL`: replies with an example of a type of the protocol.
#[expect(clippy::approx_constant, reason = "the number that Redis replies with")]
fn example(context: &mut Context<'_>, kind: &[u8]) -> Result<Reply, Error> {
    let numbers = || vec![Reply::Integer(0), Reply::Integer(1), Reply::Integer(2)];
    let bulk = |text: &'static str| Reply::Bulk(Bytes::from_static(text.as_bytes()));
    let is_resp2 = context.client().protocol == Protocol::Resp2;
    Ok(match () {
        () if is(kind, "string") => bulk("Hello World"),
        () if is(kind, "integer") => Reply::Integer(12345),
        () if is(kind, "double") => Reply::Double(3.141),
        () if is(kind, "null") => Reply::Null,
        () if is(kind, "array") => Reply::Array(numbers()),
        () if is(kind, "set") => Reply::Set(numbers()),
        () if is(kind, "map") => Reply::Map(
            numbers().into_iter().zip([false, true, false].map(Reply::Boolean)).collect(),
        ),
        () if is(kind, "attrib") && is_resp2 => bulk("Some real reply following the attribute"),
        () if is(kind, "attrib") => {
            return Err(Error::line("ERR attributes are not supported by this server"));
        }
        () if is(kind, "push") && is_resp2 => {
            return Err(Error::line("ERR RESP2 is not supported by this command"));
        }
        () if is(kind, "push") => Reply::Several(vec![
            Reply::Push(vec![bulk("server-cpu-usage"), Reply::Integer(42)]),
            bulk("Some real reply following the push reply"),
        ]),
        () if is(kind, "verbatim") => Reply::Verbatim {
            format: *b"txt",
            text: Bytes::from_static(b"This is a verbatim\nstring"),
        },
        () if is(kind, "true") => Reply::Boolean(true),
        () if is(kind, "false") => Reply::Boolean(false),
        () if is(kind, "bignum") => {
            Reply::BigNumber(Bytes::from_static(b"1234567999999999999999999999999999999"))
        }
        () => return Err(Error::line(WRONG_TYPE_NAME)),
    })
}

const WRONG_TYPE_NAME: &str = "ERR Wrong protocol type name. Please use one of the following: \
    string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false";

#[cfg(test)]
mod tests {
    use crate::sessions::Origin;
    use crate::settings::{Permission, Settings};
    use crate::testing::check;
    use crate::testing::{Stage, words};
    use crate::timing::time::{Millis, Time};

    #[test]
    fn digests_are_those_of_the_contents() {
        let mut stage = open(Permission::Yes);
        stage.check("DEBUG DIGEST => 0000000000000000000000000000000000000000");
        stage.check("SET k v; SET l v; SET m w PX 10");
        let client = stage.client("a");
        let mut reply = |command: &str| stage.run(client, &words(command)).0;
        let (all, value) = (reply("DEBUG DIGEST"), reply("DEBUG DIGEST-VALUE k"));
        assert_eq!(reply("DEBUG DIGEST-VALUE l"), value);
        assert_ne!(reply("DEBUG DIGEST-VALUE m"), value);
        reply("DEBUG RELOAD");
        assert_eq!(reply("DEBUG DIGEST"), all);
        reply("SET k w");
        assert_ne!(reply("DEBUG DIGEST"), all);
        stage.check("DEBUG DIGEST-VALUE n => [0000000000000000000000000000000000000000]");
        stage.check("+10ms; DEBUG DIGEST-VALUE m => [0000000000000000000000000000000000000000]");
    }

    #[test]
    fn values_are_described_as_in_redis() {
        let mut stage = open(Permission::Yes);
        stage.check("DEBUG OBJECT k => !ERR no such key; SET k v; +2500ms");
        stage.check(
            "DEBUG OBJECT k => ... refcount:1 encoding:embstr serializedlength:2 lru:... \
             lru_seconds_idle:2",
        );
    }

    #[test]
    fn populate_creates_missing_keys() {
        let mut stage = open(Permission::Yes);
        stage.check("SET p:1 kept; DEBUG POPULATE 3 p 10 => OK; DBSIZE => 3; GET p:1 => \"kept\"");
        stage.check(
            "GET p:2 => \"value:2\\x00\\x00\\x00\"; DEBUG POPULATE 1; GET key:0 => \"value:0\"",
        );
        stage.check("DEBUG POPULATE x => !ERR value is out of range, must be positive");
        stage.check("DEBUG POPULATE 99999999999 => !ERR value is out of range, must be positive");
    }

    #[test]
    fn protocol_has_an_example_of_each_type() {
        let mut stage = open(Permission::Yes);
        stage.check("DEBUG PROTOCOL push => !ERR RESP2 is not supported by this command");
        stage.check("DEBUG PROTOCOL map => [0, 0, 1, 1, 2, 0]; HELLO 3");
        stage.check("DEBUG PROTOCOL map => {0: #f, 1: #t, 2: #f}");
        stage.check("DEBUG PROTOCOL double => 3.141; DEBUG PROTOCOL x => !ERR Wrong protocol ...");
    }

    #[test]
    fn replication_id_changes() {
        let mut stage = open(Permission::Yes);
        let before = stage.engine.replication_id.clone();
        stage.check("DEBUG CHANGE-REPL-ID => OK");
        let now = stage.engine.replication_id.clone();
        assert!(now != before && now.len() == 40, "{now}");
        stage.check(&format!("INFO replication => ...master_replid:{now}..."));
    }

    #[test]
    fn messages_are_logged() {
        let mut stage = open(Permission::Yes);
        stage.check("DEBUG LOG \"a test begins\" => OK");
        let messages = stage.engine.take_script_messages();
        assert_eq!(messages[0].1, "DEBUG LOG: a test begins");
    }

    fn open(permission: Permission) -> Stage {
        let mut stage = Stage::new(Settings::default());
        stage.engine.settings.enable_debug_command = permission;
        stage
    }

    #[test]
    fn debug_requires_permission() {
        check(
            "MULTI; DEBUG SLEEP 0 => !ERR DEBUG command not allowed. ...; EXEC => !EXECABORT ...",
        );
        check("DEBUG => !ERR wrong number of arguments for 'debug' command");
        open(Permission::Yes).check("DEBUG SLEEP 0 => OK");
        let mut stage = open(Permission::Local);
        stage.check("DEBUG SLEEP 0 => !ERR DEBUG command not allowed. ...");
        let origin = Origin { local: true, ..Origin::default() };
        let local = stage.engine.connect(origin, Time::at(Millis(0)));
        assert_eq!(stage.run(local, &words("DEBUG SLEEP 0")).0, "OK");
    }

    #[test]
    fn debug_runs_its_subcommands() {
        let mut stage = open(Permission::Yes);
        stage.check("DEBUG SLEEP x => OK; DEBUG ERROR \"MY own\" => !MY own");
        stage.check("DEBUG SET-ACTIVE-EXPIRE 0 => OK; SET k v PX 10; +10ms");
        assert_eq!(stage.engine.writer.keyspace().database(0).len(), 1);
        stage.check("SET l v PX 10; +10ms; DBSIZE => 2; DEBUG SET-ACTIVE-EXPIRE 1; DBSIZE => 0");
        stage.check("DEBUG SET-ACTIVE-EXPIRE 0");
        stage.check("GET k => nil; SET k v PX 10; DEBUG SET-ACTIVE-EXPIRE 1; +10ms");
        assert_eq!(stage.engine.writer.keyspace().database(0).len(), 0);
        stage.check(
            "DEBUG JMAP => !ERR unknown subcommand or wrong number of arguments for \
                     'JMAP'. Try DEBUG HELP.",
        );
    }
}
