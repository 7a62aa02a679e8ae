//! The commands, a file to a family: rows on top, handlers below, tests last.
//!
//! Adding a command touches the family's file alone; adding a family adds a line here.

pub mod client;
pub mod connection;
pub mod expiry;
pub mod hashes;
pub mod info;
pub mod introspection;
pub mod keys;
pub mod memory;
#[cfg(test)]
mod model;
pub mod pubsub;
pub mod scan;
pub mod scripts;
pub mod server;
pub mod settings;
pub mod strings;
pub mod transactions;

use leasehold_resp::Reply;

use crate::engine::command::Command;
use crate::engine::context::integer;
use crate::engine::error::Error;
use crate::engine::time::{Millis, Time};

/// Every family's rows.
pub const FAMILIES: &[&[Command]] = &[
    client::COMMANDS,
    connection::COMMANDS,
    expiry::COMMANDS,
    hashes::COMMANDS,
    info::COMMANDS,
    introspection::COMMANDS,
    keys::COMMANDS,
    memory::COMMANDS,
    pubsub::COMMANDS,
    scripts::COMMANDS,
    server::COMMANDS,
    settings::COMMANDS,
    strings::COMMANDS,
    transactions::COMMANDS,
];

/// What the `HELP` subcommand of `command` answers: `lines` between the first and the last ones
/// that all of them share.
fn help(command: &str, lines: &'static [&'static str]) -> Reply {
    let first = format!("{command} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    let last = ["HELP", "    Shows this."];
    let lines = lines.iter().chain(&last).map(|line| Reply::status(line));
    Reply::Array(std::iter::once(Reply::Simple(first.into())).chain(lines).collect())
}

/// A map with names for keys.
fn map<const N: usize>(pairs: [(&'static str, Reply); N]) -> Reply {
    Reply::Map(pairs.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect())
}

/// Text for people.
fn text(text: impl Into<String>) -> Reply {
    Reply::Verbatim { format: *b"txt", text: text.into().into() }
}

/// A number that cannot be negative; one too large for the protocol is its largest.
fn number(value: u64) -> Reply {
    Reply::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

/// Reads a timeout in milliseconds and says when it ends: never, if it is 0.
fn timeout(time: Time, argument: &[u8]) -> Result<Option<Millis>, Error> {
    let span = integer(argument)
        .map_err(|_| Error::line("ERR timeout is not an integer or out of range"))?;
    match span {
        ..0 => Err(Error::line("ERR timeout is negative")),
        0 => Ok(None),
        _ => time.after(Millis(span)).map(Some).ok_or(Error::OutOfRange("timeout")),
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::engine::command::CommandTable;
    use crate::engine::testing::{Stage, words};

    #[test]
    fn help_names_every_subcommand_on_a_line_of_its_own() {
        let table = CommandTable::all();
        for name in ["client", "command", "config", "memory", "object", "pubsub", "script"] {
            let mut stage = Stage::new(Config::default());
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
