//! Generates `docs/commands.md` from the command rows and compares it with the page. With
//! `LOCKWHEEL_WRITE_DOCS` set, the page is written instead.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use lockwheel_engine::command::argument::{Argument, syntax};
use lockwheel_engine::command::{Command, CommandTable, Flags, Group};
use lockwheel_engine::settings::{CompatVersion, Mode, Vendor};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/commands.md");
/// Names the variable with which the page is written.
const WRITE: &str = "LOCKWHEEL_WRITE_DOCS";

const BEGINNING: &str = "# Commands

<!-- Generated from the rows in server/engine/src/commands. To write this page anew:
     LOCKWHEEL_WRITE_DOCS=1 cargo test -p lockwheel-engine --test commands_page -->

The commands of Lockwheel with their syntax, in the notation of Redis: `[..]` is optional, `a | b`
is a choice, `<..>` groups a choice, `...` repeats. `COMMAND DOCS` describes the same. Each entry
names the complexity and the version of Redis that introduced the command; `compat-version` decides
which commands and options exist. An example is a conversation: commands separated by `;`, a name
and `>` before the command of another client, and the reply after `=>`.

";

#[test]
fn page_is_generated_from_the_rows() {
    let page = page();
    if std::env::var_os(WRITE).is_some() {
        fs::write(PAGE, &page).expect("the page can be written");
    }
    let written = fs::read_to_string(PAGE).unwrap_or_default();
    assert!(written == page, "docs/commands.md is outdated: run this test with {WRITE}=1");
}

/// The commands of all modes and versions by group and name, without containers.
fn rows() -> BTreeMap<(&'static str, &'static str), &'static Command> {
    let mut rows = BTreeMap::new();
    for &version in CompatVersion::ALL {
        for mode in [Mode::Standalone, Mode::Sentinel] {
            let entries = CommandTable::of(mode, version).entries().iter();
            for entry in entries.filter(|entry| entry.command.subcommands.is_empty()) {
                let group = section(entry.command);
                rows.insert((group, entry.full_name.as_str()), entry.command);
            }
        }
    }
    rows
}

fn section(command: &Command) -> &'static str {
    match command.group {
        Group::Generic => "Keys",
        Group::String => "Strings",
        Group::List => "Lists",
        Group::Set => "Sets",
        Group::SortedSet => "Sorted sets",
        Group::Hash => "Hashes",
        Group::Bitmap => "Bits",
        Group::Pubsub => "Pub/sub",
        Group::Transactions => "Transactions",
        Group::Connection => "Connection",
        Group::Server if command.flags.contains(Flags::FOR_TESTS) => "Servers for tests",
        Group::Server => "Server",
        Group::Scripting => "Scripts and functions",
        Group::Stream => "Streams",
        Group::Cluster => "Cluster",
        Group::Sentinel => "Sentinel",
        Group::Lock => "Native locks",
    }
}

fn page() -> String {
    let mut page = BEGINNING.to_owned();
    let mut current = "";
    for ((section, name), command) in rows() {
        if section != current {
            let _ = write!(page, "## {section}\n\n");
            current = section;
        }
        page.push_str(&entry(name, command));
    }
    page.trim_end().to_owned() + "\n"
}

fn entry(name: &str, command: &Command) -> String {
    let version = match command.maker {
        Vendor::Valkey => CompatVersion::Valkey90,
        Vendor::Both | Vendor::Redis => CompatVersion::Redis84,
    };
    let name = name.replace('|', " ").to_uppercase();
    let arguments = syntax(command.arguments, version);
    let of = match command.maker {
        Vendor::Valkey => "Valkey ",
        Vendor::Both | Vendor::Redis => "",
    };
    let syntax = format!("{name} {arguments}");
    let mut entry = format!(
        "**`{}`**: {} {}; since {of}{}.",
        syntax.trim_end(),
        command.doc,
        command.complexity,
        command.since
    );
    if let Some((since, replacement)) = command.deprecated {
        let _ = write!(entry, " Deprecated since {since}, in favour of {replacement}.");
    }
    let mut later = Vec::new();
    add_later(command.arguments, &mut later);
    if !later.is_empty() {
        let _ = write!(entry, " Options of later versions: {}.", later.join(", "));
    }
    let quote = if command.example.contains('`') { "``" } else { "`" };
    entry + &format!(" Example: {quote}{}{quote}\n\n", command.example)
}

/// Adds the options that the default version does not have.
fn add_later(arguments: &[Argument], later: &mut Vec<String>) {
    for argument in arguments {
        let since = argument.since.filter(|_| !argument.exists_in(CompatVersion::default()));
        if let (Some(token), Some(since)) = (argument.token, since) {
            let maker = if argument.maker == Vendor::Valkey { "Valkey" } else { "Redis" };
            later.push(format!("`{token}` ({maker} {since})"));
        }
        add_later(argument.arguments, later);
    }
}
