//! The timer wheel: returns timers in order when their deadlines have passed. It reads no clock,
//! and it does not store the timers: implementations of [`Nodes`] do. One is the keys of a
//! database, the other is [`Timers`].
//!
//! [`Timers`]: crate::timing::timers::Timers
//!
//! Eleven levels of 64 slots, with ticks of 1 ms. The level of a timer is the highest 6-bit group
//! in which its deadline differs from the wheel's own time, `elapsed`, and its slot is the value of
//! that group. Eleven groups of six bits cover all 64 bits, so every deadline has a slot and no
//! overflow list is needed. When time reaches the start of a slot above level 0, the slot's timers
//! *cascade*: each moves to a lower level, at most ten times in all, and fires from level 0.
//!
//! A slot of four seconds may hold half a million timers. Moving them takes tens of milliseconds,
//! in which none fires. Therefore most timers are moved *ahead*, from the slot after the current
//! one: some with each timer that fires, and those of a large slot at some moments before its
//! start. For this a level has two rotations of 64 slots, the current one and the next. A rotation
//! of a level is as long as a slot of the level above, so its next rotation corresponds to a single
//! slot.
//!
//! When the deadline of a timer changes, the timer stays in its slot, unless the slot begins after
//! the new deadline. When the slot begins, the timer moves to the slot of its deadline. So a
//! renewal, the most frequent change of a lease, modifies only the lease itself.
//!
//! Invariants:
//! - Every occupied slot begins after `elapsed`, except for the slot of `elapsed` at level 0, which
//!   holds what is due, and the slots of other levels that begin at `elapsed` and have not cascaded
//!   yet, `cascading`. Cascades run from the highest level to the lowest.
//! - No timer is in a slot that begins after its deadline, or after `elapsed` if that is later.
//!   Timers that were never rescheduled are in the slot of their deadline.
//! - The list of a slot is in order of arrival; for equal deadlines that were never rescheduled,
//!   this is the order of insertion. All timers pass through the same slots, so moving some ahead
//!   keeps the order. So does a cascade that its budget interrupts: until its slot is empty, all
//!   timers for slots below it are appended to it.
//! - `elapsed` never exceeds the greatest `now` of the caller, so no timer fires early.

use crate::timing::time::Millis;

/// Bits of a deadline for each level.
const LEVEL_BITS: u32 = 6;
/// Slots of a rotation: one for each bit of its occupancy word.
const SLOTS: usize = 1 << LEVEL_BITS;
const SLOT_MASK: u64 = SLOTS as u64 - 1;
/// Enough levels for all bits of a deadline.
pub(crate) const LEVELS: usize = u64::BITS.div_ceil(LEVEL_BITS) as usize;
/// Slots of a level's two rotations.
const RING: usize = 2 * SLOTS;
const RING_MASK: u64 = RING as u64 - 1;
pub(crate) const LISTS: usize = LEVELS * RING;
/// Occupancy words: one for each rotation.
pub(crate) const WORDS: usize = LISTS / SLOTS;
/// The size from which a slot is moved ahead of its time: moving this many takes 0.1 ms.
const LARGE_SLOT: u32 = if cfg!(test) { 3 } else { 256 };
/// Timers that are moved in each millisecond then, so that other work is not delayed.
const AHEAD_PER_MS: u64 = if cfg!(test) { 2 } else { 256 };
/// The end of a list. It is no valid index.
pub(crate) const NIL: u32 = u32::MAX;
/// The list of a node that is in no list.
const NO_LIST: u16 = u16::MAX;

/// The position of a timer in its slot's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// The previous timer.
    pub prev: u32,
    /// The next timer.
    pub next: u32,
    /// The list of the slot.
    pub list: u16,
}

impl Links {
    /// The links of a node that is no active timer.
    pub const NONE: Links = Links { prev: NIL, next: NIL, list: NO_LIST };

    /// Whether the node is an active timer.
    pub fn is_linked(self) -> bool {
        self.list != NO_LIST
    }
}

/// Storage for a wheel's timers, by index.
pub trait Nodes {
    /// The deadline of a timer.
    fn deadline(&self, index: u32) -> Millis;
    /// The links of a timer.
    fn links(&self, index: u32) -> Links;
    /// Sets the links of a timer.
    fn set_links(&mut self, index: u32, links: Links);
    /// Sets the link to the previous timer.
    fn set_prev(&mut self, index: u32, prev: u32);
    /// Sets the link to the next timer.
    fn set_next(&mut self, index: u32, next: u32);
}

/// A hierarchical timer wheel. See the module's documentation.
#[derive(Debug)]
pub struct Wheel {
    pub(crate) lists: Box<[List; LISTS]>,
    pub(crate) occupied: [u64; WORDS],
    /// A bit for each word of `occupied` that is not zero.
    words: u32,
    /// The wheel's own time, as a tick.
    pub(crate) elapsed: u64,
    /// A bit for each level that still has timers to cascade from the slot that begins at
    /// `elapsed`.
    pub(crate) cascading: u16,
    /// The number of large slots above level 0.
    large_slots: u32,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct List {
    pub(crate) head: u32,
    pub(crate) tail: u32,
    pub(crate) len: u32,
}

const _: () = assert!(WORDS <= u32::BITS as usize && LEVELS <= u16::BITS as usize);

impl Wheel {
    /// An empty wheel with the time `now`.
    pub fn new(now: Millis) -> Wheel {
        Wheel {
            lists: Box::new([List { head: NIL, tail: NIL, len: 0 }; LISTS]),
            occupied: [0; WORDS],
            words: 0,
            elapsed: tick_of(now),
            cascading: 0,
            large_slots: 0,
            len: 0,
        }
    }

    /// The number of active timers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no active timers.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes a node an active timer, in constant time. A deadline at or before the wheel's own time
    /// counts as that time: the timer is due at once, after those that are due already.
    pub fn insert(&mut self, nodes: &mut impl Nodes, index: u32) {
        debug_assert!(!nodes.links(index).is_linked());
        self.place(nodes, index, LEVELS);
        self.len += 1;
    }

    /// Handles a changed deadline of a timer, in constant time and mostly without touching another
    /// timer. Among equal deadlines the timer comes after those in the slot into which it is moved,
    /// either now or when its present slot begins.
    #[inline]
    pub fn reschedule(&mut self, nodes: &mut impl Nodes, index: u32) {
        let due = tick_of(nodes.deadline(index)).max(self.elapsed);
        if due < self.start_of(nodes.links(index).list) {
            self.unlink(nodes, index);
            self.place(nodes, index, LEVELS);
        }
    }

    /// Removes a timer before it fires, in constant time.
    pub fn cancel(&mut self, nodes: &mut impl Nodes, index: u32) {
        self.unlink(nodes, index);
        nodes.set_links(index, Links::NONE);
        self.len -= 1;
    }

    /// As [`Wheel::cancel`], for a node that is no longer used: its links are left as they are.
    #[inline]
    pub fn forget(&mut self, nodes: &mut impl Nodes, index: u32) {
        self.unlink(nodes, index);
        self.len -= 1;
    }

    /// When `pop_due` next has work: never later than the earliest deadline, or than the wheel's
    /// own time if that is later. It may be earlier, for timers that move without firing.
    pub fn next_deadline(&self) -> Option<Millis> {
        if self.is_empty() {
            return None;
        }
        if self.cascading != 0 {
            return Some(moment_of(self.elapsed));
        }
        self.next_slot().map(|(_, start)| moment_of(start))
    }

    /// When [`Wheel::work_ahead`] next has work that should not wait for `pop_due`.
    pub fn next_work_ahead(&self) -> Option<Millis> {
        if self.large_slots == 0 {
            return None;
        }
        (1..LEVELS).filter_map(|level| self.beginning_of(level)).min().map(moment_of)
    }

    /// Moves timers of large slots closer to the slots from which they fire, at most `budget` of
    /// them. Does nothing while timers are due. More may be left to do if
    /// [`Wheel::next_work_ahead`] has been reached.
    pub fn work_ahead(&mut self, nodes: &mut impl Nodes, now: Millis, mut budget: u32) {
        self.advance(now);
        if self.next_work_ahead().is_none_or(|moment| moment > now) {
            return;
        }
        // The nearest level first.
        let mut level = 1;
        while level < LEVELS && budget > 0 {
            match self.move_ahead(nodes, level) {
                true => budget -= 1,
                false => level += 1,
            }
        }
    }

    /// Removes and returns the next timer that is due at `now`, in order of deadline; equal
    /// deadlines are in the order described above.
    ///
    /// Every timer that fires or moves costs one from `budget`. If the budget is used up, the
    /// result is `None` although more timers may be due; then `next_deadline()` is not after `now`.
    pub fn pop_due(
        &mut self,
        nodes: &mut impl Nodes,
        now: Millis,
        budget: &mut u32,
    ) -> Option<u32> {
        let now = tick_of(now);
        while *budget > 0 {
            if self.cascading != 0 {
                self.move_down(nodes, self.list_of(self.cascading.ilog2() as usize));
                *budget -= 1;
                continue;
            }
            let Some((list, start)) = self.next_slot().filter(|&(_, start)| start <= now) else {
                self.elapsed = self.elapsed.max(now);
                return None;
            };
            if self.elapsed != start {
                self.elapsed = start;
                self.begin_cascades();
            }
            if self.cascading != 0 {
                continue;
            }
            *budget -= 1;
            let index = self.lists[usize::from(list)].head;
            if tick_of(nodes.deadline(index)) > start {
                self.unlink(nodes, index);
                self.place(nodes, index, LEVELS);
                continue;
            }
            self.cancel(nodes, index);
            return Some(index);
        }
        None
    }

    /// Advances the wheel's own time to `now`, if nothing is due until `now`.
    pub fn advance(&mut self, now: Millis) {
        let now = tick_of(now);
        if self.cascading == 0 && self.next_slot().is_none_or(|(_, start)| start > now) {
            self.elapsed = self.elapsed.max(now);
        }
    }

    /// The earliest occupied slot and its start. Meaningless during a cascade.
    #[inline]
    fn next_slot(&self) -> Option<(u16, u64)> {
        // For timers that are due together, only the first one costs more than this look-up.
        let now = self.list_of(0);
        match self.lists[usize::from(now)].head {
            NIL => self.next_occupied(),
            _ => Some((now, self.elapsed)),
        }
    }

    fn next_occupied(&self) -> Option<(u16, u64)> {
        let (mut words, mut next) = (self.words, None::<(u16, u64)>);
        while words != 0 {
            let level = words.trailing_zeros() as usize / 2;
            words &= !(0b11 << (2 * level));
            let now = self.rotation_of(level);
            let is_now = self.occupied[now] != 0;
            let list = self.first_in(if is_now { now } else { now ^ 1 });
            let start = self.start_of(list);
            if next.is_none_or(|(_, earliest)| start < earliest) {
                next = Some((list, start));
            }
            if is_now {
                // Occupied slots of higher levels are later.
                break;
            }
        }
        next
    }

    /// When a level's next slot should be moved ahead, if it is large.
    fn beginning_of(&self, level: usize) -> Option<u64> {
        let now = self.rotation_of(level);
        let word = [now, now ^ 1].into_iter().find(|&word| self.occupied[word] != 0)?;
        let list = self.first_in(word);
        let size = self.lists[usize::from(list)].len;
        let span = 1 << (level as u32 * LEVEL_BITS);
        let lead = (u64::from(size) / AHEAD_PER_MS).min(span);
        (size >= LARGE_SLOT).then(|| self.start_of(list).saturating_sub(lead).max(self.elapsed))
    }

    /// The occupancy word of the current rotation of a level. The other word is the next
    /// rotation's.
    fn rotation_of(&self, level: usize) -> usize {
        let parity = (self.elapsed >> (level as u32 * LEVEL_BITS) >> LEVEL_BITS) & 1;
        2 * level + parity as usize
    }

    /// The first occupied slot of a rotation.
    fn first_in(&self, word: usize) -> u16 {
        (word * SLOTS) as u16 + self.occupied[word].trailing_zeros() as u16
    }

    /// The current slot of a level.
    fn list_of(&self, level: usize) -> u16 {
        list_at(level, self.elapsed >> (level as u32 * LEVEL_BITS))
    }

    /// Starts the cascades of the slots that begin at the wheel's own time.
    fn begin_cascades(&mut self) {
        for level in 1..LEVELS {
            if self.elapsed & ((1 << (level as u32 * LEVEL_BITS)) - 1) != 0 {
                break;
            }
            let begins = self.lists[usize::from(self.list_of(level))].head != NIL;
            self.cascading |= u16::from(begins) << level;
        }
    }

    /// Called for each timer that fires: moves one timer of each level down from the slot after the
    /// current one, so that in the long run as many move as fire. These timers may be anywhere in
    /// memory, but they are fetched together with the next timer that fires.
    pub fn step_ahead(&mut self, nodes: &mut impl Nodes) {
        let occupied = (u32::BITS - self.words.leading_zeros()) as usize;
        for level in 1..occupied.div_ceil(2) {
            self.move_ahead(nodes, level);
        }
    }

    /// Moves a timer down from the slot of a level after the current one; false if that slot is
    /// empty.
    fn move_ahead(&mut self, nodes: &mut impl Nodes, level: usize) -> bool {
        let shift = level as u32 * LEVEL_BITS;
        let slot = (self.elapsed >> shift).wrapping_add(1);
        let index = self.lists[usize::from(list_at(level, slot))].head;
        if index == NIL {
            return false;
        }
        self.unlink(nodes, index);
        let deadline = tick_of(nodes.deadline(index));
        if deadline >> shift == slot {
            let below = level - 1;
            let list = list_at(below, deadline >> (below as u32 * LEVEL_BITS));
            self.push_back(nodes, list, index);
        } else {
            self.place(nodes, index, LEVELS);
        }
        true
    }

    /// The first and the last timer of a list.
    #[cfg(test)]
    pub(crate) fn ends(&self, list: u16) -> (u32, u32) {
        let List { head, tail, .. } = self.lists[usize::from(list)];
        (head, tail)
    }

    /// Checks the invariants that do not involve the nodes.
    #[cfg(test)]
    pub(crate) fn check_invariants(&self) {
        let mut large_slots = 0;
        for list in 0..LISTS as u16 {
            let List { head, tail, len } = self.lists[usize::from(list)];
            let is_empty = self.occupied[word_of(list)] & occupancy_bit(list) == 0;
            assert_eq!((is_empty, is_empty, is_empty), (head == NIL, tail == NIL, len == 0));
            let level = level_of(list);
            large_slots += u32::from(level > 0 && len >= LARGE_SLOT);
            let cascades = self.cascading & (1 << level) != 0 && self.list_of(level) == list;
            let is_due = level == 0 && self.list_of(0) == list;
            assert!(is_empty || cascades || is_due || self.start_of(list) > self.elapsed);
            assert!(!cascades || !is_empty && self.start_of(list) == self.elapsed);
        }
        assert_eq!(self.large_slots, large_slots);
        let words = (0..WORDS).filter(|&word| self.occupied[word] != 0);
        assert_eq!(self.words, words.map(|word| 1 << word).sum::<u32>());
    }

    /// The start of an occupied slot.
    pub(crate) fn start_of(&self, list: u16) -> u64 {
        let shift = level_of(list) as u32 * LEVEL_BITS;
        let now = self.elapsed >> shift;
        let slot = (now & !RING_MASK) | (u64::from(list) & RING_MASK);
        let is_before = slot < now & !SLOT_MASK;
        (slot + if is_before { RING as u64 } else { 0 }) << shift
    }

    /// The slot for a deadline, relative to the wheel's own time.
    pub(crate) fn slot_for(&self, deadline: u64) -> u16 {
        let deadline = deadline.max(self.elapsed);
        let level = ((deadline ^ self.elapsed) | 1).ilog2() / LEVEL_BITS;
        list_at(level as usize, deadline >> (level * LEVEL_BITS))
    }

    /// Appends an unlinked node to the slot of its deadline. `from` is the level it comes from, or
    /// `LEVELS`.
    fn place(&mut self, nodes: &mut impl Nodes, index: u32, from: usize) {
        let slot = self.slot_for(tick_of(nodes.deadline(index)));
        // Earlier timers may not have cascaded that far; then this one is appended to theirs.
        let passed = ((1 << from) - 1) & !((2_u16 << level_of(slot)) - 1);
        let list = match self.cascading & passed {
            0 => slot,
            levels => self.list_of(levels.ilog2() as usize),
        };
        self.push_back(nodes, list, index);
    }

    /// Moves the first timer of a list to where it belongs now, as one step of a cascade. A
    /// rescheduled timer may move to any slot but this one.
    fn move_down(&mut self, nodes: &mut impl Nodes, list: u16) {
        let index = self.lists[usize::from(list)].head;
        self.unlink(nodes, index);
        self.place(nodes, index, level_of(list));
    }

    fn push_back(&mut self, nodes: &mut impl Nodes, list: u16, index: u32) {
        let ends = &mut self.lists[usize::from(list)];
        let tail = std::mem::replace(&mut ends.tail, index);
        ends.len += 1;
        if ends.len == LARGE_SLOT && level_of(list) > 0 {
            self.large_slots += 1;
        }
        if tail == NIL {
            ends.head = index;
            self.occupied[word_of(list)] |= occupancy_bit(list);
            self.words |= 1 << word_of(list);
        } else {
            nodes.set_next(tail, index);
        }
        nodes.set_links(index, Links { prev: tail, next: NIL, list });
    }

    /// Removes a node from its list. If the list becomes empty, its occupancy bit and its cascade
    /// end. The node's own links are not changed.
    fn unlink(&mut self, nodes: &mut impl Nodes, index: u32) {
        let Links { prev, next, list } = nodes.links(index);
        let ends = &mut self.lists[usize::from(list)];
        if ends.len == LARGE_SLOT && level_of(list) > 0 {
            self.large_slots -= 1;
        }
        ends.len -= 1;
        match prev {
            NIL => ends.head = next,
            prev => nodes.set_next(prev, next),
        }
        match next {
            NIL => ends.tail = prev,
            next => nodes.set_prev(next, prev),
        }
        if prev == NIL && next == NIL {
            self.vacate(list);
        }
    }

    /// Clears the state of a slot that has become empty.
    fn vacate(&mut self, list: u16) {
        let (word, level) = (word_of(list), level_of(list));
        self.occupied[word] &= !occupancy_bit(list);
        if self.occupied[word] == 0 {
            self.words &= !(1 << word);
        }
        if self.cascading & (1 << level) != 0 && self.list_of(level) == list {
            self.cascading &= !(1 << level);
        }
    }
}

/// Converts a moment to an unsigned tick in the same order, so that negative ones need no special
/// case.
pub(crate) fn tick_of(moment: Millis) -> u64 {
    moment.0.cast_unsigned() ^ (1 << 63)
}

pub(crate) fn moment_of(tick: u64) -> Millis {
    Millis((tick ^ (1 << 63)).cast_signed())
}

pub(crate) fn level_of(list: u16) -> usize {
    usize::from(list) / RING
}

/// The word of `occupied` that contains the bit of a list.
pub(crate) fn word_of(list: u16) -> usize {
    usize::from(list) / SLOTS
}

/// The list of a slot of a level.
fn list_at(level: usize, slot: u64) -> u16 {
    (level * RING) as u16 + (slot & RING_MASK) as u16
}

pub(crate) fn occupancy_bit(list: u16) -> u64 {
    1 << (usize::from(list) % SLOTS)
}
