//! What does a timer cost in the wheel, beside `DelayQueue` and a `BinaryHeap` with lazy deletion?
//!
//! Every operation is measured among `n` live timers with leases of 10 to 60 s, chosen at random:
//! - `insert`: a lock is taken.
//! - `move`: a lock is renewed. The commonest operation a lock server sees.
//! - `cancel`: a lock is released, whichever it is.
//! - `release`: a lock is released that was taken just now, as most are.
//! - `expire`: a lock runs out; the cost of one of those that come due as time passes.
//!
//! Among a million timers most of what that takes is waiting for memory, so `touch` says what is
//! the least: to change one 24-byte node picked at random, and nothing else.
//!
//! The heap keeps a dead entry for each move and cancel until they outnumber the live ones, then
//! sweeps; it does not keep the order of equal deadlines, which the wheel does.

#![allow(clippy::disallowed_methods)] // `DelayQueue` has tokio's clock to be moved.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use lockwheel_benches::{CHUNK, Random, full, in_chunks, measuring, time};
use lockwheel_engine::time::Millis;
use lockwheel_engine::timers::{TimerId, Timers as Wheel};
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
    for operation in Operation::ALL {
        for n in sizes() {
            bench::<Wheel<u32>>(criterion, operation, n);
            bench::<Delays>(criterion, operation, n);
            bench::<Heap>(criterion, operation, n);
        }
    }
    for n in sizes() {
        bench_touch(criterion, n);
    }
}

fn bench_touch(criterion: &mut Criterion, n: u32) {
    let mut random = Random::new();
    let mut nodes = vec![[0_u64; 3]; n as usize];
    criterion.bench_function(&format!("touch/{n}"), |bencher| {
        bencher.iter_custom(|count| {
            in_chunks(count, |size| {
                let chosen: [u32; CHUNK] = std::array::from_fn(|_| random.below(n));
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
    match (measuring(), full()) {
        (false, _) => vec![1_000],
        (true, false) => vec![1_000, 10_000, 100_000, 1_000_000],
        (true, true) => vec![1_000, 10_000, 100_000, 1_000_000, 10_000_000],
    }
}

#[derive(Clone, Copy, Debug)]
enum Operation {
    Insert,
    Move,
    Cancel,
    Release,
    Expire,
}

impl Operation {
    const ALL: [Operation; 5] = [
        Operation::Insert,
        Operation::Move,
        Operation::Cancel,
        Operation::Release,
        Operation::Expire,
    ];
}

fn bench<T: Timers>(criterion: &mut Criterion, operation: Operation, n: u32) {
    let mut group = criterion.benchmark_group(format!("{operation:?}").to_lowercase());
    let mut population = None;
    group.bench_function(BenchmarkId::new(T::NAME, n), |bencher| {
        let population = population.get_or_insert_with(|| Population::<T>::new(n));
        bencher.iter_custom(|count| match operation {
            Operation::Insert => population.time_inserts(count),
            Operation::Move => population.time_moves(count),
            Operation::Cancel => population.time_cancels(count),
            Operation::Release => population.time_releases(count),
            Operation::Expire => population.time_expiries(count),
        });
    });
}

/// What the contenders have in common. Moments are milliseconds since the start.
trait Timers {
    const NAME: &'static str;
    type Id: Copy;

    fn new() -> Self;
    fn insert(&mut self, deadline: i64, payload: u32) -> Self::Id;
    fn reschedule(&mut self, id: Self::Id, deadline: i64);
    fn cancel(&mut self, id: Self::Id);
    /// Lets time pass where the contender has a clock of its own. Not measured.
    fn set_now(&mut self, now: i64);
    fn pop_due(&mut self, now: i64) -> Option<u32>;
}

/// Timers numbered from 0; each number's id.
struct Population<T: Timers> {
    timers: T,
    ids: Vec<T::Id>,
    now: i64,
    random: Random,
}

impl<T: Timers> Population<T> {
    fn new(n: u32) -> Population<T> {
        let mut new =
            Population { timers: T::new(), ids: Vec::new(), now: 0, random: Random::new() };
        for number in 0..n {
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
            let n = self.ids.len() as u32;
            let chosen: [T::Id; CHUNK] =
                std::array::from_fn(|_| self.ids[self.random.below(n) as usize]);
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

    /// Time passes in steps in which about a chunk of timers, and at least a millisecond's worth,
    /// come due. Each is then entered again.
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

impl Timers for Wheel<u32> {
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

/// `DelayQueue` on a runtime whose clock stands still until told otherwise.
struct Delays {
    queue: DelayQueue<u32>,
    start: Instant,
    runtime: Runtime,
}

impl Delays {
    fn instant(&self, moment: i64) -> Instant {
        self.start + Duration::from_millis(moment.cast_unsigned())
    }
}

impl Timers for Delays {
    const NAME: &'static str = "DelayQueue";
    type Id = delay_queue::Key;

    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without input and output");
        let (queue, start) = runtime.block_on(async { (DelayQueue::new(), Instant::now()) });
        Delays { queue, start, runtime }
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

/// An entry is live while its generation is that of its place.
#[derive(Default)]
struct Heap {
    entries: BinaryHeap<Reverse<Entry>>,
    places: Vec<Place>,
    free: Vec<u32>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    deadline: i64,
    place: u32,
    generation: u32,
}

struct Place {
    generation: u32,
    payload: u32,
}

impl Heap {
    fn push(&mut self, deadline: i64, place: u32) {
        let generation = self.places[place as usize].generation;
        self.entries.push(Reverse(Entry { deadline, place, generation }));
    }

    /// Makes the entries of a place dead, and sweeps when the dead outnumber the live.
    fn outdate(&mut self, place: u32) {
        self.places[place as usize].generation += 1;
        if self.entries.len() > 2 * (self.places.len() - self.free.len()) {
            let places = &self.places;
            let live = |entry: &Entry| places[entry.place as usize].generation == entry.generation;
            self.entries.retain(|Reverse(entry)| live(entry));
        }
    }
}

impl Timers for Heap {
    const NAME: &'static str = "BinaryHeap";
    type Id = u32;

    fn new() -> Self {
        Heap::default()
    }

    fn insert(&mut self, deadline: i64, payload: u32) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, payload });
            self.places.len() as u32 - 1
        });
        self.places[place as usize].payload = payload;
        self.push(deadline, place);
        place
    }

    fn reschedule(&mut self, place: u32, deadline: i64) {
        self.outdate(place);
        self.push(deadline, place);
    }

    fn cancel(&mut self, place: u32) {
        self.free.push(place);
        self.outdate(place);
    }

    fn set_now(&mut self, _: i64) {}

    fn pop_due(&mut self, now: i64) -> Option<u32> {
        while self.entries.peek().is_some_and(|Reverse(entry)| entry.deadline <= now) {
            let Reverse(entry) = self.entries.pop()?;
            let place = &mut self.places[entry.place as usize];
            if place.generation == entry.generation {
                place.generation += 1;
                self.free.push(entry.place);
                return Some(place.payload);
            }
        }
        None
    }
}
