//! `SENTINEL`: the addresses of masters, for clients that look for the one to use.
//!
//! A sentinel has the configured masters. It connects to no server: it reports every one of them as
//! alive, and fails none over. A node of a cluster has one master, the node that leads, and shows
//! the other nodes as sentinels.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::LazyLock;

use lockwheel_resp::Reply;

use crate::Engine;
use crate::command::argument as arg;
use crate::command::{Arity, Command, Flags, Group, integer, is};
use crate::error::Error;
use crate::glob;
use crate::replication::nodes::{Address, Follower};
use crate::run::context::Context;
use crate::settings::{Master, OtherSentinel, SetOptionError, directive};

/// The commands that a sentinel has besides this family, by name.
pub const SHARED_COMMANDS: &[&str] = &[
    "acl",
    "auth",
    "client",
    "command",
    "hello",
    "info",
    "ping",
    "psubscribe",
    "publish",
    "punsubscribe",
    "quit",
    "role",
    "shutdown",
    "subscribe",
    "unsubscribe",
];

const SENTINEL: Command =
    Command { group: Group::Sentinel, flags: Flags::ADMIN, since: "2.8.4", ..Command::BASE };

/// The family's rows.
pub const COMMANDS: &[Command] = &[Command {
    name: "sentinel",
    arity: Arity::AtLeast(2),
    complexity: "that of the subcommand",
    doc: "A container for commands about masters.",
    subcommands: SUBCOMMANDS,
    ..SENTINEL
}];

/// The subcommands that a node of a cluster has.
const SUBCOMMANDS_OF_NODE: &[&str] = &[
    "ckquorum",
    "get-master-addr-by-name",
    "help",
    "is-master-down-by-addr",
    "master",
    "masters",
    "myid",
    "replicas",
    "sentinels",
    "slaves",
];

/// The row of `SENTINEL` for a node of a cluster, which replies while it is loading or stale, too.
pub fn of_node() -> &'static Command {
    fn at_any_time(command: &Command) -> Command {
        Command { flags: command.flags | Flags::LOADING | Flags::STALE, ..*command }
    }
    static SUBROWS: LazyLock<Vec<Command>> = LazyLock::new(|| {
        let has = |row: &&Command| SUBCOMMANDS_OF_NODE.contains(&row.name);
        SUBCOMMANDS.iter().filter(has).map(at_any_time).collect()
    });
    static ROW: LazyLock<Command> =
        LazyLock::new(|| Command { subcommands: &SUBROWS, ..at_any_time(&COMMANDS[0]) });
    &ROW
}

const SUBCOMMANDS: &[Command] = &[
    Command {
        name: "ckquorum",
        arity: Arity::Exactly(3),
        doc: "Returns whether enough sentinels monitor a master.",
        arguments: &[arg::string("master-name")],
        example: "SENTINEL MONITOR m 127.0.0.1 1 1; SENTINEL CKQUORUM m => OK 1 usable ...",
        run: quorum,
        ..SENTINEL
    },
    Command {
        name: "config",
        arity: Arity::AtLeast(4),
        since: "6.2.0",
        complexity: "O(N) in the number of options",
        doc: "Returns or changes options of the sentinel itself.",
        arguments: &[arg::one_of(
            "set_or_get",
            &[
                arg::block("set_param_value", &[arg::string("parameter"), arg::string("value")])
                    .token("SET")
                    .multiple(),
                arg::string("parameter").token("GET").multiple(),
            ],
        )],
        example: "SENTINEL CONFIG GET announce-ip => [\"announce-ip\", \"\"]",
        run: config,
        ..SENTINEL
    },
    Command {
        name: "failover",
        arity: Arity::Exactly(3),
        doc: "Would make a replica the master; none is known.",
        arguments: &[arg::string("master-name")],
        example: "SENTINEL FAILOVER m => !ERR No such master with that name",
        run: |context, argv| {
            master(context.engine(), argv[2])?;
            Err(Error::line("NOGOODSLAVE No suitable replica to promote"))
        },
        ..SENTINEL
    },
    Command {
        name: "flushconfig",
        arity: Arity::Exactly(2),
        doc: "Would write the configuration file, which this server never changes.",
        example: "SENTINEL FLUSHCONFIG => !ERR Rewriting config file: not ...",
        run: |_, _| Err(Error::line("ERR Rewriting config file: not supported by this server")),
        ..SENTINEL
    },
    Command {
        name: "get-master-addr-by-name",
        arity: Arity::Exactly(3),
        doc: "Returns the address of a master.",
        arguments: &[arg::string("master-name")],
        example: "SENTINEL MONITOR m 127.0.0.1 6379 1; \
                  SENTINEL GET-MASTER-ADDR-BY-NAME m => [\"127.0.0.1\", \"6379\"]",
        run: get_master_address,
        ..SENTINEL
    },
    super::help_row(SENTINEL, "6.2.0", "SENTINEL HELP => [SENTINEL <subcommand> ...]"),
    Command {
        name: "info-cache",
        arity: Arity::AtLeast(3),
        since: "3.2.0",
        complexity: "O(N) in the number of masters",
        doc: "Would return the cached INFO of masters; there is none.",
        arguments: &[arg::string("nodename").multiple()],
        example: "SENTINEL INFO-CACHE m => []",
        run: info_cache,
        ..SENTINEL
    },
    Command {
        name: "is-master-down-by-addr",
        arity: Arity::Exactly(6),
        doc: "Returns whether this sentinel considers a master down: a node without leader does.",
        arguments: &[
            arg::string("ip"),
            arg::integer("port"),
            arg::integer("current-epoch"),
            arg::string("runid"),
        ],
        example: "SENTINEL IS-MASTER-DOWN-BY-ADDR 127.0.0.1 6379 0 * => [0, \"*\", 0]",
        run: is_master_down,
        ..SENTINEL
    },
    Command {
        name: "master",
        arity: Arity::Exactly(3),
        doc: "Describes a master.",
        arguments: &[arg::string("master-name")],
        example: "SENTINEL MASTER m => !ERR No such master with that name",
        run: |context, argv| Ok(describe(context.engine(), &master(context.engine(), argv[2])?)),
        ..SENTINEL
    },
    Command {
        name: "masters",
        arity: Arity::Exactly(2),
        complexity: "O(N) in the number of masters",
        doc: "Describes all masters.",
        example: "SENTINEL MASTERS => []",
        run: |context, _| {
            let engine = context.engine();
            Ok(Reply::Array(
                masters(engine).iter().map(|master| describe(engine, master)).collect(),
            ))
        },
        ..SENTINEL
    },
    Command {
        name: "monitor",
        arity: Arity::Exactly(6),
        doc: "Adds a master.",
        arguments: &[
            arg::string("name"),
            arg::string("ip"),
            arg::integer("port"),
            arg::integer("quorum"),
        ],
        example: "SENTINEL MONITOR m 127.0.0.1 6379 1 => OK",
        run: monitor,
        ..SENTINEL
    },
    Command {
        name: "myid",
        arity: Arity::Exactly(2),
        since: "6.2.0",
        doc: "Returns the id of this sentinel.",
        example: "SENTINEL MYID => ...",
        run: |context, _| Ok(Reply::bulk(own_id(context.engine()))),
        ..SENTINEL
    },
    Command {
        name: "pending-scripts",
        arity: Arity::Exactly(2),
        doc: "Returns the scripts that wait to be run; there are none.",
        example: "SENTINEL PENDING-SCRIPTS => []",
        run: |_, _| Ok(Reply::Array(Vec::new())),
        ..SENTINEL
    },
    Command {
        name: "remove",
        arity: Arity::Exactly(3),
        doc: "Removes a master.",
        arguments: &[arg::string("master-name")],
        example: "SENTINEL MONITOR m 127.0.0.1 6379 1; SENTINEL REMOVE m => OK",
        run: remove,
        ..SENTINEL
    },
    Command {
        name: "replicas",
        arity: Arity::Exactly(3),
        since: "5.0.0",
        doc: "Describes the replicas of a master: the followers of a node that leads, else none.",
        arguments: &[arg::string("master-name")],
        example: "SENTINEL MONITOR m 127.0.0.1 6379 1; SENTINEL REPLICAS m => []",
        run: replicas,
        ..SENTINEL
    },
    Command {
        name: "reset",
        arity: Arity::Exactly(3),
        complexity: "O(N) in the number of masters",
        doc: "Removes the other sentinels of all masters that match a pattern.",
        arguments: &[arg::pattern("pattern")],
        example: "SENTINEL MONITOR m 127.0.0.1 6379 1; SENTINEL RESET * => 1",
        run: reset,
        ..SENTINEL
    },
    Command {
        name: "sentinels",
        arity: Arity::Exactly(3),
        complexity: "O(N) in the number of sentinels",
        doc: "Describes the other sentinels of a master.",
        arguments: &[arg::string("master-name")],
        example: "SENTINEL MONITOR m 127.0.0.1 6379 1; SENTINEL SENTINELS m => []",
        run: sentinels,
        ..SENTINEL
    },
    Command {
        name: "set",
        arity: Arity::AtLeast(5),
        complexity: "O(N) in the number of options",
        doc: "Changes options of a master.",
        arguments: &[
            arg::string("master-name"),
            arg::block("option_value", &[arg::string("option"), arg::string("value")]).multiple(),
        ],
        example: "SENTINEL MONITOR m 127.0.0.1 6379 1; SENTINEL SET m quorum 2 => OK",
        run: set,
        ..SENTINEL
    },
    Command {
        name: "slaves",
        arity: Arity::Exactly(3),
        doc: "Describes the replicas of a master: the followers of a node that leads, else none.",
        arguments: &[arg::string("master-name")],
        example: "SENTINEL MONITOR m 127.0.0.1 6379 1; SENTINEL SLAVES m => []",
        run: replicas,
        ..SENTINEL
    },
];

/// The masters: those of a sentinel's configuration, or the current or last leader of the cluster.
fn masters(engine: &Engine) -> Cow<'_, [Master]> {
    match (&engine.settings.sentinel, &engine.nodes.last_leader) {
        (Some(sentinel), _) => Cow::Borrowed(&sentinel.masters),
        (None, Some(leader)) => Cow::Owned(vec![master_of_node(engine, leader)]),
        (None, None) => Cow::Borrowed(&[]),
    }
}

/// The leader of the cluster, as in the configuration of a sentinel that monitors it.
fn master_of_node(engine: &Engine, leader: &Address) -> Master {
    let nodes = engine.nodes.followers.len() + usize::from(engine.nodes.leader.is_some());
    let sentinel = |Address { host, port }: &Address, id| OtherSentinel {
        host: host.clone(),
        port: *port,
        id,
    };
    Master {
        host: leader.host.clone(),
        port: leader.port,
        quorum: u32::try_from(nodes / 2 + 1).unwrap_or(u32::MAX),
        sentinels: engine.nodes.others().map(|it| sentinel(it, it.id())).collect(),
        ..Master::named(&engine.settings.get(directive::RAFT_MASTER_NAME))
    }
}

/// Whether the master is a node, and no node leads now.
fn is_down(engine: &Engine) -> bool {
    engine.settings.is_node() && engine.nodes.leader.is_none()
}

/// Whether this node leads and has no contact with the follower at this address.
fn is_cut_off(engine: &Engine, host: &str, port: u16) -> bool {
    let has_address =
        |follower: &Follower| follower.address.host == host && follower.address.port == port;
    let mut followers = engine.nodes.followers.iter();
    followers.any(|follower| has_address(follower) && !follower.is_in_contact)
}

/// The id of this sentinel, under which other sentinels list it.
fn own_id(engine: &Engine) -> String {
    match engine.settings.is_node() {
        true => engine.nodes.own.id(),
        false => engine.node_id.clone(),
    }
}

fn master(engine: &Engine, name: &[u8]) -> Result<Master, Error> {
    let masters = masters(engine);
    let named = masters.iter().find(|master| master.name.as_bytes() == name);
    named.cloned().ok_or(Error::line("ERR No such master with that name"))
}

fn text(argument: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(argument)
}

// --- reading ---

/// `SENTINEL GET-MASTER-ADDR-BY-NAME`: replies with host and port, or nil. A node that has led last
/// and is cut off since is not named: clients ask the next node, which may know the next leader.
fn get_master_address(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let engine = context.engine();
    let Ok(master) = master(engine, argv[2]) else { return Ok(Reply::NullArray) };
    if is_down(engine) && engine.nodes.last_leader.as_ref() == Some(&engine.nodes.own) {
        return Ok(Reply::NullArray);
    }
    Ok(Reply::Array(vec![Reply::bulk(&master.host), Reply::bulk(master.port.to_string())]))
}

/// The fields with which every description begins. Those about `PING` are those of an instance that
/// has just replied.
fn instance(
    name: &str,
    (host, port): (&str, u16),
    id: &str,
    flags: &str,
    down_after_ms: u64,
) -> Vec<(&'static str, String)> {
    vec![
        ("name", name.to_owned()),
        ("ip", host.to_owned()),
        ("port", port.to_string()),
        ("runid", id.to_owned()),
        ("flags", flags.to_owned()),
        ("link-pending-commands", "0".to_owned()),
        ("link-refcount", "1".to_owned()),
        ("last-ping-sent", "0".to_owned()),
        ("last-ok-ping-reply", "0".to_owned()),
        ("last-ping-reply", "0".to_owned()),
        ("down-after-milliseconds", down_after_ms.to_string()),
    ]
}

/// The flags of an instance of this kind.
fn flags(kind: &str, is_down: bool) -> String {
    if is_down { format!("s_down,{kind},disconnected") } else { kind.to_owned() }
}

/// A description, as a map of texts.
fn description(
    instance: Vec<(&'static str, String)>,
    other_fields: impl IntoIterator<Item = (&'static str, String)>,
) -> Reply {
    let fields = instance.into_iter().chain(other_fields);
    super::map(fields.map(|(name, value)| (name, Reply::bulk(value))))
}

/// A description of a master.
fn describe(engine: &Engine, master: &Master) -> Reply {
    let Master { name, host, port, sentinels, down_after_ms, .. } = master;
    let flags = flags(if is_down(engine) { "o_down,master" } else { "master" }, is_down(engine));
    let id = match engine.settings.is_node() {
        true => Address { host: host.clone(), port: *port }.id(),
        false => String::new(),
    };
    description(
        instance(name, (host, *port), &id, &flags, *down_after_ms),
        [
            ("info-refresh", "0".to_owned()),
            ("role-reported", "master".to_owned()),
            ("role-reported-time", "0".to_owned()),
            ("config-epoch", "0".to_owned()),
            ("num-slaves", engine.nodes.followers.len().to_string()),
            ("num-other-sentinels", sentinels.len().to_string()),
            ("quorum", master.quorum.to_string()),
            ("failover-timeout", master.failover_timeout_ms.to_string()),
            ("parallel-syncs", master.parallel_syncs.to_string()),
        ],
    )
}

/// `SENTINEL SENTINELS`: replies with a description of each other sentinel.
fn sentinels(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let engine = context.engine();
    let master = master(engine, argv[2])?;
    let describe = |OtherSentinel { id, host, port }: &OtherSentinel| {
        let flags = flags("sentinel", is_cut_off(engine, host, *port));
        description(
            instance(id, (host, *port), id, &flags, master.down_after_ms),
            [
                ("last-hello-message", "0".to_owned()),
                ("voted-leader", "?".to_owned()),
                ("voted-leader-epoch", "0".to_owned()),
            ],
        )
    };
    Ok(Reply::Array(master.sentinels.iter().map(describe).collect()))
}

/// `SENTINEL REPLICAS` and `SENTINEL SLAVES`: reply with a description of each replica.
fn replicas(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let engine = context.engine();
    let master = master(engine, argv[2])?;
    let describe = |follower: &Follower| {
        let Follower { address, is_in_contact, acknowledged } = follower;
        let Address { host, port } = address;
        let flags = flags("slave", !is_in_contact);
        let name = format!("{host}:{port}");
        let is_linked = *is_in_contact && !is_down(engine);
        let link = if is_linked { "ok" } else { "err" };
        description(
            instance(&name, (host, *port), &address.id(), &flags, master.down_after_ms),
            [
                ("info-refresh", "0".to_owned()),
                ("role-reported", "slave".to_owned()),
                ("role-reported-time", "0".to_owned()),
                ("master-link-down-time", "0".to_owned()),
                ("master-link-status", link.to_owned()),
                ("master-host", master.host.clone()),
                ("master-port", master.port.to_string()),
                ("slave-priority", "100".to_owned()),
                ("slave-repl-offset", acknowledged.to_string()),
                ("replica-announced", "1".to_owned()),
            ],
        )
    };
    Ok(Reply::Array(engine.nodes.followers.iter().map(describe).collect()))
}

/// `SENTINEL CKQUORUM`: replies with OK if there are enough sentinels, else with an error.
fn quorum(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let engine = context.engine();
    let master = master(engine, argv[2])?;
    let is_usable =
        |peer: &&OtherSentinel| !is_down(engine) && !is_cut_off(engine, &peer.host, peer.port);
    let usable = master.sentinels.iter().filter(is_usable).count() + 1;
    if usable < usize::try_from(master.quorum).unwrap_or(usize::MAX) {
        return Err(Error::text(format!(
            "NOQUORUM {usable} usable Sentinels. Not enough available Sentinels to reach the \
             specified quorum for this master"
        )));
    }
    let enough =
        format!("OK {usable} usable Sentinels. Quorum and failover authorization can be reached");
    Ok(Reply::Simple(enough.into()))
}

/// `SENTINEL INFO-CACHE`: replies with names and empty entries.
fn info_cache(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let empty_entry = || Reply::Array(vec![Reply::Array(vec![Reply::Integer(0), Reply::Null])]);
    let known = argv[2..].iter().filter_map(|name| master(context.engine(), name).ok());
    // Pairs in an array, which is not a map in either protocol.
    Ok(Reply::Array(known.flat_map(|master| [Reply::bulk(&master.name), empty_entry()]).collect()))
}

/// `SENTINEL IS-MASTER-DOWN-BY-ADDR`: replies with whether the master is down, no leader and
/// epoch 0.
fn is_master_down(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let engine = context.engine();
    let (port, host) = (integer(argv[3])?, argv[2]);
    integer(argv[4])?;
    let has_address =
        |master: &Master| master.host.as_bytes() == host && i64::from(master.port) == port;
    let is_down = is_down(engine) && masters(engine).iter().any(has_address);
    Ok(Reply::Array(vec![Reply::Integer(is_down.into()), Reply::bulk("*"), Reply::Integer(0)]))
}

/// The lines of `INFO sentinel`.
pub fn info(engine: &Engine) -> String {
    let masters = masters(engine);
    let mut lines = format!(
        "sentinel_masters:{}\r\nsentinel_tilt:0\r\nsentinel_tilt_since_seconds:-1\r\n\
         sentinel_running_scripts:0\r\nsentinel_scripts_queue_length:0\r\n\
         sentinel_simulate_failure_flags:0\r\n",
        masters.len()
    );
    for (index, Master { name, host, port, sentinels, .. }) in masters.iter().enumerate() {
        let count = sentinels.len() + 1;
        // Writing to a string does not fail.
        let _ = write!(
            lines,
            "master{index}:name={name},status=ok,address={host}:{port},slaves=0,\
             sentinels={count}\r\n"
        );
    }
    lines
}

/// The reply to `ROLE`.
pub fn role(engine: &Engine) -> Reply {
    let names = masters(engine).iter().map(|master| Reply::bulk(&master.name)).collect();
    Reply::Array(vec![Reply::bulk("sentinel"), Reply::Array(names)])
}

/// The channel on which sentinels announce themselves to each other.
const HELLO: &[u8] = b"__sentinel__:hello";

/// `PUBLISH`: accepts an announcement and ignores it; any other channel is an error.
pub fn publish(channel: &[u8]) -> Result<Reply, Error> {
    if channel != HELLO {
        return Err(Error::line("ERR Only HELLO messages are accepted by Sentinel instances."));
    }
    Ok(Reply::Integer(1))
}

// --- changing ---

/// `SENTINEL MONITOR`: adds a master and replies with OK.
fn monitor(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let quorum = integer(argv[5]).map_err(|_| Error::line("ERR Invalid quorum"))?;
    let port = integer(argv[4]).map_err(|_| Error::line("ERR Invalid port"))?;
    let (name, host) = (text(argv[2]), text(argv[3]));
    let sentinel = context.sentinel_mut();
    if quorum > 0 && !sentinel.takes_host(&host) {
        return Err(Error::line("ERR Invalid IP address or hostname specified"));
    }
    let added = sentinel.monitor(&name, &host, port, quorum);
    let added = added.map_err(|reason| Error::text(format!("ERR {reason}")))?;
    let message = format!("{} quorum {quorum}", event_name(added));
    context.publish(b"+monitor", message.as_bytes());
    Ok(Reply::OK)
}

/// The name of a master in events.
fn event_name(master: &Master) -> String {
    format!("master {} {} {}", master.name, master.host, master.port)
}

/// `SENTINEL REMOVE`: removes a master and replies with OK.
fn remove(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let removed = event_name(&master(context.engine(), argv[2])?);
    context.sentinel_mut().masters.retain(|master| master.name.as_bytes() != argv[2]);
    context.publish(b"-monitor", removed.as_bytes());
    Ok(Reply::OK)
}

/// `SENTINEL RESET`: replies with the number of masters that match.
fn reset(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let masters = context.sentinel_mut().masters.iter_mut();
    let mut event_names = Vec::new();
    for master in masters.filter(|master| glob::matches(argv[2], master.name.as_bytes())) {
        master.sentinels.clear();
        event_names.push(event_name(master));
    }
    for event_name in &event_names {
        context.publish(b"+reset-master", event_name.as_bytes());
    }
    Ok(Reply::from(event_names.len()))
}

/// `SENTINEL SET`: replies with OK, or with an error. Options before an invalid one remain set.
fn set(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let event_name = event_name(&master(context.engine(), argv[2])?);
    let mut rest = &argv[3..];
    while let [option, after @ ..] = rest {
        let option = text(option);
        let count = (1..=2).find(|&count| Master::has_option(&option, count));
        let values = count.and_then(|count| after.split_at_checked(count));
        let (values, after) = values.ok_or_else(|| {
            Error::text(format!(
                "ERR Unknown option or number of arguments for SENTINEL SET '{option}'"
            ))
        })?;
        rest = after;
        if option.to_ascii_lowercase().ends_with("-script") {
            return Err(Error::line(
                "ERR Reconfiguration of scripts path is denied for security reasons. Check the \
                 deny-scripts-reconfig configuration directive in your Sentinel configuration",
            ));
        }
        let values: Vec<_> = values.iter().map(|value| text(value)).collect();
        let words: Vec<&str> = values.iter().map(|value| &**value).collect();
        let master = context.sentinel_mut().master_mut(argv[2]);
        if master.is_some_and(|master| master.set(&option, &words).is_err()) {
            let value = words[0];
            return Err(Error::text(format!(
                "ERR Invalid argument '{value}' for SENTINEL SET '{option}'"
            )));
        }
        let shown = if option.eq_ignore_ascii_case("auth-pass") { "******" } else { words[0] };
        let message = format!("{event_name} {option} {shown}");
        context.publish(b"+set", message.as_bytes());
    }
    Ok(Reply::OK)
}

/// `SENTINEL CONFIG`: replies with the options, or with OK.
fn config(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    match (argv[2], &argv[3..]) {
        (word, patterns) if is(word, "get") => Ok(options(context, patterns)),
        (word, pairs) if is(word, "set") && pairs.len() % 2 == 0 => {
            // All options are set, or none.
            let level = context.settings().get(directive::LOGLEVEL);
            let before = (context.sentinel_mut().clone(), level);
            let all = pairs.as_chunks::<2>().0.iter();
            let set = all.map(|&[option, value]| set_option(context, option, value));
            if let Err(error) = set.collect::<Result<Vec<()>, Error>>() {
                *context.sentinel_mut() = before.0;
                // The previous value is always accepted.
                let _ = context.set_log_level(before.1.name());
                return Err(error);
            }
            Ok(Reply::OK)
        }
        _ => Err(Error::line(
            "ERR Only SENTINEL CONFIG GET <param> [<param> <param> ...] / SET <param> <value> \
             [<param> <value> ...] are supported.",
        )),
    }
}

fn options(context: &mut Context<'_>, patterns: &[&[u8]]) -> Reply {
    let mut all = context.sentinel_mut().options().to_vec();
    let level = context.settings().get(directive::LOGLEVEL);
    all.push(("loglevel", level.name().to_owned()));
    let mut found: Vec<(&'static str, Reply)> = Vec::new();
    for pattern in patterns {
        for (name, value) in &all {
            let new = found.iter().all(|(earlier, _)| earlier != name);
            if new && glob::matches_ignoring_case(pattern, name.as_bytes()) {
                found.push((name, Reply::bulk(value)));
            }
        }
    }
    super::map(found)
}

fn set_option(context: &mut Context<'_>, option: &[u8], value: &[u8]) -> Result<(), Error> {
    let (option, value) = (text(option), text(value));
    let result = if option.eq_ignore_ascii_case("loglevel") {
        context.set_log_level(&value).map_err(|_| SetOptionError::Invalid)
    } else {
        context.sentinel_mut().set(&option, &value)
    };
    result.map_err(|error| match error {
        SetOptionError::Unknown => {
            Error::text(format!("ERR Invalid argument '{option}' to SENTINEL CONFIG SET"))
        }
        SetOptionError::Invalid => {
            Error::text(format!("ERR Invalid value '{value}' to SENTINEL CONFIG SET '{option}'"))
        }
    })
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;
    use crate::testing::Stage;

    fn sentinel(lines: &[&str]) -> Stage {
        let mut settings = Settings::default();
        let sentinel = settings.sentinel.insert(Box::default());
        for line in lines {
            sentinel.apply_line(&line.split(' ').collect::<Vec<_>>()).expect("a good line");
        }
        Stage::new(settings)
    }

    const ID: &str = "0123456789012345678901234567890123456789";

    #[test]
    fn configured_masters_are_listed() {
        let mut stage = sentinel(&[
            &format!("myid {ID}"),
            "monitor m 127.0.0.1 6379 2",
            &format!("known-sentinel m 127.0.0.1 26380 {}", ID.replace('0', "f")),
        ]);
        stage.check(&format!("SENTINEL MYID => \"{ID}\""));
        stage.check("SENTINEL GET-MASTER-ADDR-BY-NAME m => [\"127.0.0.1\", \"6379\"]");
        stage.check("SENTINEL GET-MASTER-ADDR-BY-NAME x => nil-array");
        stage.check("SENTINEL CKQUORUM m => OK 2 usable Sentinels. ...");
        stage.check("SENTINEL SENTINELS m => [[\"name\", ...\"port\", \"26380\", ...");
        stage.check("ROLE => [\"sentinel\", [\"m\"]]");
        stage.check("INFO sentinel => ...address=127.0.0.1:6379,slaves=0,sentinels=2...");
        stage.check(
            "SENTINEL RESET *; SENTINEL SENTINELS m => []; SENTINEL CKQUORUM m => !NOQUO...",
        );
        stage.check("HELLO => [..., \"mode\", \"sentinel\", \"modules\", []]");
    }

    #[test]
    fn options_are_set_together_or_not_at_all() {
        let mut stage = sentinel(&[]);
        stage.check(
            "SENTINEL CONFIG SET announce-ip 1.1.1.1 announce-port x => !ERR Invalid value ...",
        );
        stage.check("SENTINEL CONFIG GET announce-ip => [\"announce-ip\", \"\"]");
        stage.check("SENTINEL CONFIG SET announce-ip 1.1.1.1 loglevel debug => OK");
        stage.check(
            "SENTINEL CONFIG GET *ip log* => \
                     [\"announce-ip\", \"1.1.1.1\", \"loglevel\", \"debug\"]",
        );
    }
}
