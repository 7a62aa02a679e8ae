//! Commands for clients of replicated servers. A node of a cluster has its followers as replicas.
//! It replicates by a protocol of its own, so what copies a server as Redis does is refused.

use lockwheel_resp::Reply;

use crate::command::argument as arg;
use crate::command::{Arity, Categories, Command, Flags, Group, integer, is};
use crate::error::Error;
use crate::replication::nodes::{Address, Follower};
use crate::run::context::Context;
use crate::settings::Mode;
use crate::timing::time::Millis;

const WAIT: Command = Command {
    flags: Flags::BLOCKING,
    categories: Categories::CONNECTION,
    group: Group::Generic,
    tips: &["request_policy:all_shards", "response_policy:agg_min"],
    ..Command::BASE
};

/// Commands that would copy a server.
const COPY: Command = Command {
    group: Group::Server,
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::NO_ASYNC_LOADING),
    ..Command::BASE
};

const REPLICAOF: Command = Command {
    arity: Arity::Exactly(3),
    flags: COPY.flags.union(Flags::STALE),
    run: replicaof,
    ..COPY
};

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "failover",
        flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::STALE),
        since: "6.2.0",
        doc: "Would hand over to a replica; there is none.",
        arguments: &[
            arg::block(
                "target",
                &[arg::string("host"), arg::integer("port"), arg::word("FORCE").optional()],
            )
            .token("TO")
            .optional(),
            arg::word("ABORT").optional(),
            arg::integer("milliseconds").token("TIMEOUT").optional(),
        ],
        example: "FAILOVER => !ERR FAILOVER requires connected replicas.",
        run: failover,
        ..COPY
    },
    Command {
        name: "psync",
        arity: Arity::AtLeast(3),
        flags: COPY.flags.union(Flags::NO_MULTI),
        since: "2.8.0",
        doc: "Would send a replica the changes it has missed.",
        arguments: &[arg::string("replicationid"), arg::integer("offset")],
        example: "PSYNC ? -1 => !ERR Replication is not supported by this server",
        run: |_, _| Err(NOT_SUPPORTED),
        ..COPY
    },
    Command {
        name: "replconf",
        flags: Flags::ADMIN
            .union(Flags::INTERNAL)
            .union(Flags::NOSCRIPT)
            .union(Flags::LOADING)
            .union(Flags::STALE)
            .union(Flags::ALLOW_BUSY),
        since: "3.0.0",
        doc: "Would prepare the connection of a replica.",
        example: "REPLCONF capa eof => !ERR Replication is not supported by this server",
        run: |_, _| Err(NOT_SUPPORTED),
        ..COPY
    },
    Command {
        name: "replicaof",
        since: "5.0.0",
        doc: "Would make the server a replica of another; it never is one.",
        arguments: &[arg::one_of(
            "args",
            &[
                arg::block("host-port", &[arg::string("host"), arg::integer("port")]),
                arg::block("no-one", &[arg::word("NO"), arg::word("ONE")]),
            ],
        )],
        example: "REPLICAOF NO ONE => OK",
        ..REPLICAOF
    },
    Command {
        name: "role",
        arity: Arity::Exactly(1),
        flags: Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE).union(Flags::FAST),
        categories: Categories::ADMIN.union(Categories::DANGEROUS),
        since: "2.8.12",
        doc: "Returns the role of the server in replication, and its replicas.",
        example: "ROLE => [...",
        run: role,
        ..COPY
    },
    Command {
        name: "slaveof",
        deprecated: Some(("5.0.0", "`REPLICAOF`")),
        doc: "Would make the server a replica of another; it never is one.",
        arguments: &[arg::one_of(
            "args",
            &[
                arg::block("host-port", &[arg::string("host"), arg::integer("port")]),
                arg::block("no-one", &[arg::word("NO"), arg::word("ONE")]),
            ],
        )],
        example: "SLAVEOF NO ONE => OK",
        ..REPLICAOF
    },
    Command {
        name: "sync",
        arity: Arity::Exactly(1),
        flags: COPY.flags.union(Flags::NO_MULTI),
        doc: "Would send a replica all keys.",
        example: "SYNC => !ERR Replication is not supported by this server",
        run: |_, _| Err(NOT_SUPPORTED),
        ..COPY
    },
    Command {
        name: "wait",
        arity: Arity::Exactly(3),
        since: "3.0.0",
        doc: "Waits until replicas have the client's writes; returns how many do.",
        arguments: &[arg::integer("numreplicas"), arg::integer("timeout")],
        example: "WAIT 0 0 => 0",
        run: wait,
        ..WAIT
    },
    Command {
        name: "waitaof",
        arity: Arity::Exactly(4),
        since: "7.2.0",
        doc: "Waits until the client's writes are in append-only files.",
        arguments: &[
            arg::integer("numlocal"),
            arg::integer("numreplicas"),
            arg::integer("timeout"),
        ],
        example: "WAITAOF 0 0 0 => [0, 0]",
        run: waitaof,
        ..WAIT
    },
];

const NOT_SUPPORTED: Error = Error::line("ERR Replication is not supported by this server");

/// `ROLE`: replies with the role and the replicas.
fn role(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    if context.settings().mode() == Mode::Sentinel {
        return Ok(super::sentinel::role(context.engine()));
    }
    if context.engine().is_following() {
        return Ok(role_of_replica(context.engine().nodes.leader.as_ref()));
    }
    let replica = |Follower { address, acknowledged, .. }: &Follower| {
        let texts = [address.host.clone(), address.port.to_string(), acknowledged.to_string()];
        Reply::Array(texts.into_iter().map(Reply::bulk).collect())
    };
    let replicas = context.engine().nodes.in_contact().map(replica).collect();
    let offset = super::number(context.engine().replication_offset());
    Ok(Reply::Array(vec![Reply::bulk("master"), offset, Reply::Array(replicas)]))
}

fn role_of_replica(leader: Option<&Address>) -> Reply {
    let Address { host, port } = leader.cloned().unwrap_or_default();
    let (state, offset) = if leader.is_some() { ("connected", 0) } else { ("connect", -1) };
    let (port, offset) = (Reply::Integer(port.into()), Reply::Integer(offset));
    Reply::Array(vec![Reply::bulk("slave"), Reply::bulk(host), port, Reply::bulk(state), offset])
}

/// `REPLICAOF` and `SLAVEOF`: reply with OK to `NO ONE`, else with an error.
fn replicaof(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    if context.settings().cluster_enabled {
        return Err(Error::line("ERR REPLICAOF not allowed in cluster mode."));
    }
    if is(argv[1], "no") && is(argv[2], "one") {
        return Ok(Reply::OK);
    }
    match integer(argv[2]).map(u16::try_from) {
        Ok(Ok(_)) => Err(NOT_SUPPORTED),
        _ => Err(Error::line("ERR Invalid master port")),
    }
}

/// `FAILOVER`: replies with an error.
fn failover(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    if context.settings().cluster_enabled {
        return Err(Error::line(
            "ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead.",
        ));
    }
    let mut options = &argv[1..];
    while let [option, rest @ ..] = options {
        options = match rest {
            [] if is(option, "abort") && argv.len() == 2 => {
                return Err(Error::line("ERR No failover in progress."));
            }
            [_, port, rest @ ..] if is(option, "to") => {
                integer(port)?;
                rest
            }
            [timeout, rest @ ..] if is(option, "timeout") => {
                if integer(timeout)? <= 0 {
                    return Err(Error::line("ERR FAILOVER timeout must be greater than 0"));
                }
                rest
            }
            rest if is(option, "force") => rest,
            _ => return Err(Error::Syntax),
        };
    }
    Err(Error::line("ERR FAILOVER requires connected replicas."))
}

// --- waiting for replicas ---

/// `WAIT`: replies with the number of replicas that have the changes so far on disk, when there are
/// enough, else after the timeout.
fn wait(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let replicas = integer(argv[1])?;
    let deadline = super::timeout(context.time, argv[2])?;
    Ok(wait_for(context, None, replicas, deadline))
}

/// `WAITAOF`: replies with whether the changes so far are on disk here, and the number of replicas
/// that have them, when that is enough, else after the timeout.
fn waitaof(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let local = integer(argv[1])?;
    if !(0..=1).contains(&local) {
        return Err(Error::line("ERR value is out of range, value must between 0 and 1"));
    }
    let replicas = integer(argv[2])?;
    if replicas < 0 {
        return Err(Error::line("ERR value is out of range, must be positive"));
    }
    let deadline = super::timeout(context.time, argv[3])?;
    if local > 0 && !context.engine().has_log() {
        return Err(Error::line(
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
        ));
    }
    Ok(wait_for(context, Some(local > 0), replicas, deadline))
}

fn wait_for(
    context: &mut Context<'_>,
    local: Option<bool>,
    replicas: i64,
    deadline: Option<Millis>,
) -> Reply {
    let replicas = usize::try_from(replicas.max(0)).unwrap_or(usize::MAX);
    context.wait_for_log(local, replicas, deadline)
}

#[cfg(test)]
mod tests {
    use crate::testing::check;

    #[test]
    fn waits_end_with_the_clock() {
        check("WAIT 0 0 => 0; WAIT -1 0 => 0; WAITAOF 0 0 0 => [0, 0]");
        check("WAIT 1 50 => ; +49ms; a< => ; +1ms; a< => 0");
        check("WAITAOF 0 1 50 => ; +49ms; a< => ; +1ms; a< => [0, 0]");
        check("WAIT 1 0 => ; +1000000ms; a< => ");
        check("WAIT 1 9223372036854775807 => !ERR timeout is out of range");
        check("MULTI; WAIT 1 0; WAITAOF 0 1 0; EXEC => [0, [0, 0]]");
        check("EVAL \"return redis.call('WAIT', '1', '0')\" 0 => 0");
    }
}
