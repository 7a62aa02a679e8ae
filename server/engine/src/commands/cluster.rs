//! `CLUSTER`: a cluster of one node, which owns every slot permanently.
//!
//! Invariant: no command here replies with OK if a client would conclude that the cluster has
//! changed.

use std::fmt::Write;

use lockwheel_resp::Reply;

use crate::Engine;
use crate::command::argument as arg;
use crate::command::slots::{SLOTS, parse_slot, slot_of};
use crate::command::{Arity, Categories, Command, Flags, Group, integer, is};
use crate::commands::unknown_form;
use crate::error::Error;
use crate::run::context::Context;
use crate::sessions::Session;
use crate::settings::{EndpointType, Mode, directive};

const CLUSTER: Command =
    Command { group: Group::Cluster, flags: Flags::STALE, since: "3.0.0", ..Command::BASE };

/// Subcommands that would change the cluster.
const ADMIN: Command =
    Command { flags: Flags::ADMIN.union(Flags::STALE).union(Flags::NO_ASYNC_LOADING), ..CLUSTER };

/// Subcommands that show something to administrators.
const SHOWN_TO_ADMIN: Command =
    Command { flags: Flags::ADMIN.union(Flags::STALE), tips: UNSTEADY, ..CLUSTER };

const UNSTEADY: &[&str] = &["nondeterministic_output"];

/// Commands that clients send to a node before others.
const CONNECTION: Command = Command {
    arity: Arity::Exactly(1),
    flags: Flags::LOADING.union(Flags::STALE).union(Flags::FAST),
    categories: Categories::CONNECTION,
    ..CLUSTER
};

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "asking",
        flags: Flags::FAST,
        doc: "Precedes a command for which another node has redirected the client here.",
        example: "ASKING => OK",
        run: |context, _| in_cluster(context, |_| Ok(Reply::OK)),
        ..CONNECTION
    },
    Command {
        name: "cluster",
        arity: Arity::AtLeast(2),
        flags: Flags::empty(),
        complexity: "that of the subcommand",
        doc: "A container for commands about the cluster.",
        subcommands: SUBCOMMANDS,
        ..CLUSTER
    },
    Command {
        name: "readonly",
        doc: "Lets the connection read from a replica.",
        example: "READONLY => OK",
        run: |context, _| reads_only(context, true),
        ..CONNECTION
    },
    Command {
        name: "readwrite",
        doc: "Ends the effect of READONLY.",
        example: "READWRITE => OK",
        run: |context, _| reads_only(context, false),
        ..CONNECTION
    },
];

const SUBCOMMANDS: &[Command] = &[
    Command {
        name: "addslots",
        arity: Arity::AtLeast(3),
        complexity: "O(N) in the number of slots",
        doc: "Would give slots to the node, which has them all.",
        arguments: &[arg::integer("slot").multiple()],
        example: "CLUSTER ADDSLOTS 0 => !ERR Slot 0 is already busy",
        run: |context, argv| in_cluster(context, |_| add_slots(&argv[2..])),
        ..ADMIN
    },
    Command {
        name: "addslotsrange",
        arity: Arity::AtLeast(4),
        since: "7.0.0",
        complexity: "O(N) in the number of slots",
        doc: "Would give ranges of slots to the node, which has them all.",
        arguments: &[arg::block(
            "start-slot_end-slot",
            &[arg::integer("start-slot"), arg::integer("end-slot")],
        )
        .multiple()],
        example: "CLUSTER ADDSLOTSRANGE 0 16383 => !ERR Slot 0 is already busy",
        run: |context, argv| in_cluster(context, |context| add_slot_ranges(context, argv)),
        ..ADMIN
    },
    Command {
        name: "bumpepoch",
        arity: Arity::Exactly(2),
        doc: "Would raise the epoch of the node's configuration, which never changes.",
        tips: UNSTEADY,
        example: "CLUSTER BUMPEPOCH => STILL 0",
        run: |context, _| in_cluster(context, |_| Ok(Reply::status("STILL 0"))),
        ..ADMIN
    },
    Command {
        name: "count-failure-reports",
        arity: Arity::Exactly(3),
        doc: "Counts the nodes that have reported a node as failed.",
        arguments: &[arg::string("node-id")],
        example: "CLUSTER COUNT-FAILURE-REPORTS x => !ERR Unknown node x",
        run: |context, argv| reply_about_self(context, argv[2], Reply::Integer(0)),
        ..SHOWN_TO_ADMIN
    },
    Command {
        name: "countkeysinslot",
        arity: Arity::Exactly(3),
        complexity: "O(N) in the number of keys",
        doc: "Counts the keys of a slot.",
        arguments: &[arg::integer("slot")],
        example: "SET {a}b v; CLUSTER COUNTKEYSINSLOT 15495 => 1",
        run: |context, argv| in_cluster(context, |context| count_keys_in_slot(context, argv)),
        ..CLUSTER
    },
    Command {
        name: "delslots",
        arity: Arity::AtLeast(3),
        complexity: "O(N) in the number of slots",
        doc: "Would take slots from the node, which keeps them all.",
        arguments: &[arg::integer("slot").multiple()],
        example: "CLUSTER DELSLOTS 0 => !ERR This node ...",
        run: |context, argv| in_cluster(context, |_| delete_slots(&argv[2..])),
        ..ADMIN
    },
    Command {
        name: "delslotsrange",
        arity: Arity::AtLeast(4),
        since: "7.0.0",
        complexity: "O(N) in the number of slots",
        doc: "Would take ranges of slots from the node, which keeps them all.",
        arguments: &[arg::block(
            "start-slot_end-slot",
            &[arg::integer("start-slot"), arg::integer("end-slot")],
        )
        .multiple()],
        example: "CLUSTER DELSLOTSRANGE 0 1 => !ERR This node ...",
        run: |context, argv| {
            in_cluster(context, |context| ranges(context, argv).and(Err(KEEPS_ALL)))
        },
        ..ADMIN
    },
    Command {
        name: "failover",
        arity: Arity::AtLeast(2),
        doc: "Would make a replica the master; this node is no replica.",
        arguments: &[
            arg::one_of("options", &[arg::word("FORCE"), arg::word("TAKEOVER")]).optional()
        ],
        example: "CLUSTER FAILOVER => !ERR You should send CLUSTER FAILOVER to a replica",
        run: |context, argv| in_cluster(context, |_| failover(&argv[2..])),
        ..ADMIN
    },
    Command {
        name: "flushslots",
        arity: Arity::Exactly(2),
        doc: "Would take all slots from the node, which keeps them.",
        example: "CLUSTER FLUSHSLOTS => !ERR This node ...",
        run: |context, _| in_cluster(context, flush_slots),
        ..ADMIN
    },
    Command {
        name: "forget",
        arity: Arity::Exactly(3),
        doc: "Would remove another node; there is none.",
        arguments: &[arg::string("node-id")],
        example: "CLUSTER FORGET x => !ERR Unknown node x",
        run: |context, argv| {
            let refusal = Reply::error("ERR I tried hard but I can't forget myself...");
            reply_about_self(context, argv[2], refusal)
        },
        ..ADMIN
    },
    Command {
        name: "getkeysinslot",
        arity: Arity::Exactly(4),
        complexity: "O(N) in the number of keys",
        doc: "Returns keys of a slot, up to a number.",
        tips: UNSTEADY,
        arguments: &[arg::integer("slot"), arg::integer("count")],
        example: "SET {a}b v; CLUSTER GETKEYSINSLOT 15495 10 => [\"{a}b\"]",
        run: |context, argv| in_cluster(context, |context| get_keys_in_slot(context, argv)),
        ..CLUSTER
    },
    Command {
        run: |context, argv| in_cluster(context, |context| super::help(context, argv)),
        ..super::help_row(CLUSTER, "5.0.0", "CLUSTER HELP => [CLUSTER <subcommand> ...]")
    },
    Command {
        name: "info",
        arity: Arity::Exactly(2),
        doc: "Returns the state of the cluster.",
        tips: UNSTEADY,
        example: "CLUSTER INFO => \"cluster_state:ok...",
        run: |context, _| in_cluster(context, |_| Ok(super::text(info()))),
        ..CLUSTER
    },
    Command {
        name: "keyslot",
        arity: Arity::Exactly(3),
        complexity: "O(N) in the length of the key",
        doc: "Returns the slot of a key.",
        arguments: &[arg::string("key")],
        example: "CLUSTER KEYSLOT foo{bar}baz => 5061",
        run: |context, argv| in_cluster(context, |_| Ok(Reply::Integer(slot_of(argv[2]).into()))),
        ..CLUSTER
    },
    Command {
        name: "links",
        arity: Arity::Exactly(2),
        since: "7.0.0",
        doc: "Lists the connections to other nodes.",
        tips: UNSTEADY,
        example: "CLUSTER LINKS => []",
        run: |context, _| in_cluster(context, |_| Ok(Reply::Array(Vec::new()))),
        ..CLUSTER
    },
    Command {
        name: "meet",
        arity: Arity::AtLeast(4),
        doc: "Would add another node; meeting itself has no effect.",
        arguments: &[
            arg::string("ip"),
            arg::integer("port"),
            arg::integer("cluster_bus_port").optional().since("4.0.0"),
        ],
        example: "CLUSTER MEET 127.0.0.1 6379 => OK",
        run: |context, argv| in_cluster(context, |context| meet(context, argv)),
        ..ADMIN
    },
    Command {
        name: "myid",
        arity: Arity::Exactly(2),
        doc: "Returns the id of the node.",
        example: "CLUSTER MYID => ...",
        run: |context, _| in_cluster(context, |context| Ok(Reply::bulk(&context.engine().node_id))),
        ..CLUSTER
    },
    Command {
        name: "myshardid",
        arity: Arity::Exactly(2),
        since: "7.2.0",
        doc: "Returns the id of the node's shard.",
        tips: UNSTEADY,
        example: "CLUSTER MYSHARDID => ...",
        run: |context, _| {
            in_cluster(context, |context| Ok(Reply::bulk(&context.engine().shard_id)))
        },
        ..CLUSTER
    },
    Command {
        name: "nodes",
        arity: Arity::Exactly(2),
        doc: "Describes the nodes, each in a line.",
        tips: UNSTEADY,
        example: "CLUSTER NODES => ...myself,master - 0 0 0 connected 0-16383...",
        run: |context, _| in_cluster(context, |context| Ok(super::text(nodes(context)))),
        ..CLUSTER
    },
    Command {
        name: "replicas",
        arity: Arity::Exactly(3),
        since: "5.0.0",
        doc: "Describes the replicas of a node.",
        arguments: &[arg::string("node-id")],
        example: "CLUSTER REPLICAS x => !ERR Unknown node x",
        run: |context, argv| reply_about_self(context, argv[2], Reply::Array(Vec::new())),
        ..SHOWN_TO_ADMIN
    },
    Command {
        name: "replicate",
        arity: Arity::Exactly(3),
        doc: "Would make the node a replica of another; there is none.",
        arguments: &[arg::string("node-id")],
        example: "CLUSTER REPLICATE x => !ERR Unknown node x",
        run: |context, argv| {
            reply_about_self(context, argv[2], Reply::error("ERR Can't replicate myself"))
        },
        ..ADMIN
    },
    Command {
        name: "reset",
        arity: Arity::AtLeast(2),
        flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::STALE),
        doc: "Would make the node forget other nodes and its slots; there are none, and it keeps \
              its slots.",
        arguments: &[arg::one_of("hard_soft", &[arg::word("HARD"), arg::word("SOFT")]).optional()],
        example: "SET k v; CLUSTER RESET => \
                  !ERR CLUSTER RESET can't be called with master nodes containing keys",
        run: |context, argv| in_cluster(context, |context| reset(context, &argv[2..])),
        ..CLUSTER
    },
    Command {
        name: "saveconfig",
        arity: Arity::Exactly(2),
        doc: "Would write the state of the cluster to a file; it never changes.",
        example: "CLUSTER SAVECONFIG => OK",
        run: |context, _| in_cluster(context, |_| Ok(Reply::OK)),
        ..ADMIN
    },
    Command {
        name: "set-config-epoch",
        arity: Arity::Exactly(3),
        doc: "Would give a new node an epoch; this node's is fixed.",
        arguments: &[arg::integer("config-epoch")],
        example: "CLUSTER SET-CONFIG-EPOCH 5 => !ERR Node config epoch is already non-zero",
        run: |context, argv| in_cluster(context, |_| set_config_epoch(argv[2])),
        ..ADMIN
    },
    Command {
        name: "setslot",
        arity: Arity::AtLeast(4),
        doc: "Would move a slot to another node; there is none.",
        arguments: &[
            arg::integer("slot"),
            arg::one_of(
                "subcommand",
                &[
                    arg::string("node-id").token("IMPORTING"),
                    arg::string("node-id").token("MIGRATING"),
                    arg::string("node-id").token("NODE"),
                    arg::word("STABLE"),
                ],
            ),
        ],
        example: "CLUSTER SETSLOT 0 STABLE => OK",
        run: |context, argv| in_cluster(context, |context| set_slot(context, argv)),
        ..ADMIN
    },
    Command {
        name: "shards",
        arity: Arity::Exactly(2),
        since: "7.0.0",
        doc: "Describes the shards: their slots and their nodes.",
        tips: UNSTEADY,
        example: "CLUSTER SHARDS => [[\"slots\", [0, 16383], \"nodes\", ...]]",
        run: |context, _| in_cluster(context, |context| Ok(shards(context))),
        ..CLUSTER
    },
    Command {
        name: "slaves",
        arity: Arity::Exactly(3),
        deprecated: Some(("5.0.0", "`CLUSTER REPLICAS`")),
        doc: "Describes the replicas of a node.",
        arguments: &[arg::string("node-id")],
        example: "CLUSTER SLAVES x => !ERR Unknown node x",
        run: |context, argv| reply_about_self(context, argv[2], Reply::Array(Vec::new())),
        ..SHOWN_TO_ADMIN
    },
    Command {
        name: "slots",
        arity: Arity::Exactly(2),
        deprecated: Some(("7.0.0", "`CLUSTER SHARDS`")),
        doc: "Returns the ranges of slots with their nodes.",
        tips: UNSTEADY,
        example: "CLUSTER SLOTS => [[0, 16383, [\"127.0.0.1\", 6379, ...]]]",
        run: |context, _| in_cluster(context, |context| Ok(slots(context))),
        ..CLUSTER
    },
];

const KEEPS_ALL: Error = Error::line("ERR This node owns every slot and gives none away");
const ADMITS_NONE: Error =
    Error::line("ERR This node is the only one of its cluster and admits no other");
const NO_SLOT: Error = Error::line("ERR Invalid or out of range slot");

/// Runs `act` if the server is a node of a cluster; otherwise replies with an error.
fn in_cluster<'a, 'e>(
    context: &'a mut Context<'e>,
    act: impl FnOnce(&'a mut Context<'e>) -> Result<Reply, Error>,
) -> Result<Reply, Error> {
    if context.settings().mode() != Mode::Cluster {
        return Err(Error::NoCluster);
    }
    act(context)
}

/// Replies about the node with that id, which must be this one.
fn reply_about_self(context: &mut Context<'_>, node: &[u8], reply: Reply) -> Result<Reply, Error> {
    in_cluster(context, |context| check_node_id(context, node).map(|()| reply))
}

fn check_node_id(context: &Context<'_>, node: &[u8]) -> Result<(), Error> {
    if node == context.engine().node_id.as_bytes() {
        return Ok(());
    }
    Err(Error::text(format!("ERR Unknown node {}", String::from_utf8_lossy(node))))
}

fn reads_only(context: &mut Context<'_>, read_only: bool) -> Result<Reply, Error> {
    in_cluster(context, |context| {
        context.client_mut().read_only = read_only;
        Ok(Reply::OK)
    })
}

// --- state ---

fn info() -> String {
    let mut lines = String::from("cluster_state:ok\r\n");
    for (name, value) in [
        ("cluster_slots_assigned", SLOTS),
        ("cluster_slots_ok", SLOTS),
        ("cluster_slots_pfail", 0),
        ("cluster_slots_fail", 0),
        ("cluster_known_nodes", 1),
        ("cluster_size", 1),
        ("cluster_current_epoch", 0),
        ("cluster_my_epoch", 0),
        ("cluster_stats_messages_sent", 0),
        ("cluster_stats_messages_received", 0),
        ("total_cluster_links_buffer_limit_exceeded", 0),
    ] {
        // Writing to a string does not fail.
        let _ = write!(lines, "{name}:{value}\r\n");
    }
    lines
}

/// The address of the node as sent to one of its clients.
struct Address {
    ip: String,
    hostname: Option<String>,
    /// The port for the kind of connection that the client uses, with TLS or without.
    port: u16,
    plain_port: u16,
    /// 0 if the server does not listen for TLS.
    tls_port: u16,
    bus_port: u16,
    preferred: EndpointType,
}

/// The default distance between the port of a node and that of its bus.
const BUS_DISTANCE: u16 = 10_000;

impl Address {
    /// An address that is not configured is the one to which the client has connected, so that it
    /// can connect again.
    fn announced_to(client: &Session, engine: &Engine) -> Address {
        let settings = &engine.settings;
        let (reached, reached_port) =
            client.origin.local_address.rsplit_once(':').unwrap_or_default();
        // A unix socket and a client in this process have no port.
        let reached = if reached_port.is_empty() || reached_port == "0" {
            "127.0.0.1"
        } else {
            reached.trim_matches(['[', ']'])
        };
        let or = |chosen: u16, otherwise: u16| if chosen == 0 { otherwise } else { chosen };
        let tls_port = settings.get(directive::TLS_PORT);
        // Nothing listens on the bus port, so the server starts even if the number would be too
        // large.
        let bus_port = or(settings.port, tls_port).checked_add(BUS_DISTANCE).unwrap_or(0);
        let is_tls = tls_port != 0 && reached_port == tls_port.to_string();
        let plain_port = or(settings.cluster_announce_port, settings.port);
        let tls_port = or(settings.get(directive::CLUSTER_ANNOUNCE_TLS_PORT), tls_port);
        Address {
            ip: settings.cluster_announce_ip.clone().unwrap_or_else(|| reached.to_owned()),
            hostname: settings.cluster_announce_hostname.clone(),
            port: if is_tls || plain_port == 0 { tls_port } else { plain_port },
            plain_port,
            tls_port,
            bus_port: or(settings.cluster_announce_bus_port, or(settings.cluster_port, bus_port)),
            preferred: settings.cluster_preferred_endpoint_type,
        }
    }

    /// The address to which clients are to connect.
    fn endpoint(&self) -> Reply {
        match (self.preferred, &self.hostname) {
            (EndpointType::Ip, _) => Reply::bulk(&self.ip),
            (EndpointType::Hostname, Some(hostname)) => Reply::bulk(hostname),
            (EndpointType::Hostname, None) => Reply::bulk("?"),
            (EndpointType::UnknownEndpoint, _) => Reply::Null,
        }
    }
}

fn address(context: &Context<'_>) -> Address {
    Address::announced_to(context.client(), context.engine())
}

fn nodes(context: &mut Context<'_>) -> String {
    let Address { ip, hostname, port, bus_port, .. } = address(context);
    let id = &context.engine().node_id;
    let hostname = hostname.map(|name| format!(",{name}")).unwrap_or_default();
    let last = SLOTS - 1;
    format!("{id} {ip}:{port}@{bus_port}{hostname} myself,master - 0 0 0 connected 0-{last}\n")
}

fn slots(context: &mut Context<'_>) -> Reply {
    let address = address(context);
    let mut more = Vec::new();
    if address.preferred != EndpointType::Ip {
        more.push((Reply::bulk("ip"), Reply::bulk(&address.ip)));
    }
    if let Some(hostname) = &address.hostname
        && address.preferred != EndpointType::Hostname
    {
        more.push((Reply::bulk("hostname"), Reply::bulk(hostname)));
    }
    let node = Reply::Array(vec![
        address.endpoint(),
        Reply::Integer(address.port.into()),
        Reply::bulk(&context.engine().node_id),
        Reply::Map(more),
    ]);
    let last = Reply::Integer(i64::from(SLOTS - 1));
    Reply::Array(vec![Reply::Array(vec![Reply::Integer(0), last, node])])
}

fn shards(context: &mut Context<'_>) -> Reply {
    let address = address(context);
    let mut node = vec![("id", Reply::bulk(&context.engine().node_id))];
    let ports = [("port", address.plain_port), ("tls-port", address.tls_port)];
    let ports = ports.into_iter().filter(|&(_, port)| port != 0);
    node.extend(ports.map(|(name, port)| (name, Reply::Integer(port.into()))));
    node.extend([("ip", Reply::bulk(&address.ip)), ("endpoint", address.endpoint())]);
    node.extend(address.hostname.map(|hostname| ("hostname", Reply::bulk(hostname))));
    node.extend([
        ("role", Reply::bulk("master")),
        ("replication-offset", Reply::Integer(0)),
        ("health", Reply::bulk("online")),
    ]);
    let node = node.into_iter().map(|(name, value)| (Reply::bulk(name), value)).collect();
    let slots = [0, i64::from(SLOTS - 1)].map(Reply::Integer).to_vec();
    let shard = [("slots", Reply::Array(slots)), ("nodes", Reply::Array(vec![Reply::Map(node)]))];
    Reply::Array(vec![super::map(shard)])
}

// --- keys of slots ---

/// `CLUSTER COUNTKEYSINSLOT`: replies with the number of keys in a slot.
fn count_keys_in_slot(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    integer(argv[2])?;
    let slot = parse_slot(argv[2]).ok_or(Error::line("ERR Invalid slot"))?;
    Ok(Reply::from(keys_in_slot(context, slot).count()))
}

/// `CLUSTER GETKEYSINSLOT`: replies with keys of a slot.
fn get_keys_in_slot(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    integer(argv[2])?;
    let count = usize::try_from(integer(argv[3])?);
    let (Some(slot), Ok(count)) = (parse_slot(argv[2]), count) else {
        return Err(Error::line("ERR Invalid slot or number of keys"));
    };
    Ok(Reply::Array(keys_in_slot(context, slot).take(count).map(Reply::bulk).collect()))
}

fn keys_in_slot<'a>(context: &'a Context<'_>, slot: u16) -> impl Iterator<Item = &'a [u8]> {
    let time = context.time;
    let records = context.selected().records().iter();
    let of_slot =
        records.filter(move |&(key, record)| slot_of(key) == slot && !record.is_expired(time));
    of_slot.map(|(key, _)| key)
}

// --- changes, which are refused ---

/// `CLUSTER ADDSLOTS`: replies with an error.
fn add_slots(slots: &[&[u8]]) -> Result<Reply, Error> {
    let slots = slots.iter().map(|slot| parse_slot(slot)).collect::<Option<Vec<u16>>>();
    busy(slots.ok_or(NO_SLOT)?.first().copied().unwrap_or_default())
}

/// `CLUSTER ADDSLOTSRANGE`: replies with an error.
fn add_slot_ranges(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    busy(ranges(context, argv)?.first().map_or(0, |&(first, _)| first))
}

fn busy(slot: u16) -> Result<Reply, Error> {
    Err(Error::text(format!("ERR Slot {slot} is already busy")))
}

/// `CLUSTER DELSLOTS`: replies with an error.
fn delete_slots(slots: &[&[u8]]) -> Result<Reply, Error> {
    let mut seen = Vec::new();
    for slot in slots {
        let slot = parse_slot(slot).ok_or(NO_SLOT)?;
        if seen.contains(&slot) {
            return Err(Error::text(format!("ERR Slot {slot} specified multiple times")));
        }
        seen.push(slot);
    }
    Err(KEEPS_ALL)
}

/// `CLUSTER FLUSHSLOTS`: replies with an error.
fn flush_slots(context: &mut Context<'_>) -> Result<Reply, Error> {
    if is_empty(context) {
        return Err(KEEPS_ALL);
    }
    Err(Error::line("ERR DB must be empty to perform CLUSTER FLUSHSLOTS."))
}

fn is_empty(context: &Context<'_>) -> bool {
    context.selected().is_empty()
}

fn ranges(context: &Context<'_>, argv: &[&[u8]]) -> Result<Vec<(u16, u16)>, Error> {
    let (pairs, rest) = argv[2..].as_chunks::<2>();
    if !rest.is_empty() {
        return Err(Error::Arity(context.name.to_owned()));
    }
    let range = |&[first, last]: &[&[u8]; 2]| match (parse_slot(first), parse_slot(last)) {
        (Some(first), Some(last)) if first > last => Err(Error::text(format!(
            "ERR start slot number {first} is greater than end slot number {last}"
        ))),
        (Some(first), Some(last)) => Ok((first, last)),
        _ => Err(NO_SLOT),
    };
    pairs.iter().map(range).collect()
}

/// `CLUSTER FAILOVER`: replies with an error.
fn failover(options: &[&[u8]]) -> Result<Reply, Error> {
    match options {
        [] => {}
        [how] if is(how, "force") || is(how, "takeover") => {}
        [_] => return Err(Error::Syntax),
        _ => return Err(unknown_form("CLUSTER", b"FAILOVER")),
    }
    Err(Error::line("ERR You should send CLUSTER FAILOVER to a replica"))
}

/// `CLUSTER MEET`: replies with OK if the address is this node's.
fn meet(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let (host, port) = (String::from_utf8_lossy(argv[2]), argv[3]);
    let invalid = |kind: &str, argument: &[u8]| {
        let argument = String::from_utf8_lossy(argument);
        Error::text(format!("ERR Invalid {kind} port specified: {argument}"))
    };
    let port = integer(port).map_err(|_| invalid("base", port))?;
    if let Some(bus_port) = argv.get(4) {
        integer(bus_port).map_err(|_| invalid("bus", bus_port))?;
    }
    let myself = address(context);
    if *host == *myself.ip && port == i64::from(myself.port) {
        return Ok(Reply::OK);
    }
    let is_address = host.contains(['.', ':'])
        && host.bytes().all(|byte| byte.is_ascii_hexdigit() || b".:".contains(&byte));
    if !is_address || !(1..=i64::from(u16::MAX)).contains(&port) {
        return Err(Error::text(format!("ERR Invalid node address specified: {host}:{port}")));
    }
    Err(ADMITS_NONE)
}

/// `CLUSTER RESET`: replies with OK, or with an error while there are keys.
fn reset(context: &mut Context<'_>, options: &[&[u8]]) -> Result<Reply, Error> {
    match options {
        [] => {}
        [how] if is(how, "hard") || is(how, "soft") => {}
        _ => return Err(Error::Syntax),
    }
    if !is_empty(context) {
        return Err(Error::line(
            "ERR CLUSTER RESET can't be called with master nodes containing keys",
        ));
    }
    Ok(Reply::OK)
}

/// `CLUSTER SET-CONFIG-EPOCH`: replies with an error.
fn set_config_epoch(epoch: &[u8]) -> Result<Reply, Error> {
    match integer(epoch)? {
        epoch @ ..0 => Err(Error::text(format!("ERR Invalid config epoch specified: {epoch}"))),
        _ => Err(Error::line("ERR Node config epoch is already non-zero")),
    }
}

/// `CLUSTER SETSLOT`: replies with OK if the slot stays at this node.
fn set_slot(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let slot = parse_slot(argv[2]).ok_or(NO_SLOT)?;
    match argv[3..] {
        [how] if is(how, "stable") => Ok(Reply::OK),
        [how, node] if is(how, "node") => check_node_id(context, node).map(|()| Reply::OK),
        [how, node] if is(how, "migrating") => {
            let node = String::from_utf8_lossy(node);
            Err(Error::text(format!("ERR I don't know about node {node}")))
        }
        [how, _] if is(how, "importing") => {
            Err(Error::text(format!("ERR I'm already the owner of hash slot {slot}")))
        }
        _ => Err(Error::line(
            "ERR Invalid CLUSTER SETSLOT action or number of arguments. Try CLUSTER HELP",
        )),
    }
}

#[cfg(test)]
mod tests {
    use crate::sessions::Origin;
    use crate::settings::Settings;
    use crate::testing::{Stage, check, words};
    use crate::timing::time::{Millis, Time};

    fn cluster() -> Stage {
        let mut settings = Settings::default();
        settings.cluster_enabled = true;
        Stage::new(settings)
    }

    const DISABLED: &str = "!ERR This instance has cluster support disabled";
    const CROSS: &str = "!CROSSSLOT Keys in request don't hash to the same slot";

    #[test]
    fn commands_are_refused_outside_a_cluster() {
        for request in ["CLUSTER INFO", "CLUSTER HELP", "READONLY", "READWRITE", "ASKING"] {
            check(&format!("{request} => {DISABLED}"));
        }
        check("CLUSTER FOO => !ERR unknown subcommand 'FOO'. Try CLUSTER HELP.");
        check("INFO cluster => ...cluster_enabled:0...; MSET a 1 b 2 => OK");
    }

    #[test]
    fn address_is_the_one_the_client_connected_to() {
        let mut stage = cluster();
        let mut nodes_via = |address: &str| {
            let origin = Origin { local_address: address.to_owned(), ..Origin::default() };
            let client = stage.engine.connect(origin, Time::at(Millis(0)));
            stage.run(client, &words("CLUSTER NODES")).0
        };
        assert!(nodes_via("10.0.0.1:6379").contains(" 10.0.0.1:6379@16379 myself,master - 0 0 0 "));
        assert!(nodes_via("[::1]:6379").contains(" ::1:6379@16379 "));
        assert!(nodes_via("/tmp/socket:0").contains(" 127.0.0.1:6379@16379 "));
    }

    #[test]
    fn configured_address_is_announced() {
        let mut stage = cluster();
        stage.check("CONFIG SET cluster-announce-ip 10.1.1.1 cluster-announce-port 7000");
        stage.check("CLUSTER NODES => ... 10.1.1.1:7000@16379 myself...");
        stage.check("CONFIG SET cluster-announce-bus-port 7001 cluster-announce-hostname h.x");
        stage.check("CLUSTER NODES => ... 10.1.1.1:7000@7001,h.x myself...");
        stage.check("CLUSTER SLOTS => [[0, 16383, [\"10.1.1.1\", 7000, ..., [\"hostname\", ...");
        stage.check("CONFIG SET cluster-preferred-endpoint-type hostname");
        stage.check("CLUSTER SLOTS => [[0, 16383, [\"h.x\", 7000, ..., [\"ip\", \"10.1.1.1\"]]]]");
        stage.check("CONFIG SET cluster-preferred-endpoint-type unknown-endpoint");
        stage.check("CLUSTER SLOTS => [[0, 16383, [nil, 7000, ...");
        stage.check("CLUSTER SHARDS => ...\"endpoint\", nil, \"hostname\", \"h.x\", \"role\"...");
    }

    #[test]
    fn bus_port_beyond_the_largest_is_zero() {
        let mut settings = Settings::default();
        settings.cluster_enabled = true;
        settings.port = 60_000;
        Stage::new(settings).check("CLUSTER NODES => ...:60000@0 myself...");
    }

    #[test]
    fn keys_of_one_request_share_a_slot() {
        let mut stage = cluster();
        stage.check(&format!("MSET a 1 b 2 => {CROSS}; MSET {{a}}1 1 {{a}}2 2 => OK"));
        stage.check(&format!("MULTI; SET a 1; SET b 1; EXEC => {CROSS}; EXEC => !ERR EXEC ..."));
        stage.check(&format!("MULTI; MSET a 1 b 2 => {CROSS}; EXEC => !EXECABORT ..."));
        stage
            .check(&format!("WATCH a; EXEC => !ERR EXEC without MULTI; SSUBSCRIBE a b => {CROSS}"));
        stage.check("EVAL \"return 1\" 3 a b => !ERR Number of keys can't be greater ...");
        stage.check("INFO errorstats => ...errorstat_CROSSSLOT:count=4...");
    }

    #[test]
    fn expired_keys_are_in_no_slot() {
        let mut stage = cluster();
        stage.engine.writer.set_active_expiry(false);
        stage.check("SET {a}1 v; SET {a}2 v PX 10; CLUSTER COUNTKEYSINSLOT 15495 => 2; +10ms");
        stage.check("CLUSTER COUNTKEYSINSLOT 15495 => 1");
        stage.check("CLUSTER GETKEYSINSLOT 15495 9 => [\"{a}1\"]");
    }

    #[test]
    fn only_node_keeps_its_slots() {
        let mut stage = cluster();
        let id = stage.engine.node_id.clone();
        stage.check(&format!("CLUSTER MYID => \"{id}\"; CLUSTER REPLICAS {id} => []"));
        stage.check(&format!(
            "CLUSTER FORGET {id} => !ERR I tried hard but I can't forget myself..."
        ));
        stage.check(&format!("CLUSTER REPLICATE {id} => !ERR Can't replicate myself"));
        stage.check(&format!("CLUSTER SETSLOT 1 NODE {id} => OK"));
        stage.check("CLUSTER FLUSHSLOTS => !ERR This node owns every slot and gives none away");
        stage.check(
            "CLUSTER MEET 127.0.0.1 6379 => OK; CLUSTER MEET 127.0.0.2 6379 => !ERR This ...",
        );
        stage.check("CLUSTER RESET HARD => OK; CLUSTER INFO => ...slots_assigned:16384...");
        stage.check(&format!("CLUSTER MYID => \"{id}\""));
    }

    #[test]
    fn read_only_connection_is_marked() {
        let mut stage = cluster();
        stage.check("READONLY; CLIENT INFO => ...flags=r ...; READWRITE; CLIENT INFO => ...=N ...");
        stage.check("READONLY; RESET; CLIENT INFO => ...flags=N ...");
    }
}
