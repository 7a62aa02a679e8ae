//! Commands for publish and subscribe, with which a client that waits for a lock learns that it is
//! free.

use std::collections::BTreeSet;

use bytes::Bytes;
use lockwheel_resp::Reply;

use crate::acl::Channels;
use crate::command::argument as arg;
use crate::command::{Arity, Caller, Command, Flags, Group, KeySpec};
use crate::commands::{help_row, unknown_form};
use crate::error::Error;
use crate::glob;
use crate::run::context::Context;
use crate::sessions::pubsub::{Listeners, Subscription};
use crate::settings::Mode;

const ANYWHERE: Flags = Flags::PUBSUB.union(Flags::LOADING).union(Flags::STALE);
const SUBSCRIBES: Flags = ANYWHERE.union(Flags::NOSCRIPT).union(Flags::FOR_SUBSCRIBERS);
const PUBLISHES: Flags = ANYWHERE.union(Flags::FAST).union(Flags::MAY_REPLICATE);

const PUBSUB: Command =
    Command { group: Group::Pubsub, flags: ANYWHERE, since: "2.0.0", ..Command::BASE };

/// The family's rows.
pub const COMMANDS: &[Command] = &[
    Command {
        name: "psubscribe",
        channels: Some(Channels::AllPatterns),
        arity: Arity::AtLeast(2),
        flags: SUBSCRIBES,
        complexity: "O(log N) a pattern, N being the number of patterns",
        doc: "Subscribes to every channel that matches a pattern.",
        arguments: &[arg::block("pattern", &[arg::pattern("pattern")]).multiple()],
        example: "PSUBSCRIBE lock:* => [\"psubscribe\", \"lock:*\", 1]",
        run: |context, argv| subscribe(context, Subscription::Pattern, &argv[1..]),
        ..PUBSUB
    },
    Command {
        name: "publish",
        channels: Some(Channels::First),
        arity: Arity::Exactly(3),
        flags: PUBLISHES,
        complexity: "O(N+M): N listeners of the channel, M patterns of all clients",
        doc: "Sends a message to all subscribers of a channel; returns how many received it.",
        arguments: &[arg::string("channel"), arg::string("message")],
        example: "b> SUBSCRIBE news; PUBLISH news hello => 1",
        run: publish,
        ..PUBSUB
    },
    Command {
        name: "pubsub",
        arity: Arity::AtLeast(2),
        flags: Flags::empty(),
        since: "2.8.0",
        complexity: "that of the subcommand",
        doc: "Shows the subscriptions of all clients.",
        subcommands: SUBCOMMANDS,
        ..PUBSUB
    },
    Command {
        name: "punsubscribe",
        flags: SUBSCRIBES,
        complexity: "O(N) a pattern, N being the number of its listeners",
        doc: "Unsubscribes from these patterns, or from all.",
        arguments: &[arg::pattern("pattern").optional().multiple()],
        example: "PUNSUBSCRIBE => [\"punsubscribe\", nil, 0]",
        run: |context, argv| unsubscribe(context, Subscription::Pattern, &argv[1..]),
        ..PUBSUB
    },
    Command {
        name: "spublish",
        channels: Some(Channels::First),
        arity: Arity::Exactly(3),
        flags: PUBLISHES,
        keys: &[KeySpec::one(&["not_key"])],
        since: "7.0.0",
        complexity: "O(N), N being the number of the channel's listeners",
        doc: "Sends a message to all subscribers of a sharded channel; returns how many received \
              it.",
        arguments: &[arg::string("shardchannel"), arg::string("message")],
        example: "b> SSUBSCRIBE news; SPUBLISH news hello => 1",
        run: spublish,
        ..PUBSUB
    },
    Command {
        name: "ssubscribe",
        channels: Some(Channels::All),
        arity: Arity::AtLeast(2),
        flags: SUBSCRIBES,
        keys: &[KeySpec::all(&["not_key"])],
        since: "7.0.0",
        complexity: "O(log N) a channel, N being the number of channels",
        doc: "Subscribes to sharded channels.",
        arguments: &[arg::string("shardchannel").multiple()],
        example: "SSUBSCRIBE news => [\"ssubscribe\", \"news\", 1]",
        run: ssubscribe,
        ..PUBSUB
    },
    Command {
        name: "subscribe",
        channels: Some(Channels::All),
        arity: Arity::AtLeast(2),
        flags: SUBSCRIBES,
        complexity: "O(log N) a channel, N being the number of channels",
        doc: "Subscribes to channels.",
        arguments: &[arg::string("channel").multiple()],
        example: "SUBSCRIBE news => [\"subscribe\", \"news\", 1]",
        run: |context, argv| subscribe(context, Subscription::Channel, &argv[1..]),
        ..PUBSUB
    },
    Command {
        name: "sunsubscribe",
        flags: SUBSCRIBES,
        keys: &[KeySpec::all(&["not_key"])],
        since: "7.0.0",
        complexity: "O(N) a channel, N being the number of its listeners",
        doc: "Unsubscribes from these sharded channels, or from all.",
        arguments: &[arg::string("shardchannel").optional().multiple()],
        example: "SUNSUBSCRIBE news => [\"sunsubscribe\", \"news\", 0]",
        run: |context, argv| unsubscribe(context, Subscription::Shard, &argv[1..]),
        ..PUBSUB
    },
    Command {
        name: "unsubscribe",
        flags: SUBSCRIBES,
        complexity: "O(N) a channel, N being the number of its listeners",
        doc: "Unsubscribes from these channels, or from all.",
        arguments: &[arg::string("channel").optional().multiple()],
        example: "UNSUBSCRIBE => [\"unsubscribe\", nil, 0]",
        run: |context, argv| unsubscribe(context, Subscription::Channel, &argv[1..]),
        ..PUBSUB
    },
];

const SUBCOMMANDS: &[Command] = &[
    Command {
        name: "channels",
        arity: Arity::AtLeast(2),
        since: "2.8.0",
        complexity: "O(N), N being the number of channels",
        doc: "Returns the channels with subscribers; with a pattern, those that match it.",
        arguments: &[arg::pattern("pattern").optional()],
        example: "b> SUBSCRIBE news; PUBSUB CHANNELS n* => [\"news\"]",
        run: |context, argv| channels(argv, &context.engine().sessions.pubsub.channels),
        ..PUBSUB
    },
    help_row(PUBSUB, "6.2.0", "b> PUBSUB HELP; PUBSUB NUMPAT => 0"),
    Command {
        name: "numpat",
        arity: Arity::Exactly(2),
        since: "2.8.0",
        doc: "Counts the patterns with subscribers.",
        example: "b> PSUBSCRIBE n*; PUBSUB NUMPAT => 1",
        run: |context, _| Ok(Reply::from(context.engine().sessions.pubsub.patterns.len())),
        ..PUBSUB
    },
    Command {
        name: "numsub",
        arity: Arity::AtLeast(2),
        since: "2.8.0",
        complexity: "O(N), N being the number of channels asked about",
        doc: "Counts the subscribers of channels, without those of patterns.",
        arguments: &[arg::string("channel").optional().multiple()],
        example: "b> SUBSCRIBE news; PUBSUB NUMSUB news other => [\"news\", 1, \"other\", 0]",
        run: |context, argv| {
            Ok(listener_counts(&argv[2..], &context.engine().sessions.pubsub.channels))
        },
        ..PUBSUB
    },
    Command {
        name: "shardchannels",
        arity: Arity::AtLeast(2),
        since: "7.0.0",
        complexity: "O(N), N being the number of sharded channels",
        doc: "Returns the sharded channels with subscribers; with a pattern, those that match it.",
        arguments: &[arg::pattern("pattern").optional()],
        example: "b> SSUBSCRIBE news; PUBSUB SHARDCHANNELS => [\"news\"]",
        run: |context, argv| channels(argv, &context.engine().sessions.pubsub.shard_channels),
        ..PUBSUB
    },
    Command {
        name: "shardnumsub",
        arity: Arity::AtLeast(2),
        since: "7.0.0",
        complexity: "O(N), N being the number of channels asked about",
        doc: "Counts the subscribers of sharded channels.",
        arguments: &[arg::string("shardchannel").optional().multiple()],
        example: "b> SSUBSCRIBE news; PUBSUB SHARDNUMSUB news => [\"news\", 1]",
        run: |context, argv| {
            Ok(listener_counts(&argv[2..], &context.engine().sessions.pubsub.shard_channels))
        },
        ..PUBSUB
    },
];

/// `PUBLISH`: replies with the number of clients that received the message.
fn publish(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    if context.settings().mode() == Mode::Sentinel {
        return super::sentinel::publish(argv[1]);
    }
    Ok(Reply::from(context.publish(argv[1], argv[2])))
}

/// `SPUBLISH`: replies with the number of clients that received the message.
fn spublish(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    Ok(Reply::from(context.publish_to_shard(argv[1], argv[2])))
}

/// `SUBSCRIBE`, `PSUBSCRIBE` and `SSUBSCRIBE`: send a confirmation for each channel.
fn subscribe(
    context: &mut Context<'_>,
    kind: Subscription,
    channels: &[&[u8]],
) -> Result<Reply, Error> {
    let mut confirmations = Vec::with_capacity(channels.len());
    for channel in channels {
        context.subscribe(kind, channel);
        confirmations.push(confirmation(context, kind, Reply::bulk(channel)));
    }
    Ok(confirm(context, confirmations))
}

/// `SSUBSCRIBE`. Unlike the other commands it is not allowed in a transaction.
fn ssubscribe(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    if context.may_not_block() {
        return Err(Error::line("ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client"));
    }
    subscribe(context, Subscription::Shard, &argv[1..])
}

/// `UNSUBSCRIBE` and its variants: send a confirmation for each channel. Without channels, they end
/// all subscriptions of that kind.
fn unsubscribe(
    context: &mut Context<'_>,
    kind: Subscription,
    channels: &[&[u8]],
) -> Result<Reply, Error> {
    let mut confirmations = Vec::new();
    let channels: Vec<Bytes> = if channels.is_empty() {
        context.client().listens_to(kind).iter().cloned().collect()
    } else {
        channels.iter().map(|channel| Bytes::copy_from_slice(channel)).collect()
    };
    for channel in channels {
        context.unsubscribe(kind, &channel);
        confirmations.push(confirmation(context, kind, Reply::Bulk(channel)));
    }
    if confirmations.is_empty() {
        confirmations.push(confirmation(context, kind, Reply::Null));
    }
    Ok(confirm(context, confirmations))
}

/// The confirmation of one change: the command, the channel, and the number of subscriptions.
fn confirmation(context: &Context<'_>, kind: Subscription, channel: Reply) -> Reply {
    let client = context.client();
    let count = match kind {
        Subscription::Channel | Subscription::Pattern => client.subscriptions(),
        Subscription::Shard => client.shard_channels.len(),
    };
    let word = Bytes::from_static(context.name.as_bytes());
    Reply::Push(vec![Reply::Bulk(word), channel, Reply::from(count)])
}

/// Confirmations are not replies, so they are sent even to a client with `CLIENT REPLY OFF`; in a
/// transaction by `EXEC`, in their place.
fn confirm(context: &mut Context<'_>, confirmations: Vec<Reply>) -> Reply {
    if context.caller == Caller::Transaction || !context.client().reply_mode.is_muted() {
        return Reply::Several(confirmations);
    }
    for confirmation in &confirmations {
        context.push(confirmation);
    }
    Reply::NOTHING
}

fn channels(argv: &[&[u8]], listeners: &Listeners) -> Result<Reply, Error> {
    let pattern = match argv[2..] {
        [] => None,
        [pattern] => Some(pattern),
        _ => return Err(unknown_form("PUBSUB", argv[1])),
    };
    let shown = listeners
        .keys()
        .filter(|channel| pattern.is_none_or(|pattern| glob::matches_channel(pattern, channel)));
    Ok(Reply::Array(shown.cloned().map(Reply::Bulk).collect()))
}

fn listener_counts(channels: &[&[u8]], listeners: &Listeners) -> Reply {
    let count = |channel: &[u8]| listeners.get(channel).map_or(0, BTreeSet::len);
    let pairs = channels.iter().flat_map(|c| [Reply::bulk(c), Reply::from(count(c))]);
    Reply::Array(pairs.collect())
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;
    use crate::testing::{Stage, check};

    #[test]
    fn confirmations_are_sent_to_a_client_without_replies() {
        let mut stage = Stage::new(Settings::default());
        let client = stage.client("a");
        stage.engine.sessions.get_mut(client).expect("connected").reply_mode.off = true;
        stage.check("GET k => ; SUBSCRIBE a => [\"subscribe\", \"a\", 1]; a< => ");
        stage.check("UNSUBSCRIBE => [\"unsubscribe\", \"a\", 0]; GET k => ");
    }

    #[test]
    fn subscriptions_in_a_transaction_are_confirmed_in_order() {
        check(
            "MULTI; SUBSCRIBE a; PUBLISH a m; UNSUBSCRIBE; EXEC => \
             [[\"subscribe\", \"a\", 1], 1, [\"unsubscribe\", \"a\", 0]] & \
             [\"message\", \"a\", \"m\"]",
        );
    }
}
