//! Who listens to what, and the delivery of messages.
//!
//! What must hold: subscribers hear messages in the order the engine published them, and every
//! subscription here belongs to a connected client.

use std::collections::BTreeMap;

use bytes::Bytes;
use leasehold_resp::Reply;

use crate::engine::client::ClientId;
use crate::engine::{Engine, glob};

/// The three kinds of subscription, and the words used for each on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subscription {
    /// `SUBSCRIBE`
    Channel,
    /// `PSUBSCRIBE`
    Pattern,
    /// `SSUBSCRIBE`
    Shard,
}

/// Who listens to a channel or by a pattern, in order of subscription.
pub type Listeners = BTreeMap<Bytes, Vec<ClientId>>;

/// Every subscription there is.
#[derive(Debug, Default)]
pub struct PubSub {
    /// By channel.
    pub channels: Listeners,
    /// By pattern.
    pub patterns: Listeners,
    /// By sharded channel.
    pub shard_channels: Listeners,
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

impl Engine {
    /// Sends `message` to all who listen to `channel`; returns how many that were.
    pub fn publish(&mut self, channel: &[u8], message: &[u8]) -> usize {
        let mut receivers = 0;
        if let Some(listeners) = self.pubsub.channels.get(channel).cloned() {
            let push = message_push(b"message", None, channel, message);
            receivers += self.deliver(&listeners, &push);
        }
        if self.pubsub.patterns.is_empty() {
            return receivers;
        }
        let matching: Vec<(Bytes, Vec<ClientId>)> = self
            .pubsub
            .patterns
            .iter()
            .filter(|(pattern, _)| glob::matches(pattern, channel))
            .map(|(pattern, listeners)| (pattern.clone(), listeners.clone()))
            .collect();
        for (pattern, listeners) in matching {
            let push = message_push(b"pmessage", Some(&pattern), channel, message);
            receivers += self.deliver(&listeners, &push);
        }
        receivers
    }

    /// Sends `message` to all who listen to the sharded `channel`; returns how many that were.
    pub fn publish_to_shard(&mut self, channel: &[u8], message: &[u8]) -> usize {
        let Some(listeners) = self.pubsub.shard_channels.get(channel).cloned() else { return 0 };
        let push = message_push(b"smessage", None, channel, message);
        self.deliver(&listeners, &push)
    }

    /// Adds a subscription; false if the client has it already.
    pub fn subscribe(&mut self, client: ClientId, kind: Subscription, channel: &[u8]) -> bool {
        let Some(state) = self.clients.get_mut(client) else { return false };
        let channel = Bytes::copy_from_slice(channel);
        let added = state.listens_to_mut(kind).insert(channel.clone());
        if added {
            self.pubsub.table(kind).entry(channel).or_default().push(client);
        }
        added
    }

    /// Ends a subscription; false if the client does not have it.
    pub fn unsubscribe(&mut self, client: ClientId, kind: Subscription, channel: &[u8]) -> bool {
        let Some(state) = self.clients.get_mut(client) else { return false };
        let removed = state.listens_to_mut(kind).remove(channel);
        if removed {
            let table = self.pubsub.table(kind);
            if let Some(listeners) = table.get_mut(channel) {
                listeners.retain(|&listener| listener != client);
                if listeners.is_empty() {
                    table.remove(channel);
                }
            }
        }
        removed
    }

    /// Ends all subscriptions of a client, without telling it.
    pub fn unsubscribe_all(&mut self, client: ClientId) {
        let Some(state) = self.clients.get(client) else { return };
        let kinds = [Subscription::Channel, Subscription::Pattern, Subscription::Shard];
        let all = kinds.map(|kind| (kind, state.listens_to(kind).clone()));
        for (kind, channels) in all {
            for channel in channels {
                self.unsubscribe(client, kind, &channel);
            }
        }
    }

    fn deliver(&mut self, listeners: &[ClientId], push: &Reply) -> usize {
        for &listener in listeners {
            self.push(listener, push);
        }
        listeners.len()
    }
}

fn message_push(word: &'static [u8], pattern: Option<&[u8]>, channel: &[u8], text: &[u8]) -> Reply {
    let mut parts = vec![Reply::Bulk(Bytes::from_static(word))];
    parts.extend(pattern.map(Reply::bulk));
    parts.push(Reply::bulk(channel));
    parts.push(Reply::bulk(text));
    Reply::Push(parts)
}
