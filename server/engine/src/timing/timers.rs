//! A timer wheel with storage for its timers, used for blocked clients and pauses. The payload of a
//! timer determines its meaning.
//!
//! Insert, reschedule, cancel at random, cancel the latest, expire, in ns with a million random
//! timers (November 2026, a loaded two-core Xeon): this 4, 29, 34, 4, 365; `DelayQueue` 33, 418,
//! 427, 56, 529; `BinaryHeap` 13, 67, 49, 32, 795. Accessing one node at random takes 10, and
//! cancelling a timer accesses three: the timer, the one before and the one after it.

use std::num::NonZeroU32;

use crate::timing::time::Millis;
use crate::timing::wheel::{Links, NIL, Nodes, Wheel};

/// Fewest places at which an empty slab gives up its memory: growing again would cost more.
const SHRINK_FLOOR: usize = 64;

/// Identifies a timer until it fires or is cancelled; then the number is reused. An
/// `Option<TimerId>` has the same size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId(NonZeroU32);

impl TimerId {
    fn of(index: u32) -> TimerId {
        TimerId(NonZeroU32::MIN.saturating_add(index))
    }

    fn index(self) -> u32 {
        self.0.get() - 1
    }
}

/// Timers with a payload of type `T`. A timer needs no allocation besides its place in the slab.
#[derive(Debug)]
pub struct Timers<T> {
    wheel: Wheel,
    slab: Slab<T>,
}

#[derive(Debug)]
struct Slab<T> {
    nodes: Vec<Node<T>>,
    /// The place freed last, which is the most likely to be in a cache.
    free: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node<T> {
    deadline: Millis,
    prev: u32,
    /// In a free place: the next free place.
    next: u32,
    list: u16,
    payload: T,
}

impl<T: Copy> Timers<T> {
    /// No timers; the wheel's own time is `now`.
    pub fn new(now: Millis) -> Timers<T> {
        Timers { wheel: Wheel::new(now), slab: Slab { nodes: Vec::new(), free: NIL } }
    }

    /// The number of active timers.
    pub fn len(&self) -> usize {
        self.wheel.len()
    }

    /// Whether there are no active timers.
    pub fn is_empty(&self) -> bool {
        self.wheel.is_empty()
    }

    /// Adds a timer; see [`Wheel::insert`].
    pub fn insert(&mut self, deadline: Millis, payload: T) -> TimerId {
        let index = self.slab.take_place(deadline, payload);
        self.wheel.insert(&mut self.slab, index);
        TimerId::of(index)
    }

    /// Changes the deadline of a timer; see [`Wheel::reschedule`]. The timer keeps its id.
    pub fn reschedule(&mut self, id: TimerId, deadline: Millis) {
        let index = self.live(id);
        self.slab.nodes[index as usize].deadline = deadline;
        self.wheel.reschedule(&mut self.slab, index);
    }

    /// Removes a timer before it fires, in constant time.
    pub fn cancel(&mut self, id: TimerId) -> T {
        let index = self.live(id);
        self.wheel.cancel(&mut self.slab, index);
        self.release(index).payload
    }

    /// The payload of a timer.
    pub fn payload(&self, id: TimerId) -> T {
        self.slab.nodes[self.live(id) as usize].payload
    }

    /// Changes the payload of a timer.
    pub fn set_payload(&mut self, id: TimerId, payload: T) {
        let index = self.live(id);
        self.slab.nodes[index as usize].payload = payload;
    }

    /// The deadline that was given for a timer.
    pub fn deadline(&self, id: TimerId) -> Millis {
        self.slab.nodes[self.live(id) as usize].deadline
    }

    /// Moves every deadline by `span`.
    pub fn postpone(&mut self, span: Millis) {
        for index in self.active() {
            let deadline = self.slab.deadline(index);
            self.reschedule(TimerId::of(index), Millis(deadline.0.saturating_add(span.0)));
        }
    }

    /// Sets the wheel's own time, also to an earlier one. All timers stay.
    pub fn restart(&mut self, now: Millis) {
        let active = self.active();
        active.iter().for_each(|index| self.wheel.cancel(&mut self.slab, *index));
        self.wheel = Wheel::new(now);
        active.iter().for_each(|index| self.wheel.insert(&mut self.slab, *index));
    }

    /// The indices of all timers.
    fn active(&self) -> Vec<u32> {
        let places = 0..self.slab.nodes.len();
        let indices = places.map(|place| u32::try_from(place).unwrap_or(NIL));
        indices.filter(|index| self.slab.links(*index).is_linked()).collect()
    }

    /// When `pop_due` next has work; see [`Wheel::next_deadline`].
    pub fn next_deadline(&self) -> Option<Millis> {
        self.wheel.next_deadline()
    }

    /// As [`Wheel::advance`].
    pub fn advance(&mut self, now: Millis) {
        self.wheel.advance(now);
    }

    /// Removes the next timer that is due at `now` and returns its deadline and payload; see
    /// [`Wheel::pop_due`].
    pub fn pop_due(&mut self, now: Millis, budget: &mut u32) -> Option<(Millis, T)> {
        let index = self.wheel.pop_due(&mut self.slab, now, budget)?;
        let Node { deadline, payload, .. } = self.release(index);
        Some((deadline, payload))
    }

    /// The index of an active timer. Panics if the timer is not active.
    fn live(&self, id: TimerId) -> u32 {
        let index = id.index();
        assert!(self.slab.links(index).is_linked(), "timer has fired or was cancelled");
        index
    }

    /// Frees a place, and all memory when the last timer is removed. Timers never move, so the slab
    /// can only be dropped when it is empty.
    fn release(&mut self, index: u32) -> Node<T> {
        let node = self.slab.nodes[index as usize];
        self.slab.nodes[index as usize].next = self.slab.free;
        self.slab.free = index;
        if self.is_empty() && self.slab.nodes.len() >= SHRINK_FLOOR {
            self.slab = Slab { nodes: Vec::new(), free: NIL };
        }
        node
    }
}

impl<T> Slab<T> {
    fn take_place(&mut self, deadline: Millis, payload: T) -> u32 {
        let Links { prev, next, list } = Links::NONE;
        let node = Node { deadline, prev, next, list, payload };
        match self.free {
            NIL => {
                let index = u32::try_from(self.nodes.len()).unwrap_or(NIL);
                assert!(index < NIL, "too many timers");
                self.nodes.push(node);
                index
            }
            index => {
                self.free = self.nodes[index as usize].next;
                self.nodes[index as usize] = node;
                index
            }
        }
    }
}

impl<T> Nodes for Slab<T> {
    fn deadline(&self, index: u32) -> Millis {
        self.nodes[index as usize].deadline
    }

    fn links(&self, index: u32) -> Links {
        let &Node { prev, next, list, .. } = &self.nodes[index as usize];
        Links { prev, next, list }
    }

    fn set_links(&mut self, index: u32, links: Links) {
        let node = &mut self.nodes[index as usize];
        (node.prev, node.next, node.list) = (links.prev, links.next, links.list);
    }

    fn set_prev(&mut self, index: u32, prev: u32) {
        self.nodes[index as usize].prev = prev;
    }

    fn set_next(&mut self, index: u32, next: u32) {
        self.nodes[index as usize].next = next;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::timing::wheel::{LEVELS, LISTS, moment_of, tick_of};

    const ENDLESS: u32 = u32::MAX;

    impl<T: Copy> Timers<T> {
        /// Walks every list and checks the invariants in `wheel.rs`.
        fn check_invariants(&self) {
            let mut linked = 0;
            for list in 0..LISTS as u16 {
                let (head, tail) = self.wheel.ends(list);
                let (mut prev, mut index) = (NIL, head);
                while index != NIL {
                    let links = self.slab.links(index);
                    assert_eq!((links.prev, links.list), (prev, list));
                    let due = tick_of(self.slab.deadline(index)).max(self.wheel.elapsed);
                    assert!(self.wheel.start_of(list) <= due, "found too late");
                    linked += 1;
                    (prev, index) = (index, links.next);
                }
                assert_eq!(tail, prev);
            }
            assert_eq!(linked, self.len());
            let free = std::iter::successors(Some(self.slab.free).filter(|&at| at != NIL), |&at| {
                Some(self.slab.nodes[at as usize].next).filter(|&at| at != NIL)
            });
            assert_eq!(linked + free.count(), self.slab.nodes.len(), "a place is lost");
            self.wheel.check_invariants();
        }
    }

    impl<T: Copy> Timers<T> {
        fn work_ahead(&mut self, now: Millis, budget: u32) {
            self.wheel.work_ahead(&mut self.slab, now, budget);
        }
    }

    fn drain(timers: &mut Timers<u32>, now: i64) -> Vec<(i64, u32)> {
        let mut budget = ENDLESS;
        std::iter::from_fn(|| timers.pop_due(Millis(now), &mut budget))
            .map(|(deadline, payload)| (deadline.0, payload))
            .collect()
    }

    /// Inserts the deadlines at `start`, numbered from 0, and checks which fire at each moment.
    fn check(start: i64, deadlines: &[i64], expected: &[(i64, &[u32])]) {
        let mut timers = Timers::new(Millis(start));
        for (payload, &deadline) in (0..).zip(deadlines) {
            timers.insert(Millis(deadline), payload);
        }
        for &(now, payloads) in expected {
            let fired = drain(&mut timers, now);
            let wanted: Vec<_> =
                payloads.iter().map(|&payload| (deadlines[payload as usize], payload)).collect();
            assert_eq!(fired, wanted, "at {now}");
            timers.check_invariants();
        }
    }

    #[test]
    fn timers_fire_in_order_after_a_restart_at_an_earlier_time() {
        let mut timers = Timers::new(Millis(0));
        timers.advance(Millis(9_000));
        for deadline in [5_000, 20, 70_000] {
            timers.insert(Millis(deadline), deadline);
        }
        let cancelled = timers.insert(Millis(30), 30);
        timers.cancel(cancelled);
        timers.restart(Millis(10));
        assert_eq!((timers.len(), timers.next_deadline()), (3, Some(Millis(20))));
        for (now, fired) in [(19, None), (20, Some(20)), (4_999, None), (70_000, Some(5_000))] {
            assert_eq!(timers.pop_due(Millis(now), &mut 1_000).map(|(_, payload)| payload), fired);
        }
        timers.wheel.check_invariants();
    }

    #[test]
    fn fires_on_the_millisecond_and_not_before() {
        for span in (0..62).map(|bit| 1i64 << bit) {
            for deadline in [span - 1, span, span + 1].into_iter().filter(|&ms| ms > 0) {
                check(0, &[deadline], &[(deadline - 1, &[]), (deadline, &[0])]);
            }
        }
    }

    #[test]
    fn fires_in_order_of_deadline_then_of_insertion() {
        check(0, &[70, 5, 70, 4096, 5], &[(4, &[]), (5, &[1, 4]), (10_000, &[0, 2, 3])]);
        check(-70, &[0, -1, -64, 1, -64], &[(-65, &[]), (0, &[2, 4, 1, 0]), (1, &[3])]);
    }

    #[test]
    fn past_deadlines_are_due_at_once_in_order_of_insertion() {
        check(100, &[100, -5, 99, i64::MIN], &[(100, &[0, 1, 2, 3])]);
    }

    #[test]
    fn extreme_moments_need_no_special_case() {
        let extremes = [i64::MIN, i64::MAX, 0, -1, i64::MAX, i64::MIN];
        check(i64::MIN, &extremes, &[(-2, &[0, 5]), (i64::MAX - 1, &[3, 2]), (i64::MAX, &[1, 4])]);
        check(i64::MAX, &extremes, &[(i64::MAX, &[0, 1, 2, 3, 4, 5])]);
        check(0, &extremes, &[(0, &[0, 2, 3, 5]), (i64::MAX, &[1, 4])]);
    }

    #[test]
    fn clock_that_goes_back_fires_late_but_never_early() {
        let mut timers = Timers::new(Millis(0));
        assert_eq!(drain(&mut timers, 200), []);
        timers.insert(Millis(150), 0);
        assert_eq!(drain(&mut timers, 100), []);
        timers.check_invariants();
        assert_eq!(drain(&mut timers, 199), []);
        assert_eq!(drain(&mut timers, 200), [(150, 0)]);
    }

    #[test]
    fn rescheduled_timer_keeps_its_id_and_moves_when_its_slot_begins() {
        let mut timers = Timers::new(Millis(0));
        let first = timers.insert(Millis(10), 1);
        timers.insert(Millis(30), 2);
        timers.reschedule(first, Millis(30));
        timers.set_payload(first, 3);
        assert_eq!((timers.payload(first), timers.deadline(first)), (3, Millis(30)));
        assert_eq!(timers.next_deadline(), Some(Millis(10)), "the timer stays in its slot");
        assert_eq!(drain(&mut timers, 29), []);
        assert_eq!(timers.next_deadline(), Some(Millis(30)));
        timers.reschedule(first, Millis(29));
        timers.check_invariants();
        assert_eq!(drain(&mut timers, 30), [(29, 3), (30, 2)]);
    }

    #[test]
    fn rescheduled_timer_comes_after_those_in_its_new_slot() {
        for (now, expected) in [(9, [2, 3, 1]), (10, [2, 1, 3])] {
            let mut timers = Timers::new(Millis(0));
            let first = timers.insert(Millis(10), 1);
            timers.insert(Millis(20), 2);
            timers.reschedule(first, Millis(20));
            assert_eq!(drain(&mut timers, now), []);
            timers.insert(Millis(20), 3);
            let order: Vec<_> = drain(&mut timers, 20).into_iter().map(|(_, it)| it).collect();
            assert_eq!(order, expected, "{now}");
        }
    }

    /// A renewed lease is visited once for each time that its slot begins, however often it is
    /// renewed.
    #[test]
    fn renewal_costs_the_wheel_nothing() {
        let mut timers = Timers::new(Millis(0));
        let id = timers.insert(Millis(30_000), 1);
        for now in (0..300_000).step_by(10) {
            timers.reschedule(id, Millis(now + 30_000));
        }
        let mut budget = 3;
        assert_eq!(timers.pop_due(Millis(300_000), &mut budget), None);
        assert!(budget > 0, "visited more than twice");
        timers.check_invariants();
    }

    #[test]
    fn cancelled_timer_never_fires() {
        let mut timers = Timers::new(Millis(0));
        let ids = [5, 5000, 5].map(|deadline| timers.insert(Millis(deadline), deadline as u32));
        assert_eq!(timers.cancel(ids[0]), 5);
        assert_eq!(timers.cancel(ids[1]), 5000);
        assert_eq!(timers.len(), 1);
        assert_eq!(drain(&mut timers, 9000), [(5, 5)]);
        assert!(timers.is_empty());
        assert_eq!(timers.next_deadline(), None);
    }

    #[test]
    #[should_panic(expected = "timer has fired or was cancelled")]
    fn use_of_a_stale_id_panics() {
        let mut timers = Timers::new(Millis(0));
        let id = timers.insert(Millis(1), ());
        timers.cancel(id);
        timers.cancel(id);
    }

    #[test]
    fn equal_deadline_inserted_during_a_cascade_fires_last() {
        let mut timers = Timers::new(Millis(0));
        for payload in 0..4 {
            timers.insert(Millis(100), payload);
        }
        assert_eq!(timers.pop_due(Millis(100), &mut 2), None);
        assert!(timers.wheel.cascading != 0, "the budget should end during a cascade");
        assert!(timers.next_deadline() <= Some(Millis(100)));
        timers.insert(Millis(100), 4);
        timers.check_invariants();
        let order: Vec<_> =
            drain(&mut timers, 100).into_iter().map(|(_, payload)| payload).collect();
        assert_eq!(order, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn cancelling_the_rest_of_a_slot_ends_its_cascade() {
        let mut timers = Timers::new(Millis(0));
        let ids = [0, 1, 2].map(|payload| timers.insert(Millis(100), payload));
        assert_eq!(timers.pop_due(Millis(100), &mut 1), None);
        timers.cancel(ids[1]);
        timers.cancel(ids[2]);
        timers.check_invariants();
        assert_eq!(timers.next_deadline(), Some(Millis(100)));
        assert_eq!(drain(&mut timers, 100), [(100, 0)]);
    }

    /// A large slot is begun some time before its start, and is empty at its start.
    #[test]
    fn large_slot_is_empty_at_its_start() {
        for count in [1, 2, 9, 1000] {
            let mut timers = Timers::new(Millis(0));
            for payload in 0..count {
                timers.insert(Millis(i64::from(20_032 + payload % 60)), payload);
            }
            let mut moments = 0;
            while let Some(moment) = timers.wheel.next_work_ahead() {
                assert!(moment < Millis(20_032));
                assert_eq!(drain(&mut timers, moment.0), []);
                timers.work_ahead(moment, 5);
                moments += 1;
            }
            assert_eq!(moments > 0, count > 2);
            let mut budget = count + 4;
            let fired = std::iter::from_fn(|| timers.pop_due(Millis(20_092), &mut budget));
            assert_eq!(fired.count(), count as usize, "of {count}");
        }
    }

    /// Whether the timers fire or are cancelled, also in the middle of a cascade.
    #[test]
    fn memory_is_freed_with_the_last_timer() {
        for fired in [0, 1, 500, 999, 1000] {
            let mut timers = Timers::new(Millis(0));
            let ids: Vec<_> = (0..1000).map(|n| timers.insert(Millis(100), n)).collect();
            assert_eq!(
                timers.pop_due(Millis(100), &mut 10),
                None,
                "the budget covers part of a cascade"
            );
            let mut budget = 990 + fired;
            let count = std::iter::from_fn(|| timers.pop_due(Millis(100), &mut budget)).count();
            assert_eq!(count, fired as usize);
            assert_eq!(timers.slab.nodes.is_empty(), fired == 1000);
            for &id in &ids[count..] {
                timers.cancel(id);
            }
            timers.check_invariants();
            assert_eq!(
                (timers.slab.nodes.capacity(), timers.next_deadline()),
                (0, None),
                "{fired}"
            );
            timers.insert(Millis(100), 1);
            timers.insert(Millis(200), 2);
            assert_eq!(drain(&mut timers, 200), [(100, 1), (200, 2)]);
            timers.check_invariants();
        }
    }

    #[test]
    fn optional_id_is_as_small_as_an_id() {
        assert_eq!(size_of::<Option<TimerId>>(), 4);
        assert_eq!(size_of::<Node<u32>>(), 24);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(Deadline),
        Reschedule(prop::sample::Index, Deadline),
        Cancel(prop::sample::Index),
        Advance(i64),
        Drain(u32),
        WorkAhead(u32),
        MoveAhead,
    }

    #[derive(Clone, Debug)]
    enum Deadline {
        In(i64),
        At(i64),
        Like(prop::sample::Index),
    }

    fn spans() -> impl Strategy<Value = i64> {
        prop_oneof![
            4 => 0..4i64,
            4 => 0..200i64,
            2 => 0..20_000i64,
            1 => 0..100_000_000_000i64,
            1 => (0..63u32, -1..=1i64).prop_map(|(bit, off)| ((1i64 << bit) + off).max(0)),
        ]
    }

    fn deadlines() -> impl Strategy<Value = Deadline> {
        use Deadline::{At, In, Like};
        let extremes = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
        prop_oneof![
            6 => spans().prop_map(In),
            1 => spans().prop_map(|span| In(-span)),
            1 => prop::sample::select(extremes.to_vec()).prop_map(At),
            4 => any::<prop::sample::Index>().prop_map(Like),
        ]
    }

    fn steps() -> impl Strategy<Value = Step> {
        use Step::{Advance, Cancel, Drain, Insert, MoveAhead, Reschedule, WorkAhead};
        prop_oneof![
            8 => deadlines().prop_map(Insert),
            4 => (any::<prop::sample::Index>(), deadlines())
                .prop_map(|(timer, deadline)| Reschedule(timer, deadline)),
            2 => any::<prop::sample::Index>().prop_map(Cancel),
            4 => spans().prop_map(Advance),
            6 => (0..6u32).prop_map(Drain),
            1 => Just(Drain(ENDLESS)),
            4 => (0..6u32).prop_map(WorkAhead),
            2 => Just(MoveAhead),
        ]
    }

    /// The model of a timer; its number is the order of insertion.
    #[derive(Clone, Copy, Debug)]
    struct ModelTimer {
        id: TimerId,
        given: i64,
        /// The deadline, or the moment of insertion if that was later.
        counts_as: i64,
        moved: bool,
    }

    /// The wheel together with a simple map as its model.
    struct WheelAndModel {
        timers: Timers<u64>,
        model: BTreeMap<u64, ModelTimer>,
        now: i64,
        serial: u64,
    }

    impl WheelAndModel {
        fn step(&mut self, step: Step) {
            match step {
                Step::Insert(deadline) => {
                    let deadline = self.resolve(&deadline);
                    let id = self.timers.insert(Millis(deadline), self.serial);
                    self.enter(self.serial, id, deadline, false);
                    self.serial += 1;
                }
                Step::Reschedule(timer, deadline) => {
                    let deadline = self.resolve(&deadline);
                    let Some((serial, known)) = self.remove(timer) else { return };
                    self.timers.reschedule(known.id, Millis(deadline));
                    self.enter(serial, known.id, deadline, true);
                }
                Step::Cancel(timer) => {
                    let Some((serial, known)) = self.remove(timer) else { return };
                    assert_eq!(self.timers.cancel(known.id), serial);
                }
                Step::Advance(span) => self.now = self.now.saturating_add(span),
                Step::Drain(budget) => self.drain(budget),
                Step::WorkAhead(budget) => self.timers.work_ahead(Millis(self.now), budget),
                Step::MoveAhead => self.timers.wheel.step_ahead(&mut self.timers.slab),
            }
            self.compare();
        }

        fn resolve(&self, deadline: &Deadline) -> i64 {
            match deadline {
                Deadline::In(span) => self.now.saturating_add(*span),
                Deadline::At(moment) => *moment,
                Deadline::Like(_) if self.model.is_empty() => self.now,
                Deadline::Like(timer) => timer.get(&self.model.values().collect::<Vec<_>>()).given,
            }
        }

        fn enter(&mut self, serial: u64, id: TimerId, given: i64, moved: bool) {
            let counts_as = given.max(moment_of(self.timers.wheel.elapsed).0);
            self.model.insert(serial, ModelTimer { id, given, counts_as, moved });
        }

        fn remove(&mut self, timer: prop::sample::Index) -> Option<(u64, ModelTimer)> {
            let serial = *self.model.keys().nth(timer.index(self.model.len().max(1)))?;
            self.model.remove_entry(&serial)
        }

        fn drain(&mut self, mut budget: u32) {
            while let Some((given, serial)) = self.timers.pop_due(Millis(self.now), &mut budget) {
                let fired = self.model.remove(&serial).expect("a timer of the model");
                assert_eq!(given.0, fired.given);
                assert!(fired.counts_as <= self.now && fired.given <= self.now, "early");
                assert!(self.earliest().is_none_or(|other| fired.counts_as <= other), "late");
                let mut before = self.model.range(..serial).map(|(_, known)| known);
                let overtaken = before.any(|it| !it.moved && it.counts_as == fired.counts_as);
                assert!(fired.moved || !overtaken, "out of order");
            }
            let late = self.earliest().is_some_and(|moment| moment <= self.now);
            let next = self.timers.next_deadline();
            if budget > 0 {
                assert!(!late, "lost or late");
                assert!(next.is_none_or(|moment| moment.0 > self.now));
            } else if late {
                assert!(next.is_some_and(|moment| moment.0 <= self.now));
            }
        }

        fn earliest(&self) -> Option<i64> {
            self.model.values().map(|known| known.counts_as).min()
        }

        fn compare(&self) {
            self.timers.check_invariants();
            assert!(moment_of(self.timers.wheel.elapsed).0 <= self.now, "ahead of its time");
            assert_eq!(self.timers.len(), self.model.len());
            let (earliest, next) = (self.earliest(), self.timers.next_deadline());
            assert_eq!(next.is_some(), earliest.is_some());
            let next = next.map(|moment| moment.0);
            assert!(next <= earliest, "asks to be called at {next:?}, too late for {earliest:?}");
            let ids: BTreeSet<_> = self.model.values().map(|known| known.id.index()).collect();
            assert_eq!(ids.len(), self.model.len(), "an id used twice");
            for (&serial, known) in &self.model {
                assert_eq!(self.timers.payload(known.id), serial);
                assert_eq!(self.timers.deadline(known.id), Millis(known.given));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 512 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn agrees_with_an_ordered_map(
            start in prop_oneof![
                Just(0),
                Just(1_700_000_000_000),
                Just(i64::MIN),
                Just(-100),
                Just(i64::MAX - 100)
            ],
            steps in prop::collection::vec(steps(), 1..200),
        ) {
            let timers = Timers::new(Millis(start));
            let model = BTreeMap::new();
            let mut checked = WheelAndModel { timers, model, now: start, serial: 0 };
            for step in steps {
                checked.step(step);
            }
            // Twice the greatest span is one less than the distance from the first moment to the
            // last.
            for span in [i64::MAX, i64::MAX, 1] {
                checked.step(Step::Advance(span));
            }
            checked.step(Step::Drain(ENDLESS));
            prop_assert!(checked.model.is_empty());
        }

        #[test]
        fn work_per_timer_is_bounded_by_the_levels(spans in prop::collection::vec(spans(), 1..50)) {
            let mut timers = Timers::new(Millis(-1));
            for &span in &spans {
                timers.insert(Millis(span), ());
            }
            let mut budget = (spans.len() * LEVELS) as u32;
            let fired = std::iter::from_fn(|| timers.pop_due(Millis(i64::MAX), &mut budget));
            prop_assert_eq!(fired.count(), spans.len());
        }
    }
}
