//! The cost of a timer in the wheel, in `DelayQueue`, and in a `BinaryHeap` with lazy deletion.
//!
//! Every operation is measured among 1,000 to 10,000,000 live timers with leases of 10 to 60 s,
//! chosen at random:
//! - `insert`: a lock is taken.
//! - `move`: a lock is renewed. The most frequent operation of a lock server.
//! - `cancel`: any lock is released.
//! - `release`: a lock is released that was taken just before, as is usual.
//! - `expire`: a lease ends; the cost for each timer that is due as time advances.
//!
//! Among a million timers, most of the time is spent waiting for memory. `touch` is a lower bound:
//! it changes one 24-byte node chosen at random, and nothing else.
//!
//! The heap keeps a dead entry for each move and cancel until they outnumber the live ones, then
//! removes them; it does not keep the order of equal deadlines, which the wheel does.

#![allow(clippy::disallowed_methods)] // `DelayQueue` needs tokio's clock to be advanced.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use lockwheel_benches::{CHUNK, Random, in_chunks, is_measurement, measures_largest_sizes, time};
use lockwheel_engine::timing::time::Millis;
use lockwheel_engine::timing::timers::{TimerId, Timers as Wheel};
use tokio::runtime::Runtime;
use tokio::time::Instant;
use tokio_util::time::{DelayQueue, delay_queue};

const SHORTEST_LEASE_MS: u32 = 10_000;
const LONGEST_LEASE_MS: u32 = 60_000;

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500));
    targets = all
}
criterion_main!(benches);

fn all(criterion: &mut Criterion) {
    for operation in TimerOperation::ALL {
        for timer_count in sizes() {
            bench::<Wheel<u32>>(criterion, operation, timer_count);
            bench::<TokioQueue>(criterion, operation, timer_count);
            bench::<LazyHeap>(criterion, operation, timer_count);
        }
    }
    for timer_count in sizes() {
        bench_touch(criterion, timer_count);
    }
}

fn bench_touch(criterion: &mut Criterion, timer_count: u32) {
    let mut random = Random::new();
    let mut nodes = vec![[0_u64; 3]; timer_count as usize];
    criterion.bench_function(&format!("touch/{timer_count}"), |bencher| {
        bencher.iter_custom(|count| {
            in_chunks(count, |size| {
                let chosen: [u32; CHUNK] = std::array::from_fn(|_| random.below(timer_count));
                time(|| {
                    for &at in &chosen[..size] {
                        nodes[at as usize][0] += 1;
                    }
                })
            })
        });
    });
}

fn sizes() -> Vec<u32> {
    match (is_measurement(), measures_largest_sizes()) {
        (false, _) => vec![1_000],
        (true, false) => vec![1_000, 10_000, 100_000, 1_000_000],
        (true, true) => vec![1_000, 10_000, 100_000, 1_000_000, 10_000_000],
    }
}

#[derive(Clone, Copy, Debug)]
enum TimerOperation {
    Insert,
    Move,
    Cancel,
    Release,
    Expire,
}

impl TimerOperation {
    const ALL: [TimerOperation; 5] = [
        TimerOperation::Insert,
        TimerOperation::Move,
        TimerOperation::Cancel,
        TimerOperation::Release,
        TimerOperation::Expire,
    ];
}

fn bench<T: TimerQueue>(criterion: &mut Criterion, operation: TimerOperation, timer_count: u32) {
    let mut group = criterion.benchmark_group(format!("{operation:?}").to_lowercase());
    let mut population = None;
    group.bench_function(BenchmarkId::new(T::NAME, timer_count), |bencher| {
        let population = population.get_or_insert_with(|| Population::<T>::new(timer_count));
        bencher.iter_custom(|count| match operation {
            TimerOperation::Insert => population.time_inserts(count),
            TimerOperation::Move => population.time_moves(count),
            TimerOperation::Cancel => population.time_cancels(count),
            TimerOperation::Release => population.time_releases(count),
            TimerOperation::Expire => population.time_expiries(count),
        });
    });
}

/// The interface of all implementations. Times are milliseconds since the start.
trait TimerQueue {
    const NAME: &'static str;
    type Id: Copy;

    fn new() -> Self;
    fn insert(&mut self, deadline: i64, payload: u32) -> Self::Id;
    fn reschedule(&mut self, id: Self::Id, deadline: i64);
    fn cancel(&mut self, id: Self::Id);
    /// Advances the implementation's own clock, if it has one. Not measured.
    fn set_now(&mut self, now: i64);
    fn pop_due(&mut self, now: i64) -> Option<u32>;
}

/// Timers numbered from 0, with the id of each number.
struct Population<T: TimerQueue> {
    timers: T,
    ids: Vec<T::Id>,
    now: i64,
    random: Random,
}

impl<T: TimerQueue> Population<T> {
    fn new(timer_count: u32) -> Population<T> {
        let mut new =
            Population { timers: T::new(), ids: Vec::new(), now: 0, random: Random::new() };
        for number in 0..timer_count {
            let deadline = new.deadline();
            new.ids.push(new.timers.insert(deadline, number));
        }
        new
    }

    fn deadline(&mut self) -> i64 {
        let spread = self.random.below(LONGEST_LEASE_MS - SHORTEST_LEASE_MS);
        self.now + i64::from(SHORTEST_LEASE_MS + spread)
    }

    fn deadlines(&mut self) -> [i64; CHUNK] {
        std::array::from_fn(|_| self.deadline())
    }

    fn time_inserts(&mut self, count: u64) -> Duration {
        in_chunks(count, |size| {
            let deadlines = self.deadlines();
            let first = self.ids.len();
            let Population { timers, ids, .. } = self;
            ids.reserve(size);
            let spent = time(|| {
                for &deadline in &deadlines[..size] {
                    ids.push(timers.insert(deadline, 0));
                }
            });
            for id in ids.drain(first..) {
                timers.cancel(id);
            }
            spent
        })
    }

    fn time_moves(&mut self, count: u64) -> Duration {
        in_chunks(count, |size| {
            let deadlines = self.deadlines();
            let timer_count = self.ids.len() as u32;
            let chosen: [T::Id; CHUNK] =
                std::array::from_fn(|_| self.ids[self.random.below(timer_count) as usize]);
            time(|| {
                for (&id, &deadline) in chosen[..size].iter().zip(&deadlines) {
                    self.timers.reschedule(id, deadline);
                }
            })
        })
    }

    fn time_cancels(&mut self, count: u64) -> Duration {
        in_chunks(count, |size| {
            let deadlines = self.deadlines();
            let chosen: Vec<T::Id> = (0..size)
                .map(|_| {
                    let number = self.random.below(self.ids.len() as u32);
                    self.ids.swap_remove(number as usize)
                })
                .collect();
            let spent = time(|| {
                for &id in &chosen {
                    self.timers.cancel(id);
                }
            });
            for &deadline in &deadlines[..size] {
                self.ids.push(self.timers.insert(deadline, 0));
            }
            spent
        })
    }

    fn time_releases(&mut self, count: u64) -> Duration {
        in_chunks(count, |size| {
            let deadlines = self.deadlines();
            let mut ids: Vec<T::Id> =
                deadlines[..size].iter().map(|&it| self.timers.insert(it, 0)).collect();
            for at in 1..size {
                ids.swap(at, self.random.below(at as u32) as usize);
            }
            time(|| {
                for &id in &ids {
                    self.timers.cancel(id);
                }
            })
        })
    }

    /// Advances time in steps in which about a chunk of timers is due, and by at least one
    /// millisecond. Each expired timer is then inserted again.
    fn time_expiries(&mut self, count: u64) -> Duration {
        let step = (CHUNK as i64 * i64::from(LONGEST_LEASE_MS) / self.ids.len() as i64).max(1);
        let mut spent = Duration::ZERO;
        let mut total = 0;
        while total < count {
            self.now += step;
            self.timers.set_now(self.now);
            let mut fired = 0;
            spent += time(|| {
                while let Some(number) = self.timers.pop_due(self.now) {
                    black_box(number);
                    fired += 1;
                }
            });
            for _ in 0..fired {
                let deadline = self.deadline();
                self.timers.insert(deadline, 0);
            }
            total += fired;
        }
        spent.mul_f64(count as f64 / total as f64)
    }
}

impl TimerQueue for Wheel<u32> {
    const NAME: &'static str = "Wheel";
    type Id = TimerId;

    fn new() -> Self {
        Wheel::new(Millis(0))
    }

    fn insert(&mut self, deadline: i64, payload: u32) -> TimerId {
        Wheel::insert(self, Millis(deadline), payload)
    }

    fn reschedule(&mut self, id: TimerId, deadline: i64) {
        Wheel::reschedule(self, id, Millis(deadline));
    }

    fn cancel(&mut self, id: TimerId) {
        Wheel::cancel(self, id);
    }

    fn set_now(&mut self, _: i64) {}

    fn pop_due(&mut self, now: i64) -> Option<u32> {
        let mut budget = u32::MAX;
        Wheel::pop_due(self, Millis(now), &mut budget).map(|(_, payload)| payload)
    }
}

/// `DelayQueue` on a runtime with a paused clock.
struct TokioQueue {
    queue: DelayQueue<u32>,
    start: Instant,
    runtime: Runtime,
}

impl TokioQueue {
    fn instant(&self, time_ms: i64) -> Instant {
        self.start + Duration::from_millis(time_ms.cast_unsigned())
    }
}

impl TimerQueue for TokioQueue {
    const NAME: &'static str = "DelayQueue";
    type Id = delay_queue::Key;

    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without input and output");
        let (queue, start) = runtime.block_on(async { (DelayQueue::new(), Instant::now()) });
        TokioQueue { queue, start, runtime }
    }

    fn insert(&mut self, deadline: i64, payload: u32) -> delay_queue::Key {
        let deadline = self.instant(deadline);
        let _entered = self.runtime.enter();
        self.queue.insert_at(payload, deadline)
    }

    fn reschedule(&mut self, id: delay_queue::Key, deadline: i64) {
        let deadline = self.instant(deadline);
        let _entered = self.runtime.enter();
        self.queue.reset_at(&id, deadline);
    }

    fn cancel(&mut self, id: delay_queue::Key) {
        let _entered = self.runtime.enter();
        self.queue.remove(&id);
    }

    fn set_now(&mut self, now: i64) {
        let now = self.instant(now);
        self.runtime.block_on(async { tokio::time::advance(now - Instant::now()).await });
    }

    fn pop_due(&mut self, _: i64) -> Option<u32> {
        let _entered = self.runtime.enter();
        match self.queue.poll_expired(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(expired) => expired.map(delay_queue::Expired::into_inner),
            Poll::Pending => None,
        }
    }
}

/// A heap with lazy deletion. An entry is live while its generation is that of its slot.
#[derive(Default)]
struct LazyHeap {
    entries: BinaryHeap<Reverse<Entry>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    deadline: i64,
    slot: u32,
    generation: u32,
}

struct Slot {
    generation: u32,
    payload: u32,
}

impl LazyHeap {
    fn push(&mut self, deadline: i64, slot: u32) {
        let generation = self.slots[slot as usize].generation;
        self.entries.push(Reverse(Entry { deadline, slot, generation }));
    }

    /// Marks the entries of a slot as dead, and removes dead entries when they outnumber live ones.
    fn invalidate(&mut self, slot: u32) {
        self.slots[slot as usize].generation += 1;
        if self.entries.len() > 2 * (self.slots.len() - self.free.len()) {
            let slots = &self.slots;
            let live = |entry: &Entry| slots[entry.slot as usize].generation == entry.generation;
            self.entries.retain(|Reverse(entry)| live(entry));
        }
    }
}

impl TimerQueue for LazyHeap {
    const NAME: &'static str = "BinaryHeap";
    type Id = u32;

    fn new() -> Self {
        LazyHeap::default()
    }

    fn insert(&mut self, deadline: i64, payload: u32) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, payload });
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize].payload = payload;
        self.push(deadline, slot);
        slot
    }

    fn reschedule(&mut self, slot: u32, deadline: i64) {
        self.invalidate(slot);
        self.push(deadline, slot);
    }

    fn cancel(&mut self, slot: u32) {
        self.free.push(slot);
        self.invalidate(slot);
    }

    fn set_now(&mut self, _: i64) {}

    fn pop_due(&mut self, now: i64) -> Option<u32> {
        while self.entries.peek().is_some_and(|Reverse(entry)| entry.deadline <= now) {
            let Reverse(entry) = self.entries.pop()?;
            let slot = &mut self.slots[entry.slot as usize];
            if slot.generation == entry.generation {
                slot.generation += 1;
                self.free.push(entry.slot);
                return Some(slot.payload);
            }
        }
        None
    }
}
