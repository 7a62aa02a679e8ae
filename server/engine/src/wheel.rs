//! The timer wheel: hands back what was entered once its moment has come, in order. It knows no
//! keys, no clients and no clock, and owns no timer: what a timer is, and where it is kept, is the
//! affair of whoever implements [`Nodes`]. The keys of a database are one such place, [`Timers`]
//! the other.
//!
//! [`Timers`]: super::timers::Timers
//!
//! Eleven levels of 64 slots, 1 ms ticks. A timer lies at the level of the highest 6-bit group in
//! which its deadline differs from the wheel's own time, `elapsed`, in the slot that group names.
//! Eleven groups of six cover all 64 bits, so every deadline has a slot and there is no overflow
//! list. When time reaches the start of a slot above level 0, its timers *cascade*: each moves to a
//! lower level, at most ten times in its life, and fires from level 0.
//!
//! A slot of four seconds may hold half a million timers, and to move them takes tens of
//! milliseconds in which none fires. So most are moved *ahead*, from the slot that follows the one
//! time is in: for each timer that fires others are, and a crowded slot asks to be begun before
//! its time. For that a level has two rotations of 64 slots, the one time is in and the next. A
//! level's rotation is as long as a slot of the level above, so its next one is just that slot.
//!
//! A timer whose deadline is moved stays where it is unless it would then be found too late: when
//! its slot comes up it is put where its deadline belongs by then. So a renewal, the commonest
//! thing that happens to a lease, touches nothing but the lease.
//!
//! What always holds:
//! - Every occupied slot begins after `elapsed`, but for the slot of `elapsed` itself at level 0,
//!   which holds what is due at once, and those of other levels that begin at `elapsed` and have
//!   still to cascade, `cascading`. They do so from the highest down.
//! - No timer lies in a slot that begins after its deadline, or after `elapsed` if that is later.
//!   Timers that were never moved lie exactly where their deadline belongs.
//! - A slot's list is in order of arrival, and among equal deadlines that were never moved that is
//!   the order of insertion. All take the same way down, so to move some ahead keeps it so, and so
//!   does a cascade that is cut short by its budget: until a slot is empty, all that would land
//!   below it joins its tail.
//! - `elapsed` never passes the latest `now` the caller gave, so nothing fires early.

use super::time::Millis;

/// Bits of a deadline that one level tells apart.
const LEVEL_BITS: u32 = 6;
/// Slots of a level: one for each bit of its occupancy word.
const SLOTS: usize = 1 << LEVEL_BITS;
const SLOT_MASK: u64 = SLOTS as u64 - 1;
/// Enough levels for all bits of a deadline.
pub(super) const LEVELS: usize = u64::BITS.div_ceil(LEVEL_BITS) as usize;
/// Slots of a level's two rotations.
const RING: usize = 2 * SLOTS;
const RING_MASK: u64 = RING as u64 - 1;
pub(super) const LISTS: usize = LEVELS * RING;
/// Words that say which slots are occupied: one for each rotation.
pub(super) const WORDS: usize = LISTS / SLOTS;
/// A slot that holds so many is begun before its time: to move them takes a tenth of a millisecond.
const CROWD: u32 = if cfg!(test) { 3 } else { 256 };
/// How many are moved in a millisecond then, so that others get their turns.
const AHEAD_PER_MS: u64 = if cfg!(test) { 2 } else { 256 };
/// The end of a list. No node has this index.
pub(super) const NIL: u32 = u32::MAX;
/// The list of those that are in none.
const NO_LIST: u16 = u16::MAX;

/// Where a timer stands among those of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// The one before it.
    pub prev: u32,
    /// The one after it.
    pub next: u32,
    /// The slot's list.
    pub list: u16,
}

impl Links {
    /// Those of what is no timer now.
    pub const NONE: Links = Links { prev: NIL, next: NIL, list: NO_LIST };

    /// Whether they are those of a timer that waits.
    pub fn is_linked(self) -> bool {
        self.list != NO_LIST
    }
}

/// Where a wheel's timers are kept, by number.
pub trait Nodes {
    /// When it is to fire.
    fn deadline(&self, index: u32) -> Millis;
    /// Where it stands.
    fn links(&self, index: u32) -> Links;
    /// It stands elsewhere now.
    fn set_links(&mut self, index: u32, links: Links);
    /// Another one is before it now.
    fn set_prev(&mut self, index: u32, prev: u32);
    /// Another one is after it now.
    fn set_next(&mut self, index: u32, next: u32);
}

/// A hierarchical timer wheel. See the module's documentation.
#[derive(Debug)]
pub struct Wheel {
    pub(super) lists: Box<[List; LISTS]>,
    pub(super) occupied: [u64; WORDS],
    /// Bit by bit, which words of `occupied` are not zero.
    words: u32,
    /// The wheel's own time, as a tick.
    pub(super) elapsed: u64,
    /// Bit by bit, the levels whose slots begin at `elapsed` and have still to cascade: not empty.
    pub(super) cascading: u16,
    /// How many slots above level 0 are crowded.
    crowds: u32,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) head: u32,
    pub(super) tail: u32,
    pub(super) len: u32,
}

const _: () = assert!(WORDS <= u32::BITS as usize && LEVELS <= u16::BITS as usize);

impl Wheel {
    /// An empty wheel whose own time is `now`.
    pub fn new(now: Millis) -> Wheel {
        Wheel {
            lists: Box::new([List { head: NIL, tail: NIL, len: 0 }; LISTS]),
            occupied: [0; WORDS],
            words: 0,
            elapsed: tick_of(now),
            cascading: 0,
            crowds: 0,
            len: 0,
        }
    }

    /// How many timers wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no timer waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Lets a node be a timer, in constant time. A deadline at or before the wheel's own time
    /// counts as that time: it is due at once, after those already due then.
    pub fn insert(&mut self, nodes: &mut impl Nodes, index: u32) {
        debug_assert!(!nodes.links(index).is_linked());
        self.place(nodes, index, LEVELS);
        self.len += 1;
    }

    /// The deadline of a timer has been changed. In constant time, and mostly without touching
    /// another timer. Among equal deadlines it comes after those that are in the slot it is put
    /// into, now or when the slot it is left in comes up.
    pub fn reschedule(&mut self, nodes: &mut impl Nodes, index: u32) {
        let due = tick_of(nodes.deadline(index)).max(self.elapsed);
        if due < self.start_of(nodes.links(index).list) {
            self.unlink(nodes, index);
            self.place(nodes, index, LEVELS);
        }
    }

    /// Takes a timer back before it fires, in constant time.
    pub fn cancel(&mut self, nodes: &mut impl Nodes, index: u32) {
        self.unlink(nodes, index);
        nodes.set_links(index, Links::NONE);
        self.len -= 1;
    }

    /// When `pop_due` next has work: never later than the earliest deadline, or the wheel's own
    /// time where that has passed. It may be earlier, for timers that move without firing.
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
        if self.crowds == 0 {
            return None;
        }
        (1..LEVELS).filter_map(|level| self.beginning_of(level)).min().map(moment_of)
    }

    /// If `pop_due` has left nothing that is due: moves timers of crowded slots nearer to where
    /// they will fire, at most `budget` of them. There may be more to do if
    /// [`Wheel::next_work_ahead`] has still been reached.
    pub fn work_ahead(&mut self, nodes: &mut impl Nodes, now: Millis, mut budget: u32) {
        self.advance(now);
        if self.next_work_ahead().is_none_or(|moment| moment > now) {
            return;
        }
        // The nearest first.
        let mut level = 1;
        while level < LEVELS && budget > 0 {
            match self.move_ahead(nodes, level) {
                true => budget -= 1,
                false => level += 1,
            }
        }
    }

    /// Takes out the next timer due at `now`: in order of deadline, and among equal ones in the
    /// order that stands above.
    ///
    /// Every timer that fires or has to be moved costs one from `budget`. With none left the answer
    /// is `None` although more may be due; then `next_deadline()` is not after `now`.
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

    /// Nothing is due by `now`, so that may be the wheel's own time.
    pub fn advance(&mut self, now: Millis) {
        let now = tick_of(now);
        if self.cascading == 0 && self.next_slot().is_none_or(|(_, start)| start > now) {
            self.elapsed = self.elapsed.max(now);
        }
    }

    /// The next slot to begin, or one of those, and its start. Meaningless during a cascade.
    #[inline]
    fn next_slot(&self) -> Option<(u16, u64)> {
        // Of those that are due together this is all that the second and the others cost.
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
                // All that is higher up comes later.
                break;
            }
        }
        next
    }

    /// When a level's next slot has to be begun ahead of its time, if it is crowded.
    fn beginning_of(&self, level: usize) -> Option<u64> {
        let now = self.rotation_of(level);
        let word = [now, now ^ 1].into_iter().find(|&word| self.occupied[word] != 0)?;
        let list = self.first_in(word);
        let crowd = self.lists[usize::from(list)].len;
        let span = 1 << (level as u32 * LEVEL_BITS);
        let lead = (u64::from(crowd) / AHEAD_PER_MS).min(span);
        (crowd >= CROWD).then(|| self.start_of(list).saturating_sub(lead).max(self.elapsed))
    }

    /// The word of the rotation of a level that time is in. The other one is that of the next.
    fn rotation_of(&self, level: usize) -> usize {
        let parity = (self.elapsed >> (level as u32 * LEVEL_BITS) >> LEVEL_BITS) & 1;
        2 * level + parity as usize
    }

    /// The first slot of a rotation that is not empty.
    fn first_in(&self, word: usize) -> u16 {
        (word * SLOTS) as u16 + self.occupied[word].trailing_zeros() as u16
    }

    /// The slot of a level that time is in.
    fn list_of(&self, level: usize) -> u16 {
        list_at(level, self.elapsed >> (level as u32 * LEVEL_BITS))
    }

    /// The wheel's own time has just become the start of a slot.
    fn begin_cascades(&mut self) {
        for level in 1..LEVELS {
            if self.elapsed & ((1 << (level as u32 * LEVEL_BITS)) - 1) != 0 {
                break;
            }
            let begins = self.lists[usize::from(self.list_of(level))].head != NIL;
            self.cascading |= u16::from(begins) << level;
        }
    }

    /// For a timer that has fired: of each level moves one down that is in the slot which follows
    /// the one time is in. So, in the long run, as many as fire get to each level. The timers after
    /// these may be anywhere in memory, but they are fetched together with the next that fires.
    pub fn step_ahead(&mut self, nodes: &mut impl Nodes) {
        let occupied = (u32::BITS - self.words.leading_zeros()) as usize;
        for level in 1..occupied.div_ceil(2) {
            self.move_ahead(nodes, level);
        }
    }

    /// Moves a timer down from the slot of a level that follows the one time is in; false if there
    /// is none.
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

    /// The first and the last of a list.
    #[cfg(test)]
    pub(super) fn ends(&self, list: u16) -> (u32, u32) {
        let List { head, tail, .. } = self.lists[usize::from(list)];
        (head, tail)
    }

    /// Checks what the head of the file says, as far as it does not take the nodes.
    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        let mut crowds = 0;
        for list in 0..LISTS as u16 {
            let List { head, tail, len } = self.lists[usize::from(list)];
            let is_empty = self.occupied[word_of(list)] & occupancy_bit(list) == 0;
            assert_eq!((is_empty, is_empty, is_empty), (head == NIL, tail == NIL, len == 0));
            let level = level_of(list);
            crowds += u32::from(level > 0 && len >= CROWD);
            let cascades = self.cascading & (1 << level) != 0 && self.list_of(level) == list;
            let is_due = level == 0 && self.list_of(0) == list;
            assert!(is_empty || cascades || is_due || self.start_of(list) > self.elapsed);
            assert!(!cascades || !is_empty && self.start_of(list) == self.elapsed);
        }
        assert_eq!(self.crowds, crowds);
        let words = (0..WORDS).filter(|&word| self.occupied[word] != 0);
        assert_eq!(self.words, words.map(|word| 1 << word).sum::<u32>());
    }

    /// When an occupied slot begins.
    pub(super) fn start_of(&self, list: u16) -> u64 {
        let shift = level_of(list) as u32 * LEVEL_BITS;
        let now = self.elapsed >> shift;
        let slot = (now & !RING_MASK) | (u64::from(list) & RING_MASK);
        let is_before = slot < now & !SLOT_MASK;
        (slot + if is_before { RING as u64 } else { 0 }) << shift
    }

    /// The slot for a deadline, seen from the wheel's own time.
    pub(super) fn slot_for(&self, deadline: u64) -> u16 {
        let deadline = deadline.max(self.elapsed);
        let level = ((deadline ^ self.elapsed) | 1).ilog2() / LEVEL_BITS;
        list_at(level as usize, deadline >> (level * LEVEL_BITS))
    }

    /// Puts a node of no list, which comes from a level or from above them all, where its deadline
    /// belongs.
    fn place(&mut self, nodes: &mut impl Nodes, index: u32, from: usize) {
        let slot = self.slot_for(tick_of(nodes.deadline(index)));
        // Those before it may still be on their way down; it follows them.
        let passed = ((1 << from) - 1) & !((2_u16 << level_of(slot)) - 1);
        let list = match self.cascading & passed {
            0 => slot,
            levels => self.list_of(levels.ilog2() as usize),
        };
        self.push_back(nodes, list, index);
    }

    /// One step of a cascade. A timer whose deadline was moved may land in any slot but this.
    fn move_down(&mut self, nodes: &mut impl Nodes, list: u16) {
        let index = self.lists[usize::from(list)].head;
        self.unlink(nodes, index);
        self.place(nodes, index, level_of(list));
    }

    fn push_back(&mut self, nodes: &mut impl Nodes, list: u16, index: u32) {
        let ends = &mut self.lists[usize::from(list)];
        let tail = std::mem::replace(&mut ends.tail, index);
        ends.len += 1;
        self.crowds += u32::from(ends.len == CROWD && level_of(list) > 0);
        if tail == NIL {
            ends.head = index;
            self.occupied[word_of(list)] |= occupancy_bit(list);
            self.words |= 1 << word_of(list);
        } else {
            nodes.set_next(tail, index);
        }
        nodes.set_links(index, Links { prev: tail, next: NIL, list });
    }

    /// Takes a node out of its list, and with the last one ends the slot's occupancy and cascade.
    /// Its links still say where it was.
    fn unlink(&mut self, nodes: &mut impl Nodes, index: u32) {
        let Links { prev, next, list } = nodes.links(index);
        let ends = &mut self.lists[usize::from(list)];
        self.crowds -= u32::from(ends.len == CROWD && level_of(list) > 0);
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

    /// A slot has lost its last timer.
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

/// Moments as unsigned ticks in the same order, so that negative ones need no case of their own.
pub(super) fn tick_of(moment: Millis) -> u64 {
    moment.0.cast_unsigned() ^ (1 << 63)
}

pub(super) fn moment_of(tick: u64) -> Millis {
    Millis((tick ^ (1 << 63)).cast_signed())
}

pub(super) fn level_of(list: u16) -> usize {
    usize::from(list) / RING
}

/// The word of `occupied` with the bit of a list.
pub(super) fn word_of(list: u16) -> usize {
    usize::from(list) / SLOTS
}

/// The list of a level's slot.
fn list_at(level: usize, slot: u64) -> u16 {
    (level * RING) as u16 + (slot & RING_MASK) as u16
}

pub(super) fn occupancy_bit(list: u16) -> u64 {
    1 << (usize::from(list) % SLOTS)
}
