//! Commands about the connection itself: authentication, protocol, database, and its end.

use lockwheel_resp::{Protocol, Reply};

use crate::acl;
use crate::command::argument as arg;
use crate::command::{Arity, Categories, Command, Flags, Group, integer, is};
use crate::error::Error;
use crate::run::context::Context;
use crate::sessions::Close;
use crate::settings::{Mode, Settings};

const CONNECTION: Command = Command {
    group: Group::Connection,
    categories: Categories::CONNECTION,
    flags: Flags::LOADING.union(Flags::STALE).union(Flags::FAST),
    ..Command::BASE
};

/// Commands that are allowed at any time, before authentication too.
const ANYTIME: Command = Command {
    flags: Flags::NOSCRIPT
        .union(Flags::LOADING)
        .union(Flags::STALE)
        .union(Flags::FAST)
        .union(Flags::NO_AUTH)
        .union(Flags::ALLOW_BUSY),
    ..CONNECTION
};

/// The flags of the commands that end a transaction and all subscriptions.
const LEAVES: Flags = ANYTIME.flags.union(Flags::NOT_QUEUED).union(Flags::FOR_SUBSCRIBERS);

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "auth",
        arity: Arity::AtLeast(2),
        complexity: "O(N) in the number of passwords of the user",
        doc: "Authenticates the connection with a password.",
        arguments: &[
            arg::string("username").optional().secret().since("6.0.0"),
            arg::string("password").secret(),
        ],
        example: "AUTH default anything => OK",
        run: auth,
        ..ANYTIME
    },
    Command {
        name: "echo",
        arity: Arity::Exactly(2),
        doc: "Returns its argument.",
        arguments: &[arg::string("message")],
        example: "ECHO hello => \"hello\"",
        run: echo,
        ..CONNECTION
    },
    Command {
        name: "hello",
        arity: Arity::AtLeast(1),
        since: "6.0.0",
        doc: "Selects the protocol, authenticates, sets a name, and describes the server.",
        arguments: &[arg::block(
            "arguments",
            &[
                arg::integer("protover"),
                arg::block(
                    "username_password",
                    &[arg::string("username"), arg::string("password")],
                )
                .token("AUTH")
                .optional()
                .secret(),
                arg::string("clientname").token("SETNAME").optional(),
            ],
        )
        .optional()],
        example: "HELLO 4 => !NOPROTO unsupported protocol version",
        run: hello,
        ..ANYTIME
    },
    Command {
        name: "ping",
        arity: Arity::AtLeast(1),
        flags: Flags::FAST.union(Flags::FOR_SUBSCRIBERS),
        doc: "Returns PONG or its argument.",
        tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
        arguments: &[arg::string("message").optional()],
        example: "PING => PONG",
        run: ping,
        ..CONNECTION
    },
    Command {
        name: "quit",
        arity: Arity::AtLeast(1),
        flags: LEAVES,
        deprecated: Some(("7.2.0", "closing the connection")),
        doc: "Closes the connection.",
        example: "QUIT => OK",
        run: quit,
        ..ANYTIME
    },
    Command {
        name: "reset",
        arity: Arity::Exactly(1),
        flags: LEAVES,
        since: "6.2.0",
        doc: "Resets the connection to its initial state.",
        example: "SELECT 1; RESET => RESET",
        run: reset,
        ..ANYTIME
    },
    Command {
        name: "select",
        arity: Arity::Exactly(2),
        doc: "Selects the database for later commands.",
        arguments: &[arg::integer("index")],
        example: "SELECT 1 => OK",
        run: select,
        ..CONNECTION
    },
];

/// `PING`: replies with PONG or its argument.
fn ping(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    if argv.len() > 2 {
        return Err(Error::Arity(context.name.to_owned()));
    }
    let client = context.client();
    if client.is_subscriber() && client.protocol == Protocol::Resp2 {
        let echoed = argv.get(1).copied().unwrap_or_default();
        return Ok(Reply::Array(vec![Reply::bulk("pong"), Reply::bulk(echoed)]));
    }
    Ok(argv.get(1).map_or(Reply::status("PONG"), Reply::bulk))
}

/// `ECHO`: replies with its argument.
fn echo(_: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    Ok(Reply::bulk(argv[1]))
}

/// `SELECT`: selects a database and replies with OK.
fn select(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let number = integer(argv[1])?;
    if i32::try_from(number).is_err() {
        return Err(Error::line(
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ));
    }
    if context.settings().cluster_enabled && number != 0 {
        return Err(Error::line("ERR SELECT is not allowed in cluster mode"));
    }
    match usize::try_from(number) {
        Ok(number) if number < context.keyspace().count() => {
            context.select(number);
            Ok(Reply::OK)
        }
        _ => Err(Error::OutOfRange("DB index")),
    }
}

/// `QUIT`: replies with OK and closes the connection.
fn quit(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    context.client_mut().close = Some(Close::AfterReplies);
    Ok(Reply::OK)
}

/// `RESET`: resets the connection and replies with RESET.
fn reset(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    context.reset_client();
    Ok(Reply::status("RESET"))
}

// --- authentication and protocol ---

/// `AUTH`: replies with OK, or an error if user or password are wrong.
fn auth(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    match argv {
        [_, _] if context.users().default_user().needs_no_password() => Err(Error::line(
            "ERR AUTH <password> called without any password configured for the default user. \
             Are you sure your configuration is correct?",
        )),
        [name, password] => context.authenticate([name, acl::DEFAULT_USER, password]),
        [name, user, password] => context.authenticate([name, user, password]),
        _ => Err(Error::Syntax),
    }
    .map(|()| Reply::OK)
}

/// `HELLO`: replies with a description of the server.
fn hello(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let protocol = argv.get(1).map(|version| protocol(version)).transpose()?;
    let (mut credentials, mut name) = (None, None);
    let mut options = argv.get(2..).unwrap_or_default();
    while let [option, rest @ ..] = options {
        options = match rest {
            [user, password, rest @ ..] if is(option, "auth") => {
                credentials = Some((*user, *password));
                rest
            }
            [given, rest @ ..] if is(option, "setname") => {
                name = Some(super::client::checked_name(given)?);
                rest
            }
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(Error::text(format!("ERR Syntax error in HELLO option '{option}'")));
            }
        };
    }
    if let Some((user, password)) = credentials {
        context.authenticate([argv[0], user, password])?;
    }
    if !context.client().identity.is_authenticated() {
        return Err(Error::line(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    if let Some(name) = name {
        context.set_text(|client| &mut client.name, name);
    }
    let client = context.client_mut();
    client.protocol = protocol.unwrap_or(client.protocol);
    let (protocol, serial) = (client.protocol, client.id.serial);
    let is_following = context.engine().is_following();
    Ok(server_description(protocol, serial, context.settings(), is_following))
}

fn protocol(version: &[u8]) -> Result<Protocol, Error> {
    match integer(version) {
        Ok(2) => Ok(Protocol::Resp2),
        Ok(3) => Ok(Protocol::Resp3),
        Ok(_) => Err(Error::line("NOPROTO unsupported protocol version")),
        Err(_) => Err(Error::line("ERR Protocol version is not an integer or out of range")),
    }
}

fn server_description(
    protocol: Protocol,
    serial: u64,
    settings: &Settings,
    is_following: bool,
) -> Reply {
    let version = match protocol {
        Protocol::Resp2 => 2,
        Protocol::Resp3 => 3,
    };
    let mode = settings.mode();
    let (server, server_version) = settings.compat_version.introduction();
    let mut pairs = vec![
        ("server", Reply::bulk(server)),
        ("version", Reply::bulk(server_version)),
        ("proto", Reply::Integer(version)),
        ("id", super::number(serial)),
        ("mode", Reply::bulk(mode.name())),
    ];
    if mode != Mode::Sentinel {
        pairs.push(("role", Reply::bulk(if is_following { "replica" } else { "master" })));
    }
    pairs.push(("modules", Reply::Array(Vec::new())));
    super::map(pairs)
}

#[cfg(test)]
mod tests {
    use crate::settings::{Secret, Settings};
    use crate::testing::{Stage, check};

    fn guarded() -> Stage {
        let mut settings = Settings::default();
        settings.requirepass = Some(Secret::new("open sesame"));
        Stage::new(settings)
    }

    const WRONG: &str = "!WRONGPASS invalid username-password pair or user is disabled.";

    #[test]
    fn hello_describes_the_server() {
        check(
            "HELLO => [\"server\", \"redis\", \"version\", \"7.2.4\", \"proto\", 2, \"id\", 1, \
             \"mode\", \"standalone\", \"role\", \"master\", \"modules\", []]",
        );
        check("HELLO 3 SETNAME me => {\"server\": \"redis\", ...; CLIENT GETNAME => \"me\"");
        check("HELLO 3; GET k => nil; HELLO 2; EXEC => !ERR EXEC without MULTI");
    }

    #[test]
    fn password_is_required() {
        let mut stage = guarded();
        stage.check("PING => !NOAUTH Authentication required.");
        stage.check("FOO => !ERR unknown command 'FOO', ...");
        stage.check("GET => !ERR wrong number of arguments for 'get' command");
        stage.check("HELLO 3 => !NOAUTH HELLO must be called with the client already ...");
        stage.check(&format!("AUTH x => {WRONG}; AUTH other \"open sesame\" => {WRONG}"));
        stage.check("PING => !NOAUTH ...; AUTH \"open sesame\" => OK; PING => PONG");
        stage.check("b> HELLO 3 AUTH default \"open sesame\" => {...; b> PING => PONG");
        stage.check(
            "AUTH wrong => !WRONGPASS ...; PING => PONG; RESET => RESET; PING => !NOAUTH ...",
        );
        stage.check("QUIT => OK");
    }

    #[test]
    fn reset_restores_the_initial_state() {
        check(
            "CLIENT SETNAME n; HELLO 3; SELECT 3; RESET; CLIENT GETNAME => nil; SET k v; \
               SELECT 0; GET k => \"v\"",
        );
        check("MULTI; RESET => RESET; EXEC => !ERR EXEC without MULTI");
        check("SUBSCRIBE c; RESET; GET k => nil; b> PUBLISH c m => 0");
        check("WATCH k; RESET; b> SET k v; MULTI; GET k; EXEC => [\"v\"]");
        check("CLIENT REPLY OFF; PING => ; RESET => RESET; PING => PONG");
    }
}
