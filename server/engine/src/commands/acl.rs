//! `ACL`: users and what they may do.

use lockwheel_resp::Reply;

use crate::acl::{self, Denial, Request, RuleError, Selector, User};
use crate::command::argument as arg;
use crate::command::{Arity, Categories, Command, FileUse, Flags, Group, integer, is};
use crate::commands::help_row;
use crate::error::Error;
use crate::limits::GENERATED_PASSWORD_BITS_MAX;
use crate::run::context::Context;

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
        arguments: &[arg::string("categoryname").optional()],
        example: "ACL CAT transaction => [\"discard\", \"exec\", \"multi\", ...]",
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
        example: "ACL SETUSER alice +get ~lock:*; ACL DRYRUN alice GET lock:1 => OK",
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
    help_row(ACL, "6.0.0", "ACL HELP => [ACL <subcommand> ...]"),
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
        files: Some(FileUse::Users),
        example: "ACL LOAD => !ERR This Redis instance is not configured to use an ACL file. ...",
        run: load,
        ..ACL
    },
    Command {
        name: "log",
        arity: Arity::AtLeast(2),
        complexity: "O(N) in the number of entries returned",
        doc: "Returns the newest refusals, 10 by default, or removes all.",
        arguments: &[
            arg::one_of("operation", &[arg::integer("count"), arg::word("RESET")]).optional()
        ],
        example: "AUTH alice wrong => !WRONGPASS ...; ACL LOG RESET; ACL LOG => []",
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
            let users = context.users();
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
            let entries = context.commands().entries().iter();
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
    context.check_leads()?;
    let commands = context.commands();
    let all_channels = context.settings().acl_pubsub_default.allows_all();
    let mut users = context.users().clone();
    let user = match users.get(name) {
        Some(user) => User::clone(user),
        None => User::new(name, commands, all_channels),
    };
    let rules = rules.iter().map(|rule| &**rule);
    let user = user.with_rules(rules, commands, all_channels);
    users.insert(user.map_err(|(rule, error)| modifier_error(rule, error))?);
    context.replace_users(users);
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
    context.check_leads()?;
    let mut users = context.users().clone();
    let removed = argv[2..].iter().filter(|name| users.remove(name).is_some()).count();
    context.replace_users(users);
    Ok(Reply::from(removed))
}

/// `ACL GETUSER`: replies with a map, or nil.
fn getuser(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let Some(user) = context.users().get(argv[2]) else { return Ok(Reply::Null) };
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
    let users = context.users().iter();
    Ok(Reply::Array(users.map(|user| Reply::bulk(user.line())).collect()))
}

/// `ACL LOAD`: replies with OK, or with all errors of the file.
fn load(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    // First, so that what was read for this request is used or forgotten.
    let users = context.users_of_file();
    context.check_leads()?;
    context.replace_users(users.map_err(|errors| Error::text(format!("ERR {errors}")))?);
    Ok(Reply::OK)
}

/// `ACL SAVE`: replies with OK.
fn save(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    context.save_users().map_err(|error| Error::text(format!("ERR {error}")))?;
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
        password.push_str(&format!("{:016x}", context.random().bits()));
    }
    password.truncate(digits);
    Ok(Reply::bulk(password))
}

/// `ACL LOG`: replies with entries, or with OK.
fn log(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let count = match argv[2..] {
        [] => 10,
        [word] if is(word, "reset") => {
            context.clear_acl_log();
            return Ok(Reply::OK);
        }
        [count] => usize::try_from(integer(count)?).unwrap_or(0),
        _ => return Err(wrong_number(context)),
    };
    let now_ms = context.time.wall().0;
    let entries = context.engine().access.log.entries().take(count).map(|entry| {
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
    let user = context.users().get(argv[2]);
    let user =
        user.ok_or_else(|| Error::text(format!("ERR User '{}' not found", text(argv[2]))))?;
    let argv = &argv[3..];
    let entry = context
        .commands()
        .find_request(argv)
        .ok_or_else(|| Error::text(format!("ERR Command '{}' not found", text(argv[0]))))?;
    if !entry.command.arity.admits(argv.len()) {
        return Err(Error::Arity(entry.full_name.clone()));
    }
    Ok(match user.check(&Request::new(entry, argv)) {
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use crate::Flow;
    use crate::acl::{AclFile, AclFileReader, WriteFailed};
    use crate::settings::{CompatVersion, Mode, Secret, Settings};
    use crate::testing::{Stage, check, words};

    const KEY: &str = "!NOPERM No permissions to access a key";
    const CHANNEL: &str = "!NOPERM No permissions to access a channel";

    fn no_command(name: &str) -> String {
        format!("!NOPERM User u has no permissions to run the '{name}' command")
    }

    /// A stage on which client `a` is the user `u` with these rules, and `b` the default user.
    fn stage(rules: &str) -> Stage {
        let mut stage = Stage::new(Settings::default());
        stage.check("a> PING; b> PING");
        stage.check(&format!("b> ACL SETUSER u on nopass {rules} => OK; AUTH u x => OK"));
        stage
    }

    fn with_requirepass(password: &str) -> Stage {
        let mut settings = Settings::default();
        settings.requirepass = Some(Secret::new(password));
        Stage::new(settings)
    }

    /// Checks the rules of the user in `ACL LIST` after rules were applied.
    fn check_line(rules: &str, line: &str) {
        check(&format!("ACL SETUSER u {rules} => OK; ACL LIST => [...\"user u {line}\"]"));
    }

    #[test]
    fn rules_are_listed_in_the_form_of_redis() {
        const NEW: &str = "off sanitize-payload";
        const HASH: &str = "#148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940";
        for (rules, line) in [
            ("", "off sanitize-payload resetchannels -@all"),
            ("on nopass", "on nopass sanitize-payload resetchannels -@all"),
            ("skip-sanitize-payload", "off skip-sanitize-payload resetchannels -@all"),
            (">p >p >q <q", &format!("{NEW} {HASH} resetchannels -@all")),
            (&format!("nopass {HASH}"), &format!("{NEW} {HASH} resetchannels -@all")),
            (&format!(">p !{}", &HASH[1..]), &format!("{NEW} resetchannels -@all")),
            (">p nopass resetpass", &format!("{NEW} resetchannels -@all")),
            ("~a %R~b %w~c %rW~d ~a", &format!("{NEW} ~a %R~b %W~c ~d resetchannels -@all")),
            ("%R~a %W~a", &format!("{NEW} ~a resetchannels -@all")),
            ("~a allkeys", &format!("{NEW} ~* resetchannels -@all")),
            ("~a ~* resetkeys ~b", &format!("{NEW} ~b resetchannels -@all")),
            ("%RW~* ~a", &format!("{NEW} %RW~* ~a resetchannels -@all")),
            ("&a &b &a", &format!("{NEW} resetchannels &a &b -@all")),
            ("&a allchannels", &format!("{NEW} &* -@all")),
            ("+GET +@Write -set", &format!("{NEW} resetchannels -@all +get +@write -set")),
            ("+get -get", &format!("{NEW} resetchannels -@all -get")),
            ("+config|get -config|set +config", &format!("{NEW} resetchannels -@all +config")),
            ("allcommands -@admin", &format!("{NEW} resetchannels +@all -@admin")),
            ("+get nocommands", &format!("{NEW} resetchannels -@all")),
            ("+select|0 +SELECT|1", &format!("{NEW} resetchannels -@all +select|0 +select|1")),
            (
                "(~a +get) (&b)",
                &format!(
                    "{NEW} resetchannels -@all (~a resetchannels -@all +get) \
                     (resetchannels &b -@all)"
                ),
            ),
            ("(~a +get) clearselectors", &format!("{NEW} resetchannels -@all")),
            ("on >p ~* &* +@all (+get) reset", &format!("{NEW} resetchannels -@all")),
        ] {
            check_line(rules, line);
            // The line makes the same user.
            check_line(line, line);
        }
    }

    #[test]
    fn wrong_rules_change_nothing() {
        let wrong = |rule: &str, reason: &str| {
            check(&format!(
                "ACL SETUSER u +get {rule} => !ERR Error in ACL SETUSER modifier {reason}...; \
                 ACL USERS => [\"default\"]"
            ));
        };
        wrong("+foo", "'+foo': Unknown command or category name in ACL");
        wrong("-get|x", "'-get|x': Unknown command or category name in ACL");
        wrong("+config|foo", "'+config|foo': Unknown command or category name in ACL");
        wrong("+@foo", "'+@foo': Unknown command or category name in ACL");
        wrong("+config|get|x", "'+config|get|x': Allowing first-arg of a subcommand is not");
        for rule in ["foo", "%~a", "%RR~a", "%Xa", "+select|", "%", "\"~a\\x00b\"", "\"(~a))\""] {
            check(&format!(
                "ACL SETUSER u {rule} => !ERR Error in ACL SETUSER modifier '...': \
                            Syntax error; ACL GETUSER u => nil"
            ));
        }
        wrong("~* ~a", "'~a': Adding a pattern after the * pattern (or the 'allkeys' flag)");
        wrong("&* &a", "'&a': Adding a pattern after the * pattern (or the 'allchannels' flag)");
        // Passwords are not repeated.
        wrong("<secret", "'<(redacted)': The password you are trying to remove from the user");
        wrong("#secret", "'#(redacted)': The password hash must be exactly 64 characters");
        wrong("\"(>secret)\"", "'(>(redacted)': Syntax error");
        wrong("\"( +get >secret more )\"", "'( +get >(redacted)': Syntax error");
        wrong("( <secret )", "'( <(redacted)': Syntax error");
        wrong("\"on >secret\"", "'on >(redacted)': Syntax error");
        check(
            "ACL SETUSER u (>secret => !ERR Unmatched parenthesis in acl selector starting at \
               '(>(redacted)'.",
        );
        check(
            "ACL SETUSER u (~a +get => !ERR Unmatched parenthesis in acl selector starting at \
               '(~a'.; ACL SETUSER \"a b\" => !ERR Usernames can't contain spaces or null ...",
        );
    }

    #[test]
    fn user_is_described() {
        check(
            "HELLO 3; ACL SETUSER u on >p ~a %R~b &c +get (~d +@read); ACL GETUSER u => \
             {\"flags\": ~[\"on\", \"sanitize-payload\"], \"passwords\": [\"148d...9940\"], \
             \"commands\": \"-@all +get\", \"keys\": \"~a %R~b\", \"channels\": \"&c\", \
             \"selectors\": [{\"commands\": \"-@all +@read\", \"keys\": \"~d\", \
             \"channels\": \"\"}]}; ACL GETUSER nothere => nil",
        );
        check(
            "ACL GETUSER default => [...\"commands\", \"+@all\", \"keys\", \"~*\", ...\"&*\", ...",
        );
    }

    #[test]
    fn new_users_may_use_channels_as_configured() {
        check(
            "CONFIG SET acl-pubsub-default allchannels; ACL SETUSER u (+get) => OK; \
               ACL LIST => [...\"user u off sanitize-payload &* -@all (&* -@all +get)\"]",
        );
    }

    #[test]
    fn commands_are_refused() {
        let mut stage = stage("~* &* +get +config|get +select|0 +@transaction");
        stage.check(&format!("GET k => nil; SET k v => {}", no_command("set")));
        stage.check(&format!("CONFIG GET x => []; CONFIG SET x y => {}", no_command("config|set")));
        stage.check(&format!("SELECT 0 => OK; SELECT 1 => {}", no_command("select")));
        stage.check("FOO => !ERR unknown command...; GET => !ERR wrong number of arguments ...");
        // Commands before authentication are for all.
        stage.check("RESET => RESET; SET k v => OK; AUTH u x; HELLO 2 => [...]; QUIT => OK");
    }

    #[test]
    fn rules_are_applied_from_left_to_right() {
        let refused = no_command("select");
        for (rules, first, second) in [
            ("+select|0 -select", &refused[..], &refused[..]),
            ("-select +select|0", "OK", &refused),
            ("+select -select +select|0 +select|1 -select +select|1", &refused, "OK"),
            ("+select|0 -@all", &refused, &refused),
            ("+select|0 +@all -select", &refused, &refused),
            ("+select|0 -@connection", &refused, &refused),
            ("+select|0 +select", "OK", "OK"),
        ] {
            stage(rules).check(&format!("SELECT 0 => {first}; SELECT 1 => {second}"));
        }
    }

    #[test]
    fn refused_command_breaks_the_transaction() {
        stage("~* +get +@transaction").check(&format!(
            "MULTI; SET k v => {}; EXEC => !EXECABORT Transaction discarded because of previous \
             errors.",
            no_command("set")
        ));
    }

    #[test]
    fn queued_commands_are_checked_again() {
        let mut stage = stage("~* &* +get +set +publish +@transaction");
        stage.check(
            "MULTI; SET a v; GET k; PUBLISH c m; b> ACL SETUSER u -get resetkeys ~a \
                     resetchannels",
        );
        let reason = |reason: &str| {
            format!(
                "!NOPERM ACLs rules changed between the moment the transaction was accumulated and \
                 the EXEC call. This command is no longer allowed for the following reason: \
                 {reason}"
            )
        };
        stage.check(&format!(
            "EXEC => [OK, {}, {}]; b> ACL LOG 1 => [[...\"context\", \"multi\", ...",
            reason("no permission to execute the command or subcommand"),
            reason("no permission to access one of the channels used as arguments to the command"),
        ));
        stage.check("b> GET a => \"v\"");
    }

    #[test]
    fn keys_are_refused() {
        let mut stage = stage("+@all ~lock:* %R~read:* %W~write:*");
        stage.check(&format!("SET lock:1 v => OK; GET lock:1 => \"v\"; GET k => {KEY}"));
        stage.check(&format!("GET read:1 => nil; SET read:1 v => {KEY}"));
        stage.check(&format!(
            "SET write:1 v => OK; SET write:1 v GET => {KEY}; GET write:1 => {KEY}"
        ));
        stage.check(&format!("COPY lock:1 write:1 REPLACE => 1; COPY write:1 lock:1 => {KEY}"));
        stage.check(&format!("MGET lock:1 k => {KEY}; DEL lock:1 k => {KEY}; EXISTS lock:1 => 1"));
        // Metadata needs neither access.
        stage.check(&format!("EXISTS write:1 read:1 => 1; TYPE k => {KEY}"));
        stage.check(&format!(
            "BITFIELD read:1 GET u4 0 => [0]; BITFIELD read:1 SET u4 0 1 => {KEY}"
        ));
        stage.check(&format!("EVAL \"return 1\" 1 k => {KEY}; EVAL \"return 1\" 1 lock:1 => 1"));
        stage.check(&format!("SORT lock:2 STORE k => {KEY}; SORT lock:2 STORE lock:3 => 0"));
        stage.check(
            "SORT lock:2 BY w* => !ERR BY option of SORT denied due to insufficient ...; \
                     SORT lock:2 GET # => !ERR GET option of SORT denied due to insufficient ...; \
                     SORT lock:2 BY nosort => []",
        );
        stage.check("b> ACL SETUSER u %R~*; SORT lock:2 BY w* GET # => []");
        // Without an accessible key, the arguments are reported.
        stage.check("EVAL \"return 1\" x k => !ERR value is not an integer or out of range");
    }

    #[test]
    fn channels_are_refused() {
        let mut stage = stage("+@all &news:* &exact");
        stage.check(&format!("PUBLISH news:1 m => 0; PUBLISH other m => {CHANNEL}"));
        stage.check(&format!("SPUBLISH news:1 m => 0; SPUBLISH other m => {CHANNEL}"));
        stage.check(&format!("SUBSCRIBE news:1 other => {CHANNEL}; SSUBSCRIBE other => {CHANNEL}"));
        stage.check(&format!("PSUBSCRIBE news:1* => {CHANNEL}; PSUBSCRIBE news:* => [...]"));
        stage.check("PUNSUBSCRIBE other => [...]; UNSUBSCRIBE other => [...]; SUBSCRIBE exact");
    }

    #[test]
    fn scripts_are_refused() {
        let mut stage = stage("~lock:* &c +@all -del");
        let failure = "!ERR ACL failure in script: ";
        for (call, text) in [
            ("'get', 'k'", "No permissions to access a key"),
            ("'publish', 'd', 'm'", "No permissions to access a channel"),
            ("'del', 'lock:1'", "User u has no permissions to run the 'del' command"),
        ] {
            stage.check(&format!("EVAL \"return redis.pcall({call})\" 0 => {failure}{text}"));
            stage.check(&format!(
                "EVAL \"return redis.call({call})\" 0 => {failure}{text} script: ..., on ..."
            ));
        }
        stage.check("EVAL \"return redis.call('set', 'lock:1', 'v')\" 0 => OK");
        for (call, permitted) in [
            ("'get', 'k'", "nil"),
            ("'get', 'lock:1'", "1"),
            ("'del', 'lock:1'", "nil"),
            ("'get'", "1"),
        ] {
            stage.check(&format!("EVAL \"return redis.acl_check_cmd({call})\" 0 => {permitted}"));
        }
        stage.check(
            "EVAL \"return redis.acl_check_cmd('publish')\" 0 => 1; \
                     EVAL \"return redis.acl_check_cmd('foo')\" 0 => !ERR Invalid command ...",
        );
        stage.check(
            "b> FUNCTION LOAD \"#!lua name=l \\x0a redis.register_function('f', function(keys) \
             return redis.call('get', keys[1]) end)\"; FCALL f 1 lock:1 => \"v\"",
        );
        stage.check(&format!("FCALL f 1 k => {KEY}"));
        stage.check("b> ACL LOG 1 => [[...\"reason\", \"key\", \"context\", \"toplevel\", ...");
        stage.check(
            "EVAL \"redis.call('get', 'k')\" 0 => !ERR ACL failure in script: ...; \
             b> ACL LOG 1 => [[...\"lua\", ...\"k\", ...",
        );
    }

    #[test]
    fn one_selector_must_permit_everything() {
        let mut stage = stage("~a +get (~b +set) (%R~c +@all)");
        stage.check(&format!("GET a => nil; SET b v => OK; GET b => {KEY}; SET a v => {KEY}"));
        stage.check(&format!("GET c => nil; SET c v => {KEY}; CONFIG GET x => []"));
        stage.check("b> ACL SETUSER u clearselectors");
        stage.check(&format!("SET b v => {}", no_command("set")));
    }

    #[test]
    fn blocked_clients_are_checked_again() {
        let mut stage = stage("~* +@all");
        stage.check("BLPOP k 0; b> ACL SETUSER u -blpop => OK; b> RPUSH k v => 1");
        stage.check(&format!("a< => {}; b> LRANGE k 0 -1 => [\"v\"]", no_command("blpop")));
        stage.check(
            "b> ACL SETUSER u +blpop resetkeys ~q; BLPOP q 0; b> CLIENT PAUSE 10 WRITE; \
                     b> ACL SETUSER u resetkeys; +10ms; b> RPUSH q v",
        );
        stage.check(&format!("a< => {KEY}; b> ACL LOG 1 => [[\"count\", 1, ...\"q\", ..."));
    }

    #[test]
    fn authentication_uses_the_users() {
        const WRONG: &str = "!WRONGPASS invalid username-password pair or user is disabled.";
        check(&format!(
            "ACL SETUSER u >p >q ~k +get; AUTH u p => {WRONG}; ACL SETUSER u on; \
             AUTH u x => {WRONG}; \
             AUTH x p => {WRONG}; AUTH u q => OK; ACL WHOAMI => {}",
            no_command("acl|whoami")
        ));
        check(
            "ACL SETUSER u on nopass +acl|whoami; HELLO 3 AUTH u any => {...; \
               ACL WHOAMI => \"u\"; CLIENT INFO => !NOPERM ...; b> CLIENT LIST => ...user=u ...",
        );
        check(
            "ACL SETUSER u on nopass +@all -acl; MULTI; AUTH u x; ACL WHOAMI; \
               EXEC => [OK, !NOPERM ACLs rules changed ...]",
        );
        // A client that is connected continues when its user is disabled.
        check("ACL SETUSER u on nopass ~* +get; b> AUTH u x; ACL SETUSER u off; b> GET k => nil");
    }

    #[test]
    fn default_user_can_be_restricted() {
        check("ACL SETUSER default resetkeys ~k; GET k => nil; GET l => !NOPERM ...");
        check(
            "ACL SETUSER default >p; PING => PONG; b> PING => !NOAUTH ...; b> AUTH p => OK; \
               b> PING => PONG; AUTH default x => !WRONGPASS ...",
        );
        check(
            "ACL SETUSER default off; PING => PONG; b> PING => !NOAUTH ...; \
               ACL SETUSER default on; b> PING => PONG",
        );
        check("ACL SETUSER default nopass; AUTH p => !ERR AUTH <password> called without any ...");
        check("ACL DELUSER default => !ERR The 'default' user cannot be removed");
    }

    #[test]
    fn requirepass_is_the_password_of_the_default_user() {
        let mut stage = with_requirepass("p");
        stage.check("AUTH p; ACL LIST => [\"user default on sanitize-payload #148d... +@all\"]");
        stage.check("CONFIG GET requirepass => [\"requirepass\", \"(redacted)\"]");
        stage.check("CONFIG SET requirepass q; b> AUTH p => !WRONGPASS ...; b> AUTH q => OK");
        stage.check("ACL SETUSER default >r; c> AUTH q => OK; c> AUTH r => OK");
        stage.check("CONFIG SET requirepass \"\"; d> PING => PONG; ACL LIST => [\"... nopass ...");
    }

    #[test]
    fn connections_of_removed_users_are_closed() {
        let mut stage = stage("~* +@all");
        let client = stage.client("a");
        stage.check("b> ACL DELUSER u nothere => 1");
        assert!(stage.engine.session(client).is_none());
        // The caller's own is closed after the reply.
        let mut stage = self::stage("~* +@all");
        let client = stage.client("a");
        assert_eq!(stage.run(client, &words("ACL DELUSER u")), ("1".to_owned(), Flow::Close));
    }

    #[test]
    fn names_that_look_like_options_hide_no_key() {
        let stage_of = || {
            let mut stage = stage("+@all ~open");
            stage.check("b> XADD secret 1-1 f v; b> XADD open 1-1 f v");
            for (key, group) in [("secret", "streams"), ("secret", "g"), ("open", "streams")] {
                stage.check(&format!("b> XGROUP CREATE {key} {group} 0 => OK"));
            }
            stage
        };
        for names in ["GROUP streams c", "GROUP g streams", "GROUP streams streams"] {
            for options in ["", "COUNT 1 ", "COUNT 1 BLOCK 1 "] {
                let command = format!("XREADGROUP {options}{names}");
                stage_of().check(&format!("{command} STREAMS secret > => {KEY}"));
                stage_of().check(&format!("{command} STREAMS secret open > > => {KEY}"));
            }
        }
        stage_of().check("XREADGROUP COUNT 1 GROUP streams c STREAMS open > => [[\"open\", ...]]");
    }

    #[test]
    fn removed_user_may_do_nothing_in_the_rest_of_its_transaction() {
        let mut stage = stage("~* +@all");
        let client = stage.client("a");
        for step in ["MULTI", "ACL DELUSER u", "SET k v", "CONFIG GET port"] {
            stage.run(client, &words(step));
        }
        let (reply, flow) = stage.run(client, &words("EXEC"));
        assert!(reply.starts_with("[1, !NOPERM ") && reply.contains(", !NOPERM "), "{reply}");
        assert_eq!(flow, Flow::Close);
        stage.check("b> EXISTS k => 0");
    }

    #[test]
    fn clients_of_a_user_are_killed() {
        let mut stage = stage("~* +@all");
        let client = stage.client("a");
        stage.check("b> CLIENT KILL USER nothere => !ERR No such user 'nothere'");
        stage.check("b> CLIENT KILL USER u => 1; b> CLIENT KILL USER default => 0");
        assert!(stage.engine.session(client).is_none());
    }

    #[test]
    fn subscribers_that_lose_a_right_are_disconnected() {
        for (subscribe, rules, stays) in [
            ("SUBSCRIBE news", "resetchannels &n*", true),
            ("SUBSCRIBE news", "resetchannels &other", false),
            ("SUBSCRIBE news", "-@all resetkeys", true),
            ("PSUBSCRIBE n*", "resetchannels &n*", true),
            ("PSUBSCRIBE n*", "resetchannels &*s", false),
            ("SSUBSCRIBE news", "resetchannels", false),
            ("SUBSCRIBE news", "resetchannels (&news)", true),
        ] {
            let mut stage = stage("&* +@all");
            let client = stage.client("a");
            stage.check(&format!("{subscribe}; b> ACL SETUSER u {rules} => OK"));
            assert_eq!(stage.engine.session(client).is_some(), stays, "{subscribe} {rules}");
        }
    }

    #[test]
    fn refusals_are_logged() {
        let mut stage = stage("~* +get");
        stage.check(
            "SET k v => !NOPERM ...; SET k v => !NOPERM ...; \
             b> ACL LOG => [[\"count\", 2, \"reason\", \"command\", \"context\", \
                     \"toplevel\", \"object\", \"set\", \"username\", \"u\", \
                     \"age-seconds\", \"0\", \"client-info\", \"id=1 ...\", \"entry-id\", 0, \
                     \"timestamp-created\", 1700000000000, \"timestamp-last-updated\", \
                     1700000000000]]",
        );
        stage.check(
            "+1500ms; SET k v => !NOPERM ...; +61000ms; SET k v => !NOPERM ...; \
             b> ACL LOG => [[\"count\", 1, ...\"entry-id\", 1, ...], \
                            [\"count\", 3, ...\"age-seconds\", \"61\", ...]]",
        );
        stage.check(
            "b> AUTH x y => !WRONGPASS ...; \
             b> ACL LOG 1 => [[...\"auth\", ...\"AUTH\", \"username\", \"x\", ...",
        );
        stage.check("b> ACL LOG 0 => []; b> ACL LOG -1 => []; b> ACL LOG x => !ERR value is ...");
        stage.check("b> INFO stats => ...acl_access_denied_auth:1\\r\\nacl_access_denied_cmd:4...");
        stage.check("b> ACL LOG RESET => OK; b> ACL LOG => []; SET k v => !NOPERM ...");
        stage.check("b> ACL LOG => [[...\"entry-id\", 3, ...]]; b> CONFIG SET acllog-max-len 1");
        stage.check("DEL k => !NOPERM ...; b> ACL LOG => [[...\"del\", ...\"entry-id\", 4, ...]]");
        stage.check("b> CONFIG SET acllog-max-len 0; DEL k => !NOPERM ...; b> ACL LOG => []");
    }

    #[test]
    fn long_names_are_logged_in_part() {
        let mut stage = stage("+get");
        stage.check(&format!("GET {} => {KEY}", "k".repeat(2000)));
        stage.check(&format!("b> ACL LOG => [[...\"object\", \"{}\", ...", "k".repeat(1024)));
    }

    #[test]
    fn dryrun_reports_what_a_user_may_do() {
        let mut stage = stage("~a &c +get +publish");
        let refused = "\"User u has no permissions to";
        stage.check(&format!(
            "b> ACL DRYRUN u get a => OK; b> ACL DRYRUN u get b => {refused} access \
                              the ...b...\"; b> ACL DRYRUN u SET a v => {refused} run the ...set..."
        ));
        stage.check(&format!(
            "b> ACL DRYRUN u publish d m => {refused} access the ...d...\"; \
                              b> ACL DRYRUN u auth x => OK"
        ));
        stage.check(
            "b> ACL DRYRUN x get a => !ERR User 'x' not found; \
                     b> ACL DRYRUN u foo => !ERR Command 'foo' not found; \
                     b> ACL DRYRUN u get => !ERR wrong number of arguments for 'get' command",
        );
    }

    #[test]
    fn passwords_are_generated() {
        let mut stage = Stage::new(Settings::default());
        let client = stage.client("a");
        for (request, digits) in
            [("ACL GENPASS", 64), ("ACL GENPASS 5", 2), ("ACL GENPASS 4096", 1024)]
        {
            let (reply, _) = stage.run(client, &words(request));
            assert_eq!(reply.len(), digits + 2, "{request}");
        }
        for bits in ["0", "-1", "4097"] {
            stage.check(&format!("ACL GENPASS {bits} => !ERR ACL GENPASS argument must be ..."));
        }
    }

    #[test]
    fn categories_are_those_of_command_info() {
        let mut stage = Stage::new(Settings::default());
        let entries = crate::command::CommandTable::of(Mode::Standalone, CompatVersion::default())
            .entries()
            .len();
        assert!(entries > 200);
        let client = stage.client("a");
        let (all, _) = stage.run(client, &words("ACL CAT"));
        let names: Vec<&str> = all.trim_matches(['[', ']']).split(", ").collect();
        assert_eq!((names.len(), &names[21..]), (23, &["\"lock\"", "\"lockforce\""][..]));
        for name in names {
            let name = name.trim_matches('"');
            let (cat, _) = stage.run(client, &words(&format!("ACL CAT {name}")));
            let listed = words(&format!("COMMAND LIST FILTERBY ACLCAT {name}"));
            assert_eq!(cat, stage.run(client, &listed).0);
        }
        stage.check("ACL CAT lock => [...\"set\"...]; ACL CAT foo => !ERR Unknown category 'foo'");
        let (locks, _) = stage.run(client, &words("ACL CAT lock"));
        let others = locks.replace("lockwheel|locks", "");
        assert!(!others.contains("lockwheel"), "{locks}");
    }

    /// A file in memory.
    struct MemoryFile(Arc<Mutex<Result<Vec<u8>, ()>>>);

    impl AclFile for MemoryFile {
        fn name(&self) -> &str {
            "users.acl"
        }

        fn reader(&self) -> AclFileReader {
            let file = Arc::clone(&self.0);
            Box::new(move || {
                file.lock().unwrap().clone().map_err(|()| "No such file or directory".to_owned())
            })
        }

        fn write(&mut self, text: &[u8]) -> Result<(), WriteFailed> {
            match &mut *self.0.lock().unwrap() {
                Ok(kept) => *kept = text.to_vec(),
                Err(()) => return Err(WriteFailed),
            }
            Ok(())
        }
    }

    #[test]
    fn users_are_loaded_and_saved() {
        let file = Arc::new(Mutex::new(Ok(b"user u on nopass ~k +get\n\n".to_vec())));
        let mut stage = Stage::new(Settings::default());
        stage.engine.load_users(Some(Box::new(MemoryFile(Arc::clone(&file))))).unwrap();
        stage.check("ACL USERS => [\"default\", \"u\"]; ACL SETUSER v (~a +get); ACL SAVE => OK");
        let saved = "user default on nopass sanitize-payload ~* &* +@all\n\
                     user u on nopass sanitize-payload ~k resetchannels -@all +get\n\
                     user v off sanitize-payload resetchannels -@all \
                     (~a resetchannels -@all +get)\n";
        assert_eq!(*file.lock().unwrap(), Ok(saved.into()));
        stage.check(
            "b> AUTH u x; c> PING; ACL DELUSER v; ACL LOAD => OK; b> GET k => nil; \
                     ACL USERS => [\"default\", \"u\", \"v\"]",
        );
        let client = stage.client("b");
        *file.lock().unwrap() = Ok(b"user default on >p +@all ~*".to_vec());
        stage.check(
            "ACL LOAD => OK; ACL USERS => [\"default\"]; c> PING => PONG; d> PING => !NO...",
        );
        assert!(stage.engine.session(client).is_none());
        *file.lock().unwrap() = Err(());
        stage.check(
            "ACL LOAD => !ERR Error loading ACLs, opening file 'users.acl': No such file \
                     or directory; ACL SAVE => !ERR There was an error trying to save the ...",
        );
    }

    #[test]
    fn wrong_file_changes_nothing() {
        const UNCHANGED: &str = "WARNING: ACL errors detected, no change to the previously active \
                                 ACL rules was performed";
        let file = Arc::new(Mutex::new(Ok(Vec::new())));
        let mut stage = Stage::new(Settings::default());
        stage.engine.load_users(Some(Box::new(MemoryFile(Arc::clone(&file))))).unwrap();
        stage.check("ACL SETUSER u");
        for (text, errors) in [
            (
                "user a\nuser b +foo +@bar",
                "users.acl:2: Error in applying operation '+foo': Unknown \
              command or category name in ACL. users.acl:2: Error in applying operation '+@bar': \
              Unknown command or category name in ACL. ",
            ),
            ("foo", "users.acl:1 should start with user keyword followed by the username. "),
            ("user", "users.acl:1 should start with user keyword followed by the username. "),
            ("user a\n\nuser a", "WARNING: Duplicate user 'a' found on line 3. "),
            ("user default\nuser default", "WARNING: Duplicate user 'default' found on line 2. "),
            ("user a foo <secret", "users.acl:1: Syntax error. "),
            (
                "user a #secret",
                "users.acl:1: The password hash must be exactly 64 characters and \
              contain only lowercase hexadecimal characters. ",
            ),
            ("user a (~b", "users.acl:1: Unmatched parenthesis in selector definition."),
            ("user a\x0bb", "'users.acl:1: username 'a\u{b}b' contains invalid characters. "),
        ] {
            *file.lock().unwrap() = Ok(text.into());
            let errors = errors.replace('\u{b}', "\\x0b");
            let expected = format!("!ERR {errors}{UNCHANGED}").replace("\\x0b", "\u{b}");
            stage.check(&format!("ACL LOAD => {expected}; ACL USERS => [\"default\", \"u\"]"));
        }
    }

    #[test]
    fn password_of_requirepass_stays_if_the_file_has_no_default_user() {
        let mut stage = with_requirepass("p");
        let file = Arc::new(Mutex::new(Ok(b"user u on nopass +ping".to_vec())));
        stage.engine.load_users(Some(Box::new(MemoryFile(file)))).unwrap();
        stage.check("PING => !NOAUTH ...; AUTH p => OK");
    }

    #[test]
    fn users_of_the_configuration_exist_at_the_start() {
        let mut settings = Settings::default();
        settings.add_user(&["u", "on", ">p", "(~a", "+get)", "+ping"]).unwrap();
        settings.add_user(&["default", "off"]).unwrap();
        assert_eq!(
            settings.add_user(&["u"]).unwrap_err(),
            "Error in user declaration 'u': Duplicate user found. A user can only be defined once \
             in config files"
        );
        let error = settings.add_user(&["v", "<secret"]).unwrap_err();
        assert!(error.starts_with("Error in user declaration '<(redacted)': The pass"), "{error}");
        assert!(!format!("{settings:?}").contains(">p"));
        let mut stage = Stage::new(settings.clone());
        stage.engine.load_users(None).unwrap();
        stage.check("PING => !NOAUTH ...; AUTH u p => OK; PING => PONG; GET a => nil");
        settings.add_user(&["w", "+foo"]).unwrap();
        let mut stage = Stage::new(settings);
        assert_eq!(
            stage.engine.load_users(None).unwrap_err(),
            "Error loading ACL rule '+foo' for the user named 'w': Unknown command or category \
             name in ACL"
        );
        stage.check("PING => !NOAUTH ...; AUTH u p => !WRONGPASS ...");
    }
}
