//! `ACL`: users and what they may do.

use lockwheel_resp::Reply;

use crate::Engine;
use crate::acl::{self, Denial, Request, RuleError, Selector, User, Users};
use crate::argument as arg;
use crate::command::{Arity, Categories, Command, Flags, Group};
use crate::commands::{help, help_row};
use crate::context::{Context, integer, is};
use crate::error::Error;
use crate::limits::GENERATED_PASSWORD_BITS_MAX;

const ACL: Command = Command {
    group: Group::Server,
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    since: "6.0.0",
    ..Command::BASE
};

/// The flags of subcommands that show nothing about other users.
const FOR_ALL: Flags = ACL.flags.difference(Flags::ADMIN);

/// The family's rows.
pub const COMMANDS: &[Command] = &[Command {
    name: "acl",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    complexity: "that of the subcommand",
    doc: "Manages users and what they may do.",
    subcommands: SUBCOMMANDS,
    ..ACL
}];

const SUBCOMMANDS: &[Command] = &[
    Command {
        name: "cat",
        arity: Arity::AtLeast(2),
        flags: FOR_ALL,
        doc: "Lists the categories, or the commands of a category.",
        arguments: &[arg::string("categoryname").named("category").optional()],
        example: "ACL CAT transaction => [\"discard\", \"exec\", \"multi\", \"unwatch\", \"watch\"]",
        run: cat,
        ..ACL
    },
    Command {
        name: "deluser",
        arity: Arity::AtLeast(3),
        complexity: "O(N) in the number of connections",
        doc: "Removes users and closes their connections.",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        arguments: &[arg::string("username").multiple().secret()],
        example: "ACL SETUSER alice; ACL DELUSER alice bob => 1",
        run: deluser,
        ..ACL
    },
    Command {
        name: "dryrun",
        arity: Arity::AtLeast(4),
        since: "7.0.0",
        doc: "Checks whether a user may run a command, without running it.",
        arguments: &[
            arg::string("username"),
            arg::string("command"),
            arg::string("arg").optional().multiple(),
        ],
        example: "ACL SETUSER alice +get ~lock:*; ACL DRYRUN alice GET other => \
                  \"User alice has no permissions to access the 'other' key\"",
        run: dryrun,
        ..ACL
    },
    Command {
        name: "genpass",
        arity: Arity::AtLeast(2),
        flags: FOR_ALL,
        doc: "Generates a password of 256 or another number of random bits.",
        arguments: &[arg::integer("bits").optional()],
        example: "ACL GENPASS 0 => !ERR ACL GENPASS argument must be the number of bits for the \
                  output password, a positive number up to 4096",
        run: genpass,
        ..ACL
    },
    Command {
        name: "getuser",
        arity: Arity::Exactly(3),
        complexity: "O(N) in the number of rules of the user",
        doc: "Describes a user.",
        arguments: &[arg::string("username").secret()],
        example: "ACL GETUSER nothere => nil",
        run: getuser,
        ..ACL
    },
    help_row(ACL, "6.0.0", "ACL HELP => [ACL <subcommand> ...]", |_, _| Ok(help("ACL", HELP))),
    Command {
        name: "list",
        arity: Arity::Exactly(2),
        complexity: "O(N) in the number of users",
        doc: "Lists the users as lines of an ACL file.",
        example: "ACL LIST => [\"user default on nopass sanitize-payload ~* &* +@all\"]",
        run: list,
        ..ACL
    },
    Command {
        name: "load",
        arity: Arity::Exactly(2),
        complexity: "O(N) in the number of users and connections",
        doc: "Replaces the users by those of the ACL file, unless it has an error.",
        example: "ACL LOAD => !ERR This Redis instance is not configured to use an ACL file. ...",
        run: load,
        ..ACL
    },
    Command {
        name: "log",
        arity: Arity::AtLeast(2),
        complexity: "O(N) in the number of entries returned",
        doc: "Returns the newest refusals, 10 by default, or removes all.",
        arguments: &[arg::one_of("operation", &[arg::integer("count"), arg::word("RESET")])
            .optional()],
        example: "AUTH alice wrong; ACL LOG RESET; ACL LOG => []",
        run: log,
        ..ACL
    },
    Command {
        name: "save",
        arity: Arity::Exactly(2),
        complexity: "O(N) in the number of users",
        doc: "Writes the users to the ACL file.",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        example: "ACL SAVE => !ERR This Redis instance is not configured to use an ACL file. ...",
        run: save,
        ..ACL
    },
    Command {
        name: "setuser",
        arity: Arity::AtLeast(3),
        complexity: "O(N) in the number of rules and connections",
        doc: "Creates a user, or changes it by rules.",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        arguments: &[
            arg::string("username").secret(),
            arg::string("rule").optional().multiple().secret(),
        ],
        example: "ACL SETUSER alice on >secret ~lock:* +@lock => OK",
        run: setuser,
        ..ACL
    },
    Command {
        name: "users",
        arity: Arity::Exactly(2),
        complexity: "O(N) in the number of users",
        doc: "Lists the names of the users.",
        example: "ACL SETUSER alice; ACL USERS => [\"alice\", \"default\"]",
        run: |context, _| {
            let users = context.engine.access.users();
            Ok(Reply::Array(users.iter().map(|user| Reply::bulk(user.name())).collect()))
        },
        ..ACL
    },
    Command {
        name: "whoami",
        arity: Arity::Exactly(2),
        flags: FOR_ALL,
        doc: "Returns the name of the user of the connection.",
        example: "ACL WHOAMI => \"default\"",
        run: |context, _| Ok(Reply::bulk(context.client().identity.user_name())),
        ..ACL
    },
];

const HELP: &[&str] = &[
    "CAT [<category>]",
    "    Lists the categories, or the commands of a <category>.",
    "DELUSER <username> [<username> ...]",
    "    Removes users and closes their connections.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Checks whether a user may run a command, without running it.",
    "GENPASS [<bits>]",
    "    Generates a password of 256 or another number of random bits.",
    "GETUSER <username>",
    "    Describes a user.",
    "LIST",
    "    Lists the users as lines of an ACL file.",
    "LOAD",
    "    Replaces the users by those of the ACL file.",
    "LOG [<count> | RESET]",
    "    Returns the newest refusals, or removes all.",
    "SAVE",
    "    Writes the users to the ACL file.",
    "SETUSER <username> <attribute> [<attribute> ...]",
    "    Creates a user, or changes it.",
    "USERS",
    "    Lists the names of the users.",
    "WHOAMI",
    "    Returns the name of the user of the connection.",
];

/// `ACL CAT`: replies with names.
fn cat(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let names: Vec<Reply> = match argv[2..] {
        [] => {
            let names = Categories::all().iter_names();
            names.map(|(name, _)| Reply::bulk(name.to_ascii_lowercase())).collect()
        }
        [name] => {
            let category = Categories::named(name).ok_or_else(|| {
                let name = String::from_utf8_lossy(&name[..name.len().min(128)]).into_owned();
                Error::text(format!("ERR Unknown category '{name}'"))
            })?;
            let entries = context.engine.commands.entries().iter();
            let found = entries.filter(|it| it.command.all_categories().contains(category));
            found.map(|entry| Reply::bulk(&entry.full_name)).collect()
        }
        _ => return Err(wrong_number(context)),
    };
    Ok(Reply::Array(names))
}

/// The error for a subcommand with too many arguments, as in Redis.
fn wrong_number(context: &Context<'_>) -> Error {
    let name = context.command.name.to_ascii_uppercase();
    super::unknown_form("ACL", name.as_bytes())
}

/// `ACL SETUSER`: replies with OK.
fn setuser(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let name = argv[2];
    if acl::has_blanks(name) {
        return Err(Error::line("ERR Usernames can't contain spaces or null characters"));
    }
    let rules = acl::merge_selectors(&argv[3..])
        .map_err(|word| Error::text(format!("ERR {}", acl::unmatched(word))))?;
    let Context { client, engine, .. } = context;
    let all_channels = engine.settings.acl_pubsub_default.allows_all();
    let mut users = engine.access.users().clone();
    let user = match users.get(name) {
        Some(user) => User::clone(user),
        None => User::new(name, engine.commands, all_channels),
    };
    let rules = rules.iter().map(|rule| &**rule);
    let user = user.with_rules(rules, engine.commands, all_channels);
    users.insert(user.map_err(|(rule, error)| modifier_error(rule, error))?);
    engine.change_users(users, Some(*client));
    Ok(Reply::OK)
}

fn modifier_error(rule: &[u8], error: RuleError) -> Error {
    // As in Redis, line ends become blanks.
    let rule = acl::shown(rule).replace(['\r', '\n'], " ");
    Error::text(format!("ERR Error in ACL SETUSER modifier '{rule}': {error}"))
}

/// `ACL DELUSER`: replies with the number of removed users.
fn deluser(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    if argv[2..].contains(&acl::DEFAULT_USER) {
        return Err(Error::line("ERR The 'default' user cannot be removed"));
    }
    let mut users = context.engine.access.users().clone();
    let removed = argv[2..].iter().filter(|name| users.remove(name).is_some()).count();
    context.engine.change_users(users, Some(context.client));
    Ok(Reply::from(removed))
}

/// `ACL GETUSER`: replies with a map, or nil.
fn getuser(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let Some(user) = context.engine.access.users().get(argv[2]) else { return Ok(Reply::Null) };
    let (root, selectors) = user.selectors();
    let mut pairs = vec![
        ("flags", Reply::Set(user.flags().iter().map(Reply::bulk).collect())),
        ("passwords", Reply::Array(user.password_digits().map(Reply::bulk).collect())),
    ];
    pairs.extend(permissions(root));
    let selectors = selectors.iter().map(|selector| super::map(permissions(selector)));
    pairs.push(("selectors", Reply::Array(selectors.collect())));
    Ok(super::map(pairs))
}

fn permissions(selector: &Selector) -> [(&'static str, Reply); 3] {
    [
        ("commands", Reply::bulk(selector.commands_text())),
        ("keys", Reply::bulk(selector.keys_text())),
        ("channels", Reply::bulk(selector.channels_text())),
    ]
}

/// `ACL LIST`: replies with a line for each user.
fn list(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    let users = context.engine.access.users().iter();
    Ok(Reply::Array(users.map(|user| Reply::bulk(user.line())).collect()))
}

/// `ACL LOAD`: replies with OK, or with all errors of the file.
fn load(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    match context.engine.reload_users(Some(context.client)) {
        Ok(()) => Ok(Reply::OK),
        Err(errors) => Err(Error::text(format!("ERR {errors}"))),
    }
}

impl Engine {
    /// Replaces the users by those of the ACL file: all or nothing.
    ///
    /// # Errors
    /// With what is wrong.
    pub(crate) fn reload_users(
        &mut self,
        caller: Option<crate::sessions::ClientId>,
    ) -> Result<(), String> {
        let users: Users = self.read_acl_file()?;
        self.change_users(users, caller);
        Ok(())
    }
}

/// `ACL SAVE`: replies with OK.
fn save(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    let text = context.engine.access.users().to_file();
    let Some(file) = context.engine.access.file.as_mut() else {
        return Err(Error::text(format!("ERR {}", acl::NO_FILE)));
    };
    file.write(&text).map_err(|_| {
        Error::line(
            "ERR There was an error trying to save the ACLs. Please check the server logs for \
             more information",
        )
    })?;
    Ok(Reply::OK)
}

/// `ACL GENPASS`: replies with hexadecimal digits.
fn genpass(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let bits = match argv[2..] {
        [] => 256,
        [bits] => integer(bits)?,
        _ => return Err(wrong_number(context)),
    };
    let bits = usize::try_from(bits).ok().filter(|bits| *bits > 0);
    let bits = bits.filter(|&bits| bits <= GENERATED_PASSWORD_BITS_MAX).ok_or(Error::line(
        "ERR ACL GENPASS argument must be the number of bits for the output password, a positive \
         number up to 4096",
    ))?;
    let digits = bits.div_ceil(4);
    let mut password = String::new();
    while password.len() < digits {
        password.push_str(&format!("{:016x}", context.engine.random.bits()));
    }
    password.truncate(digits);
    Ok(Reply::bulk(password))
}

/// `ACL LOG`: replies with entries, or with OK.
fn log(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let log = &mut context.engine.access.log;
    let count = match argv[2..] {
        [] => 10,
        [word] if is(word, "reset") => {
            log.clear();
            return Ok(Reply::OK);
        }
        [count] => usize::try_from(integer(count)?).unwrap_or(0),
        _ => return Err(wrong_number(context)),
    };
    let now_ms = context.time.wall().0;
    let entries = log.entries().take(count).map(|entry| {
        let age_ms = now_ms.saturating_sub(entry.updated_at.0);
        super::map([
            ("count", super::number(entry.count)),
            ("reason", Reply::bulk(entry.reason.name())),
            ("context", Reply::bulk(entry.context)),
            ("object", Reply::bulk(&entry.object)),
            ("username", Reply::bulk(&entry.username)),
            ("age-seconds", Reply::Double(age_ms as f64 / 1000.0)),
            ("client-info", Reply::bulk(&entry.client)),
            ("entry-id", super::number(entry.id)),
            ("timestamp-created", Reply::Integer(entry.created_at.0)),
            ("timestamp-last-updated", Reply::Integer(entry.updated_at.0)),
        ])
    });
    Ok(Reply::Array(entries.collect()))
}

/// `ACL DRYRUN`: replies with OK, or with what is refused.
fn dryrun(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let engine = &*context.engine;
    let user = engine.access.users().get(argv[2]);
    let user = user.ok_or_else(|| Error::text(format!("ERR User '{}' not found", text(argv[2]))))?;
    let argv = &argv[3..];
    let entry = engine.commands.find_request(argv).ok_or_else(|| {
        Error::text(format!("ERR Command '{}' not found", text(argv[0])))
    })?;
    if !entry.command.arity.admits(argv.len()) {
        return Err(Error::Arity(entry.full_name.clone()));
    }
    let request = Request::new(entry, argv);
    // Commands that are allowed before authentication are allowed to every user.
    let result = match entry.command.flags.contains(Flags::NO_AUTH) {
        true => Ok(()),
        false => user.check(&request),
    };
    Ok(match result {
        Ok(()) => Reply::OK,
        Err(denial) => {
            let object = match denial {
                Denial::Command => argv[0],
                Denial::Key(place) | Denial::Channel(place) => argv[place],
            };
            Reply::bulk(denial.text(user.name(), entry, object))
        }
    })
}
