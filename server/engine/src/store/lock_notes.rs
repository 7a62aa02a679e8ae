//! What the lock view knows of keys beside their values: which client made a key that may be a
//! lock, since when, and how often its lease was renewed; and the last events of all such keys.
//!
//! Notes are beside the state: they are neither logged nor replicated, and no command's result
//! depends on them except that of the lock view.
//!
//! Invariant: a slot has a note only while it is occupied, by the key that the note is about.

use serde::Serialize;
use smallvec::SmallVec;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::dict::{HashSeed, Slot};
use super::pages::Pages;
use super::records::{Record, Records};
use super::slab::misaligned_pages;
use super::value::Kind;
use crate::limits::{LOCK_EVENT_KEY_BYTES_MAX, LOCK_EVENTS_MAX};
use crate::store::counter::increment;
use crate::timing::time::{Millis, Time};

/// The request that changes keys.
#[derive(Clone, Copy, Debug)]
pub struct Author {
    /// The `CLIENT ID` of its client; 0 for none.
    pub client: u64,
    /// When it runs.
    pub now: Millis,
    /// Whether that is between two milliseconds: then leases begin at the next one.
    fraction: bool,
    /// How it changes keys.
    pub made_by: MadeBy,
    /// The slot of the last lock whose owners it has changed.
    edited: Option<(Slot, OwnerChange)>,
}

/// How the owners of a lock have changed, whose deadline is about to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerChange {
    /// Its client has perhaps acquired the lock.
    Acquired,
    /// One of several owners has released the lock.
    Released,
    /// The owners are the same.
    None,
}

/// What a key is made by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MadeBy {
    /// By a command without a condition. This makes no lock.
    Command = NO_NOTE,
    /// Only if there is no such key.
    Conditional,
    /// In a transaction.
    Transaction,
    /// In a script.
    Script,
    /// By an administrator.
    Forced,
    /// Before the server was started.
    Restored,
}

/// The value of a place without a note.
const NO_NOTE: u8 = 0;

impl Author {
    /// An author that is no client.
    pub(super) const NONE: Author = Author {
        client: 0,
        now: Millis(0),
        fraction: false,
        made_by: MadeBy::Command,
        edited: None,
    };

    /// A request of this client.
    #[inline(always)]
    pub fn of(client: u64, time: Time) -> Author {
        let Time { now, fraction, .. } = time;
        Author { client, now, fraction, made_by: MadeBy::Command, edited: None }
    }

    /// Records how the request changes the owners of the lock in `slot`.
    #[inline(always)]
    pub(super) fn edit(&mut self, slot: Slot, change: OwnerChange) {
        self.edited = Some((slot, change));
    }
}

/// What is known of a key that may be a lock.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct Note {
    /// The `CLIENT ID` of the client that made it; 0 if it is not known.
    pub client: u64,
    /// When it was made, on the lease clock.
    pub since: Millis,
    /// The whole lease that was set last, in milliseconds; 0 for none.
    pub lease_ms: i64,
    /// How often its lease was set again.
    pub renewals: u32,
    /// A [`MadeBy`].
    made_by: u8,
    /// Not 0 if there are events of other clients: they were refused, or have acquired it too.
    is_contended: u8,
    unused: [u8; 2],
}

impl Note {
    #[inline(always)]
    fn new(client: u64, since: Millis, made_by: MadeBy) -> Note {
        Note {
            client,
            since,
            lease_ms: 0,
            renewals: 0,
            made_by: made_by as u8,
            is_contended: 0,
            unused: [0; 2],
        }
    }

    /// Whether there are events of other clients: they were refused, or have acquired it too.
    pub fn is_contended(&self) -> bool {
        self.is_contended != 0
    }

    /// How the key was made.
    pub fn made_by(&self) -> MadeBy {
        const NOTED: [MadeBy; 4] =
            [MadeBy::Conditional, MadeBy::Transaction, MadeBy::Script, MadeBy::Restored];
        NOTED.into_iter().find(|&made_by| made_by as u8 == self.made_by).unwrap_or(MadeBy::Command)
    }
}

const _: () = assert!(size_of::<Note>() == 32);

/// What has happened to a key that may be a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockEventKind {
    /// It was made, or its owner has changed.
    Acquired,
    /// Its lease was set again.
    Renewed,
    /// It was removed by a client.
    Released,
    /// Its lease has ended.
    Expired,
    /// A client tried to acquire it.
    Refused,
    /// A client waits for a message about its release.
    Waiting,
    /// It was removed by an administrator.
    Forced,
    /// It was moved, or its whole database was emptied or swapped: then the event names no key.
    Removed,
}

impl LockEventKind {
    const COUNT: usize = LockEventKind::Removed as usize + 1;

    /// Whether the lock is not held after it.
    pub fn ends_lock(self) -> bool {
        use LockEventKind::{Expired, Forced, Released, Removed};
        matches!(self, Released | Expired | Forced | Removed)
    }
}

/// An event of a key that may be a lock.
#[derive(Clone, Debug)]
pub struct LockEvent {
    /// When it happened, on the lease clock.
    pub at: Millis,
    /// The `CLIENT ID` of the client that has caused it. If a lease has ended, of the client that
    /// had it.
    pub client: u64,
    /// The key's database.
    pub database: u32,
    /// The key.
    pub key: EventKey,
    /// What has happened.
    pub kind: LockEventKind,
    /// For the removal of a key: whether it was in the lock view, whatever its name and value are.
    pub was_lock: bool,
}

/// A key as events have it. A long one is cut, and its hash follows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventKey(SmallVec<[u8; 36]>);

impl EventKey {
    #[inline(always)]
    fn of(key: &[u8], seed: HashSeed) -> EventKey {
        if key.len() > LOCK_EVENT_KEY_BYTES_MAX {
            return EventKey::cut(key, seed);
        }
        EventKey(SmallVec::from_slice(key))
    }

    #[cold]
    fn cut(key: &[u8], seed: HashSeed) -> EventKey {
        let mut bytes = SmallVec::from_slice(&key[..LOCK_EVENT_KEY_BYTES_MAX]);
        bytes.extend_from_slice(&seed.hash(key).to_le_bytes());
        EventKey(bytes)
    }

    /// The key, or the hash of a key that is cut.
    pub fn whole(&self) -> Result<&[u8], u64> {
        let hash = self.0.get(LOCK_EVENT_KEY_BYTES_MAX..).and_then(<[u8]>::first_chunk);
        hash.map_or(Ok(&self.0), |hash| Err(u64::from_le_bytes(*hash)))
    }
}

/// Notes that share memory, which is taken from the operating system page by page.
const BLOCK: usize = 2048;

#[derive(Debug)]
struct Block {
    used: usize,
    memory: Pages,
}

impl Block {
    #[cold]
    #[inline(never)]
    fn new() -> Block {
        Block { used: 0, memory: Pages::new(size_of::<[Note; BLOCK]>()) }
    }

    #[inline(always)]
    fn notes(&self) -> &[Note; BLOCK] {
        let Ok(notes) = <[Note; BLOCK]>::ref_from_bytes(&self.memory) else { misaligned_pages() };
        notes
    }

    #[inline(always)]
    fn notes_mut(&mut self) -> &mut [Note; BLOCK] {
        let Ok(notes) = <[Note; BLOCK]>::mut_from_bytes(&mut self.memory) else {
            misaligned_pages()
        };
        notes
    }
}

/// The notes on keys that may be locks, and the last events of these keys.
#[derive(Debug)]
pub struct LockNotes {
    /// The hash function for keys that are cut.
    seed: HashSeed,
    /// By database, in blocks by slot.
    databases: Vec<Vec<Option<Block>>>,
    /// The keys with notes.
    len: usize,
    /// The events of each kind since the start.
    counts: [u64; LockEventKind::COUNT],
    /// The last events: number `n` is at `(n - 1) % LOCK_EVENTS_MAX`.
    events: Vec<LockEvent>,
    /// The number of the last event.
    sequence: u64,
}

impl LockNotes {
    /// Notes without a key. `earlier` is above the numbers of the events of the notes before them:
    /// a reader that knows those has missed something.
    pub(super) fn new(databases: usize, seed: HashSeed, earlier: u64) -> LockNotes {
        let databases = (0..databases).map(|_| Vec::new()).collect();
        // All memory for events at once: then no later growth copies them.
        let events = Vec::with_capacity(LOCK_EVENTS_MAX);
        // The place of an event follows from its number.
        let sequence = earlier.next_multiple_of(LOCK_EVENTS_MAX as u64);
        LockNotes { seed, databases, len: 0, counts: Default::default(), events, sequence }
    }

    /// The note of the key in `slot`.
    #[inline(always)]
    pub fn get(&self, database: usize, slot: Slot) -> Option<&Note> {
        let block = self.databases[database].get(slot as usize / BLOCK)?.as_ref()?;
        Some(&block.notes()[slot as usize % BLOCK]).filter(|note| note.made_by != NO_NOTE)
    }

    #[inline(always)]
    fn get_mut(&mut self, database: usize, slot: Slot) -> Option<&mut Note> {
        let block = self.databases[database].get_mut(slot as usize / BLOCK)?.as_mut()?;
        Some(&mut block.notes_mut()[slot as usize % BLOCK]).filter(|note| note.made_by != NO_NOTE)
    }

    /// The number of keys that may be locks.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no key may be a lock.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of events of this kind since the start.
    pub fn count(&self, kind: LockEventKind) -> u64 {
        self.counts[kind as usize]
    }

    /// Whether the key in `slot` has a note.
    #[inline(always)]
    pub(super) fn has(&self, database: usize, slot: Slot) -> bool {
        self.get(database, slot).is_some()
    }

    /// The number of the last event.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The last events with their numbers, the oldest first.
    pub fn events(&self) -> impl Iterator<Item = (u64, &LockEvent)> {
        self.events_after(self.sequence - self.events.len() as u64)
    }

    /// The events after the one with this number, or `None` if some of them were dropped.
    pub fn events_since(&self, sequence: u64) -> Option<impl Iterator<Item = (u64, &LockEvent)>> {
        let skipped = self.sequence.checked_sub(sequence)?;
        (skipped <= self.events.len() as u64).then(|| self.events_after(sequence))
    }

    fn events_after(&self, sequence: u64) -> impl Iterator<Item = (u64, &LockEvent)> {
        (sequence..self.sequence)
            .map(|before| (before + 1, &self.events[before as usize % LOCK_EVENTS_MAX]))
    }

    /// A key as events have it.
    pub fn event_key(&self, key: &[u8]) -> EventKey {
        EventKey::of(key, self.seed)
    }

    /// The memory that is used, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let blocks = self.databases.iter().flatten().flatten().count();
        blocks * size_of::<[Note; BLOCK]>() + self.events.len() * size_of::<LockEvent>()
    }

    /// Adds an event.
    #[inline(always)]
    pub(super) fn push(&mut self, kind: LockEventKind, database: usize, key: &[u8], by: Author) {
        self.push_with(kind, database, key, by, false);
    }

    #[inline(always)]
    fn push_with(
        &mut self,
        kind: LockEventKind,
        database: usize,
        key: &[u8],
        by: Author,
        was_lock: bool,
    ) {
        let (at, client) = (by.now, by.client);
        let key = EventKey::of(key, self.seed);
        let event = LockEvent { at, client, database: database as u32, key, kind, was_lock };
        // The oldest is replaced.
        let place = self.sequence as usize % LOCK_EVENTS_MAX;
        match self.events.get_mut(place) {
            Some(oldest) => *oldest = event,
            None => self.events.push(event),
        }
        increment(&mut self.sequence);
        increment(&mut self.counts[kind as usize]);
    }

    #[inline]
    fn put(&mut self, database: usize, slot: Slot, note: Note) {
        let blocks = &mut self.databases[database];
        let at = slot as usize / BLOCK;
        if blocks.len() <= at {
            blocks.resize_with(at + 1, || None);
        }
        let block = blocks[at].get_or_insert_with(Block::new);
        block.used += 1;
        block.notes_mut()[slot as usize % BLOCK] = note;
        self.len += 1;
    }

    #[inline]
    fn take(&mut self, database: usize, slot: Slot) -> Option<Note> {
        let place = self.databases[database].get_mut(slot as usize / BLOCK)?;
        let block = place.as_mut()?;
        let note = &mut block.notes_mut()[slot as usize % BLOCK];
        let taken = Some(*note).filter(|note| note.made_by != NO_NOTE)?;
        note.made_by = NO_NOTE;
        block.used -= 1;
        self.len -= 1;
        // The first block stays: a lock that comes and goes must not map memory each time.
        if block.used == 0 && slot as usize >= BLOCK {
            *place = None;
        }
        Some(taken)
    }

    /// A key that may be a lock was made in `slot`.
    #[inline(never)]
    pub(super) fn made(&mut self, database: usize, slot: Slot, key: &[u8], by: Author) {
        if is_auxiliary(key) {
            return;
        }
        let Author { client, now: since, made_by, .. } = by;
        self.put(database, slot, Note::new(client, since, made_by));
        self.push(LockEventKind::Acquired, database, key, by);
    }

    /// Notes a new deadline of the key in `slot`, before it is set.
    #[inline(always)]
    pub(super) fn lease_set(
        &mut self,
        database: usize,
        slot: Slot,
        deadline: Option<Millis>,
        records: &Records,
        by: Author,
    ) {
        let Some(note) = self.get_mut(database, slot) else { return };
        let begin_ms = by.now.0.wrapping_add(i64::from(by.fraction));
        note.lease_ms = deadline.map_or(0, |deadline| deadline.0.wrapping_sub(begin_ms));
        if records.deadline(slot).is_some() {
            self.lease_set_again(database, slot, records.key(slot), by);
        }
    }

    #[inline(never)]
    fn lease_set_again(&mut self, database: usize, slot: Slot, key: &[u8], by: Author) {
        let Some(note) = self.get_mut(database, slot) else { return };
        let kind = match by.edited.filter(|&(edited, _)| edited == slot) {
            None => {
                note.renewals = note.renewals.saturating_add(1);
                LockEventKind::Renewed
            }
            Some((_, OwnerChange::Released)) => LockEventKind::Released,
            Some((_, OwnerChange::Acquired)) if note.client != by.client => {
                // Another owner of the same lock: a second reader.
                note.is_contended = 1;
                LockEventKind::Acquired
            }
            // Its owner has acquired it again, or released one of several holds.
            Some(_) => return,
        };
        self.push(kind, database, key, by);
    }

    /// Notes that the string in `slot` has a new value.
    #[inline(never)]
    pub(super) fn value_set(&mut self, database: usize, slot: Slot, records: &Records, by: Author) {
        let Some(note) = self.get_mut(database, slot) else { return };
        if note.client != by.client {
            (note.client, note.since, note.renewals) = (by.client, by.now, 0);
            self.push(LockEventKind::Acquired, database, records.key(slot), by);
        }
    }

    /// Notes the removal of the key in `slot`, before it is removed.
    #[inline(never)]
    pub(super) fn removed(
        &mut self,
        database: usize,
        slot: Slot,
        records: &Records,
        kind: LockEventKind,
        by: Author,
    ) {
        let Some(note) = self.take(database, slot) else { return };
        let forced = kind == LockEventKind::Released && by.made_by == MadeBy::Forced;
        let kind = if forced { LockEventKind::Forced } else { kind };
        let record = records.get(slot);
        let by = match (kind, record.deadline()) {
            (LockEventKind::Expired, Some(now)) => Author { client: note.client, now, ..by },
            _ => by,
        };
        let was_lock = is_lock_by_shape(note, record);
        self.push_with(kind, database, record.key(), by, was_lock);
    }

    /// Notes the end of the lease of one of several owners of the lock in `slot`.
    #[cold]
    pub(super) fn hold_expired(
        &mut self,
        database: usize,
        slot: Slot,
        records: &Records,
        (client, deadline): (u64, Millis),
    ) {
        if self.has(database, slot) {
            let by = Author { client, now: deadline, ..Author::NONE };
            self.push(LockEventKind::Expired, database, records.key(slot), by);
        }
    }

    /// Notes that a client has tried to acquire the key in `slot`.
    #[cold]
    pub(super) fn refused(&mut self, database: usize, slot: Slot, records: &Records, by: Author) {
        if let Some(note) = self.get_mut(database, slot)
            && note.client != by.client
        {
            note.is_contended = 1;
            self.push(LockEventKind::Refused, database, records.key(slot), by);
        }
    }

    /// A key that was in `slot` has been moved.
    pub(super) fn moved(&mut self, from: (usize, Slot), to: (usize, Slot), key: &[u8], by: Author) {
        if let Some(note) = self.take(from.0, from.1) {
            self.put(to.0, to.1, note);
            self.push(LockEventKind::Acquired, to.0, key, by);
            self.push(LockEventKind::Removed, from.0, &[], by);
        }
    }

    /// Removes the notes of a database that was flushed.
    pub(super) fn flushed(&mut self, database: usize, by: Author) {
        let blocks = std::mem::take(&mut self.databases[database]);
        if blocks.is_empty() {
            return;
        }
        self.len -= blocks.iter().flatten().map(|block| block.used).sum::<usize>();
        self.push(LockEventKind::Removed, database, &[], by);
    }

    /// Swaps the notes of two databases.
    pub(super) fn swapped(&mut self, database: usize, with: usize, by: Author) {
        self.databases.swap(database, with);
        self.push(LockEventKind::Removed, database, &[], by);
    }

    /// Finds the keys that may be locks, in a database that was filled without notes.
    pub(super) fn find(&mut self, database: usize, records: &Records, by: Author) {
        self.flushed(database, by);
        let note = Note::new(0, Millis(0), MadeBy::Restored);
        for (slot, record) in records.iter_slots() {
            if may_be_restored(record) {
                self.put(database, slot, note);
            }
        }
    }
}

/// Whether a key is in the lock view whatever its name and value are: see `locks/view.rs`.
#[inline(always)]
fn is_lock_by_shape(note: Note, record: Record<'_>) -> bool {
    let kind = || record.value().kind();
    match note.made_by() {
        MadeBy::Conditional => matches!(kind(), Kind::String | Kind::Lock),
        MadeBy::Script | MadeBy::Transaction => {
            matches!(kind(), Kind::Hash | Kind::SortedSet | Kind::Lock)
        }
        _ => kind() == Kind::Lock,
    }
}

/// Whether a key of which no note is left may be a lock.
pub fn may_be_restored(record: Record<'_>) -> bool {
    matches!(record.value().kind(), Kind::String | Kind::Hash | Kind::Lock)
        && record.deadline().is_some()
        && !is_auxiliary(record.key())
}

/// Whether a key is part of a lock of Redisson, and no lock itself.
fn is_auxiliary(key: &[u8]) -> bool {
    key.starts_with(b"redisson_") && AUXILIARY.iter().any(|prefix| key.starts_with(prefix))
        || key.len() >= HOLD_OF_READER_BYTES_MIN && without_number(key).ends_with(HOLD_OF_READER)
}

const AUXILIARY: &[&[u8]] =
    &[b"redisson_lock_queue:", b"redisson_lock_timeout:", b"redisson_unlock_latch:"];

/// Part of the names of the keys of a reader's holds, one for each, before its number.
const HOLD_OF_READER: &[u8] = b":rwlock_timeout:";

/// Length of the shortest such key: it also contains the id of an instance of Redisson.
const HOLD_OF_READER_BYTES_MIN: usize = 52;

/// The key without the digits at its end.
fn without_number(key: &[u8]) -> &[u8] {
    let digits = key.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    &key[..key.len() - digits]
}
