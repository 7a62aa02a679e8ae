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
//! A timer whose deadline is moved stays where it is unless it would then be found too late: when
//! its slot comes up it is put where its deadline belongs by then. So a renewal, the commonest
//! thing that happens to a lease, touches nothing but the lease.
//!
//! What always holds:
//! - Every occupied slot begins after `elapsed`, but for the slot of `elapsed` itself at level 0,
//!   which holds what is due at once, and the slot in mid-cascade. So the first set bit of the
//!   lowest occupied level is the next slot, and it alone begins then.
//! - No timer lies in a slot that begins after its deadline, or after `elapsed` if that is later.
//!   Timers that were never moved lie exactly where their deadline belongs.
//! - A slot's list is in order of arrival, and among equal deadlines that were never moved that is
//!   the order of insertion. A cascade keeps it so, even when cut short by its budget: until the
//!   slot is empty, all that would land below it joins its tail.
//! - `elapsed` never passes the latest `now` the caller gave, so nothing fires early.

use super::time::Millis;

/// Bits of a deadline that one level tells apart.
const LEVEL_BITS: u32 = 6;
/// Slots of a level: one for each bit of its occupancy word.
const SLOTS: usize = 1 << LEVEL_BITS;
const SLOT_MASK: u64 = SLOTS as u64 - 1;
/// Enough levels for all bits of a deadline.
pub(super) const LEVELS: usize = u64::BITS.div_ceil(LEVEL_BITS) as usize;
pub(super) const LISTS: usize = LEVELS * SLOTS;
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
    pub(super) occupied: [u64; LEVELS],
    /// The wheel's own time, as a tick.
    pub(super) elapsed: u64,
    /// The slot whose timers are on their way to lower levels. Never empty; begins at `elapsed`.
    pub(super) cascade: Option<u16>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    pub(super) head: u32,
    pub(super) tail: u32,
}

impl Wheel {
    /// An empty wheel whose own time is `now`.
    pub fn new(now: Millis) -> Wheel {
        Wheel {
            lists: Box::new([List { head: NIL, tail: NIL }; LISTS]),
            occupied: [0; LEVELS],
            elapsed: tick_of(now),
            cascade: None,
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

    /// Forgets all timers. Their links mean nothing from here on.
    pub fn clear(&mut self) {
        *self = Wheel { elapsed: self.elapsed, ..Wheel::new(Millis(0)) };
    }

    /// Lets a node be a timer, in constant time. A deadline at or before the wheel's own time
    /// counts as that time: it is due at once, after those already due then.
    pub fn insert(&mut self, nodes: &mut impl Nodes, index: u32) {
        debug_assert!(!nodes.links(index).is_linked());
        self.place(nodes, index);
        self.len += 1;
    }

    /// The deadline of a timer has been changed. In constant time, and mostly without touching
    /// another timer. Among equal deadlines it comes after those that are in the slot it is put
    /// into, now or when the slot it is left in comes up.
    pub fn reschedule(&mut self, nodes: &mut impl Nodes, index: u32) {
        let due = tick_of(nodes.deadline(index)).max(self.elapsed);
        if due < self.start_of(nodes.links(index).list) {
            self.unlink(nodes, index);
            self.place(nodes, index);
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
        if self.cascade.is_some() {
            return Some(moment_of(self.elapsed));
        }
        self.next_slot().map(|(_, start)| moment_of(start))
    }

    /// Takes out the next timer due at `now`: in order of deadline, and among equal ones in the
    /// order that stands above.
    ///
    /// Every timer that fires or is moved costs one from `budget`. With none left the answer is
    /// `None` although more may be due; then `next_deadline()` is not after `now`.
    pub fn pop_due(
        &mut self,
        nodes: &mut impl Nodes,
        now: Millis,
        budget: &mut u32,
    ) -> Option<u32> {
        let now = tick_of(now);
        while *budget > 0 {
            if let Some(list) = self.cascade {
                self.move_down(nodes, list);
                *budget -= 1;
                continue;
            }
            let Some((list, start)) = self.next_slot().filter(|&(_, start)| start <= now) else {
                self.elapsed = self.elapsed.max(now);
                return None;
            };
            self.elapsed = start;
            if level_of(list) > 0 {
                self.cascade = Some(list);
                continue;
            }
            *budget -= 1;
            let index = self.lists[usize::from(list)].head;
            if tick_of(nodes.deadline(index)) > start {
                self.unlink(nodes, index);
                self.place(nodes, index);
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
        if self.cascade.is_none() && self.next_slot().is_none_or(|(_, start)| start > now) {
            self.elapsed = self.elapsed.max(now);
        }
    }

    /// The next slot to begin and its start. Meaningless during a cascade.
    fn next_slot(&self) -> Option<(u16, u64)> {
        let level = self.occupied.iter().position(|&word| word != 0)?;
        let slot = self.occupied[level].trailing_zeros() as u16;
        let list = (level * SLOTS) as u16 + slot;
        Some((list, self.start_of(list)))
    }

    /// The first and the last of a list.
    #[cfg(test)]
    pub(super) fn ends(&self, list: u16) -> (u32, u32) {
        let List { head, tail } = self.lists[usize::from(list)];
        (head, tail)
    }

    /// When an occupied slot begins.
    pub(super) fn start_of(&self, list: u16) -> u64 {
        let shift = level_of(list) as u32 * LEVEL_BITS;
        let slot = u64::from(list) & SLOT_MASK;
        (self.elapsed & (!SLOT_MASK << shift)) | (slot << shift)
    }

    /// The slot for a deadline, seen from the wheel's own time.
    pub(super) fn slot_for(&self, deadline: u64) -> u16 {
        let deadline = deadline.max(self.elapsed);
        let level = ((deadline ^ self.elapsed) | 1).ilog2() / LEVEL_BITS;
        let slot = (deadline >> (level * LEVEL_BITS)) & SLOT_MASK;
        level as u16 * SLOTS as u16 + slot as u16
    }

    /// Puts a node of no list where its deadline belongs.
    fn place(&mut self, nodes: &mut impl Nodes, index: u32) {
        let slot = self.slot_for(tick_of(nodes.deadline(index)));
        let list = match self.cascade {
            // Those before it may still be up there; it follows them down.
            Some(above) if level_of(slot) < level_of(above) => above,
            _ => slot,
        };
        self.push_back(nodes, list, index);
    }

    /// One step of a cascade. A timer whose deadline was moved may land in any slot but this.
    fn move_down(&mut self, nodes: &mut impl Nodes, list: u16) {
        let index = self.lists[usize::from(list)].head;
        self.unlink(nodes, index);
        let slot = self.slot_for(tick_of(nodes.deadline(index)));
        debug_assert_ne!(slot, list);
        self.push_back(nodes, slot, index);
    }

    fn push_back(&mut self, nodes: &mut impl Nodes, list: u16, index: u32) {
        let ends = &mut self.lists[usize::from(list)];
        let tail = std::mem::replace(&mut ends.tail, index);
        if tail == NIL {
            ends.head = index;
            self.occupied[level_of(list)] |= occupancy_bit(list);
        } else {
            nodes.set_next(tail, index);
        }
        nodes.set_links(index, Links { prev: tail, next: NIL, list });
    }

    /// Takes a node out of its list, and with the last one ends the slot's occupancy and cascade.
    /// Its links still say where it was.
    fn unlink(&mut self, nodes: &mut impl Nodes, index: u32) {
        let Links { prev, next, list } = nodes.links(index);
        match prev {
            NIL => self.lists[usize::from(list)].head = next,
            prev => nodes.set_next(prev, next),
        }
        match next {
            NIL => self.lists[usize::from(list)].tail = prev,
            next => nodes.set_prev(next, prev),
        }
        if prev == NIL && next == NIL {
            self.occupied[level_of(list)] &= !occupancy_bit(list);
            if self.cascade == Some(list) {
                self.cascade = None;
            }
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
    usize::from(list) / SLOTS
}

pub(super) fn occupancy_bit(list: u16) -> u64 {
    1 << (usize::from(list) % SLOTS)
}
