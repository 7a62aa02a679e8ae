//! `CLIENT`: commands about the own connection and about others.

use bytes::Bytes;
use lockwheel_resp::Reply;

use crate::command::argument as arg;
use crate::command::{Arity, Categories, Command, Flags, Group, integer, is, one_of};
use crate::commands::{client_list, tracking, unknown_form};
use crate::error::Error;
use crate::run::context::Context;
use crate::sessions::{ReplyMode, Session};

const ANYWHERE: Flags = Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE);

/// Subcommands about the own connection.
pub(super) const OWN: Command = Command {
    group: Group::Connection,
    categories: Categories::CONNECTION,
    flags: ANYWHERE,
    ..Command::BASE
};

/// Subcommands about other connections.
const OTHERS: Command = Command { flags: ANYWHERE.union(Flags::ADMIN), ..OWN };

/// The family's rows.
pub const COMMANDS: &[Command] = &[Command {
    name: "client",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    categories: Categories::empty(),
    since: "2.4.0",
    complexity: "that of the subcommand",
    doc: "A container for commands about connections.",
    subcommands: SUBCOMMANDS,
    ..OWN
}];

const SUBCOMMANDS: &[Command] = &[
    tracking::CACHING,
    Command {
        name: "getname",
        arity: Arity::Exactly(2),
        since: "2.6.9",
        doc: "Returns the name of the connection.",
        example: "CLIENT SETNAME worker; CLIENT GETNAME => \"worker\"",
        run: getname,
        ..OWN
    },
    tracking::GETREDIR,
    super::help_row(OWN, "5.0.0", "CLIENT HELP => [CLIENT <subcommand> ...]"),
    Command {
        name: "id",
        arity: Arity::Exactly(2),
        since: "5.0.0",
        doc: "Returns the id of the connection, which is never used again.",
        example: "CLIENT ID => 1",
        run: id,
        ..OWN
    },
    Command {
        name: "info",
        arity: Arity::Exactly(2),
        since: "6.2.0",
        doc: "Describes the connection in a line.",
        tips: &["nondeterministic_output"],
        example: "CLIENT INFO => \"id=1 addr=...",
        run: client_list::info,
        ..OWN
    },
    Command {
        name: "kill",
        arity: Arity::AtLeast(3),
        since: "2.4.0",
        complexity: "O(N) in the number of connections",
        doc: "Closes connections: the one at an address, or all that match every filter.",
        arguments: &[arg::one_of(
            "filter",
            &[
                arg::string("ip:port").deprecated_since("2.8.12"),
                arg::one_of(
                    "new-format",
                    &[
                        arg::integer("client-id").token("ID").optional().since("2.8.12"),
                        arg::one_of(
                            "normal_master_slave_pubsub",
                            &[
                                arg::word("NORMAL"),
                                arg::word("MASTER").since("3.2.0"),
                                arg::word("SLAVE"),
                                arg::word("REPLICA").since("5.0.0"),
                                arg::word("PUBSUB"),
                            ],
                        )
                        .token("TYPE")
                        .optional()
                        .since("2.8.12"),
                        arg::string("username").token("USER").optional(),
                        arg::string("ip:port").token("ADDR").optional(),
                        arg::string("ip:port").token("LADDR").optional().since("6.2.0"),
                        arg::string("yes/no").token("SKIPME").optional(),
                    ],
                )
                .multiple(),
            ],
        )],
        example: "CLIENT KILL ID 99 => 0",
        run: client_list::kill,
        ..OTHERS
    },
    Command {
        name: "list",
        arity: Arity::AtLeast(2),
        since: "2.4.0",
        complexity: "O(N) in the number of connections",
        doc: "Describes connections, each in a line.",
        tips: &["nondeterministic_output"],
        arguments: &[
            arg::one_of(
                "normal_master_replica_pubsub",
                &[
                    arg::word("NORMAL"),
                    arg::word("MASTER"),
                    arg::word("REPLICA"),
                    arg::word("PUBSUB"),
                ],
            )
            .token("TYPE")
            .optional()
            .since("5.0.0"),
            arg::block("id", &[arg::integer("client-id").multiple()])
                .token("ID")
                .optional()
                .since("6.2.0"),
        ],
        example: "CLIENT LIST TYPE replica => \"\"",
        run: client_list::list,
        ..OTHERS
    },
    Command {
        name: "no-evict",
        arity: Arity::Exactly(3),
        since: "7.0.0",
        doc: "Keeps the connection from being closed to save memory.",
        arguments: &[arg::one_of("enabled", &[arg::word("ON"), arg::word("OFF")])],
        example: "CLIENT NO-EVICT ON => OK",
        run: no_evict,
        ..OTHERS
    },
    Command {
        name: "no-touch",
        arity: Arity::Exactly(3),
        since: "7.2.0",
        doc: "Lets the connection read keys without marking them as used.",
        arguments: &[arg::one_of("enabled", &[arg::word("ON"), arg::word("OFF")])],
        example: "CLIENT NO-TOUCH ON => OK",
        run: no_touch,
        ..OWN
    },
    Command {
        name: "pause",
        arity: Arity::AtLeast(3),
        since: "2.9.50",
        doc: "Delays commands, or those that write, for some milliseconds.",
        arguments: &[
            arg::integer("timeout"),
            arg::one_of("mode", &[arg::word("WRITE"), arg::word("ALL")]).optional().since("6.2.0"),
        ],
        example: "CLIENT PAUSE 10 WRITE => OK",
        run: pause,
        ..OTHERS
    },
    Command {
        name: "reply",
        arity: Arity::Exactly(3),
        since: "3.2.0",
        doc: "Selects which commands are replied to: all, none, or all but the next.",
        arguments: &[arg::one_of(
            "on_off_skip",
            &[arg::word("ON"), arg::word("OFF"), arg::word("SKIP")],
        )],
        example: "CLIENT REPLY ON => OK",
        run: reply,
        ..OWN
    },
    Command {
        name: "setinfo",
        arity: Arity::Exactly(4),
        since: "7.2.0",
        doc: "Sets the name or the version of the client library.",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        arguments: &[arg::one_of(
            "attr",
            &[arg::string("libname").token("LIB-NAME"), arg::string("libver").token("LIB-VER")],
        )],
        example: "CLIENT SETINFO LIB-NAME redis-rs => OK",
        run: setinfo,
        ..OWN
    },
    Command {
        name: "setname",
        arity: Arity::Exactly(3),
        since: "2.6.9",
        doc: "Sets the name of the connection.",
        arguments: &[arg::string("connection-name")],
        example: "CLIENT SETNAME worker => OK",
        run: setname,
        ..OWN
    },
    tracking::TRACKING,
    tracking::TRACKINGINFO,
    Command {
        name: "unblock",
        arity: Arity::AtLeast(3),
        since: "5.0.0",
        complexity: "O(log N) in the number of connections",
        doc: "Ends the wait of a blocked connection.",
        arguments: &[
            arg::integer("client-id"),
            arg::one_of("timeout_error", &[arg::word("TIMEOUT"), arg::word("ERROR")]).optional(),
        ],
        example: "CLIENT UNBLOCK 99 => 0",
        run: unblock,
        ..OTHERS
    },
    Command {
        name: "unpause",
        arity: Arity::Exactly(2),
        since: "6.2.0",
        complexity: "O(N) in the number of connections that wait",
        doc: "Ends a pause.",
        example: "CLIENT PAUSE 10 WRITE; CLIENT UNPAUSE => OK",
        run: unpause,
        ..OTHERS
    },
];

// --- the own connection ---

/// `CLIENT ID`: replies with the id of the connection.
fn id(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    Ok(super::number(context.client.serial))
}

/// `CLIENT GETNAME`: replies with the name of the connection, or nil.
fn getname(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    let name = &context.client().name;
    Ok(if name.is_empty() { Reply::Null } else { Reply::Bulk(name.clone()) })
}

/// `CLIENT SETNAME`: sets the name and replies with OK.
fn setname(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let name = checked_name(argv[2])?;
    context.set_text(|client| &mut client.name, name);
    Ok(Reply::OK)
}

/// Checks the name of a connection, which must not contain a byte that breaks a line of `CLIENT
/// LIST`.
pub(super) fn checked_name(name: &[u8]) -> Result<Bytes, Error> {
    if is_word(name) {
        return Ok(Bytes::copy_from_slice(name));
    }
    Err(Error::line("ERR Client names cannot contain spaces, newlines or special characters."))
}

fn is_word(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}

/// `CLIENT SETINFO`: sets an attribute and replies with OK.
fn setinfo(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (attribute, value) = (argv[2], argv[3]);
    let spelled = String::from_utf8_lossy(attribute);
    let place: fn(&mut Session) -> &mut Bytes = if is(attribute, "lib-name") {
        |client| &mut client.library_name
    } else if is(attribute, "lib-ver") {
        |client| &mut client.library_version
    } else {
        return Err(Error::text(format!("ERR Unrecognized option '{spelled}'")));
    };
    if !is_word(value) {
        return Err(Error::text(format!(
            "ERR {spelled} cannot contain spaces, newlines or special characters."
        )));
    }
    context.set_text(place, Bytes::copy_from_slice(value));
    Ok(Reply::OK)
}

/// `CLIENT NO-EVICT`: replies with OK.
fn no_evict(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    context.client_mut().no_evict = on_or_off(argv[2])?;
    Ok(Reply::OK)
}

/// `CLIENT NO-TOUCH`: replies with OK.
fn no_touch(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    context.set_no_touch(on_or_off(argv[2])?);
    Ok(Reply::OK)
}

pub(super) fn on_or_off(word: &[u8]) -> Result<bool, Error> {
    one_of(word, [("on", true), ("off", false)]).ok_or(Error::Syntax)
}

pub(super) fn yes_or_no(word: &[u8]) -> Result<bool, Error> {
    one_of(word, [("yes", true), ("no", false)]).ok_or(Error::Syntax)
}

/// `CLIENT REPLY`: replies with OK, or not at all.
fn reply(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let mode = argv[2];
    let client = context.client_mut();
    if is(mode, "on") {
        // As in Redis, a SKIP before in the same transaction still applies to the next request.
        client.reply_mode = ReplyMode { off: false, skip: false, ..client.reply_mode };
        return Ok(Reply::OK);
    } else if is(mode, "off") {
        client.reply_mode.off = true;
    } else if is(mode, "skip") {
        client.reply_mode.skip_next |= !client.reply_mode.off;
    } else {
        return Err(Error::Syntax);
    }
    Ok(Reply::NOTHING)
}

// --- other connections ---

/// `CLIENT PAUSE`: starts a pause and replies with OK.
fn pause(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let writes_only = match argv {
        [_, _, _] => false,
        [_, _, _, mode] if is(mode, "all") => false,
        [_, _, _, mode] if is(mode, "write") => true,
        [_, _, _, _] => {
            return Err(Error::line("ERR CLIENT PAUSE mode must be WRITE or ALL"));
        }
        _ => return Err(unknown_form("CLIENT", argv[1])),
    };
    let until = super::timeout(context.time, argv[2])?.unwrap_or(context.time.now);
    context.start_pause(until, writes_only);
    Ok(Reply::OK)
}

/// `CLIENT UNPAUSE`: ends the pause and replies with OK.
fn unpause(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    context.unpause();
    Ok(Reply::OK)
}

/// `CLIENT UNBLOCK`: replies with 1 if a client was unblocked, else 0.
fn unblock(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let error = match argv {
        [_, _, _] => None,
        [_, _, _, how] if is(how, "timeout") => None,
        [_, _, _, how] if is(how, "error") => {
            Some(Reply::error("UNBLOCKED client unblocked via CLIENT UNBLOCK"))
        }
        [_, _, _, _] => {
            return Err(Error::line("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
        _ => return Err(unknown_form("CLIENT", argv[1])),
    };
    let serial = u64::try_from(integer(argv[2])?);
    Ok(Reply::from(serial.is_ok_and(|serial| context.unblock(serial, error.as_ref()))))
}

#[cfg(test)]
mod tests {
    use crate::Flow;
    use crate::sessions::ClientId;
    use crate::settings::Settings;
    use crate::testing::{Stage, check, words};

    #[test]
    fn replies_are_off_or_skipped() {
        check("CLIENT REPLY SKIP; CLIENT REPLY ON => OK");
        check("CLIENT REPLY OFF; CLIENT REPLY SKIP; PING => ; PING => ");
        check("CLIENT REPLY OFF; SUBSCRIBE c => [\"subscribe\", \"c\", 1]");
        check("CLIENT REPLY OFF; WAIT 1 10; +10ms; a< => ; CLIENT REPLY ON => OK");
        check("b> CLIENT PAUSE 10; CLIENT REPLY SKIP; +10ms; PING => PONG");
    }

    #[test]
    fn id_of_a_disconnected_client_is_unknown_although_its_place_is_used_again() {
        check(
            "PING; b> WAIT 1 0; CLIENT UNBLOCK 2 => 1; b> WAIT 1 0; b!; c> WAIT 1 0; \
             CLIENT UNBLOCK 2 => 0; CLIENT TRACKING on REDIRECT 2 => !ERR ...; \
             CLIENT TRACKING on REDIRECT 3 => OK; CLIENT UNBLOCK 3 => 1; \
             CLIENT LIST => \"id=1 ...id=3 ...",
        );
    }

    #[test]
    fn skipped_reply_stays_skipped_over_a_pause() {
        let mut stage = Stage::new(Settings::default());
        stage.check("CLIENT REPLY SKIP; b> CLIENT PAUSE 10");
        let client = stage.client("a");
        assert_eq!(stage.run(client, &words("PING")), (String::new(), Flow::Again));
        stage.check("+10ms; PING => ; PING => PONG");
    }

    #[test]
    fn pause_delays_commands() {
        let mut stage = Stage::new(Settings::default());
        stage.check("CLIENT PAUSE 100 WRITE => OK; GET k => nil; PING => PONG; MULTI => OK");
        let client = stage.client("b");
        for command in ["SET k v", "PUBLISH c m", "EVAL \"return 1\" 0"] {
            let flow = stage.run(client, &words(command)).1;
            assert_eq!(flow, Flow::Again, "{command}");
            assert!(stage.engine.sessions.get(client).is_some_and(|c| c.blocked.is_some()));
        }
        stage.check("EXEC; CLIENT UNBLOCK 2 => 0; EVAL_RO \"return 1\" 0 => 1");
        stage.check("EVAL \"#!lua flags=no-writes\\x0areturn 1\" 0 => 1; +99ms");
        assert!(!stage.engine.has_deliveries());
        stage.check("+1ms");
        let resumed: Vec<ClientId> =
            stage.engine.deliveries().into_iter().filter(|d| d.resume).map(|d| d.client).collect();
        assert_eq!(resumed, [client]);
        stage.check("b> SET k v => OK");
    }

    #[test]
    fn pause_of_all_delays_every_command() {
        let mut stage = Stage::new(Settings::default());
        stage.check("CLIENT PAUSE 100; b> FOO => !ERR unknown command ...");
        let client = stage.client("b");
        for command in ["PING", "CLIENT UNPAUSE", "QUIT"] {
            assert_eq!(stage.run(client, &words(command)).1, Flow::Again, "{command}");
        }
        stage.check("+100ms; b> PING => PONG");
    }

    #[test]
    fn queued_write_waits_at_exec() {
        let mut stage = Stage::new(Settings::default());
        stage.check("MULTI; SET k v => QUEUED; b> CLIENT PAUSE 100 WRITE");
        let client = stage.client("a");
        assert_eq!(stage.run(client, &words("EXEC")).1, Flow::Again);
        stage.check("b> CLIENT UNPAUSE => OK; EXEC => [OK]");
    }

    #[test]
    fn pauses_are_merged() {
        check(
            "CLIENT PAUSE 100 WRITE; CLIENT PAUSE 10 WRITE; +99ms; CLIENT UNPAUSE; SET k v => OK",
        );
        let mut stage = Stage::new(Settings::default());
        stage.check("CLIENT PAUSE 100 WRITE; CLIENT PAUSE 10 WRITE; +99ms");
        let client = stage.client("a");
        assert_eq!(stage.run(client, &words("SET k v")).1, Flow::Again);
        stage.check("+1ms; SET k v => OK; CLIENT PAUSE 0 WRITE; SET k v => OK");
        stage.check("CLIENT PAUSE 0 ALL; CLIENT PAUSE 10 WRITE; GET k => \"v\"; CLIENT UNPAUSE");
        check("CLIENT PAUSE 9223372036854775807 => !ERR timeout is out of range");
        check(
            "CLIENT PAUSE 1 WRITE x => !ERR unknown subcommand or wrong number of arguments \
               for 'PAUSE'. Try CLIENT HELP.",
        );
    }
}
