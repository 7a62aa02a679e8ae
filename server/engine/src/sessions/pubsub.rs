//! Subscriptions and the delivery of messages.
//!
//! Invariants: subscribers receive messages in the order in which the engine published them; every
//! subscription belongs to a connected client.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use lockwheel_resp::{Protocol, encode_push};

use crate::glob;
use crate::sessions::clients::Clients;
use crate::sessions::{ClientId, Sessions};
use crate::timing::time::Millis;
use crate::timing::timers::TimerId;

/// The three kinds of subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subscription {
    /// `SUBSCRIBE`
    Channel,
    /// `PSUBSCRIBE`
    Pattern,
    /// `SSUBSCRIBE`
    Shard,
}

/// The subscribers of each channel or pattern.
pub type Listeners = BTreeMap<Bytes, BTreeSet<ClientId>>;

/// All subscriptions.
#[derive(Debug, Default)]
pub struct PubSub {
    /// By channel.
    pub channels: Listeners,
    /// By pattern.
    pub patterns: Listeners,
    /// By sharded channel.
    pub shard_channels: Listeners,
    /// Messages from before a restart, which are sent to new subscribers.
    pub recent: VecDeque<RecentMessage>,
    /// The timer that ends this, while this server serves.
    pub(crate) recent_timer: Option<TimerId>,
}

/// A message that was published before a restart. Its subscribers may not have received it, and
/// have lost their subscriptions.
#[derive(Debug)]
pub struct RecentMessage {
    /// When it was logged.
    pub logged_at: Millis,
    /// Whether the channel is sharded.
    pub is_sharded: bool,
    /// The channel.
    pub channel: Bytes,
    /// The message.
    pub message: Bytes,
}

impl PubSub {
    fn table(&mut self, kind: Subscription) -> &mut Listeners {
        match kind {
            Subscription::Channel => &mut self.channels,
            Subscription::Pattern => &mut self.patterns,
            Subscription::Shard => &mut self.shard_channels,
        }
    }
}

/// The memory of a subscription besides the channel's name: its entries in both tables.
const SUBSCRIPTION_BYTES: usize = 128;

fn subscription_bytes(channel: &[u8]) -> usize {
    channel.len() + SUBSCRIPTION_BYTES
}

impl Sessions {
    /// Sends `message` to all subscribers of `channel`; returns their number.
    pub(crate) fn publish(&mut self, channel: &[u8], message: &[u8]) -> usize {
        let pubsub = &self.pubsub;
        if pubsub.channels.is_empty() && pubsub.patterns.is_empty() {
            return 0;
        }
        let mut writer = MessageWriter::new(&mut self.clients, &mut self.deliveries);
        let mut receivers = 0;
        if let Some(listeners) = pubsub.channels.get(channel) {
            receivers += writer.deliver(listeners.iter().copied(), &[b"message", channel, message]);
        }
        for (pattern, listeners) in &pubsub.patterns {
            if glob::matches_channel(pattern, channel) {
                let words: &[&[u8]] = &[b"pmessage", pattern, channel, message];
                receivers += writer.deliver(listeners.iter().copied(), words);
            }
        }
        receivers
    }

    /// Sends `message` to all subscribers of the sharded `channel`; returns their number.
    pub(crate) fn publish_to_shard(&mut self, channel: &[u8], message: &[u8]) -> usize {
        let Some(listeners) = self.pubsub.shard_channels.get(channel) else { return 0 };
        let mut writer = MessageWriter::new(&mut self.clients, &mut self.deliveries);
        writer.deliver(listeners.iter().copied(), &[b"smessage", channel, message])
    }

    /// Sends the messages from before the restart to the clients that have subscribed already.
    pub(crate) fn publish_recent(&mut self) {
        let recent = std::mem::take(&mut self.pubsub.recent);
        for RecentMessage { is_sharded, channel, message, .. } in &recent {
            match is_sharded {
                true => self.publish_to_shard(channel, message),
                false => self.publish(channel, message),
            };
        }
        self.pubsub.recent = recent;
    }

    /// Sends the messages from before the restart to a client that has subscribed.
    pub(crate) fn send_recent(&mut self, client: ClientId, kind: Subscription, channel: &[u8]) {
        let mut writer = MessageWriter::new(&mut self.clients, &mut self.deliveries);
        for recent in &self.pubsub.recent {
            let RecentMessage { is_sharded, channel: of, message, .. } = recent;
            let words: &[&[u8]] = match kind {
                Subscription::Channel if !is_sharded && of == channel => &[b"message", of, message],
                Subscription::Pattern if !is_sharded && glob::matches_channel(channel, of) => {
                    &[b"pmessage", channel, of, message]
                }
                Subscription::Shard if *is_sharded && of == channel => &[b"smessage", of, message],
                _ => continue,
            };
            writer.deliver([client], words);
        }
    }

    /// Adds a subscription; false if it exists already.
    pub(crate) fn subscribe(
        &mut self,
        client: ClientId,
        kind: Subscription,
        channel: &[u8],
    ) -> bool {
        let Some(state) = self.get_mut(client) else { return false };
        let channel = Bytes::copy_from_slice(channel);
        let added = state.listens_to_mut(kind).insert(channel.clone());
        if added {
            self.clients.hold(client, subscription_bytes(&channel));
            self.pubsub.table(kind).entry(channel).or_default().insert(client);
        }
        added
    }

    /// Ends a subscription; false if it does not exist.
    pub(crate) fn unsubscribe(
        &mut self,
        client: ClientId,
        kind: Subscription,
        channel: &[u8],
    ) -> bool {
        let Some(state) = self.get_mut(client) else { return false };
        let removed = state.listens_to_mut(kind).remove(channel);
        if removed {
            self.clients.release(client, subscription_bytes(channel));
            let table = self.pubsub.table(kind);
            if let Some(listeners) = table.get_mut(channel) {
                listeners.remove(&client);
                if listeners.is_empty() {
                    table.remove(channel);
                }
            }
        }
        removed
    }

    /// Ends all subscriptions of a client without a reply.
    pub(crate) fn unsubscribe_all(&mut self, client: ClientId) {
        let Some(state) = self.get(client) else { return };
        let kinds = [Subscription::Channel, Subscription::Pattern, Subscription::Shard];
        let all = kinds.map(|kind| (kind, state.listens_to(kind).clone()));
        for (kind, channels) in all {
            for channel in channels {
                self.unsubscribe(client, kind, &channel);
            }
        }
    }
}

/// Appends messages to the output of clients.
struct MessageWriter<'a> {
    clients: &'a mut Clients,
    deliveries: &'a mut Vec<ClientId>,
}

impl<'a> MessageWriter<'a> {
    fn new(clients: &'a mut Clients, deliveries: &'a mut Vec<ClientId>) -> MessageWriter<'a> {
        MessageWriter { clients, deliveries }
    }

    /// Appends a message to the output of its subscribers; returns their number. The message is
    /// encoded once for each protocol.
    fn deliver(
        &mut self,
        listeners: impl IntoIterator<IntoIter: ExactSizeIterator<Item = ClientId>>,
        words: &[&[u8]],
    ) -> usize {
        let (mut resp2, mut resp3) = (BytesMut::new(), BytesMut::new());
        let listeners = listeners.into_iter();
        let count = listeners.len();
        for listener in listeners {
            let Some(state) = self.clients.get_mut(listener) else { continue };
            let encoded = match state.protocol {
                Protocol::Resp2 => &mut resp2,
                Protocol::Resp3 => &mut resp3,
            };
            if count == 1 {
                encode_push(words, state.protocol, &mut state.pending);
            } else {
                if encoded.is_empty() {
                    encode_push(words, state.protocol, encoded);
                }
                state.pending.extend_from_slice(encoded);
            }
            if !state.queued {
                state.queued = true;
                self.deliveries.push(listener);
            }
        }
        count
    }
}
