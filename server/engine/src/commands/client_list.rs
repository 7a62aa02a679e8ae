//! `CLIENT LIST`, `CLIENT INFO` and `CLIENT KILL`: describe the clients and select some of them.

use bytes::Bytes;
use lockwheel_resp::{Protocol, Reply};

use crate::Engine;
use crate::acl::Users;
use crate::command::{integer, is};
use crate::commands::client::yes_or_no;
use crate::commands::tracking;
use crate::error::Error;
use crate::run::context::Context;
use crate::sessions::buffers::BufferSizes;
use crate::sessions::tracking::Mode;
use crate::sessions::{ClientId, Close, Session};
use crate::timing::time::Time;

/// The `TYPE` of a client; this server has two.
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

    fn of(client: &Session) -> Type {
        if client.is_subscriber() { Type::Subscriber } else { Type::Normal }
    }
}

/// `CLIENT INFO`: replies with the line of the caller.
pub(super) fn info(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    Ok(super::text(line(context.client(), &Request::of(context, argv))))
}

/// The request that is replied to with the lines.
struct Request {
    client: ClientId,
    argument_bytes: usize,
    /// The sizes of the buffers when the request was read, if it came from a connection.
    buffers: Option<BufferSizes>,
    time: Time,
}

impl Request {
    fn of(context: &Context<'_>, argv: &[&[u8]]) -> Request {
        let argument_bytes = argv.iter().map(|argument| argument.len()).sum();
        let Context { client, time, .. } = *context;
        let buffers =
            context.engine().requests_of.filter(|(of, _)| *of == client).map(|(_, sizes)| sizes);
        Request { client, argument_bytes, buffers, time }
    }
}

impl Engine {
    /// The line of a client in `CLIENT LIST`, for the log of the server.
    pub fn client_line(&self, client: ClientId, time: Time) -> Option<String> {
        let request = Request { client, argument_bytes: 0, buffers: None, time };
        let line = line(self.sessions.get(client)?, &request);
        Some(line.trim_end().to_owned())
    }
}

/// `CLIENT LIST`: replies with a line for each client.
pub(super) fn list(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let clients = &context.engine().sessions;
    let all_clients = clients.clients.in_order();
    let request = Request::of(context, argv);
    let chosen: Vec<ClientId> = match &argv[2..] {
        [] => all_clients,
        [option, kind] if is(option, "type") => {
            let kind = Type::named(kind)?;
            let fits = |id: &ClientId| clients.get(*id).is_some_and(|c| Type::of(c) == kind);
            all_clients.into_iter().filter(fits).collect()
        }
        [option, serials @ ..] if is(option, "id") && !serials.is_empty() => {
            let mut chosen = Vec::new();
            for serial in serials {
                let serial = integer(serial).map_err(|_| Error::line("ERR Invalid client ID"))?;
                let is_it = |id: &&ClientId| u64::try_from(serial) == Ok(id.serial);
                chosen.extend(all_clients.iter().find(is_it));
            }
            chosen
        }
        _ => return Err(Error::Syntax),
    };
    let lines = chosen.iter().filter_map(|&id| clients.get(id));
    Ok(super::text(lines.map(|client| line(client, &request)).collect::<String>()))
}

/// The line of a client in `CLIENT LIST`.
fn line(client: &Session, request: &Request) -> String {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let seconds_since = |then: i64| (request.time.now.0 - then).max(0) / 1000;
    let transaction = client.transaction.as_ref();
    let counted = client.buffers.sizes();
    let is_caller = client.id == request.client;
    let running_bytes = if is_caller { request.argument_bytes } else { 0 };
    let buffers = request.buffers.filter(|_| is_caller).unwrap_or(counted);
    let memory_bytes = client.memory_bytes() - counted.total() + buffers.total();
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
        ("multi", transaction.map_or("-1".to_owned(), |t| t.queue.len().to_string())),
        ("qbuf", buffers.input.to_string()),
        ("qbuf-free", buffers.input_free.to_string()),
        ("argv-mem", (buffers.arguments + running_bytes).to_string()),
        ("multi-mem", transaction.map_or(0, |t| t.argument_bytes).to_string()),
        ("rbs", buffers.reply_room.to_string()),
        ("rbp", buffers.reply_room.to_string()),
        ("obl", buffers.reply.to_string()),
        ("oll", buffers.chunks.to_string()),
        ("omem", (buffers.chunk_bytes + client.pending.len()).to_string()),
        ("tot-mem", (memory_bytes + client.pending.len() + running_bytes).to_string()),
        ("events", "r".to_owned()),
        ("cmd", client.last_command.to_owned()),
        ("user", String::from_utf8_lossy(client.identity.user_name()).into_owned()),
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

fn flag_letters(client: &Session) -> String {
    let tracking = client.tracking.as_ref();
    let letters: String = [
        ('O', client.is_monitor),
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

/// The clients that `CLIENT KILL` closes.
#[derive(Debug, Default)]
struct Filter<'a> {
    serial: Option<u64>,
    kind: Option<Type>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    user: Option<&'a [u8]>,
    spares_caller: bool,
}

impl<'a> Filter<'a> {
    fn parse(options: &[&'a [u8]], users: &Users) -> Result<Filter<'a>, Error> {
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
                filter.user = Some(value);
                if users.get(value).is_none() {
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

    fn admits(&self, client: &Session, caller: ClientId) -> bool {
        self.serial.is_none_or(|serial| serial == client.id.serial)
            && self.kind.is_none_or(|kind| kind == Type::of(client))
            && self.address.is_none_or(|address| address == client.origin.address.as_bytes())
            && self.local_address.is_none_or(|a| a == client.origin.local_address.as_bytes())
            && self.user.is_none_or(|user| user == client.identity.user_name())
            && !(self.spares_caller && client.id == caller)
    }
}

/// `CLIENT KILL`: replies with OK for an address, else with the number of closed connections.
pub(super) fn kill(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    if let &[_, _, address] = argv {
        let filter = Filter { address: Some(address), ..Filter::default() };
        return match kill_matching(context, &filter) {
            0 => Err(Error::line("ERR No such client")),
            _ => Ok(Reply::OK),
        };
    }
    let filter = Filter::parse(&argv[2..], context.users())?;
    Ok(Reply::from(kill_matching(context, &filter)))
}

fn kill_matching(context: &mut Context<'_>, filter: &Filter<'_>) -> usize {
    let caller = context.client;
    context.close_clients(|client| filter.admits(client, caller))
}

#[cfg(test)]
mod tests {
    use crate::Flow;
    use crate::sessions::{ClientId, Origin};
    use crate::settings::Settings;
    use crate::testing::{Stage, check, words};
    use crate::timing::time::{Millis, Time};

    #[test]
    fn line_has_the_fields_of_redis() {
        check(
            "SELECT 2; WATCH k; MULTI; b> SELECT 2; b> SET k v; +2500ms; b> CLIENT LIST ID 1 => \
             \"id=1 addr= laddr= fd=0 name= age=2 idle=2 flags=xd db=2 sub=0 psub=0 ssub=0 \
             multi=0 qbuf=0 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=0 omem=0 \
             tot-mem=1154 events=r cmd=multi user=default redir=-1 resp=2 lib-name= lib-ver=\\n\"",
        );
        check("CLIENT NO-EVICT ON; CLIENT NO-TOUCH ON; CLIENT INFO => ...flags=eT ...");
        check(
            "HELLO 3; SUBSCRIBE a b; PSUBSCRIBE p; CLIENT INFO => \
               ...flags=P db=0 sub=2 psub=1 ... cmd=client|info ... resp=3...",
        );
    }

    #[test]
    fn list_selects_clients() {
        check(
            "PING; b> PING; c> SUBSCRIBE x; CLIENT LIST TYPE pubsub => \"id=3 ...\"; \
               CLIENT LIST ID 2 99 1 => \"id=2 ...\\nid=1 ...\"; \
               CLIENT LIST => \"id=1 ...\\nid=2 ...\\nid=3 ...\"",
        );
        check("CLIENT LIST ID x => !ERR Invalid client ID; CLIENT LIST ID 0 => \"\"");
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
    fn other_clients_are_killed() {
        for (command, reply) in [
            ("CLIENT KILL 10.0.0.1:5", "OK"),
            ("CLIENT KILL ADDR 10.0.0.1:5", "1"),
            ("CLIENT KILL ID 1", "1"),
            ("CLIENT KILL TYPE normal LADDR 127.0.0.1:6379 USER default", "1"),
        ] {
            let mut stage = Stage::new(Settings::default());
            let victim = connect(&mut stage, "10.0.0.1:5");
            stage.run(victim, &words("SUBSCRIBE c"));
            stage.run(victim, &words("UNSUBSCRIBE c"));
            stage.check(&format!("{command} => {reply}"));
            assert!(stage.engine.sessions.get(victim).is_none(), "{command}");
            let closed =
                stage.engine.deliveries().iter().any(|d| d.client == victim && d.close.is_some());
            assert!(closed, "{command}");
            assert_eq!(stage.run(victim, &words("PING")), (String::new(), Flow::Close));
        }
    }

    #[test]
    fn caller_is_killed_last() {
        for command in ["CLIENT KILL ID 1 SKIPME no", "MULTI; CLIENT KILL ID 1 SKIPME no; EXEC"] {
            let mut stage = Stage::new(Settings::default());
            let client = stage.client("a");
            let flows: Vec<Flow> =
                command.split("; ").map(|step| stage.run(client, &words(step)).1).collect();
            assert_eq!(flows.last(), Some(&Flow::Close), "{command}");
        }
        check("CLIENT KILL ID 1 => 0; CLIENT KILL ID 1 SKIPME yes => 0; PING => PONG");
        check("CLIENT KILL MAXAGE 1 => !ERR syntax error");
    }
}
