//! The commands, a file to a family: rows on top, handlers below, tests last.
//!
//! Adding a command touches the family's file alone; adding a family adds a line here.

pub mod client;
pub mod connection;
pub mod expiry;
pub mod hashes;
pub mod keys;
#[cfg(test)]
mod model;
pub mod pubsub;
pub mod scan;
pub mod scripts;
pub mod server;
pub mod strings;
pub mod transactions;

use leasehold_resp::Reply;

use crate::engine::command::Command;

/// Every family's rows.
pub const FAMILIES: &[&[Command]] = &[
    client::COMMANDS,
    connection::COMMANDS,
    expiry::COMMANDS,
    hashes::COMMANDS,
    keys::COMMANDS,
    pubsub::COMMANDS,
    scripts::COMMANDS,
    server::COMMANDS,
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

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::engine::command::CommandTable;
    use crate::engine::testing::{Stage, words};

    #[test]
    fn help_names_every_subcommand_on_a_line_of_its_own() {
        let table = CommandTable::new();
        for name in ["object", "pubsub"] {
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
