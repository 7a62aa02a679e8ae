//! The families of commands, and what several of them use.

use lockwheel_resp::{LongDouble, Reply};
use serde::Serialize;

use crate::command::argument::syntax;
use crate::command::{Arity, Command, Entry, Flags, integer};
use crate::error::Error;
use crate::run::context::Context;
use crate::timing::time::{Millis, Time};

/// The rows of every family except the sentinel's.
pub const FAMILIES: &[&[Command]] = &[
    super::acl::COMMANDS,
    super::bits::COMMANDS,
    super::client::COMMANDS,
    super::cluster::COMMANDS,
    super::conditional::COMMANDS,
    super::connection::COMMANDS,
    super::debug::COMMANDS,
    super::dump::COMMANDS,
    super::expiry::COMMANDS,
    super::functions::COMMANDS,
    super::hashes::COMMANDS,
    super::info::COMMANDS,
    super::introspection::COMMANDS,
    super::keys::COMMANDS,
    super::lists::COMMANDS,
    super::lock::COMMANDS,
    super::lockwheel::rows::COMMANDS,
    super::latency::COMMANDS,
    super::memory::COMMANDS,
    super::monitor::COMMANDS,
    super::pubsub::COMMANDS,
    super::replication::COMMANDS,
    super::scripts::COMMANDS,
    super::persistence::COMMANDS,
    super::server::COMMANDS,
    super::sets::COMMANDS,
    super::slowlog::COMMANDS,
    super::settings::COMMANDS,
    super::sort::COMMANDS,
    super::sorted_sets::algebra::COMMANDS,
    super::sorted_sets::ranges::COMMANDS,
    super::sorted_sets::members::COMMANDS,
    super::streams::groups::COMMANDS,
    super::streams::info::COMMANDS,
    super::streams::pending::COMMANDS,
    super::streams::reads::COMMANDS,
    super::streams::entries::COMMANDS,
    super::strings::COMMANDS,
    super::transactions::COMMANDS,
];

/// The commands of a server that stores keys.
pub fn server_commands() -> impl Iterator<Item = &'static Command> {
    FAMILIES.iter().copied().flatten()
}

/// The commands of a node of a cluster: it also answers queries for its master.
pub fn node_commands() -> impl Iterator<Item = &'static Command> {
    server_commands().chain(std::iter::once(super::sentinel::of_node()))
}

/// The commands of a sentinel: its own and some of the others.
pub fn sentinel_commands() -> impl Iterator<Item = &'static Command> {
    let shared = server_commands()
        .filter(|command| super::sentinel::SHARED_COMMANDS.contains(&command.name));
    super::sentinel::COMMANDS.iter().chain(shared)
}

/// A reply in JSON.
pub(crate) fn json(shown: &impl Serialize) -> Reply {
    Reply::bulk(serde_json::to_string(shown).unwrap_or_default())
}

/// The error for a subcommand with several forms, none of which has this many arguments.
pub(crate) fn unknown_form(command: &str, subcommand: &[u8]) -> Error {
    let name = String::from_utf8_lossy(subcommand);
    Error::text(format!(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try {command} HELP."
    ))
}

/// The `HELP` subcommand: replies with the subcommands of a command, as their rows describe them.
pub(crate) fn help(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    let (table, version) = (context.commands(), context.settings().compat_version);
    let (name, _) = context.name.split_once('|').unwrap_or_default();
    let at = table.find(name.as_bytes()).ok_or(Error::Syntax)?;
    let Entry { command, subcommands, .. } = table.entry(at);
    let described = |name: &str, row: &Command| {
        let usage = format!("{name} {}", syntax(row.arguments, version));
        [usage.trim_end().to_owned(), format!("    {}", row.doc)]
    };
    let alone = command.arity.admits(1).then(|| described("(no subcommand)", command));
    let others = subcommands.iter().map(|&at| {
        let row = table.entry(at).command;
        described(&row.name.to_ascii_uppercase(), row)
    });
    let lines: Vec<String> = alone.into_iter().chain(others).flatten().collect();
    Ok(help_of(&name.to_ascii_uppercase(), &lines))
}

/// The reply that lists the subcommands of `command`.
pub(crate) fn help_of<L: AsRef<str>>(command: &str, lines: &[L]) -> Reply {
    let first = format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    let lines = lines.iter().map(|line| line.as_ref().to_owned());
    let lines = std::iter::once(first).chain(lines).map(|line| Reply::Simple(line.into()));
    Reply::Array(lines.collect())
}

/// The row of the `HELP` subcommand of a family, with the other rows' `base`.
pub(crate) const fn help_row(base: Command, since: &'static str, example: &'static str) -> Command {
    Command {
        name: "help",
        arity: Arity::Exactly(2),
        flags: Flags::LOADING.union(Flags::STALE),
        keys: &[],
        since,
        tips: &[],
        doc: "Lists the subcommands.",
        example,
        run: help,
        ..base
    }
}

/// A map with names as keys.
pub(crate) fn map(pairs: impl IntoIterator<Item = (&'static str, Reply)>) -> Reply {
    Reply::Map(pairs.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect())
}

/// Human-readable text.
pub(crate) fn text(text: impl Into<String>) -> Reply {
    Reply::Verbatim { format: *b"txt", text: text.into().into() }
}

/// A number that cannot be negative; one too large for the protocol becomes the largest integer.
pub(crate) fn number(value: u64) -> Reply {
    Reply::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

/// Parses a number of at least `min`; replies with `refusal` if it is smaller or not a number.
pub(crate) fn at_least(argument: &[u8], min: i64, refusal: &'static str) -> Result<usize, Error> {
    let number = integer(argument).ok().filter(|&number| number >= min);
    let number = number.ok_or(Error::line(refusal))?;
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}

/// Parses a timeout in milliseconds and returns its end; `None`, which is never, if it is 0.
pub(crate) fn timeout(time: Time, argument: &[u8]) -> Result<Option<Millis>, Error> {
    let span = integer(argument)
        .map_err(|_| Error::line("ERR timeout is not an integer or out of range"))?;
    match span {
        ..0 => Err(Error::line("ERR timeout is negative")),
        0 => Ok(None),
        _ => time.after(Millis(span)).map(Some).ok_or(Error::OutOfRange("timeout")),
    }
}

/// Parses a timeout in decimal seconds and returns its end; `None`, which is never, if it is 0.
pub(crate) fn timeout_seconds(time: Time, argument: &[u8]) -> Result<Option<Millis>, Error> {
    let seconds = LongDouble::parse(argument)
        .ok_or(Error::line("ERR timeout is not a float or out of range"))?;
    match seconds.ceil_thousandfold() {
        Some(..0) => Err(Error::line("ERR timeout is negative")),
        Some(0) => Ok(None),
        Some(span) => time.after(Millis(span)).map(Some).ok_or(Error::OutOfRange("timeout")),
        None => Err(Error::OutOfRange("timeout")),
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;
    use crate::testing::{Stage, words};

    fn config_for(name: &str) -> Settings {
        let mut settings = Settings::default();
        settings.cluster_enabled = name == "cluster";
        settings.sentinel = (name == "sentinel").then(Box::default);
        settings
    }

    #[test]
    fn help_has_one_line_for_each_subcommand() {
        for name in [
            "client", "cluster", "command", "config", "function", "memory", "object", "pubsub",
            "script", "sentinel", "xgroup", "xinfo",
        ] {
            let mut stage = Stage::new(config_for(name));
            let table = stage.engine.commands;
            let client = stage.client("a");
            let (reply, _) = stage.run(client, &words(&format!("{name} HELP")));
            let lines: Vec<&str> = reply.trim_matches(['[', ']']).split(", ").collect();
            let at = table.find(name.as_bytes()).expect("a command");
            for &subcommand in &table.entry(at).subcommands {
                let word = table.entry(subcommand).command.name.to_ascii_uppercase();
                let named = |line: &&&str| line.split(' ').next() == Some(word.as_str());
                assert_eq!(lines.iter().filter(named).count(), 1, "{name} {word}");
            }
        }
    }
}
