//! `MULTI`, `EXEC` and `WATCH`, with which a transaction is a compare-and-set.

use bytes::BytesMut;
use lockwheel_resp::encode::{encode, encode_array_header};
use lockwheel_resp::{Protocol, Reply};

use crate::command::argument as arg;
use crate::command::{Arity, Categories, Command, Flags, Group, KeySpec};
use crate::error::Error;
use crate::run::context::Context;
use crate::sessions::transaction::Transaction;

const TRANSACTION: Command = Command {
    group: Group::Transactions,
    categories: Categories::TRANSACTION,
    flags: ANYWHERE,
    ..Command::BASE
};

const ANYWHERE: Flags = Flags::NOSCRIPT.union(Flags::LOADING).union(Flags::STALE);

/// The flags of the commands that are not queued.
const AT_ONCE: Flags =
    ANYWHERE.union(Flags::FAST).union(Flags::ALLOW_BUSY).union(Flags::NOT_QUEUED);

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "discard",
        arity: Arity::Exactly(1),
        flags: AT_ONCE,
        since: "2.0.0",
        complexity: "O(N) in the number of queued commands",
        doc: "Discards the queued commands and all watches.",
        example: "MULTI; DISCARD => OK",
        run: discard,
        ..TRANSACTION
    },
    Command {
        name: "exec",
        arity: Arity::Exactly(1),
        flags: ANYWHERE
            .union(Flags::SKIP_SLOWLOG)
            .union(Flags::NOT_QUEUED)
            .union(Flags::RUNS_QUEUE),
        since: "1.2.0",
        complexity: "that of the queued commands",
        doc: "Runs the queued commands, unless a watched key has changed.",
        example: "MULTI; SET k v; GET k; EXEC => [OK, \"v\"]",
        run: exec,
        ..TRANSACTION
    },
    Command {
        name: "multi",
        arity: Arity::Exactly(1),
        flags: AT_ONCE,
        since: "1.2.0",
        doc: "Starts a transaction: the commands that follow are queued.",
        example: "MULTI; GET k => QUEUED",
        run: multi,
        ..TRANSACTION
    },
    Command {
        name: "unwatch",
        arity: Arity::Exactly(1),
        flags: ANYWHERE.union(Flags::FAST).union(Flags::ALLOW_BUSY),
        since: "2.2.0",
        doc: "Ends all watches.",
        example: "WATCH k; UNWATCH => OK",
        run: unwatch,
        ..TRANSACTION
    },
    Command {
        name: "watch",
        arity: Arity::AtLeast(2),
        flags: AT_ONCE,
        keys: &[KeySpec::all(&["RO"])],
        since: "2.2.0",
        complexity: "O(1) a key",
        doc: "Makes the next EXEC depend on these keys being unchanged.",
        arguments: &[arg::key("key").multiple()],
        example: "WATCH k; SET k v; MULTI; GET k; EXEC => nil-array",
        run: watch,
        ..TRANSACTION
    },
];

/// `MULTI`: starts a transaction and replies with OK.
fn multi(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    let client = context.client_mut();
    if client.transaction.is_some() {
        return Err(Error::line("ERR MULTI calls can not be nested"));
    }
    client.transaction = Some(Transaction::default());
    Ok(Reply::OK)
}

/// `DISCARD`: discards the transaction and replies with OK.
fn discard(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    if context.take_transaction().is_none() {
        return Err(Error::line("ERR DISCARD without MULTI"));
    }
    context.unwatch();
    Ok(Reply::OK)
}

/// `EXEC`: replies with the replies of the queued commands, or nil if a watched key has changed.
fn exec(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    let Some(transaction) = context.take_transaction() else {
        return Err(Error::line("ERR EXEC without MULTI"));
    };
    let broken = context.engine().is_watch_broken(context.client, context.time);
    // The watches end first, because the queued commands change the watched keys themselves.
    context.unwatch();
    if transaction.broken {
        return Err(Error::ExecAbort);
    }
    if broken {
        return Ok(Reply::NullArray);
    }
    let count = transaction.queue.len();
    let header = context.client().protocol_unless_muted();
    let (mut replies, mut protocols) = (Vec::with_capacity(count), Vec::with_capacity(count));
    for queued in &transaction.queue {
        let reply = context.run_queued(queued);
        let state = context.client();
        protocols.push(match &reply {
            // Confirmations of subscriptions are sent in every reply mode.
            Reply::Several(parts) if !parts.is_empty() && !state.loses_reply => {
                Some(state.protocol)
            }
            _ => state.protocol_unless_muted(),
        });
        replies.push(reply);
    }
    if header.is_some() && protocols.iter().all(|&protocol| protocol == header) {
        return Ok(Reply::Array(replies));
    }
    send_partly(context, header, replies.iter().zip(protocols));
    Ok(Reply::NOTHING)
}

/// Sends the replies of a transaction in which a command has changed the protocol or the reply
/// mode: each in the protocol at its time, or not at all. As in Redis, the header counts all
/// commands.
#[cold]
fn send_partly<'a>(
    context: &mut Context<'_>,
    header: Option<Protocol>,
    replies: impl ExactSizeIterator<Item = (&'a Reply, Option<Protocol>)>,
) {
    let mut out = BytesMut::new();
    if header.is_some() {
        encode_array_header(replies.len(), &mut out);
    }
    for (reply, protocol) in replies {
        if let Some(protocol) = protocol {
            encode(reply, protocol, &mut out);
        }
    }
    // Messages that the commands have caused follow the replies.
    let pending = &mut context.client_mut().pending;
    out.extend_from_slice(pending);
    *pending = out;
}

/// `WATCH`: watches keys and replies with OK.
fn watch(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    if context.client().transaction.is_some() {
        return Err(Error::line("ERR WATCH inside MULTI is not allowed"));
    }
    // Effects of another server break no watch.
    context.check_leads()?;
    for key in &argv[1..] {
        context.watch(key);
    }
    Ok(Reply::OK)
}

/// `UNWATCH`: ends all watches and replies with OK.
fn unwatch(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    context.unwatch();
    Ok(Reply::OK)
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;
    use crate::testing::{Stage, check};

    #[test]
    fn expiry_of_a_watched_lease_breaks_the_transaction() {
        check("SET k v PX 10; WATCH k; +10ms; MULTI; GET k; EXEC => nil-array");
        check("SET k v PX 10; +10ms; WATCH k; MULTI; GET k; EXEC => [nil]");
        let mut stage = Stage::new(Settings::default());
        stage.engine.writer.set_active_expiry(false);
        stage.check("SET k v PX 10; +10ms; WATCH k; b> GET k; MULTI; GET k; EXEC => [nil]");
        stage.check("SET k v PX 10; WATCH k; +10ms; MULTI; GET k; EXEC => nil-array");
    }
}
