//! Keyspace notifications: how events are published.

use crate::Engine;
use crate::store::effects::Place;
use crate::store::events::Events;

impl Engine {
    /// Publishes an event to its subscribers.
    pub(crate) fn publish_event(&mut self, event: &[u8], Place { database, key }: Place<'_>) {
        let events = self.writer.events();
        // Leases expire by the million, so the channel name is written to a buffer that is reused.
        let mut channel = std::mem::take(&mut self.event_channel);
        if events.contains(Events::KEYSPACE) {
            name_channel(&mut channel, "__keyspace@", database, key);
            self.sessions.publish(&channel, event);
        }
        if events.contains(Events::KEYEVENT) {
            name_channel(&mut channel, "__keyevent@", database, event);
            self.sessions.publish(&channel, key);
        }
        self.event_channel = channel;
    }
}

fn name_channel(name: &mut Vec<u8>, begin: &str, database: usize, end: &[u8]) {
    let mut digits = itoa::Buffer::new();
    name.clear();
    for part in [begin.as_bytes(), digits.format(database).as_bytes(), b"__:", end] {
        name.extend_from_slice(part);
    }
}
