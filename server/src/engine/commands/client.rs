//! `CLIENT`: what a connection says of itself, and what it may do to others.

use bytes::Bytes;
use leasehold_resp::{Protocol, Reply};

use crate::engine::Engine;
use crate::engine::client::{Client, ClientId, Close, ReplyMode};
use crate::engine::command::{Arity, Categories, Command, Flags, Group};
use crate::engine::commands::tracking;
use crate::engine::context::{Context, integer, is};
use crate::engine::error::Error;
use crate::engine::time::Time;
use crate::engine::tracking::Mode;

const ANYWHERE: Flags = Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE);

/// Subcommands about the caller.
pub(super) const OWN: Command = Command {
    group: Group::Connection,
    categories: Categories::CONNECTION,
    flags: ANYWHERE,
    ..Command::BASE
};

/// Subcommands about others.
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
    Command {
        name: "help",
        arity: Arity::Exactly(2),
        flags: Flags::LOADING.union(Flags::STALE),
        since: "5.0.0",
        doc: "Lists the subcommands.",
        example: "CLIENT HELP => [CLIENT <subcommand> ...]",
        run: |_, _| Ok(super::help("CLIENT", HELP)),
        ..OWN
    },
    Command {
        name: "id",
        arity: Arity::Exactly(2),
        since: "5.0.0",
        doc: "Returns the number of the connection, which no other ever has.",
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
        run: info,
        ..OWN
    },
    Command {
        name: "kill",
        arity: Arity::AtLeast(3),
        since: "2.4.0",
        complexity: "O(N) in the number of connections",
        doc: "Closes connections: the one at an address, or all that fit every filter.",
        example: "CLIENT KILL ID 99 => 0",
        run: kill,
        ..OTHERS
    },
    Command {
        name: "list",
        arity: Arity::AtLeast(2),
        since: "2.4.0",
        complexity: "O(N) in the number of connections",
        doc: "Describes connections, each in a line.",
        tips: &["nondeterministic_output"],
        example: "CLIENT LIST TYPE replica => \"\"",
        run: list,
        ..OTHERS
    },
    Command {
        name: "no-evict",
        arity: Arity::Exactly(3),
        since: "7.0.0",
        doc: "Keeps the connection from being closed to save memory.",
        example: "CLIENT NO-EVICT ON => OK",
        run: no_evict,
        ..OTHERS
    },
    Command {
        name: "no-touch",
        arity: Arity::Exactly(3),
        since: "7.2.0",
        doc: "Lets the connection look at keys without their counting as used.",
        example: "CLIENT NO-TOUCH ON => OK",
        run: no_touch,
        ..OWN
    },
    Command {
        name: "pause",
        arity: Arity::AtLeast(3),
        since: "2.9.50",
        doc: "Keeps commands, or those that write, waiting for some milliseconds.",
        example: "CLIENT PAUSE 10 WRITE => OK",
        run: pause,
        ..OTHERS
    },
    Command {
        name: "reply",
        arity: Arity::Exactly(3),
        since: "3.2.0",
        doc: "Chooses whether commands are answered: all, none, or all but the next.",
        example: "CLIENT REPLY ON => OK",
        run: reply,
        ..OWN
    },
    Command {
        name: "setinfo",
        arity: Arity::Exactly(4),
        since: "7.2.0",
        doc: "Tells which library speaks on the connection, or its version.",
        tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
        example: "CLIENT SETINFO LIB-NAME redis-rs => OK",
        run: setinfo,
        ..OWN
    },
    Command {
        name: "setname",
        arity: Arity::Exactly(3),
        since: "2.6.9",
        doc: "Names the connection.",
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

const HELP: &[&str] = &[
    "CACHING (YES|NO)",
    "    Makes the next command an exception to what tracking remembers.",
    "GETNAME",
    "    Returns the name of the connection.",
    "GETREDIR",
    "    Returns the number of the connection that is told what this one tracks.",
    "ID",
    "    Returns the number of the connection.",
    "INFO",
    "    Describes the connection.",
    "KILL (<ip:port>|<filter> <value> [<filter> <value> [...]])",
    "    Closes the connection from that address, or those that fit all filters:",
    "    ID <id>, ADDR <ip:port>, LADDR <ip:port>, TYPE (NORMAL|MASTER|REPLICA|PUBSUB),",
    "    USER <name>, SKIPME (YES|NO), which spares the caller and is YES if not given.",
    "LIST [TYPE (NORMAL|MASTER|REPLICA|PUBSUB)|ID <id> [<id> ...]]",
    "    Describes connections.",
    "NO-EVICT (ON|OFF)",
    "    Keeps the connection from being closed to save memory.",
    "NO-TOUCH (ON|OFF)",
    "    Lets keys be looked at without counting as used.",
    "PAUSE <milliseconds> [ALL|WRITE]",
    "    Keeps commands waiting.",
    "REPLY (ON|OFF|SKIP)",
    "    Chooses whether commands are answered.",
    "SETINFO (LIB-NAME|LIB-VER) <value>",
    "    Tells which library speaks.",
    "SETNAME <name>",
    "    Names the connection.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
    "         [OPTIN] [OPTOUT] [NOLOOP]",
    "    Lets the connection be told when keys change.",
    "TRACKINGINFO",
    "    Tells how the connection tracks keys.",
    "UNBLOCK <id> [TIMEOUT|ERROR]",
    "    Ends the wait of a connection.",
    "UNPAUSE",
    "    Ends a pause.",
];

// --- of itself ---

fn id(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    Ok(super::number(context.client.serial))
}

fn getname(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    let name = &context.client().name;
    Ok(if name.is_empty() { Reply::Null } else { Reply::Bulk(name.clone()) })
}

fn setname(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    context.client_mut().name = checked_name(argv[2])?;
    Ok(Reply::OK)
}

/// A name for a connection, which must not break a line of `CLIENT LIST` apart.
pub(super) fn checked_name(name: &[u8]) -> Result<Bytes, Error> {
    if is_word(name) {
        return Ok(Bytes::copy_from_slice(name));
    }
    Err(Error::line("ERR Client names cannot contain spaces, newlines or special characters."))
}

fn is_word(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_graphic)
}

fn setinfo(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (attribute, value) = (argv[2], argv[3]);
    let spelled = String::from_utf8_lossy(attribute);
    let client = context.client_mut();
    let place = if is(attribute, "lib-name") {
        &mut client.library_name
    } else if is(attribute, "lib-ver") {
        &mut client.library_version
    } else {
        return Err(Error::text(format!("ERR Unrecognized option '{spelled}'")));
    };
    if !is_word(value) {
        return Err(Error::text(format!(
            "ERR {spelled} cannot contain spaces, newlines or special characters."
        )));
    }
    *place = Bytes::copy_from_slice(value);
    Ok(Reply::OK)
}

fn no_evict(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    context.client_mut().no_evict = on_or_off(argv[2])?;
    Ok(Reply::OK)
}

fn no_touch(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    context.client_mut().no_touch = on_or_off(argv[2])?;
    Ok(Reply::OK)
}

pub(super) fn on_or_off(word: &[u8]) -> Result<bool, Error> {
    match () {
        () if is(word, "on") => Ok(true),
        () if is(word, "off") => Ok(false),
        () => Err(Error::Syntax),
    }
}

fn reply(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let mode = argv[2];
    let client = context.client_mut();
    if is(mode, "on") {
        client.reply_mode = ReplyMode::On;
        return Ok(Reply::OK);
    } else if is(mode, "off") {
        client.reply_mode = ReplyMode::Off;
    } else if is(mode, "skip") {
        if client.reply_mode != ReplyMode::Off {
            client.reply_mode = ReplyMode::SkipNext;
        }
    } else {
        return Err(Error::Syntax);
    }
    Ok(Reply::NOTHING)
}

// --- of all ---

/// `TYPE`, of which this server has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Normal,
    Master,
    Replica,
    Subscriber,
}

impl Type {
    fn named(name: &[u8]) -> Result<Type, Error> {
        [
            ("normal", Type::Normal),
            ("master", Type::Master),
            ("replica", Type::Replica),
            ("slave", Type::Replica),
            ("pubsub", Type::Subscriber),
        ]
        .into_iter()
        .find_map(|(word, kind)| is(name, word).then_some(kind))
        .ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            Error::text(format!("ERR Unknown client type '{name}'"))
        })
    }

    fn of(client: &Client) -> Type {
        if client.is_subscriber() { Type::Subscriber } else { Type::Normal }
    }
}

fn info(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    Ok(super::text(line(context.client(), context.time)))
}

fn list(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let everyone = context.engine.clients.in_order();
    let clients = &context.engine.clients;
    let chosen: Vec<ClientId> = match &argv[2..] {
        [] => everyone,
        [option, kind] if is(option, "type") => {
            let kind = Type::named(kind)?;
            let fits = |id: &ClientId| clients.get(*id).is_some_and(|c| Type::of(c) == kind);
            everyone.into_iter().filter(fits).collect()
        }
        [option, serials @ ..] if is(option, "id") && !serials.is_empty() => {
            let mut chosen = Vec::new();
            for serial in serials {
                let serial = integer(serial).map_err(|_| Error::line("ERR Invalid client ID"))?;
                let is_it = |id: &&ClientId| u64::try_from(serial) == Ok(id.serial);
                chosen.extend(everyone.iter().find(is_it));
            }
            chosen
        }
        _ => return Err(Error::Syntax),
    };
    let lines = chosen.iter().filter_map(|&id| clients.get(id));
    Ok(super::text(lines.map(|client| line(client, context.time)).collect::<String>()))
}

/// A client as `CLIENT LIST` shows it. Buffers of sockets are not known here and shown as empty.
fn line(client: &Client, time: Time) -> String {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let seconds_since = |then: i64| (time.now.0 - then).max(0) / 1000;
    let queue = client.transaction.as_ref().map(|transaction| &transaction.queue);
    let queued_bytes: usize = queue
        .into_iter()
        .flatten()
        .flat_map(|queued| &queued.argv)
        .map(|argument| argument.len())
        .sum();
    let pairs: [(&str, String); 28] = [
        ("id", client.id.serial.to_string()),
        ("addr", client.origin.address.clone()),
        ("laddr", client.origin.local_address.clone()),
        ("fd", client.origin.descriptor.to_string()),
        ("name", text(&client.name)),
        ("age", seconds_since(client.connected_at.0).to_string()),
        ("idle", seconds_since(client.active_at.0).to_string()),
        ("flags", flag_letters(client)),
        ("db", client.database.to_string()),
        ("sub", client.channels.len().to_string()),
        ("psub", client.patterns.len().to_string()),
        ("ssub", client.shard_channels.len().to_string()),
        ("multi", queue.map_or("-1".to_owned(), |queue| queue.len().to_string())),
        ("qbuf", "0".to_owned()),
        ("qbuf-free", "0".to_owned()),
        ("argv-mem", "0".to_owned()),
        ("multi-mem", queued_bytes.to_string()),
        ("rbs", "0".to_owned()),
        ("rbp", "0".to_owned()),
        ("obl", "0".to_owned()),
        ("oll", "0".to_owned()),
        ("omem", client.pending.len().to_string()),
        ("tot-mem", (client.pending.len() + queued_bytes).to_string()),
        ("events", "r".to_owned()),
        ("cmd", client.last_command.to_owned()),
        ("user", "default".to_owned()),
        ("redir", tracking::redirect_number(client).to_string()),
        ("resp", if client.protocol == Protocol::Resp3 { "3" } else { "2" }.to_owned()),
    ];
    let mut line = String::new();
    for (name, value) in pairs {
        line.extend([name, "=", &value, " "]);
    }
    let (name, version) = (text(&client.library_name), text(&client.library_version));
    line + &format!("lib-name={name} lib-ver={version}\n")
}

fn flag_letters(client: &Client) -> String {
    let tracking = client.tracking.as_ref();
    let letters: String = [
        ('P', client.is_subscriber()),
        ('t', tracking.is_some()),
        ('R', tracking.is_some_and(|tracking| tracking.broken_redirect)),
        ('B', tracking.is_some_and(|tracking| tracking.mode == Mode::Broadcast)),
        ('x', client.transaction.is_some()),
        ('b', client.blocked.is_some()),
        ('d', client.watch_broken),
        ('c', client.close == Some(Close::AfterReplies)),
        ('U', client.origin.unix),
        ('r', client.read_only),
        ('e', client.no_evict),
        ('T', client.no_touch),
    ]
    .into_iter()
    .filter_map(|(letter, holds)| holds.then_some(letter))
    .collect();
    if letters.is_empty() { "N".to_owned() } else { letters }
}

// --- to others ---

/// Which clients `CLIENT KILL` is for.
#[derive(Debug, Default)]
struct Filter<'a> {
    serial: Option<u64>,
    kind: Option<Type>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    spares_caller: bool,
}

impl<'a> Filter<'a> {
    fn parse(options: &[&'a [u8]]) -> Result<Filter<'a>, Error> {
        let mut filter = Filter { spares_caller: true, ..Filter::default() };
        for option in options.chunks(2) {
            let &[name, value] = option else { return Err(Error::Syntax) };
            if is(name, "id") {
                let serial = integer(value).ok().filter(|&serial| serial > 0);
                let Some(serial) = serial.and_then(|serial| u64::try_from(serial).ok()) else {
                    return Err(Error::line("ERR client-id should be greater than 0"));
                };
                filter.serial = Some(serial);
            } else if is(name, "type") {
                filter.kind = Some(Type::named(value)?);
            } else if is(name, "addr") {
                filter.address = Some(value);
            } else if is(name, "laddr") {
                filter.local_address = Some(value);
            } else if is(name, "user") {
                // Every client is that user, so only others filter anything.
                if value != b"default" {
                    let user = String::from_utf8_lossy(value);
                    return Err(Error::text(format!("ERR No such user '{user}'")));
                }
            } else if is(name, "skipme") {
                filter.spares_caller = yes_or_no(value)?;
            } else {
                return Err(Error::Syntax);
            }
        }
        Ok(filter)
    }

    fn admits(&self, client: &Client, caller: ClientId) -> bool {
        self.serial.is_none_or(|serial| serial == client.id.serial)
            && self.kind.is_none_or(|kind| kind == Type::of(client))
            && self.address.is_none_or(|address| address == client.origin.address.as_bytes())
            && self.local_address.is_none_or(|a| a == client.origin.local_address.as_bytes())
            && !(self.spares_caller && client.id == caller)
    }
}

pub(super) fn yes_or_no(word: &[u8]) -> Result<bool, Error> {
    match () {
        () if is(word, "yes") => Ok(true),
        () if is(word, "no") => Ok(false),
        () => Err(Error::Syntax),
    }
}

fn kill(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    if let &[_, _, address] = argv {
        let filter = Filter { address: Some(address), ..Filter::default() };
        return match kill_matching(context.engine, context.client, &filter) {
            0 => Err(Error::line("ERR No such client")),
            _ => Ok(Reply::OK),
        };
    }
    let filter = Filter::parse(&argv[2..])?;
    Ok(Reply::from(kill_matching(context.engine, context.client, &filter)))
}

fn kill_matching(engine: &mut Engine, caller: ClientId, filter: &Filter<'_>) -> usize {
    let mut victims = engine.clients.in_order();
    victims.retain(|&id| engine.clients.get(id).is_some_and(|c| filter.admits(c, caller)));
    for &victim in &victims {
        if victim != caller {
            engine.kill(victim);
        } else if let Some(client) = engine.clients.get_mut(caller) {
            client.close = Some(Close::AfterReplies);
        }
    }
    victims.len()
}

fn pause(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let writes_only = match argv {
        [_, _, _] => false,
        [_, _, _, mode] if is(mode, "all") => false,
        [_, _, _, mode] if is(mode, "write") => true,
        [_, _, _, _] => {
            return Err(Error::line("ERR CLIENT PAUSE mode must be WRITE or ALL"));
        }
        _ => return Err(unknown_form(argv)),
    };
    let until = super::timeout(context.time, argv[2])?.unwrap_or(context.time.now);
    context.engine.start_pause(until, writes_only);
    Ok(Reply::OK)
}

fn unpause(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    context.engine.unpause();
    Ok(Reply::OK)
}

fn unblock(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let with_error = match argv {
        [_, _, _] => false,
        [_, _, _, how] if is(how, "timeout") => false,
        [_, _, _, how] if is(how, "error") => true,
        [_, _, _, _] => {
            return Err(Error::line("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
        _ => return Err(unknown_form(argv)),
    };
    let serial = integer(argv[2])?;
    let engine = &mut *context.engine;
    let waiter = u64::try_from(serial).ok().and_then(|serial| engine.clients.by_serial(serial));
    let blocked = waiter.and_then(|id| engine.clients.get(id)?.blocked.as_ref());
    let (Some(waiter), true) = (waiter, blocked.is_some_and(|blocked| blocked.command.is_some()))
    else {
        return Ok(Reply::Integer(0));
    };
    if with_error {
        let line = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
        engine.unblock(waiter, &Reply::error(line));
    } else {
        engine.end_wait(waiter);
    }
    Ok(Reply::Integer(1))
}

/// What Redis says where a subcommand has forms and none of them has so many arguments.
fn unknown_form(argv: &[&[u8]]) -> Error {
    let name = String::from_utf8_lossy(argv[1]);
    Error::text(format!(
        "ERR unknown subcommand or wrong number of arguments for '{name}'. Try CLIENT HELP."
    ))
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use crate::engine::Flow;
    use crate::engine::client::{ClientId, Origin};
    use crate::engine::testing::{Stage, check, words};
    use crate::engine::time::{Millis, Time};

    #[test]
    fn names() {
        check("CLIENT GETNAME => nil; CLIENT SETNAME n => OK; CLIENT GETNAME => \"n\"");
        check("CLIENT SETNAME n; CLIENT SETNAME \"\" => OK; CLIENT GETNAME => nil");
        check(
            "CLIENT SETNAME \"a b\" => \
             !ERR Client names cannot contain spaces, newlines or special characters.",
        );
        check(
            "CLIENT SETINFO LIB-NAME me; CLIENT SETINFO lib-ver 1.2 => OK; \
               CLIENT INFO => ...lib-name=me lib-ver=1.2\\n\"",
        );
        check("CLIENT SETINFO foo x => !ERR Unrecognized option 'foo'");
        check(
            "CLIENT SETINFO Lib-Name \"a b\" => \
             !ERR Lib-Name cannot contain spaces, newlines or special characters.",
        );
        check("CLIENT FOO => !ERR unknown subcommand 'FOO'. Try CLIENT HELP.");
        check("CLIENT => !ERR wrong number of arguments for 'client' command");
    }

    #[test]
    fn a_line_of_the_list() {
        check(
            "SELECT 2; WATCH k; MULTI; b> SELECT 2; b> SET k v; +2500ms; b> CLIENT LIST ID 1 => \
             \"id=1 addr= laddr= fd=0 name= age=2 idle=2 flags=xd db=2 sub=0 psub=0 ssub=0 \
             multi=0 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 \
             tot-mem=0 events=r cmd=multi user=default redir=-1 resp=2 lib-name= lib-ver=\\n\"",
        );
        check("CLIENT NO-EVICT ON; CLIENT NO-TOUCH ON; CLIENT INFO => ...flags=eT ...");
        check(
            "HELLO 3; SUBSCRIBE a b; PSUBSCRIBE p; CLIENT INFO => \
               ...flags=P db=0 sub=2 psub=1 ... cmd=client|info ... resp=3...",
        );
    }

    #[test]
    fn lists() {
        check(
            "PING; b> PING; c> SUBSCRIBE x; CLIENT LIST TYPE pubsub => \"id=3 ...\"; \
               CLIENT LIST ID 2 99 1 => \"id=2 ...\\nid=1 ...\"; \
               CLIENT LIST => \"id=1 ...\\nid=2 ...\\nid=3 ...\"",
        );
        check("CLIENT LIST TYPE x => !ERR Unknown client type 'x'");
        check("CLIENT LIST TYPE => !ERR syntax error; CLIENT LIST ID => !ERR syntax error");
        check("CLIENT LIST ID x => !ERR Invalid client ID; CLIENT LIST ID 0 => \"\"");
    }

    #[test]
    fn replies_are_left_out() {
        check("CLIENT REPLY OFF => ; PING => ; CLIENT REPLY ON => OK; PING => PONG");
        check("CLIENT REPLY SKIP => ; PING => ; PING => PONG");
        check("CLIENT REPLY SKIP; CLIENT REPLY SKIP => ; PING => ; PING => PONG");
        check("CLIENT REPLY SKIP; CLIENT REPLY ON => OK");
        check("CLIENT REPLY OFF; CLIENT REPLY SKIP; PING => ; PING => ");
        check("CLIENT REPLY OFF; SUBSCRIBE c => [\"subscribe\", \"c\", 1]");
        check("CLIENT REPLY x => !ERR syntax error");
        check("CLIENT REPLY OFF; WAIT 1 10; +10ms; a< => ; CLIENT REPLY ON => OK");
        check("b> CLIENT PAUSE 10; CLIENT REPLY SKIP; +10ms; PING => PONG");
    }

    #[test]
    fn a_skipped_reply_stays_skipped_over_a_pause() {
        let mut stage = Stage::new(Config::default());
        stage.check("CLIENT REPLY SKIP; b> CLIENT PAUSE 10");
        let client = stage.client("a");
        assert_eq!(stage.run(client, &words("PING")), (String::new(), Flow::Again));
        stage.check("+10ms; PING => ; PING => PONG");
    }

    #[test]
    fn a_pause_holds_back() {
        let mut stage = Stage::new(Config::default());
        stage.check("CLIENT PAUSE 100 WRITE => OK; GET k => nil; PING => PONG; MULTI => OK");
        let client = stage.client("b");
        for command in ["SET k v", "PUBLISH c m", "EVAL \"return 1\" 0"] {
            let flow = stage.run(client, &words(command)).1;
            assert_eq!(flow, Flow::Again, "{command}");
            assert!(stage.engine.clients.get(client).is_some_and(|c| c.blocked.is_some()));
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
    fn a_pause_of_all_spares_nothing() {
        let mut stage = Stage::new(Config::default());
        stage.check("CLIENT PAUSE 100; b> FOO => !ERR unknown command ...");
        let client = stage.client("b");
        for command in ["PING", "CLIENT UNPAUSE", "QUIT"] {
            assert_eq!(stage.run(client, &words(command)).1, Flow::Again, "{command}");
        }
        stage.check("+100ms; b> PING => PONG");
    }

    #[test]
    fn a_queued_write_waits_at_exec() {
        let mut stage = Stage::new(Config::default());
        stage.check("MULTI; SET k v => QUEUED; b> CLIENT PAUSE 100 WRITE");
        let client = stage.client("a");
        assert_eq!(stage.run(client, &words("EXEC")).1, Flow::Again);
        stage.check("b> CLIENT UNPAUSE => OK; EXEC => [OK]");
    }

    #[test]
    fn pauses_join() {
        check(
            "CLIENT PAUSE 100 WRITE; CLIENT PAUSE 10 WRITE; +99ms; CLIENT UNPAUSE; SET k v => OK",
        );
        let mut stage = Stage::new(Config::default());
        stage.check("CLIENT PAUSE 100 WRITE; CLIENT PAUSE 10 WRITE; +99ms");
        let client = stage.client("a");
        assert_eq!(stage.run(client, &words("SET k v")).1, Flow::Again);
        stage.check("+1ms; SET k v => OK; CLIENT PAUSE 0 WRITE; SET k v => OK");
        check("CLIENT PAUSE x => !ERR timeout is not an integer or out of range");
        check("CLIENT PAUSE -1 => !ERR timeout is negative");
        check("CLIENT PAUSE 9223372036854775807 => !ERR timeout is out of range");
        check("CLIENT PAUSE 0 x => !ERR CLIENT PAUSE mode must be WRITE or ALL");
        check(
            "CLIENT PAUSE 1 WRITE x => !ERR unknown subcommand or wrong number of arguments \
               for 'PAUSE'. Try CLIENT HELP.",
        );
    }

    #[test]
    fn waits_are_ended() {
        check("PING; b> WAIT 1 0 => ; CLIENT UNBLOCK 2 => 1; b< => 0; CLIENT UNBLOCK 2 => 0");
        check(
            "PING; b> WAIT 1 50; CLIENT UNBLOCK 2 ERROR => 1; \
               b< => !UNBLOCKED client unblocked via CLIENT UNBLOCK; +50ms; b< => ",
        );
        check("CLIENT UNBLOCK 99 => 0; CLIENT UNBLOCK x => !ERR value is not an integer ...");
        check("CLIENT UNBLOCK 1 x => !ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
    }

    fn connect(stage: &mut Stage, address: &str) -> ClientId {
        let origin = Origin {
            address: address.to_owned(),
            local_address: "127.0.0.1:6379".to_owned(),
            ..Origin::default()
        };
        stage.engine.connect(origin, Time::at(Millis(0)))
    }

    #[test]
    fn others_are_killed() {
        for (command, reply) in [
            ("CLIENT KILL 10.0.0.1:5", "OK"),
            ("CLIENT KILL ADDR 10.0.0.1:5", "1"),
            ("CLIENT KILL ID 1", "1"),
            ("CLIENT KILL TYPE normal LADDR 127.0.0.1:6379 USER default", "1"),
        ] {
            let mut stage = Stage::new(Config::default());
            let victim = connect(&mut stage, "10.0.0.1:5");
            stage.run(victim, &words("SUBSCRIBE c"));
            stage.run(victim, &words("UNSUBSCRIBE c"));
            stage.check(&format!("{command} => {reply}"));
            assert!(stage.engine.clients.get(victim).is_none(), "{command}");
            let closed =
                stage.engine.deliveries().iter().any(|d| d.client == victim && d.close.is_some());
            assert!(closed, "{command}");
            assert_eq!(stage.run(victim, &words("PING")), (String::new(), Flow::Close));
        }
    }

    #[test]
    fn the_killed_hold_nothing() {
        check("b> SUBSCRIBE c; CLIENT KILL TYPE pubsub => 1; PUBLISH c m => 0");
        check("PING; b> WAIT 1 10; CLIENT KILL ID 2 => 1; CLIENT UNBLOCK 2 => 0; +10ms; b< => ");
    }

    #[test]
    fn the_caller_is_killed_last() {
        for command in ["CLIENT KILL ID 1 SKIPME no", "MULTI; CLIENT KILL ID 1 SKIPME no; EXEC"] {
            let mut stage = Stage::new(Config::default());
            let client = stage.client("a");
            let flows: Vec<Flow> =
                command.split("; ").map(|step| stage.run(client, &words(step)).1).collect();
            assert_eq!(flows.last(), Some(&Flow::Close), "{command}");
        }
        check("CLIENT KILL ID 1 => 0; CLIENT KILL ID 1 SKIPME yes => 0; PING => PONG");
    }

    #[test]
    fn kill_refuses() {
        check("CLIENT KILL a => !ERR No such client; CLIENT KILL a b c => !ERR syntax error");
        check("CLIENT KILL ID 0 => !ERR client-id should be greater than 0");
        check("CLIENT KILL TYPE x => !ERR Unknown client type 'x'");
        check("CLIENT KILL USER x => !ERR No such user 'x'");
        check("CLIENT KILL SKIPME x => !ERR syntax error; CLIENT KILL FOO x => !ERR syntax error");
        check("CLIENT KILL MAXAGE 1 => !ERR syntax error");
    }
}
