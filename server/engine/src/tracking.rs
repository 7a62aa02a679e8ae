//! Client side caching: who has read which keys, or wants to hear of keys by their beginning, and
//! how they are told when those change (`CLIENT TRACKING`).
//!
//! What must hold: whoever has been answered with what a key held is told of its next change, after
//! the reply of the command that changed it; and every prefix here belongs to a connected client.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use lockwheel_resp::{Protocol, Reply};

use crate::Engine;
use crate::command::{Command, Flags, Group};
use crate::context::{Caller, is};
use crate::keyspace::dict::{Dict, HashSeed};
use crate::session::ClientId;

/// What a client has asked for.
#[derive(Clone, Debug)]
pub struct Tracking {
    /// Which keys it hears of.
    pub mode: Mode,
    /// Not of keys it has changed itself.
    pub no_loop: bool,
    /// Who is told in its place.
    pub redirect: Option<ClientId>,
    /// Somebody should have been told in its place who is gone.
    pub broken_redirect: bool,
    /// `CLIENT CACHING` makes the next command, or transaction, an exception.
    pub caching: bool,
    /// How the keys begin that it hears of in [`Mode::Broadcast`].
    pub prefixes: BTreeSet<Bytes>,
}

/// Which keys a client hears of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Those it has read.
    Reads,
    /// Those it has read after `CLIENT CACHING YES`.
    OptIn,
    /// Those it has read, but not after `CLIENT CACHING NO`.
    OptOut,
    /// Those that begin with one of its prefixes.
    Broadcast,
}

/// What is tracked for all clients.
#[derive(Debug)]
pub struct Tracked {
    clients: usize,
    /// Who has read a key, in whatever database, since it last changed. They may be gone.
    readers: Dict<BTreeSet<ClientId>>,
    reads: usize,
    prefixes: BTreeMap<Bytes, Prefix>,
}

/// A beginning of keys that clients want to hear of.
#[derive(Debug, Default)]
struct Prefix {
    listeners: BTreeSet<ClientId>,
    /// The keys that have changed, and by whom, since they were last told.
    changed: BTreeMap<Bytes, Option<ClientId>>,
}

impl Tracked {
    /// Nothing is tracked.
    pub fn new(seed: HashSeed) -> Tracked {
        Tracked { clients: 0, readers: Dict::new(seed), reads: 0, prefixes: BTreeMap::new() }
    }

    /// How many clients track.
    pub fn clients(&self) -> usize {
        self.clients
    }

    /// How many keys have been read.
    pub fn keys(&self) -> usize {
        self.readers.len()
    }

    /// By how many clients, each key counted for itself.
    pub fn reads(&self) -> usize {
        self.reads
    }

    /// How many beginnings of keys are listened for.
    pub fn prefixes(&self) -> usize {
        self.prefixes.len()
    }
}

/// What a prefix takes beside its bytes: its places in both tables.
const PREFIX_BYTES: usize = 128;

fn prefix_bytes(tracking: &Tracking) -> usize {
    tracking.prefixes.iter().map(|prefix| prefix.len() + PREFIX_BYTES).sum()
}

impl Engine {
    /// A client tracks from now on, or does so otherwise than before.
    pub fn start_tracking(&mut self, client: ClientId, tracking: Tracking) {
        let Some(state) = self.sessions.get_mut(client) else { return };
        let bytes = prefix_bytes(&tracking);
        for prefix in &tracking.prefixes {
            let prefix = self.tracked.prefixes.entry(prefix.clone()).or_default();
            prefix.listeners.insert(client);
        }
        let before = state.tracking.replace(Box::new(tracking));
        self.tracked.clients += usize::from(before.is_none());
        self.sessions.release(client, before.as_deref().map_or(0, prefix_bytes));
        self.sessions.hold(client, bytes);
    }

    /// A client no longer tracks. What it has read is forgotten when that changes.
    pub fn stop_tracking(&mut self, client: ClientId) {
        let tracking = self.sessions.get_mut(client).and_then(|state| state.tracking.take());
        let Some(tracking) = tracking else { return };
        self.tracked.clients -= 1;
        self.sessions.release(client, prefix_bytes(&tracking));
        for name in &tracking.prefixes {
            let Some(prefix) = self.tracked.prefixes.get_mut(name) else { continue };
            prefix.listeners.remove(&client);
            if prefix.listeners.is_empty() {
                self.tracked.prefixes.remove(name);
            }
        }
    }

    /// A client's command has been run, and somebody tracks: remembers what it has read, if the
    /// client wants to hear of that.
    pub(super) fn remember_reads(&mut self, client: ClientId, command: &Command, argv: &[&[u8]]) {
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
            self.remember_read(client, argv[place]);
        }
    }

    fn remember_read(&mut self, client: ClientId, key: &[u8]) {
        let (tracked, clients) = (&mut self.tracked, &self.sessions);
        let Some(readers) = tracked.readers.get_mut(key) else {
            tracked.readers.insert_new(key, BTreeSet::from([client]));
            tracked.reads += 1;
            self.bound_tracked();
            return;
        };
        tracked.reads -= readers.len();
        readers.insert(client);
        if readers.len() > clients.len() {
            readers.retain(|&reader| clients.get(reader).is_some());
        }
        tracked.reads += readers.len();
    }

    /// Tells of a key as if it had changed, so as to forget it, where too many are remembered. Two
    /// for each that is added: so a lower bound is reached, too.
    fn bound_tracked(&mut self) {
        let max = usize::try_from(self.settings.tracking_table_max_keys).unwrap_or(usize::MAX);
        for _ in 0..2 {
            if max == 0 || self.tracked.readers.len() <= max {
                return;
            }
            if let Some(slot) = self.tracked.readers.random(&mut self.random) {
                let key = self.tracked.readers.key(slot).to_vec();
                self.tell_readers(&key, None);
            }
        }
    }

    /// A key has changed, by whose command if it was one: tells those who have read it, and
    /// remembers it for those who listen for its beginning.
    #[inline]
    pub fn invalidate(&mut self, key: &[u8], changed_by: Option<(ClientId, Caller)>) {
        if self.is_tracking() {
            self.tell_of_key(key, changed_by);
        }
    }

    /// Whether [`Engine::invalidate`] has anybody to tell.
    #[inline]
    pub fn is_tracking(&self) -> bool {
        self.tracked.clients > 0 || !self.tracked.readers.is_empty()
    }

    #[cold]
    fn tell_of_key(&mut self, key: &[u8], changed_by: Option<(ClientId, Caller)>) {
        // What a script has changed its caller is told even if it asked not to be, as in Redis.
        let author = changed_by.filter(|&(_, caller)| caller != Caller::Script);
        for (name, prefix) in &mut self.tracked.prefixes {
            if key.starts_with(name) {
                let author = author.map(|(client, _)| client);
                prefix.changed.insert(Bytes::copy_from_slice(key), author);
            }
        }
        self.tell_readers(key, changed_by.map(|(client, _)| client));
    }

    fn tell_readers(&mut self, key: &[u8], author: Option<ClientId>) {
        let Some((_, readers)) = self.tracked.readers.remove(key) else { return };
        self.tracked.reads -= readers.len();
        for reader in readers {
            let state = self.sessions.get(reader);
            let Some(tracking) = state.and_then(|state| state.tracking.as_ref()) else { continue };
            let is_own = tracking.no_loop && author == Some(reader);
            if tracking.mode != Mode::Broadcast && !is_own {
                self.tell_of_change(reader, Reply::Array(vec![Reply::bulk(key)]));
            }
        }
    }

    /// Whole databases have been emptied: tells everyone who tracks, and forgets what was read.
    pub fn invalidate_all(&mut self) {
        if self.tracked.clients > 0 {
            for client in self.sessions.in_order() {
                self.tell_of_change(client, Reply::Null);
            }
        }
        self.tracked.readers.clear();
        self.tracked.reads = 0;
    }

    /// A client's request has been run, and somebody tracks: tells of what it has changed, and ends
    /// the exception that `CLIENT CACHING` made, unless that was the request, or a transaction has
    /// begun.
    pub(super) fn finish_tracking(&mut self, client: ClientId, argv: &[&[u8]]) {
        if !self.busy {
            self.broadcast_changes();
        }
        let Some(state) = self.sessions.get_mut(client) else { return };
        let stays = state.transaction.is_some() || argv.first().is_some_and(|n| is(n, "client"));
        if let Some(tracking) = state.tracking.as_mut().filter(|_| !stays) {
            tracking.caching = false;
        }
    }

    /// Tells those who listen for beginnings of keys what has changed since the last call.
    pub(super) fn broadcast_changes(&mut self) {
        if self.tracked.prefixes.values().all(|prefix| prefix.changed.is_empty()) {
            return;
        }
        let told = self.tracked.prefixes.values_mut().filter(|prefix| !prefix.changed.is_empty());
        let told: Vec<_> = told
            .map(|prefix| (prefix.listeners.clone(), std::mem::take(&mut prefix.changed)))
            .collect();
        for (listeners, changed) in told {
            for listener in listeners {
                let state = self.sessions.get(listener);
                let tracking = state.and_then(|state| state.tracking.as_ref());
                let spared = tracking.filter(|tracking| tracking.no_loop).map(|_| listener);
                let keys =
                    changed.iter().filter(|(_, author)| spared.is_none() || **author != spared);
                let keys: Vec<Reply> = keys.map(|(key, _)| Reply::Bulk(key.clone())).collect();
                if !keys.is_empty() {
                    self.tell_of_change(listener, Reply::Array(keys));
                }
            }
        }
    }

    /// Tells a client that tracks, or who is to be told in its place, what has changed. RESP2 has
    /// no other way than the message of a channel, to another client that listens to any.
    fn tell_of_change(&mut self, client: ClientId, what: Reply) {
        let Some(state) = self.sessions.get(client) else { return };
        let Some(redirect) = state.tracking.as_ref().map(|tracking| tracking.redirect) else {
            return;
        };
        let Some(receiver) = self.sessions.get(redirect.unwrap_or(client)) else {
            return self.tell_of_broken_redirect(client);
        };
        let parts = match receiver.protocol {
            Protocol::Resp3 => vec![Reply::bulk("invalidate"), what],
            Protocol::Resp2 if redirect.is_some() && receiver.is_subscriber() => {
                vec![Reply::bulk("message"), Reply::bulk("__redis__:invalidate"), what]
            }
            Protocol::Resp2 => return,
        };
        self.push(receiver.id, &Reply::Push(parts));
    }

    fn tell_of_broken_redirect(&mut self, client: ClientId) {
        let Some(state) = self.sessions.get_mut(client) else { return };
        let Some(tracking) = state.tracking.as_mut() else { return };
        tracking.broken_redirect = true;
        if let (Protocol::Resp3, Some(gone)) = (state.protocol, tracking.redirect) {
            let serial = i64::try_from(gone.serial).unwrap_or(i64::MAX);
            let parts = vec![Reply::bulk("tracking-redir-broken"), Reply::Integer(serial)];
            self.push(client, &Reply::Push(parts));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::session::Origin;
    use crate::settings::Settings;
    use crate::testing::{Stage, check, words};

    #[test]
    fn another_is_told_in_ones_place() {
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
    fn resp2_is_told_only_as_a_subscriber_of_anothers() {
        check("CLIENT TRACKING ON; GET k; SET k v => OK; a< => ");
        check("PING; b> PING; CLIENT TRACKING ON REDIRECT 2; GET k; SET k v => OK; b< => ");
        check("CLIENT TRACKING ON BCAST; SUBSCRIBE c; b> SET k v; a< => ");
    }

    #[test]
    fn it_is_known_that_nobody_is_told() {
        let mut stage = Stage::new(Settings::default());
        stage.check("PING; b> PING; CLIENT TRACKING ON REDIRECT 2; GET k");
        let gone = stage.client("b");
        stage.engine.disconnect(gone);
        stage.check(
            "CLIENT TRACKINGINFO => [\"flags\", [\"on\"], \"redirect\", 2, ...; SET k v => OK; \
             CLIENT TRACKINGINFO => [\"flags\", [\"on\", \"broken_redirect\"], ...; \
             CLIENT INFO => ...flags=tR ... redir=2 ...; HELLO 3; GET k; \
             SET k v => OK & >[\"tracking-redir-broken\", 2]; CLIENT TRACKING ON => OK; GET k; \
             SET k v => OK & >[\"invalidate\", [\"k\"]]",
        );
    }

    #[test]
    fn the_end_of_a_lease_is_told() {
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
    fn what_a_script_reads_has_been_read() {
        check(
            "HELLO 3; CLIENT TRACKING ON; EVAL \"return redis.call('get', 'k')\" 0 => nil; \
             b> SET k v; a< => >[\"invalidate\", [\"k\"]]; EVAL_RO \"return 1\" 1 k; b> SET k w; \
             a< => ",
        );
    }

    #[test]
    fn who_has_waited_is_told_behind_the_reply() {
        check(
            "HELLO 3; CLIENT TRACKING ON; LLEN m; BLMOVE k m LEFT LEFT 0; b> RPUSH k x; \
             a< => \"x\" & >[\"invalidate\", [\"m\"]]",
        );
    }

    #[test]
    fn keys_are_the_same_in_all_databases() {
        check(
            "HELLO 3; CLIENT TRACKING ON; GET k; b> SELECT 3; b> SET k v; \
             a< => >[\"invalidate\", [\"k\"]]; GET k; b> FLUSHDB; a< => >[\"invalidate\", nil]",
        );
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut settings = Settings::default();
        settings.tracking_table_max_keys = 2;
        let mut stage = Stage::new(settings);
        stage.check("HELLO 3; CLIENT TRACKING ON; MGET a b => [nil, nil]");
        stage.check("GET c => nil & >[\"invalidate\", [...]]");
        assert_eq!((stage.engine.tracked.keys(), stage.engine.tracked.reads()), (2, 2));
        stage.check("CONFIG SET tracking-table-max-keys 1; GET d => nil & >[...]] & >[...]]");
        assert_eq!((stage.engine.tracked.keys(), stage.engine.tracked.reads()), (1, 1));
        stage.check("FLUSHALL");
        assert_eq!((stage.engine.tracked.keys(), stage.engine.tracked.reads()), (0, 0));
    }

    #[test]
    fn those_who_are_gone_are_forgotten() {
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
        assert!(stage.engine.tracked.reads() <= 2, "{}", stage.engine.tracked.reads());
        assert_eq!((stage.engine.tracked.clients(), stage.engine.tracked.prefixes()), (1, 0));
    }
}
