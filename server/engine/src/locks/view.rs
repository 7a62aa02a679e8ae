//! The lock view: which client holds which lock, and which clients wait for it. Determined when it
//! is read, from the keys, the [notes](crate::store::lock_notes) about them, and the sessions.
//!
//! Tokens of libraries are never part of it: with the token, a lock can be released. The owner, the
//! fencing token and the text of a native lock are, for users that may see them by another command.
//!
//! A follower has no notes. There the view is what the keys show, as after a restart.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::evidence::{Confidence, Declared, Evidence, Impression};
use super::table::{KeyState, look};
use super::words::{self, Name, Value};
use super::{Shape, kinds};
use crate::Engine;
use crate::acl::ReadableKeys;
use crate::glob;
use crate::limits::{LOCK_EVENTS_PER_REPLY_MAX, VIEWED_CLIENTS_MAX};
use crate::store::dict::Slot;
use crate::store::lock::{Hold, Lock};
use crate::store::lock_notes::{
    EventKey, LockEvent, LockEventKind, LockNotes, MadeBy, Note, may_be_restored,
};
use crate::store::records::Record;
use crate::store::value::ValueRef;
use crate::timing::time::{Millis, Time};

/// A client that holds a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ViewedClient {
    /// Its `CLIENT ID`; 0 if it is not known.
    pub client: u64,
    /// Its name; empty if it has none or is not connected.
    pub name: String,
    /// Its address; empty if it is not connected.
    pub address: String,
    /// Its user; empty if it is not connected.
    pub user: String,
}

/// A holder of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ViewedHolder {
    /// Its client.
    #[serde(flatten)]
    pub client: ViewedClient,
    /// How often it holds the lock.
    pub count: i64,
    /// The owner of a native lock, if the reader may see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The fencing token of its grant, as the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
    /// The text that the owner gave with `META`, as the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<String>,
}

/// A client that waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ViewedWaiter {
    /// The client.
    #[serde(flatten)]
    pub client: ViewedClient,
    /// How it waits.
    pub how: Waiting,
}

/// How a client waits for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Waiting {
    /// In the queue of a fair lock, or of a native lock.
    Queued,
    /// For a message that the lock was released.
    Subscribed,
    /// In a blocking command.
    Blocked,
    /// It has tried to acquire the lock in the last seconds.
    Refused,
}

/// A held lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ViewedLock {
    /// The key; bytes that are not UTF-8 are replaced.
    pub key: String,
    /// The key with percent-encoding, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_encoded: Option<String>,
    /// The key's database.
    pub database: usize,
    /// The library and its recipe where they are known, else the shape.
    pub kind: &'static str,
    /// How the lock is stored.
    pub shape: Shape,
    /// How sure it is that the key is a lock.
    pub confidence: Confidence,
    /// Reason for the confidence.
    pub reason: &'static str,
    /// Its holders.
    pub holders: Vec<ViewedHolder>,
    /// When it was acquired, in milliseconds since 1970 on the lease clock; 0 if it is not known.
    pub since_ms: i64,
    /// The remaining lease in milliseconds; none without a lease.
    pub lease_ms: Option<i64>,
    /// The whole lease that was set last, if it is known.
    pub lease_full_ms: Option<i64>,
    /// How often its lease was renewed.
    pub renewals: u32,
    /// The clients that wait for it, in order.
    pub waiters: Vec<ViewedWaiter>,
    /// The attempts that were refused in the last minute.
    pub refusals: u64,
}

/// An event of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ViewedEvent {
    /// Its number.
    pub sequence: u64,
    /// When it happened, in milliseconds since 1970 on the lease clock.
    pub at_ms: i64,
    /// What has happened.
    pub event: LockEventKind,
    /// The key; bytes that are not UTF-8 are replaced. Empty if all locks of the database may have
    /// changed.
    pub key: String,
    /// The key's database.
    pub database: usize,
    /// The `CLIENT ID` of the client that has caused it.
    pub client: u64,
}

/// Locks, and where the view goes on.
#[derive(Clone, Debug, Serialize)]
pub struct LocksReply {
    /// The number of the last event before.
    pub sequence: u64,
    /// The time on the lease clock.
    pub now_ms: i64,
    /// Where to go on; 0 at the end.
    pub cursor: String,
    /// On a follower, the address of its leader for clients; empty if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The locks.
    pub locks: Vec<ViewedLock>,
}

/// One lock with its history.
#[derive(Clone, Debug, Serialize)]
pub struct LockReply {
    /// The number of the last event.
    pub sequence: u64,
    /// The time on the lease clock.
    pub now_ms: i64,
    /// On a follower, the address of its leader for clients; empty if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<String>,
    /// The lock, if it is held.
    pub lock: Option<ViewedLock>,
    /// The last events of its key, the oldest first.
    pub history: Vec<ViewedEvent>,
}

/// What has changed.
#[derive(Clone, Debug, Serialize)]
pub struct ChangesReply {
    /// The number of the last of these events.
    pub sequence: u64,
    /// The time on the lease clock.
    pub now_ms: i64,
    /// Whether events were dropped: all locks must then be read again.
    pub missed: bool,
    /// The events, the oldest first.
    pub events: Vec<ViewedEvent>,
    /// The present state of the locks that the events name.
    pub locks: Vec<ViewedLock>,
}

/// Time for which refusals are shown as contention.
const CONTENTION: Millis = Millis(60_000);
/// Longest time until another attempt of a refused client that still counts as waiting.
const RETRY: Millis = Millis(5_000);

/// What events tell about one key.
#[derive(Default)]
struct Activity {
    /// Refusals in the last minute.
    refusals: u64,
    /// The clients that were refused in the last seconds, in order.
    refused: Vec<u64>,
    /// The clients that have acquired it and when, the last one last.
    acquired: Vec<(u64, Millis)>,
}

/// What the events tell about each key.
fn activity(notes: &LockNotes, time: Time) -> BTreeMap<(usize, &EventKey), Activity> {
    let mut activity: BTreeMap<(usize, &EventKey), Activity> = BTreeMap::new();
    for (_, event) in notes.events() {
        let age_ms = time.now.0 - event.at.0;
        let is_refusal = event.kind == LockEventKind::Refused && age_ms < CONTENTION.0;
        if !is_refusal && event.kind != LockEventKind::Acquired {
            continue;
        }
        let known = activity.entry((event.database as usize, &event.key)).or_default();
        known.refused.retain(|&client| client != event.client);
        if is_refusal {
            known.refusals += 1;
            if age_ms < RETRY.0 {
                push(&mut known.refused, event.client);
            }
        } else {
            known.acquired.retain(|&(client, _)| client != event.client);
            push(&mut known.acquired, (event.client, event.at));
        }
    }
    activity
}

/// Appends a client, and drops the first one beyond the limit.
fn push<T>(clients: &mut Vec<T>, client: T) {
    if clients.len() >= VIEWED_CLIENTS_MAX {
        clients.remove(0);
    }
    clients.push(client);
}

/// The view for one client at one time.
pub(crate) struct LockView<'e> {
    engine: &'e Engine,
    /// None on a follower.
    notes: Option<&'e LockNotes>,
    readable: ReadableKeys<'e>,
    /// The keys of native locks that are shown with their owners.
    with_owners: ReadableKeys<'e>,
    time: Time,
    declared: Declared,
    /// Activity of each key, found when it is first needed: most locks have no events of other
    /// clients.
    activity: OnceCell<BTreeMap<(usize, &'e EventKey), Activity>>,
}

impl<'e> LockView<'e> {
    /// The view of these keys; `None` if there is none.
    pub(crate) fn new(
        engine: &'e Engine,
        readable: ReadableKeys<'e>,
        with_owners: ReadableKeys<'e>,
        time: Time,
    ) -> Option<LockView<'e>> {
        let notes = engine.writer.lock_notes();
        if notes.is_none() && !(engine.is_follower() && engine.settings.lock_view) {
            return None;
        }
        let declared = Declared::of(&engine.settings);
        let activity = OnceCell::new();
        Some(LockView { engine, notes, readable, with_owners, time, declared, activity })
    }

    /// On a follower, the address of its leader for clients; empty if it is not known.
    pub(crate) fn leader(&self) -> Option<String> {
        let leader = self.engine.nodes.leader.as_ref();
        let address = leader.map(|leader| format!("{}:{}", leader.host, leader.port));
        self.notes.is_none().then(|| address.unwrap_or_default())
    }

    /// The number of the last event.
    fn sequence(&self) -> u64 {
        self.notes.map_or(0, LockNotes::sequence)
    }

    /// What the events tell about each key.
    fn activity(&self) -> &BTreeMap<(usize, &'e EventKey), Activity> {
        let of_notes = |notes| activity(notes, self.time);
        self.activity.get_or_init(|| self.notes.map(of_notes).unwrap_or_default())
    }

    /// About `count` keys from a cursor on, and those of them that are locks and match.
    pub(crate) fn locks(&self, cursor: u64, count: usize, pattern: Option<&[u8]>) -> LocksReply {
        let keyspace = self.engine.writer.keyspace();
        let mut database = (cursor >> DATABASE_SHIFT) as usize;
        let mut place = cursor & PLACE_MASK;
        let (mut locks, mut examined) = (Vec::new(), 0);
        while database < keyspace.count() && examined < count {
            let records = keyspace.database(database).records();
            let (slots, next) = records.scan(place, count - examined);
            for slot in slots {
                examined += 1;
                let record = records.get(slot);
                let matches = pattern.is_none_or(|pattern| glob::matches(pattern, record.key()));
                locks.extend(matches.then(|| self.lock_at(database, slot, record)).flatten());
            }
            place = next;
            if next == 0 {
                database += 1;
            }
        }
        let is_end = database >= keyspace.count();
        let cursor = if is_end { 0 } else { (database as u64) << DATABASE_SHIFT | place };
        LocksReply {
            sequence: self.sequence(),
            now_ms: self.time.now.0,
            cursor: cursor.to_string(),
            leader: self.leader(),
            locks,
        }
    }

    /// One lock and the history of its key.
    pub(crate) fn lock(&self, database: usize, key: &[u8]) -> LockReply {
        LockReply {
            sequence: self.sequence(),
            now_ms: self.time.now.0,
            leader: self.leader(),
            lock: self.find(database, key),
            history: self.history(database, key),
        }
    }

    /// The last events of a key, the oldest first.
    fn history(&self, database: usize, key: &[u8]) -> Vec<ViewedEvent> {
        let Some(notes) = self.notes else { return Vec::new() };
        let event_key = notes.event_key(key);
        let of_key =
            |(_, it): &(u64, &LockEvent)| it.database as usize == database && it.key == event_key;
        let events: Vec<(u64, &LockEvent)> = notes.events().filter(of_key).collect();
        let was_lock = events.iter().any(|(_, event)| event.was_lock);
        if !self.may_see(database, key, was_lock) {
            return Vec::new();
        }
        events.into_iter().map(|(sequence, event)| viewed_event(sequence, event, key)).collect()
    }

    /// The events after the one with this number, and the present state of their locks. `None` on a
    /// follower, which has no events.
    pub(crate) fn changes(&self, since: u64) -> Option<ChangesReply> {
        let now_ms = self.time.now.0;
        let Some(events) = self.notes?.events_since(since) else {
            let sequence = self.sequence();
            let (events, locks) = (Vec::new(), Vec::new());
            return Some(ChangesReply { sequence, now_ms, missed: true, events, locks });
        };
        let events: Vec<(u64, &LockEvent)> = events.take(LOCK_EVENTS_PER_REPLY_MAX).collect();
        let place = |event: &'e LockEvent| (event.database as usize, &event.key);
        let removed = events.iter().filter(|(_, event)| event.was_lock);
        let removed: BTreeSet<_> = removed.map(|&(_, event)| place(event)).collect();
        let (mut sequence, mut shown, mut keys) = (since, Vec::new(), Vec::new());
        for (number, event) in events {
            sequence = number;
            let (database, was_lock) = (event.database as usize, removed.contains(&place(event)));
            match self.key_of(event) {
                Some(key) if key.is_empty() || self.may_see(database, key, was_lock) => {
                    shown.push(viewed_event(number, event, key));
                    keys.push((database, key));
                }
                // The reader must find out which lock is not held any more.
                None if event.kind.ends_lock() => {
                    let removed = LockEvent { kind: LockEventKind::Removed, ..event.clone() };
                    shown.push(viewed_event(number, &removed, &[]));
                }
                _ => {}
            }
        }
        keys.sort_unstable();
        keys.dedup();
        let locks = keys.into_iter().filter_map(|(database, key)| self.find(database, key));
        let locks = locks.collect();
        Some(ChangesReply { sequence, now_ms, missed: false, events: shown, locks })
    }

    /// The key of an event; `None` if it is cut, and there is no such key any more.
    fn key_of(&self, event: &'e LockEvent) -> Option<&'e [u8]> {
        let hash = match event.key.whole() {
            Ok(key) => return Some(key),
            Err(hash) => hash,
        };
        let database = self.engine.writer.keyspace().database(event.database as usize);
        let notes = self.notes?;
        let is_key = |key: &[u8]| notes.event_key(key) == event.key;
        let slot = database.records().find_if(hash, is_key)?;
        Some(database.record(slot).key())
    }

    /// The lock at this key, if there is one.
    pub(crate) fn find(&self, database: usize, key: &[u8]) -> Option<ViewedLock> {
        let slot = self.engine.writer.keyspace().find(database, key)?;
        let record = self.engine.writer.keyspace().database(database).record(slot);
        self.lock_at(database, slot, record)
    }

    /// Whether the reader may see the events of this key: it may read it, and the key is or was a
    /// lock, or has not the name of data.
    fn may_see(&self, database: usize, key: &[u8], was_lock: bool) -> bool {
        let may_be_lock = || {
            was_lock
                || matches!(words::name(key), Name::Lock | Name::Other)
                || self.find(database, key).is_some()
        };
        self.readable.contains(key)
            && (self.declared.is_lock(key) || !self.declared.ignores(key) && may_be_lock())
    }

    /// The lock in a slot, if the key there is one.
    fn lock_at(&self, database: usize, slot: Slot, record: Record<'_>) -> Option<ViewedLock> {
        let (note, key) = (self.notes.and_then(|notes| notes.get(database, slot)), record.key());
        let made_by = match self.notes {
            Some(_) => note.map(Note::made_by),
            None => may_be_restored(record).then_some(MadeBy::Restored),
        };
        let is_declared = self.declared.is_lock(key);
        if made_by.is_none() && !is_declared || !self.readable.contains(key) {
            return None;
        }
        let lock_key = (database, key.to_vec());
        let state = look(self.engine, &lock_key, self.time)?;
        let impression = match made_by {
            _ if self.declared.ignores(key) => None,
            _ if is_declared => Some(Impression::Declared),
            Some(made_by) => impression(key, &state, made_by, self.time),
            None => None,
        }?;
        let shape = state.shape;
        let evidence = Evidence { impression, proof: None, shape, value: Vec::new() };
        let (confidence, reason) = evidence.confidence(false);
        let notes = self.notes.filter(|_| note.is_some_and(Note::is_contended));
        let event_key = notes.map(|notes| notes.event_key(key));
        let activity = event_key.as_ref().and_then(|key| self.activity().get(&(database, key)));
        let holders = match record.value() {
            ValueRef::Lock(lock) => self.native_holders(key, lock),
            _ => self.holders(&state, note, activity),
        };
        let text = String::from_utf8_lossy(key);
        let is_exact = std::str::from_utf8(key).is_ok();
        Some(ViewedLock {
            key_encoded: (!is_exact).then(|| percent_encoded(key)),
            database,
            kind: kinds::kind(self.engine, database, record, shape),
            shape,
            confidence,
            reason,
            waiters: self.waiters(database, key, &holders, activity),
            holders,
            since_ms: self.since(note, record).0,
            lease_ms: state.deadline_ms.map(|it| self.time.remaining(Millis(it)).0),
            lease_full_ms: note.map(|note| note.lease_ms).filter(|&lease_ms| lease_ms > 0),
            renewals: note.map_or(0, |note| note.renewals),
            refusals: activity.map_or(0, |activity| activity.refusals),
            key: text.into_owned(),
        })
    }

    /// When a lock was acquired; 0 if it is not known. A native lock has the time of each grant.
    fn since(&self, note: Option<&Note>, record: Record<'_>) -> Millis {
        let noted = note.map(|note| note.since).filter(|since| since.0 > 0);
        let granted = match record.value() {
            ValueRef::Lock(lock) => lock.holds(self.time).map(|hold| hold.since).min(),
            _ => None,
        };
        noted.or(granted).unwrap_or(Millis(0))
    }

    /// The holders of a native lock, which names their clients.
    fn native_holders(&self, key: &[u8], lock: &Lock) -> Vec<ViewedHolder> {
        let shows_owners = self.with_owners.contains(key);
        let holder = |hold: &Hold| ViewedHolder {
            client: self.client(hold.last_lease().map_or(0, |lease| lease.client)),
            count: i64::try_from(hold.count(self.time)).unwrap_or(i64::MAX),
            owner: shows_owners.then(|| super::text(&hold.owner)),
            token: shows_owners.then_some(hold.token),
            meta: hold.meta.as_deref().filter(|_| shows_owners).map(super::text),
        };
        lock.holds(self.time).map(holder).collect()
    }

    /// The holders: each owner is held by one of the clients that have acquired the lock last.
    fn holders(
        &self,
        state: &KeyState,
        note: Option<&Note>,
        activity: Option<&Activity>,
    ) -> Vec<ViewedHolder> {
        let (first, since) = note.map_or((0, Millis(0)), |note| (note.client, note.since));
        let acquired = activity.map_or(&[][..], |activity| &activity.acquired).iter();
        let mut clients: Vec<u64> =
            acquired.filter(|(_, at)| *at >= since).map(|&(client, _)| client).collect();
        if !clients.contains(&first) {
            clients.insert(0, first);
        }
        let missing = state.owners.len().saturating_sub(clients.len());
        clients.extend(std::iter::repeat_n(0, missing));
        // The first ones may have released it.
        let skipped = clients.len() - state.owners.len();
        let pairs = state.owners.iter().zip(&clients[skipped..]);
        pairs
            .map(|((_, count), &client)| ViewedHolder {
                client: self.client(client),
                count: *count,
                owner: None,
                token: None,
                meta: None,
            })
            .collect()
    }

    /// The clients that wait for a lock, each once. They wait at the leader.
    fn waiters(
        &self,
        database: usize,
        key: &[u8],
        holders: &[ViewedHolder],
        activity: Option<&Activity>,
    ) -> Vec<ViewedWaiter> {
        if self.notes.is_none() {
            return Vec::new();
        }
        let sessions = &self.engine.sessions;
        let subscribers =
            |channel: &[u8]| sessions.pubsub.channels.get(channel).into_iter().flatten();
        let mut waiters: Vec<(u64, Waiting)> = Vec::new();
        for owner in kinds::queued_owners(self.engine, database, key) {
            let client = subscribers(&kinds::channel_of_waiter(key, &owner)).next();
            waiters.push((client.map_or(0, |client| client.serial), Waiting::Queued));
        }
        for channel in kinds::channels(key) {
            let clients = subscribers(&channel);
            waiters.extend(clients.map(|client| (client.serial, Waiting::Subscribed)));
        }
        let queue = sessions.lock_queue(database, key);
        waiters.extend(queue.map(|(client, ..)| (client.serial, Waiting::Queued)));
        for key in kinds::signal_key(key).iter().map(|key| &key[..]).chain([key]) {
            let clients = sessions.waiting_for(database, key);
            waiters.extend(clients.map(|client| (client.serial, Waiting::Blocked)));
        }
        let refused = activity.map_or(&[][..], |activity| &activity.refused).iter();
        waiters.extend(refused.map(|&client| (client, Waiting::Refused)));
        let mut known: BTreeSet<u64> = holders.iter().map(|holder| holder.client.client).collect();
        waiters.retain(|&(client, _)| known.insert(client) || client == 0);
        let shown = |(client, how)| ViewedWaiter { client: self.client(client), how };
        waiters.into_iter().map(shown).collect()
    }

    fn client(&self, serial: u64) -> ViewedClient {
        if self.notes.is_none() {
            // It is one of the leader.
            return ViewedClient::default();
        }
        let clients = &self.engine.sessions.clients;
        let Some(session) = clients.by_serial(serial).and_then(|client| clients.get(client)) else {
            return ViewedClient { client: serial, ..ViewedClient::default() };
        };
        ViewedClient {
            client: serial,
            name: String::from_utf8_lossy(&session.name).into_owned(),
            address: session.origin.address.clone(),
            user: String::from_utf8_lossy(session.identity.user_name()).into_owned(),
        }
    }
}

const DATABASE_SHIFT: u32 = 40;
const PLACE_MASK: u64 = (1 << DATABASE_SHIFT) - 1;

/// The impression of a key by what it was made by; `None` if it is no lock.
fn impression(key: &[u8], state: &KeyState, made_by: MadeBy, time: Time) -> Option<Impression> {
    let (owner, _) = state.owners.first()?;
    let (name, value) = (words::name(key), words::value(owner, time));
    let has_lease = state.deadline_ms.is_some();
    let may_be = match (state.shape, made_by) {
        (Shape::Native, _) => true,
        (_, MadeBy::Command | MadeBy::Forced) => false,
        (Shape::Token, MadeBy::Conditional) => true,
        (Shape::Token, MadeBy::Script | MadeBy::Transaction) => {
            has_lease && (value != Value::Data || name == Name::Lock)
        }
        (Shape::Owners, MadeBy::Script | MadeBy::Transaction) => has_lease || name == Name::Lock,
        (Shape::Semaphore, MadeBy::Script | MadeBy::Transaction) => true,
        (Shape::Token | Shape::Owners, MadeBy::Restored) => {
            has_lease && (name == Name::Lock || name == Name::Other && value == Value::Unique)
        }
        _ => false,
    };
    if !may_be {
        return None;
    }
    Some(match state.shape {
        Shape::Native => Impression::Native,
        Shape::Token => Impression::of(name, value, has_lease),
        Shape::Owners => Impression::of_owner(name, value, true),
        Shape::Semaphore => Impression::of_member(name, value, has_lease, state.ends_later),
    })
}

fn viewed_event(sequence: u64, event: &LockEvent, key: &[u8]) -> ViewedEvent {
    ViewedEvent {
        sequence,
        at_ms: event.at.0,
        event: event.kind,
        key: String::from_utf8_lossy(key).into_owned(),
        database: event.database as usize,
        client: event.client,
    }
}

/// The bytes of a key as in the path of a URL.
fn percent_encoded(key: &[u8]) -> String {
    let mut text = String::new();
    for &byte in key {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(byte.into());
            }
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}
