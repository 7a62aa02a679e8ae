//! Client side caching (`CLIENT TRACKING`): which clients have read which keys or track which
//! prefixes, and the invalidation messages they get.
//!
//! Invariants: a client that has read a key gets a message about the next change of the key, after
//! the reply of the command that changed it; every prefix in the table belongs to a connected
//! client.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use lockwheel_resp::{Protocol, Reply};

use crate::Engine;
use crate::command::{Caller, Command, Flags, Group, is};
use crate::sessions::{ClientId, Sessions};
use crate::store::dict::{Dict, HashSeed};

/// The tracking options of a client.
#[derive(Clone, Debug)]
pub struct Tracking {
    /// Which keys are tracked.
    pub mode: Mode,
    /// `NOLOOP`: whether the client gets no messages about its own changes.
    pub no_loop: bool,
    /// The client that gets the messages instead.
    pub redirect: Option<ClientId>,
    /// Whether a message could not be sent because the redirect client has disconnected.
    pub broken_redirect: bool,
    /// Whether `CLIENT CACHING` makes an exception for the next command or transaction.
    pub caching: bool,
    /// The tracked prefixes in [`Mode::Broadcast`].
    pub prefixes: BTreeSet<Bytes>,
}

/// Which keys are tracked for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Keys that it reads.
    Reads,
    /// Keys that it reads after `CLIENT CACHING YES`.
    OptIn,
    /// Keys that it reads, except after `CLIENT CACHING NO`.
    OptOut,
    /// Keys with one of its prefixes.
    Broadcast,
}

/// The tracking tables of all clients.
#[derive(Debug)]
pub struct Tracked {
    clients: usize,
    /// The clients that have read a key, in any database, since its last change. Some of them may
    /// have disconnected.
    readers: Dict<BTreeSet<ClientId>>,
    reads: usize,
    prefixes: BTreeMap<Bytes, Prefix>,
}

/// A tracked prefix.
#[derive(Debug, Default)]
struct Prefix {
    listeners: BTreeSet<ClientId>,
    /// The keys that have changed since the last broadcast, each with the client that changed it.
    changed: BTreeMap<Bytes, Option<ClientId>>,
}

impl Tracked {
    /// Empty tables.
    pub fn new(seed: HashSeed) -> Tracked {
        Tracked { clients: 0, readers: Dict::new(seed), reads: 0, prefixes: BTreeMap::new() }
    }

    /// The number of tracking clients.
    pub fn clients(&self) -> usize {
        self.clients
    }

    /// The number of tracked keys.
    pub fn keys(&self) -> usize {
        self.readers.len()
    }

    /// The number of pairs of a key and a client that has read it.
    pub fn reads(&self) -> usize {
        self.reads
    }

    /// The number of tracked prefixes.
    pub fn prefixes(&self) -> usize {
        self.prefixes.len()
    }
}

/// The memory of a prefix besides its bytes: its entries in both tables.
const PREFIX_BYTES: usize = 128;

fn prefix_bytes(tracking: &Tracking) -> usize {
    tracking.prefixes.iter().map(|prefix| prefix.len() + PREFIX_BYTES).sum()
}

impl Sessions {
    /// Starts tracking for a client, or changes its options.
    fn start_tracking(&mut self, client: ClientId, tracking: Tracking) {
        let Some(state) = self.clients.get_mut(client) else { return };
        let bytes = prefix_bytes(&tracking);
        for prefix in &tracking.prefixes {
            let prefix = self.tracked.prefixes.entry(prefix.clone()).or_default();
            prefix.listeners.insert(client);
        }
        let before = state.tracking.replace(Box::new(tracking));
        self.tracked.clients += usize::from(before.is_none());
        self.clients.release(client, before.as_deref().map_or(0, prefix_bytes));
        self.clients.hold(client, bytes);
    }

    /// Stops tracking for a client. The keys that it has read stay in the table until they change.
    pub(super) fn stop_tracking(&mut self, client: ClientId) {
        let tracking = self.get_mut(client).and_then(|state| state.tracking.take());
        let Some(tracking) = tracking else { return };
        self.tracked.clients -= 1;
        self.clients.release(client, prefix_bytes(&tracking));
        for name in &tracking.prefixes {
            let Some(prefix) = self.tracked.prefixes.get_mut(name) else { continue };
            prefix.listeners.remove(&client);
            if prefix.listeners.is_empty() {
                self.tracked.prefixes.remove(name);
            }
        }
    }

    /// Records that a client has read a key; returns whether the key was not in the table.
    fn remember_read(&mut self, client: ClientId, key: &[u8]) -> bool {
        let (tracked, clients) = (&mut self.tracked, &self.clients);
        let Some(readers) = tracked.readers.get_mut(key) else {
            tracked.readers.insert_new(key, BTreeSet::from([client]));
            tracked.reads += 1;
            return true;
        };
        tracked.reads -= readers.len();
        readers.insert(client);
        if readers.len() > clients.len() {
            readers.retain(|&reader| clients.get(reader).is_some());
        }
        tracked.reads += readers.len();
        false
    }

    /// Handles a change of a key: sends messages to the clients that have read it, and records it
    /// for prefixes. `changed_by` is the client and caller of the command, if any.
    #[inline]
    pub(crate) fn invalidate(&mut self, key: &[u8], changed_by: Option<(ClientId, Caller)>) {
        if self.is_tracking() {
            self.invalidate_tracked(key, changed_by);
        }
    }

    /// Whether [`Sessions::invalidate`] has anything to do.
    #[inline]
    pub(crate) fn is_tracking(&self) -> bool {
        self.tracked.clients > 0 || !self.tracked.readers.is_empty()
    }

    #[cold]
    fn invalidate_tracked(&mut self, key: &[u8], changed_by: Option<(ClientId, Caller)>) {
        // In broadcast mode, a client gets messages about changes by its own scripts despite
        // `NOLOOP`, as in Redis.
        let author = changed_by.filter(|&(_, caller)| caller != Caller::Script);
        for (name, prefix) in &mut self.tracked.prefixes {
            if key.starts_with(name) {
                let author = author.map(|(client, _)| client);
                prefix.changed.insert(Bytes::copy_from_slice(key), author);
            }
        }
        self.invalidate_readers(key, changed_by.map(|(client, _)| client));
    }

    fn invalidate_readers(&mut self, key: &[u8], author: Option<ClientId>) {
        let Some((_, readers)) = self.tracked.readers.remove(key) else { return };
        self.tracked.reads -= readers.len();
        for reader in readers {
            let state = self.get(reader);
            let Some(tracking) = state.and_then(|state| state.tracking.as_ref()) else { continue };
            let is_own = tracking.no_loop && author == Some(reader);
            if tracking.mode != Mode::Broadcast && !is_own {
                self.send_invalidation(reader, Reply::Array(vec![Reply::bulk(key)]));
            }
        }
    }

    /// Handles the deletion of whole databases: sends a message to every tracking client, and
    /// empties the table of keys.
    pub(crate) fn invalidate_all(&mut self) {
        if self.tracked.clients > 0 {
            for client in self.clients.in_order() {
                self.send_invalidation(client, Reply::Null);
            }
        }
        self.tracked.readers.clear();
        self.tracked.reads = 0;
    }

    /// Ends the exception of `CLIENT CACHING` after a client's request, unless that was the request
    /// or a transaction has begun.
    fn end_caching(&mut self, client: ClientId, argv: &[&[u8]]) {
        let Some(state) = self.get_mut(client) else { return };
        let stays = state.transaction.is_some() || argv.first().is_some_and(|n| is(n, "client"));
        if let Some(tracking) = state.tracking.as_mut().filter(|_| !stays) {
            tracking.caching = false;
        }
    }

    /// Sends the keys that have changed since the last call to the clients that track their
    /// prefixes.
    pub(crate) fn broadcast_changes(&mut self) {
        let nothing = self.tracked.prefixes.values().all(|prefix| prefix.changed.is_empty());
        // The clients that are served next may change more keys.
        if nothing || self.has_waiters_to_serve() {
            return;
        }
        let changed =
            self.tracked.prefixes.values_mut().filter(|prefix| !prefix.changed.is_empty());
        let broadcasts: Vec<_> = changed
            .map(|prefix| (prefix.listeners.clone(), std::mem::take(&mut prefix.changed)))
            .collect();
        for (listeners, changed) in broadcasts {
            for listener in listeners {
                let state = self.get(listener);
                let tracking = state.and_then(|state| state.tracking.as_ref());
                let excluded = tracking.filter(|tracking| tracking.no_loop).map(|_| listener);
                let keys =
                    changed.iter().filter(|(_, author)| excluded.is_none() || **author != excluded);
                let keys: Vec<Reply> = keys.map(|(key, _)| Reply::Bulk(key.clone())).collect();
                if !keys.is_empty() {
                    self.send_invalidation(listener, Reply::Array(keys));
                }
            }
        }
    }

    /// Sends an invalidation message to a tracking client or its redirect client. In RESP2 the
    /// message goes to a channel, so only a redirect client with a subscription gets it.
    fn send_invalidation(&mut self, client: ClientId, keys: Reply) {
        let Some(state) = self.get(client) else { return };
        let Some(redirect) = state.tracking.as_ref().map(|tracking| tracking.redirect) else {
            return;
        };
        let Some(receiver) = self.get(redirect.unwrap_or(client)) else {
            return self.report_broken_redirect(client);
        };
        let parts = match receiver.protocol {
            Protocol::Resp3 => vec![Reply::bulk("invalidate"), keys],
            Protocol::Resp2 if redirect.is_some() && receiver.is_subscriber() => {
                vec![Reply::bulk("message"), Reply::bulk("__redis__:invalidate"), keys]
            }
            Protocol::Resp2 => return,
        };
        self.push(receiver.id, &Reply::Push(parts));
    }

    fn report_broken_redirect(&mut self, client: ClientId) {
        let Some(state) = self.get_mut(client) else { return };
        let Some(tracking) = state.tracking.as_mut() else { return };
        tracking.broken_redirect = true;
        if let (Protocol::Resp3, Some(gone)) = (state.protocol, tracking.redirect) {
            let serial = i64::try_from(gone.serial).unwrap_or(i64::MAX);
            let parts = vec![Reply::bulk("tracking-redir-broken"), Reply::Integer(serial)];
            self.push(client, &Reply::Push(parts));
        }
    }
}

impl Engine {
    /// Starts tracking for a client, or changes its options.
    pub(crate) fn start_tracking(&mut self, client: ClientId, tracking: Tracking) {
        self.sessions.start_tracking(client, tracking);
        self.update_consumers();
    }

    /// Stops tracking for a client.
    pub(crate) fn stop_tracking(&mut self, client: ClientId) {
        self.sessions.stop_tracking(client);
        self.update_consumers();
    }

    /// Called after a command if any client tracks: records the keys that were read, if
    /// the client's mode includes them.
    pub(crate) fn remember_reads(&mut self, client: ClientId, command: &Command, argv: &[&[u8]]) {
        let reads = command.flags.contains(Flags::READONLY) && command.group != Group::Scripting;
        if !reads {
            return;
        }
        let state = self.sessions.get(client);
        let wanted =
            state.and_then(|state| state.tracking.as_ref()).is_some_and(|tracking| match tracking
                .mode
            {
                Mode::Reads => true,
                Mode::OptIn => tracking.caching,
                Mode::OptOut => !tracking.caching,
                Mode::Broadcast => false,
            });
        let places = if wanted { command.key_places(argv) } else { None };
        for place in places.unwrap_or_default() {
            if self.sessions.remember_read(client, argv[place]) {
                self.evict_excess_keys();
            }
        }
    }

    /// Invalidates keys if more are recorded than `tracking-table-max-keys`. Removes up to two keys
    /// for each key that is added, so that the table also shrinks to a lower limit.
    fn evict_excess_keys(&mut self) {
        let max = usize::try_from(self.settings.tracking_table_max_keys).unwrap_or(usize::MAX);
        for _ in 0..2 {
            if max == 0 || self.sessions.tracked.readers.len() <= max {
                return;
            }
            if let Some(slot) = self.sessions.tracked.readers.random(&mut self.random) {
                let key = self.sessions.tracked.readers.key(slot).to_vec();
                self.sessions.invalidate_readers(&key, None);
            }
        }
    }

    /// Called after a client's request if any client tracks: broadcasts the changes, and ends the
    /// exception of `CLIENT CACHING`.
    pub(crate) fn finish_tracking(&mut self, client: ClientId, argv: &[&[u8]]) {
        if !self.is_busy() {
            self.sessions.broadcast_changes();
        }
        self.sessions.end_caching(client, argv);
    }
}

#[cfg(test)]
mod tests {
    use crate::sessions::Origin;
    use crate::settings::Settings;
    use crate::testing::{Stage, check, words};

    #[test]
    fn redirect_client_gets_the_messages() {
        check(
            "PING; b> SUBSCRIBE __redis__:invalidate; b<; CLIENT TRACKING ON REDIRECT 2 => OK; \
             CLIENT GETREDIR => 2; MGET k l; c> MSET k v l v; \
             b< => [\"message\", \"__redis__:invalidate\", [\"k\"]] & \
             [\"message\", \"__redis__:invalidate\", [\"l\"]]; c> SET k w; b< => ; a< => ; \
             c> FLUSHALL; b< => [\"message\", \"__redis__:invalidate\", nil]",
        );
        check(
            "PING; b> HELLO 3; CLIENT TRACKING ON REDIRECT 2; GET k; SET k v => OK; \
             b< => >[\"invalidate\", [\"k\"]]",
        );
    }

    #[test]
    fn resp2_client_gets_messages_only_as_subscribed_redirect_client() {
        check("CLIENT TRACKING ON; GET k; SET k v => OK; a< => ");
        check("PING; b> PING; CLIENT TRACKING ON REDIRECT 2; GET k; SET k v => OK; b< => ");
        check("CLIENT TRACKING ON BCAST; SUBSCRIBE c; b> SET k v; a< => ");
    }

    #[test]
    fn broken_redirect_is_reported() {
        check(
            "PING; b> PING; CLIENT TRACKING ON REDIRECT 2; GET k; b!; \
             CLIENT TRACKINGINFO => [\"flags\", [\"on\"], \"redirect\", 2, ...; SET k v => OK; \
             CLIENT TRACKINGINFO => [\"flags\", [\"on\", \"broken_redirect\"], ...; \
             CLIENT INFO => ...flags=tR ... redir=2 ...; HELLO 3; GET k; \
             SET k v => OK & >[\"tracking-redir-broken\", 2]; CLIENT TRACKING ON => OK; GET k; \
             SET k v => OK & >[\"invalidate\", [\"k\"]]",
        );
    }

    #[test]
    fn expiration_invalidates_the_key() {
        check(
            "HELLO 3; CLIENT TRACKING ON; b> SET k v PX 10; GET k; +9ms; a< => ; +1ms; \
             a< => >[\"invalidate\", [\"k\"]]",
        );
        check(
            "HELLO 3; CLIENT TRACKING ON BCAST NOLOOP; SET k v PX 10; SET l v PX 10; a< => ; \
             +10ms; a< => >[\"invalidate\", [\"k\", \"l\"]]",
        );
    }

    #[test]
    fn keys_read_by_a_script_are_tracked() {
        check(
            "HELLO 3; CLIENT TRACKING ON; EVAL \"return redis.call('get', 'k')\" 0 => nil; \
             b> SET k v; a< => >[\"invalidate\", [\"k\"]]; EVAL_RO \"return 1\" 1 k; b> SET k w; \
             a< => ",
        );
    }

    #[test]
    fn blocked_client_gets_the_message_after_the_reply() {
        check(
            "HELLO 3; CLIENT TRACKING ON; LLEN m; BLMOVE k m LEFT LEFT 0; b> RPUSH k x; \
             a< => \"x\" & >[\"invalidate\", [\"m\"]]",
        );
    }

    #[test]
    fn keys_are_tracked_across_databases() {
        check(
            "HELLO 3; CLIENT TRACKING ON; GET k; b> SELECT 3; b> SET k v; \
             a< => >[\"invalidate\", [\"k\"]]; GET k; b> FLUSHDB; a< => >[\"invalidate\", nil]",
        );
    }

    #[test]
    fn number_of_tracked_keys_is_bounded() {
        let mut settings = Settings::default();
        settings.tracking_table_max_keys = 2;
        let mut stage = Stage::new(settings);
        stage.check("HELLO 3; CLIENT TRACKING ON; MGET a b => [nil, nil]");
        stage.check("GET c => nil & >[\"invalidate\", [...]]");
        assert_eq!(
            (stage.engine.sessions.tracked.keys(), stage.engine.sessions.tracked.reads()),
            (2, 2)
        );
        stage.check("CONFIG SET tracking-table-max-keys 1; GET d => nil & >[...]] & >[...]]");
        assert_eq!(
            (stage.engine.sessions.tracked.keys(), stage.engine.sessions.tracked.reads()),
            (1, 1)
        );
        stage.check("FLUSHALL");
        assert_eq!(
            (stage.engine.sessions.tracked.keys(), stage.engine.sessions.tracked.reads()),
            (0, 0)
        );
    }

    #[test]
    fn disconnected_clients_are_removed() {
        let mut stage = Stage::new(Settings::default());
        stage.check("CLIENT TRACKING ON; GET k");
        for _ in 0..100 {
            let time = stage.time();
            let client = stage.engine.connect(Origin::default(), time);
            for command in ["CLIENT TRACKING ON BCAST", "CLIENT TRACKING OFF", "CLIENT TRACKING ON"]
            {
                stage.run(client, &words(command));
            }
            stage.run(client, &words("GET k"));
            stage.engine.disconnect(client);
        }
        assert!(
            stage.engine.sessions.tracked.reads() <= 2,
            "{}",
            stage.engine.sessions.tracked.reads()
        );
        assert_eq!(
            (stage.engine.sessions.tracked.clients(), stage.engine.sessions.tracked.prefixes()),
            (1, 0)
        );
    }
}
