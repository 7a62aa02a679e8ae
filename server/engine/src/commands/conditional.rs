//! Commands that compare a string with an expected value and act on the result: the release of a
//! lock without a script. `compat-version` decides which of them exist.

use lockwheel_resp::Reply;
use xxhash_rust::xxh3::xxh3_64;

use crate::command::argument::{self as arg, Argument};
use crate::command::{Arity, Categories, Command, Flags, Group, KeySpec, LockMeaning, is};
use crate::error::Error;
use crate::run::context::Context;
use crate::settings::{CompatVersion, Vendor};
use crate::store::string_value::{StringValue, Text};

const STRING: Command =
    Command { group: Group::String, categories: Categories::STRING, ..Command::BASE };

/// A condition of `DELEX`.
const CONDITION: Argument = arg::one_of(
    "condition",
    &[
        arg::string("ifeq-value").token("IFEQ"),
        arg::string("ifne-value").token("IFNE"),
        arg::string("ifdeq-digest").token("IFDEQ"),
        arg::string("ifdne-digest").token("IFDNE"),
    ],
);

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "delex",
        arity: Arity::AtLeast(2),
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(&["RW", "delete", "variable_flags"])],
        maker: Vendor::Redis,
        since: "8.4.0",
        complexity: "O(1), or O(N) in the length of the string if digests are compared",
        doc: "Removes a key if its string fulfils a condition.",
        arguments: &[arg::key("key"), CONDITION.optional()],
        lock: LockMeaning::Release,
        example: "SET lock token; DELEX lock IFEQ other => 0",
        run: delex,
        ..STRING
    },
    Command {
        name: "delifeq",
        arity: Arity::Exactly(3),
        flags: Flags::WRITE.union(Flags::FAST),
        keys: &[KeySpec::one(&["RW", "access", "delete"])],
        maker: Vendor::Valkey,
        since: "9.0.0",
        doc: "Removes a key if its string equals the given one.",
        arguments: &[arg::key("key"), arg::string("value")],
        lock: LockMeaning::Release,
        example: "SET lock token; DELIFEQ lock token => 1",
        run: delifeq,
        ..STRING
    },
    Command {
        name: "digest",
        arity: Arity::Exactly(2),
        flags: Flags::READONLY.union(Flags::FAST),
        keys: &[KeySpec::one(&["RO", "access"])],
        maker: Vendor::Redis,
        since: "8.4.0",
        complexity: "O(N) in the length of the string",
        doc: "Returns a digest of a string, for comparisons.",
        arguments: &[arg::key("key")],
        example: "SET k \"Hello world\"; DIGEST k => \"b6acb9d84a38ff74\"",
        run: digest,
        ..STRING
    },
];

/// A condition on a string.
#[derive(Clone, Copy, Debug)]
pub enum Condition<'a> {
    /// It equals this.
    Equal(&'a [u8]),
    /// It differs from this.
    NotEqual(&'a [u8]),
    /// It has this digest.
    DigestEqual(&'a [u8]),
    /// It has another digest.
    DigestNotEqual(&'a [u8]),
}

impl<'a> Condition<'a> {
    /// The condition with the name of this option, if there is one.
    pub fn named(option: &[u8], operand: &'a [u8]) -> Option<Condition<'a>> {
        match () {
            () if is(option, "ifeq") => Some(Condition::Equal(operand)),
            () if is(option, "ifne") => Some(Condition::NotEqual(operand)),
            () if is(option, "ifdeq") => Some(Condition::DigestEqual(operand)),
            () if is(option, "ifdne") => Some(Condition::DigestNotEqual(operand)),
            () => None,
        }
    }

    /// Whether `SET` has this condition in a version.
    pub fn is_supported_by_set(self, version: CompatVersion) -> bool {
        let also = matches!(self, Condition::Equal(_)) && version.has(Vendor::Valkey, "8.1.0");
        version.has(Vendor::Redis, "8.4.0") || also
    }

    /// Whether `SET` with this condition sets a key that does not exist.
    pub fn holds_without_key(self) -> bool {
        matches!(self, Condition::NotEqual(_) | Condition::DigestNotEqual(_))
    }

    /// Whether the condition holds.
    ///
    /// # Errors
    /// If its digest is malformed.
    pub fn holds(self, value: Text<'_>) -> Result<bool, Error> {
        let has_digest = |digest: &[u8]| {
            if digest.len() != DIGEST_DIGITS {
                return Err(Error::line("ERR must be exactly 16 hexadecimal characters"));
            }
            Ok(digest_of(value).as_bytes().eq_ignore_ascii_case(digest))
        };
        match self {
            Condition::Equal(operand) => Ok(*value.bytes() == *operand),
            Condition::NotEqual(operand) => Ok(*value.bytes() != *operand),
            Condition::DigestEqual(operand) => has_digest(operand),
            Condition::DigestNotEqual(operand) => has_digest(operand).map(|same| !same),
        }
    }
}

/// Digits of a digest.
const DIGEST_DIGITS: usize = 16;

fn digest_of(value: Text<'_>) -> String {
    format!("{:0DIGEST_DIGITS$x}", xxh3_64(value.bytes()))
}

/// `DIGEST`: replies with the digest of the string, or nil without the key.
fn digest(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let value = context.read_as::<StringValue>(argv[1])?;
    Ok(value.map_or(Reply::Null, |value| Reply::bulk(digest_of(value))))
}

/// `DELEX`: replies with the number of removed keys. Without a condition it is `DEL` of one key.
fn delex(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let key = argv[1];
    let condition = match argv[2..] {
        [] => None,
        [option, operand] => Some((option, operand)),
        _ => return Err(Error::Arity(context.name.to_owned())),
    };
    if context.find(key).is_none() {
        return Ok(Reply::from(false));
    }
    if let Some((option, operand)) = condition {
        let found = context.find_to_write::<StringValue>(key).map_err(|_| {
            Error::line("ERR Key should be of string type if conditions are specified")
        })?;
        // As in Redis, the type of the key is checked before the name of the condition.
        let condition = Condition::named(option, operand)
            .ok_or(Error::line("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"))?;
        if !found.map_or(Ok(false), |(_, value)| condition.holds(value))? {
            return Ok(Reply::from(false));
        }
    }
    Ok(Reply::from(context.remove_and_notify(key)))
}

/// `DELIFEQ`: replies with the number of removed keys.
fn delifeq(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let key = argv[1];
    let found = context.find_to_write::<StringValue>(key)?;
    if found.map_or(Ok(false), |(_, value)| Condition::Equal(argv[2]).holds(value))? {
        return Ok(Reply::from(context.remove_and_notify(key)));
    }
    Ok(Reply::from(false))
}

#[cfg(test)]
mod tests {
    use crate::settings::{CompatVersion, Settings};
    use crate::store::events::Events;
    use crate::testing::Stage;

    fn stage(version: CompatVersion) -> Stage {
        let mut settings = Settings::default();
        settings.compat_version = version;
        Stage::new(settings)
    }

    #[test]
    fn version_decides_which_commands_exist() {
        for &version in CompatVersion::ALL {
            let mut stage = stage(version);
            stage.check("SET k v");
            let mut is_there = |command: &str, there: bool, absent: &str| {
                let expected = if there { "OK" } else { absent };
                stage.check(&format!("{command} => {expected}"));
            };
            let redis84 = version == CompatVersion::Redis84;
            let valkey = version.valkey_version();
            let syntax = "!ERR syntax error";
            is_there("SET k v IFEQ v", redis84 || valkey >= Some("8.1"), syntax);
            for option in ["IFNE w", "IFDNE 0123456789abcdef"] {
                is_there(&format!("SET k v {option}"), redis84, syntax);
            }
            let counted = |stage: &mut Stage, name: &str| {
                let client = stage.client("a");
                let words = format!("COMMAND LIST FILTERBY PATTERN {name}");
                stage.run(client, &crate::testing::words(&words)).0 != "[]"
            };
            for (name, there) in [
                ("delex", redis84),
                ("digest", redis84),
                ("delifeq", valkey == Some("9.0.0")),
                ("waitaof", version != CompatVersion::Redis70),
                ("client|setinfo", version != CompatVersion::Redis70),
            ] {
                assert_eq!(counted(&mut stage, name), there, "{name} in {version:?}");
            }
        }
        stage(CompatVersion::Redis72).check("DELEX k => !ERR unknown command 'DELEX', ...");
        stage(CompatVersion::Redis70).check("CLIENT SETINFO LIB-VER 1 => !ERR unknown subcom...");
        stage(CompatVersion::Redis84).check("COMMAND INFO digest => [[\"digest\", 2, ...]]");
    }

    #[test]
    fn version_is_reported() {
        let mut redis = stage(CompatVersion::Redis84);
        redis.check("HELLO => [\"server\", \"redis\", \"version\", \"8.4.0\", ...]");
        redis.check("INFO server => ...redis_version:8.4.0\\r\\nserver_name:lockwheel\\r\\n...");
        redis.check("EVAL \"return redis.REDIS_VERSION\" 0 => \"8.4.0\"");
        redis.check("CONFIG GET compat-version => [\"compat-version\", \"8.4\"]");
        let mut valkey = stage(CompatVersion::Valkey81);
        valkey.check("HELLO => [\"server\", \"valkey\", \"version\", \"8.1.0\", ...]");
        valkey.check(
            "INFO server => ...redis_version:7.2.4\\r\\nserver_name:valkey\\r\\n\
                      valkey_version:8.1.0\\r\\n...server_mode:standalone\\r\\n...",
        );
    }

    #[test]
    fn string_is_set_if_it_has_the_expected_value() {
        let mut stage = stage(CompatVersion::Redis84);
        stage.check("SET k a; SET k b IFEQ x => nil; SET k b IFEQ a => OK; GET k => \"b\"");
        stage.check("SET k c IFNE b => nil; SET k c IFNE x => OK; GET k => \"c\"");
        stage.check("SET k d IFEQ x GET => \"c\"; SET k d IFEQ c GET => \"c\"; GET k => \"d\"");
        stage.check(
            "SET n 10; SET n 11 IFEQ 10 PX 5 => OK; PTTL n => 5; SET n 1 IFEQ 11; \
                     PTTL n => -1; SET n 2 PX 9; SET n 3 IFEQ 2 KEEPTTL; PTTL n => 9",
        );
        stage.check("SET no v IFEQ v => nil; SET no v IFDEQ x => nil; EXISTS no => 0");
        stage.check("SET no v IFNE v => OK; DEL no; SET no v IFDNE x GET => nil; GET no => \"v\"");
        stage.check("HSET h f v; SET h v IFEQ v => !WRONGTYPE ...; SET h v IFDNE x => !WRONGTY...");
        for wrong in ["IFEQ", "IFEQ a NX", "XX IFEQ a", "IFEQ a IFNE b", "IFEQ a IFEQ a"] {
            stage.check(&format!("SET k v {wrong} => !ERR syntax error; GET k => \"d\""));
        }
    }

    #[test]
    fn string_is_compared_by_its_digest() {
        let mut stage = stage(CompatVersion::Redis84);
        stage.check("SET k \"Hello world\"; DIGEST k => \"b6acb9d84a38ff74\"; DIGEST no => nil");
        let long = "v8lf0c11xh8ymlqztfd3eeq16kfn4sspw7fqmnuuq3k3t75em5wdizgcdw7uc26nnf961u2jkfzkjyt\
                    ls2kwlj7626sd";
        stage.check(&format!("SET l {long}; DIGEST l => \"00006c38adf31777\""));
        stage.check(
            "SET i 10; SET s 1; APPEND s 0; DIGEST i; HSET h f v; DIGEST h => !WRONGTYPE...",
        );
        stage.check("SET k v IFDEQ 0000000000000000 => nil; SET k v IFDEQ B6ACB9D84A38FF74 => OK");
        let refused = "!ERR must be exactly 16 hexadecimal characters";
        for digest in ["\"\"", "b6acb9d84a38ff7", "0b6acb9d84a38ff74"] {
            for request in ["SET k w IFDEQ", "SET k w IFDNE", "DELEX k IFDEQ", "DELEX k IFDNE"] {
                stage.check(&format!("{request} {digest} => {refused}; GET k => \"v\""));
            }
        }
    }

    #[test]
    fn key_is_removed_if_it_has_the_expected_value() {
        let mut stage = stage(CompatVersion::Redis84);
        stage.check("SET k v; DELEX k IFEQ x => 0; DELEX k IFNE v => 0; GET k => \"v\"");
        stage.check("DELEX k IFEQ v => 1; EXISTS k => 0; SET k v; DELEX k ifne x => 1");
        stage.check("SET k \"Hello world\"; DELEX k IFDNE b6acb9d84a38ff74 => 0");
        stage.check("DELEX k IFDEQ b6acb9d84a38ff74 => 1; DELEX k IFEQ v => 0; DELEX k FOO v => 0");
        let arity = "!ERR wrong number of arguments for 'delex' command";
        stage.check(&format!("DELEX k IFEQ => {arity}; DELEX k IFEQ v x => {arity}"));
        let string = "!ERR Key should be of string type if conditions are specified";
        stage.check(&format!("HSET h f v; DELEX h IFEQ v => {string}; DELEX h FOO v => {string}"));
        stage.check("DELEX h => 1; EXISTS h => 0; SET k v; DELEX k FOO v => !ERR Invalid cond...");
        stage.check("WATCH k; DELEX k IFEQ v; MULTI; PING; EXEC => nil-array");
    }

    #[test]
    fn key_is_removed_by_the_command_of_valkey() {
        let mut stage = stage(CompatVersion::Valkey90);
        stage.check("SET k v; DELIFEQ k x => 0; DELIFEQ k v => 1; DELIFEQ k v => 0");
        stage.check("SET k 5 PX 10; +10ms; DELIFEQ k 5 => 0; HSET h f v; DELIFEQ h v => !WRON...");
        stage.engine.set_events(Events::KEYEVENT | Events::ALL);
        stage.check(
            "SET k v; b> PSUBSCRIBE *; DELIFEQ k v; b< => \
                     [\"pmessage\", \"*\", \"__keyevent@0__:del\", \"k\"]",
        );
    }
}
