//! `COMMAND`: describes the table of commands as Redis does. All of it comes from the rows.

use std::collections::BTreeMap;

use bytes::Bytes;
use lockwheel_resp::Reply;

use crate::command::argument::{self as arg, Argument, ArgumentType};
use crate::command::{
    Arity, Categories, Command, CommandTable, Entry, FindKeys, Flags, Group, KeyFlags, KeySpec, is,
};
use crate::error::Error;
use crate::glob;
use crate::run::context::Context;
use crate::settings::{CompatVersion, Vendor};

const COMMAND: Command = Command {
    group: Group::Server,
    categories: Categories::CONNECTION,
    flags: Flags::LOADING.union(Flags::STALE),
    ..Command::BASE
};

/// The family's rows.
pub const COMMANDS: &[Command] = &[Command {
    name: "command",
    arity: Arity::AtLeast(1),
    since: "2.8.13",
    complexity: "O(N) in the number of commands",
    doc: "Describes all commands.",
    tips: UNORDERED,
    subcommands: SUBCOMMANDS,
    run: describe_all,
    ..COMMAND
}];

const UNORDERED: &[&str] = &["nondeterministic_output_order"];

const SUBCOMMANDS: &[Command] = &[
    Command {
        name: "count",
        arity: Arity::Exactly(2),
        since: "2.8.13",
        doc: "Returns the number of commands.",
        example: "COMMAND COUNT => ...",
        run: count,
        ..COMMAND
    },
    Command {
        name: "docs",
        arity: Arity::AtLeast(2),
        since: "7.0.0",
        complexity: "O(N) in the number of commands asked for",
        doc: "Returns the purpose, the complexity and the arguments of commands.",
        tips: UNORDERED,
        arguments: &[arg::string("command-name").optional().multiple()],
        example: "COMMAND DOCS get => [\"get\", [\"summary\", ...]]",
        run: docs,
        ..COMMAND
    },
    Command {
        name: "getkeys",
        arity: Arity::AtLeast(3),
        since: "2.8.13",
        complexity: "O(N) in the number of arguments",
        doc: "Returns the keys among the arguments of a command.",
        example: "COMMAND GETKEYS SET lock token NX => [\"lock\"]",
        run: getkeys,
        ..COMMAND
    },
    Command {
        name: "getkeysandflags",
        arity: Arity::AtLeast(3),
        since: "7.0.0",
        complexity: "O(N) in the number of arguments",
        doc: "Returns the keys among the arguments of a command, and what it does to them.",
        example: "COMMAND GETKEYSANDFLAGS GET k => [[\"k\", [RO, access]]]",
        run: getkeysandflags,
        ..COMMAND
    },
    super::help_row(COMMAND, "5.0.0", "COMMAND HELP => [COMMAND <subcommand> ...]"),
    Command {
        name: "info",
        arity: Arity::AtLeast(2),
        since: "2.8.13",
        complexity: "O(N) in the number of commands asked for",
        doc: "Describes the given commands, or all.",
        tips: UNORDERED,
        arguments: &[arg::string("command-name").optional().multiple()],
        example: "COMMAND INFO nothing => [nil]",
        run: info,
        ..COMMAND
    },
    Command {
        name: "list",
        arity: Arity::AtLeast(2),
        since: "7.0.0",
        complexity: "O(N) in the number of commands",
        doc: "Returns the names of commands, all or those that match a filter.",
        tips: UNORDERED,
        arguments: &[arg::one_of(
            "filterby",
            &[
                arg::string("module-name").token("MODULE"),
                arg::string("category").token("ACLCAT"),
                arg::pattern("pattern").token("PATTERN"),
            ],
        )
        .token("FILTERBY")
        .optional()],
        example: "COMMAND LIST FILTERBY PATTERN evalsha* => [\"evalsha\", \"evalsha_ro\"]",
        run: list,
        ..COMMAND
    },
];

// --- the table ---

/// `COMMAND`: replies with the descriptions of all commands.
fn describe_all(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    let table = context.commands();
    let describe = |&at: &usize| description(table, table.entry(at));
    Ok(Reply::Array(table.top().iter().map(describe).collect()))
}

/// `COMMAND COUNT`: replies with the number of commands.
fn count(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    Ok(Reply::from(context.commands().top().len()))
}

/// `COMMAND INFO`: replies with the descriptions of the given commands, nil for unknown ones.
fn info(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let table = context.commands();
    if argv.len() == 2 {
        return describe_all(context, argv);
    }
    let describe = |name: &&[u8]| {
        table.find_full_name(name).map_or(Reply::Null, |entry| description(table, entry))
    };
    Ok(Reply::Array(argv[2..].iter().map(describe).collect()))
}

/// `COMMAND DOCS`: replies with the documentation of the given commands, or of all.
fn docs(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let table = context.commands();
    let version = context.settings().compat_version;
    let asked: Vec<&Entry> = if argv.len() == 2 {
        table.top().iter().map(|&at| table.entry(at)).collect()
    } else {
        argv[2..].iter().filter_map(|name| table.find_full_name(name)).collect()
    };
    Ok(documents(table, version, asked.into_iter()))
}

/// `COMMAND LIST`: replies with names of commands.
fn list(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let passes: Box<dyn Fn(&Entry) -> bool> = match argv[2..] {
        [] => Box::new(|_| true),
        [filter_by, kind, wanted] if is(filter_by, "filterby") => match () {
            () if is(kind, "module") => Box::new(|_| false),
            () if is(kind, "pattern") => Box::new(move |entry| {
                glob::matches_ignoring_case(wanted, entry.full_name.as_bytes())
            }),
            () if is(kind, "aclcat") => {
                let category = Categories::named(wanted);
                Box::new(move |entry| {
                    category.is_some_and(|c| entry.command.all_categories().contains(c))
                })
            }
            () => return Err(Error::Syntax),
        },
        _ => return Err(Error::Syntax),
    };
    let names = context.commands().entries().iter().filter(|entry| passes(entry));
    Ok(Reply::Array(names.map(|entry| Reply::bulk(&entry.full_name)).collect()))
}

// --- descriptions ---

fn description(table: &CommandTable, entry: &Entry) -> Reply {
    let command = entry.command;
    let shown = command.flags - Flags::HIDDEN;
    let flags = shown.iter_names().map(|(name, _)| lower_status("", name));
    // Clients compare the categories with those of Redis.
    let categories = command.all_categories() - Categories::LOCK;
    let categories = categories.iter_names().map(|(name, _)| lower_status("@", name));
    let (first, last, step) = command.key_range();
    let subcommands = entry.subcommands.iter().map(|&at| description(table, table.entry(at)));
    Reply::Array(vec![
        Reply::bulk(&entry.full_name),
        Reply::Integer(command.arity.code()),
        Reply::Set(flags.collect()),
        Reply::Integer(first),
        Reply::Integer(last),
        Reply::Integer(step),
        Reply::Set(categories.collect()),
        Reply::Set(command.tips.iter().map(Reply::bulk).collect()),
        Reply::Set(command.keys.iter().map(key_spec).collect()),
        Reply::Set(subcommands.collect()),
    ])
}

fn lower_status(prefix: &str, name: &str) -> Reply {
    Reply::Simple(Bytes::from(format!("{prefix}{}", name.to_ascii_lowercase())))
}

fn key_spec(spec: &KeySpec) -> Reply {
    let mut begin = ("index", super::map([("index", Reply::from(spec.begin))]));
    let range = |last, step, limit| {
        super::map([
            ("lastkey", Reply::Integer(last)),
            ("keystep", Reply::Integer(step)),
            ("limit", Reply::Integer(limit)),
        ])
    };
    let (kind, find) = match spec.find {
        FindKeys::Store(_) | FindKeys::Unknown => {
            begin = ("unknown", super::map([]));
            begin.clone()
        }
        FindKeys::Range { last, step } => ("range", range(last, step, 0)),
        FindKeys::HalfAfter(word, _) => {
            let from = ("startfrom", Reply::from(spec.begin));
            begin = ("keyword", super::map([("keyword", Reply::bulk(word)), from]));
            ("range", range(-1, 1, 2))
        }
        FindKeys::Count => (
            "keynum",
            super::map([
                ("keynumidx", Reply::Integer(0)),
                ("firstkey", Reply::Integer(1)),
                ("keystep", Reply::Integer(1)),
            ]),
        ),
    };
    super::map([
        ("flags", key_flags(spec.flags)),
        ("begin_search", super::map([("type", Reply::bulk(begin.0)), ("spec", begin.1)])),
        ("find_keys", super::map([("type", Reply::bulk(kind)), ("spec", find)])),
    ])
}

fn key_flags(flags: &[&'static str]) -> Reply {
    Reply::Set(flags.iter().map(|flag| Reply::status(flag)).collect())
}

fn documents<'t>(
    table: &CommandTable,
    version: CompatVersion,
    entries: impl Iterator<Item = &'t Entry>,
) -> Reply {
    let document = |entry: &Entry| (Reply::bulk(&entry.full_name), document(table, version, entry));
    Reply::Map(entries.map(document).collect())
}

fn document(table: &CommandTable, version: CompatVersion, entry: &Entry) -> Reply {
    let command = entry.command;
    let text = |name: &str, value: &str| (Reply::bulk(name), Reply::bulk(value));
    let mut pairs = vec![
        text("summary", command.doc),
        text("since", command.since),
        text("group", command.group.name()),
        text("complexity", command.complexity),
    ];
    let flags = [
        (command.deprecated.is_some(), "deprecated"),
        (command.flags.contains(Flags::INTERNAL), "syscmd"),
    ];
    let flags = flags.iter().filter(|(is_set, _)| *is_set);
    let flags: Vec<Reply> = flags.map(|(_, name)| Reply::status(name)).collect();
    if !flags.is_empty() {
        pairs.push((Reply::bulk("doc_flags"), Reply::Set(flags)));
    }
    if let Some((since, replacement)) = command.deprecated {
        pairs.extend([text("deprecated_since", since), text("replaced_by", replacement)]);
    }
    let history = history(version, command.arguments);
    if !history.is_empty() {
        pairs.push((Reply::bulk("history"), Reply::Set(history)));
    }
    if !command.arguments.is_empty() {
        pairs.push((Reply::bulk("arguments"), arguments(version, command.arguments)));
    }
    if !entry.subcommands.is_empty() {
        let subcommands = entry.subcommands.iter().map(|&at| table.entry(at));
        pairs.push((Reply::bulk("subcommands"), documents(table, version, subcommands)));
    }
    Reply::Map(pairs)
}

/// The versions that have added arguments, with a sentence each.
fn history(version: CompatVersion, arguments: &[Argument]) -> Vec<Reply> {
    let mut added = Vec::new();
    collect_added(version, arguments, &mut added);
    let number = |since: &str| -> Vec<u32> {
        since.split('.').map(|part| part.parse().unwrap_or_default()).collect()
    };
    let mut history: BTreeMap<Vec<u32>, (&str, Vec<String>)> = BTreeMap::new();
    for (since, name) in added {
        let (_, names) = history.entry(number(since)).or_insert_with(|| (since, Vec::new()));
        names.push(format!("`{name}`"));
    }
    let entry = |(since, names): (&str, Vec<String>)| {
        let sentence = format!("Added {}.", names.join(", "));
        Reply::Array(vec![Reply::bulk(since), Reply::bulk(sentence)])
    };
    history.into_values().map(entry).collect()
}

fn collect_added(
    version: CompatVersion,
    arguments: &[Argument],
    added: &mut Vec<(&'static str, String)>,
) {
    for argument in arguments.iter().filter(|argument| argument.exists_in(version)) {
        match argument.since {
            Some(since) => {
                let name = argument.token.map_or_else(|| argument.name(), str::to_owned);
                added.push((since, name));
            }
            None => collect_added(version, argument.arguments, added),
        }
    }
}

/// The arguments that a version has.
fn arguments(version: CompatVersion, arguments: &[Argument]) -> Reply {
    let existing = arguments.iter().filter(|argument| argument.exists_in(version));
    Reply::Array(existing.map(|it| argument(version, it)).collect())
}

fn argument(version: CompatVersion, argument: &Argument) -> Reply {
    let name = argument.name();
    let contains = matches!(argument.kind, ArgumentType::Oneof | ArgumentType::Block);
    let mut pairs = vec![("name", Reply::bulk(&name)), ("type", Reply::bulk(argument.kind.name()))];
    if !contains && version.has(Vendor::Both, "7.2.0") {
        pairs.push(("display_text", Reply::bulk(&name)));
    }
    pairs.extend(argument.key_spec.map(|at| ("key_spec_index", Reply::from(at))));
    pairs.extend(argument.token.map(|token| ("token", Reply::bulk(token))));
    pairs.extend(argument.since.map(|since| ("since", Reply::bulk(since))));
    pairs.extend(argument.deprecated_since.map(|it| ("deprecated_since", Reply::bulk(it))));
    if !argument.flags.is_empty() {
        let flags = argument.flags.iter_names().map(|(name, _)| lower_status("", name));
        pairs.push(("flags", Reply::Set(flags.collect())));
    }
    if contains {
        pairs.push(("arguments", arguments(version, argument.arguments)));
    }
    super::map(pairs)
}

// --- keys ---

/// `COMMAND GETKEYS`: replies with the keys of a command line.
fn getkeys(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let keys = keys_of(context.commands(), &argv[2..])?;
    Ok(Reply::Array(keys.into_iter().map(|(key, _)| Reply::bulk(key)).collect()))
}

/// `COMMAND GETKEYSANDFLAGS`: replies with the keys of a command line and their flags.
fn getkeysandflags(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let keys = keys_of(context.commands(), &argv[2..])?;
    let pair = |(key, flags)| Reply::Array(vec![Reply::bulk(key), key_flags(flags)]);
    Ok(Reply::Array(keys.into_iter().map(pair).collect()))
}

/// The keys of a command line, each with its flags.
fn keys_of<'a>(
    table: &CommandTable,
    argv: &[&'a [u8]],
) -> Result<Vec<(&'a [u8], KeyFlags)>, Error> {
    const NO_SUCH_COMMAND: Error = Error::line("ERR Invalid command specified");
    let command = table.find_request(argv).ok_or(NO_SUCH_COMMAND)?.command;
    let is_key = |spec: &&KeySpec| !spec.flags.contains(&"not_key");
    if !command.keys.iter().any(|spec| is_key(&spec)) {
        return Err(Error::line("ERR The command has no key arguments"));
    }
    if !command.arity.admits(argv.len()) {
        return Err(Error::line("ERR Invalid number of arguments specified for command"));
    }
    let mut keys = Vec::new();
    for spec in command.keys.iter().filter(is_key) {
        let mut places = Vec::new();
        let is_right = spec.places(argv, &mut places);
        // 0 is not a valid number of keys, unless the keys are optional.
        if !is_right || places.is_empty() && matches!(spec.find, FindKeys::Count) {
            if command.flags.contains(Flags::NO_MANDATORY_KEYS) {
                return Ok(Vec::new());
            }
            return Err(Error::line("ERR Invalid arguments specified for command"));
        }
        let flags = command.key_flags(spec, argv);
        keys.extend(places.into_iter().map(|place| (argv[place], flags)));
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;
    use crate::testing::{Stage, check, words};

    #[test]
    fn one_command_is_described() {
        check(
            "HELLO 3; COMMAND INFO eval => [[\"eval\", -3, ~[noscript, stale, skip_monitor, \
             no_mandatory_keys, movablekeys], 0, 0, 0, ...{\"type\": \"keynum\", \
             \"spec\": {\"keynumidx\": 0, \"firstkey\": 1, \"keystep\": 1}}}], ~[]]]",
        );
        check("COMMAND INFO CONFIG|get => [[\"config|get\", -3, ...]]");
        check(
            "COMMAND INFO config => [[\"config\", -2, [], 0, 0, 0, [@slow], [], [], \
               [[\"config|get\", ...]]]]",
        );
        check("COMMAND FOO => !ERR unknown subcommand 'FOO'. Try COMMAND HELP.");
    }

    #[test]
    fn all_commands_are_described() {
        let mut stage = Stage::new(Settings::default());
        let client = stage.client("a");
        let all = stage.run(client, &words("COMMAND")).0;
        assert_eq!(all, stage.run(client, &words("COMMAND INFO")).0);
        let count = stage.engine.commands.top().len();
        stage.check(&format!("COMMAND COUNT => {count}"));
    }

    #[test]
    fn commands_are_documented() {
        check("COMMAND DOCS nothing => []");
        check(
            "HELLO 3; COMMAND DOCS echo => {\"echo\": {\"summary\": \"Returns its argument.\", \
               \"since\": \"1.0.0\", \"group\": \"connection\", \"complexity\": \"O(1)\", \
               \"arguments\": [{\"name\": \"message\", \"type\": \"string\", \
               \"display_text\": \"message\"}]}}",
        );
        check(
            "HELLO 3; COMMAND DOCS config => {\"config\": {...\"subcommands\": \
               {\"config|get\": {...",
        );
        check("COMMAND DOCS config|get => [\"config|get\", [...]]");
    }

    #[test]
    fn names_are_listed() {
        check(
            "COMMAND LIST FILTERBY PATTERN memory|*s* => \
               [\"memory|malloc-stats\", \"memory|stats\", \"memory|usage\"]",
        );
        check(
            "COMMAND LIST FILTERBY ACLCAT transaction => \
               [\"discard\", \"exec\", \"multi\", \"unwatch\", \"watch\"]",
        );
        check("COMMAND LIST FILTERBY PATTERN UNW* => [\"unwatch\"]");
        check("COMMAND LIST FILTERBY ACLCAT foo => []; COMMAND LIST FILTERBY MODULE x => []");
        check(
            "COMMAND LIST x => !ERR syntax error; COMMAND LIST FILTERBY x y => !ERR syntax error",
        );
    }
}
