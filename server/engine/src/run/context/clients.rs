//! Other clients: messages to them, and what closes, stops or resumes them.

use lockwheel_resp::Reply;

use super::Context;
use crate::command::argument::without_secrets;
use crate::command::{Caller, Command, Entry, Flags};
use crate::locks::kinds::key_of_channel;
use crate::sessions::Session;
use crate::sessions::pubsub::Subscription;
use crate::timing::time::Millis;

impl Context<'_> {
    // --- messages ---

    /// Records a message, if there is a log, and sends it to the subscribers of a channel. Returns
    /// their number.
    #[inline]
    pub fn publish(&mut self, channel: &[u8], message: &[u8]) -> usize {
        if self.engine.has_log() {
            return self.publish_and_record(channel, message);
        }
        self.engine.sessions.publish(channel, message)
    }

    /// As [`Context::publish`], with a log. Not inlined, so that the other function saves no
    /// registers.
    #[cold]
    #[inline(never)]
    fn publish_and_record(&mut self, channel: &[u8], message: &[u8]) -> usize {
        self.engine.record_message(false, channel, message);
        self.engine.sessions.publish(channel, message)
    }

    /// As [`Context::publish`], for a sharded channel.
    pub fn publish_to_shard(&mut self, channel: &[u8], message: &[u8]) -> usize {
        self.engine.record_message(true, channel, message);
        self.engine.sessions.publish_to_shard(channel, message)
    }

    /// Sends a message to the client itself, after its reply.
    pub fn push(&mut self, message: &Reply) {
        self.engine.sessions.push(self.client, message);
    }

    /// Subscribes the client to a channel, and sends it the messages from before a restart.
    pub fn subscribe(&mut self, kind: Subscription, channel: &[u8]) {
        let sessions = &mut self.engine.sessions;
        if !sessions.subscribe(self.client, kind, channel) {
            return;
        }
        if !sessions.pubsub.recent.is_empty() {
            sessions.send_recent(self.client, kind, channel);
        }
        if let Some(key) = key_of_channel(channel) {
            self.note_wait_for_lock(key);
        }
    }

    /// Ends a subscription of the client.
    pub fn unsubscribe(&mut self, kind: Subscription, channel: &[u8]) {
        self.engine.sessions.unsubscribe(self.client, kind, channel);
    }

    // --- monitors ---

    /// Sends the client all requests from now on; false if it receives them already.
    pub fn start_monitoring(&mut self) -> bool {
        let is_new = self.engine.sessions.start_monitoring(self.client);
        if is_new {
            self.engine.update_consumers();
        }
        is_new
    }

    /// Shows a request that is about to run a script to the monitors, so that it is before the
    /// calls of the script.
    #[inline]
    pub fn show_before_calls(&mut self, argv: &[&[u8]]) {
        if !self.engine.sessions.monitors.is_empty() {
            self.show_to_monitors((self.command, self.name), self.caller, argv);
        }
    }

    /// Shows a command that has run to the monitors, unless others must not see it.
    pub(in crate::run) fn show_after_run(&mut self, entry: &Entry, caller: Caller, argv: &[&[u8]]) {
        const NOT_SHOWN: Flags = Flags::SKIP_MONITOR.union(Flags::ADMIN);
        // What a blocked client runs again is shown already.
        if !entry.command.flags.intersects(NOT_SHOWN) && caller != Caller::Waiter {
            self.show_to_monitors((entry.command, &entry.full_name), caller, argv);
        }
    }

    #[cold]
    fn show_to_monitors(&mut self, row: (&Command, &str), caller: Caller, argv: &[&[u8]]) {
        let words = without_secrets(row.0.arguments, row.1.split('|').count(), argv);
        let sessions = &mut self.engine.sessions;
        let client = sessions.get(self.client).filter(|_| caller != Caller::Script);
        let (database, source) = match client {
            None => (self.database, "lua".to_owned()),
            Some(client) if client.origin.unix => {
                (client.database, format!("unix:{}", client.origin.address))
            }
            Some(client) => (client.database, client.origin.address.clone()),
        };
        sessions.show_to_monitors(self.time.wall_us, database, &source, &words);
    }

    // --- connections ---

    /// Closes the connections that match a condition, that of the client after its reply. Returns
    /// their number.
    pub fn close_clients(&mut self, condition: impl Fn(&Session) -> bool) -> usize {
        let sessions = &self.engine.sessions;
        let mut chosen = sessions.clients.in_order();
        chosen.retain(|&id| sessions.get(id).is_some_and(&condition));
        for &client in &chosen {
            self.engine.close_client(client, Some(self.client));
        }
        chosen.len()
    }

    /// Ends the wait of the client with this `CLIENT ID`, with the error or else as its timeout
    /// does; false if it does not wait.
    pub fn unblock(&mut self, serial: u64, error: Option<&Reply>) -> bool {
        self.engine.unblock_by_serial(serial, error, self.time)
    }

    /// Stops the requests of all clients until then, or only their writes.
    pub fn start_pause(&mut self, until: Millis, writes_only: bool) {
        self.engine.start_pause(until, writes_only);
    }

    /// Ends what [`Context::start_pause`] has begun.
    pub fn unpause(&mut self) {
        self.engine.unpause();
    }
}
