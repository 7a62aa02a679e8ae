//! Tests the commit gate and outboxes under many interleavings of threads: released output is sent,
//! and no thread misses the release that it waits for.

use std::sync::Arc;
use std::task::{Wake, Waker};

use bytes::BytesMut;
use lockwheel_engine::durability::unit_log::Position;
use lockwheel_engine::engine::inputs::Process;
use lockwheel_engine::sessions::buffers::Buffers;
use lockwheel_engine::sessions::{ClientId, Origin};
use lockwheel_engine::settings::{OutputBufferLimit, Settings};
use lockwheel_engine::timing::time::{Millis, Time};
use lockwheel_engine::{Delivery, Engine};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};

use durability::commit_gate::CommitGate;
use net::connection::Connection;
use net::outbox::Outbox;
use sync::{AtomicBool, Condvar, Mutex, Ordering};

#[path = "../src/limits.rs"]
#[expect(dead_code, reason = "most are those of other files")]
mod limits;

/// The files that are tested, and what they need.
#[path = "../src/durability"]
#[expect(unused_imports, reason = "their unit tests are left out")]
#[allow(dead_code, reason = "the simulation alone uses some")]
mod durability {
    pub(crate) mod commit_gate;
    pub(crate) mod dependencies;
}

#[path = "../src/net"]
#[expect(dead_code, reason = "their unit tests are left out")]
mod net {
    pub(crate) mod outbox;
    pub(crate) mod output;

    /// Connections, reduced to what the commit gate calls.
    pub(crate) mod connection {
        use std::sync::Arc;

        use lockwheel_engine::durability::unit_log::Position;

        use crate::Signal;
        use crate::durability::commit_gate::CommitGate;
        use crate::sync::{AtomicBool, Ordering};

        /// A connection with output that depends on a position.
        #[derive(Debug)]
        pub(crate) struct Connection {
            pub(crate) gate: Arc<CommitGate>,
            pub(crate) position: Position,
            pub(crate) is_held: AtomicBool,
            pub(crate) sent: Arc<Signal>,
        }

        impl Connection {
            /// Sends the output if it is released, or passes the connection to the gate.
            pub(crate) fn send(self: &Arc<Self>) {
                let released = self.gate.released();
                if self.position <= released {
                    self.sent.give();
                } else if !self.is_held.swap(true, Ordering::SeqCst) {
                    self.gate.hold(Arc::clone(self), released);
                }
            }

            pub(crate) fn send_released(self: &Arc<Self>) {
                self.is_held.store(false, Ordering::SeqCst);
                self.send();
            }
        }
    }
}

/// Synchronization primitives of `shuttle` with the interface of `parking_lot`. At each use, the
/// scheduler decides which thread runs next.
mod sync {
    use std::ops::{Deref, DerefMut};

    use shuttle::sync;
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect("no thread panics")))
        }
    }

    /// A guard of a mutex; `None` while its thread waits for a condition variable.
    #[derive(Debug)]
    pub(crate) struct MutexGuard<'a, T>(Option<sync::MutexGuard<'a, T>>);

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        fn deref(&self) -> &T {
            self.0.as_ref().expect("it is locked")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("it is locked")
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(sync::Condvar);

    impl Condvar {
        pub(crate) fn new() -> Condvar {
            Condvar::default()
        }

        pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let inner = guard.0.take().expect("it is locked");
            guard.0 = Some(self.0.wait(inner).expect("no thread panics"));
        }

        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

/// A counting signal that one thread gives and another one waits for.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    given: Mutex<usize>,
    changed: Condvar,
}

impl Signal {
    pub(crate) fn give(&self) {
        *self.given.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits until the signal was given `times` times. The scheduler panics if all threads wait.
    fn wait(&self, times: usize) {
        let mut given = self.given.lock();
        while *given < times {
            self.changed.wait(&mut given);
        }
    }

    /// Waits until the signal was given since the last call.
    fn take(&self) {
        let mut given = self.given.lock();
        while *given == 0 {
            self.changed.wait(&mut given);
        }
        *given = 0;
    }
}

/// Wakes an event loop.
#[derive(Debug, Default)]
struct LoopWaker(Signal);

impl Wake for LoopWaker {
    fn wake(self: Arc<Self>) {
        self.0.give();
    }
}

/// Event loops that send what the gate releases, until they are stopped.
struct Loops {
    has_ended: Arc<AtomicBool>,
    loops: Vec<(Arc<LoopWaker>, thread::JoinHandle<()>)>,
}

impl Loops {
    /// Starts a loop for each position, with a connection whose output depends on it.
    fn start(gate: &Arc<CommitGate>, positions: &[Position], sent: &Arc<Signal>) -> Loops {
        let has_ended = Arc::new(AtomicBool::new(false));
        let loops = positions.iter().map(|position| {
            let waker = Arc::<LoopWaker>::default();
            gate.add_loop(Waker::from(Arc::clone(&waker)));
            let connection = Arc::new(Connection {
                gate: Arc::clone(gate),
                position: *position,
                is_held: AtomicBool::new(false),
                sent: Arc::clone(sent),
            });
            let (gate, woken, ends) = (Arc::clone(gate), Arc::clone(&waker), has_ended.clone());
            let serve = move || {
                connection.send();
                while !ends.load(Ordering::SeqCst) {
                    gate.send_released();
                    woken.0.take();
                }
            };
            (waker, thread::spawn(serve))
        });
        Loops { loops: loops.collect(), has_ended }
    }

    fn stop(self) {
        self.has_ended.store(true, Ordering::SeqCst);
        for (waker, thread) in self.loops {
            waker.0.give();
            thread.join().expect("it ends");
        }
    }
}

/// Output is produced while the log releases what it depends on.
fn output_is_sent_when_it_is_released() {
    let (gate, sent) = (Arc::<CommitGate>::default(), Arc::<Signal>::default());
    let loops = Loops::start(&gate, &[1, 2], &sent);
    let log = Arc::clone(&gate);
    let log = thread::spawn(move || (1..=2).for_each(|position| log.release(position, position)));
    sent.wait(2);
    log.join().expect("it ends");
    loops.stop();
}

/// An in-process client takes its output while a message is delivered and while the log releases
/// the message.
fn caller_gets_the_message_when_it_is_released(buffers: &Arc<Buffers>, client: ClientId) {
    let gate = Arc::<CommitGate>::default();
    let outbox = Arc::new(Outbox::new(Arc::clone(buffers)));
    let engine = {
        let outbox = Arc::clone(&outbox);
        thread::spawn(move || {
            let bytes = BytesMut::from(&b"message"[..]);
            let mut delivery = Delivery { client, bytes, resume: false, close: None };
            outbox.put(&mut delivery, 1, OutputBufferLimit::default(), || Millis(0));
            outbox.wake();
        })
    };
    let log = Arc::clone(&gate);
    let log = thread::spawn(move || log.release(1, 1));
    loop {
        let released = gate.released();
        let contents = outbox.take(released);
        if !contents.bytes.is_empty() {
            break;
        }
        if contents.is_held {
            gate.hold_caller(&outbox, released);
        }
        outbox.wait(|| false);
    }
    engine.join().expect("it ends");
    log.join().expect("it ends");
}

/// A thread that waits for a position continues when the position is released or the log fails.
fn wait_ends_with_the_release_or_the_log() {
    for fails in [false, true] {
        let gate = Arc::<CommitGate>::default();
        let log = Arc::clone(&gate);
        let log = thread::spawn(move || if fails { log.fail() } else { log.release(1, 1) });
        gate.wait(1);
        log.join().expect("it ends");
    }
}

/// A client begins to wait until a unit is durable while the log flushes it: the client is served
/// by the thread that holds the engine, or by that of the log.
fn flush_that_is_awaited_is_reported() {
    let (gate, served) = (Arc::<CommitGate>::default(), Arc::<Signal>::default());
    let log = {
        let (gate, served) = (Arc::clone(&gate), Arc::clone(&served));
        thread::spawn(move || {
            gate.release(1, 0);
            gate.release(1, 1);
            if gate.is_flush_awaited() {
                served.give();
            }
        })
    };
    gate.await_flush(true);
    if gate.flushed() == 1 {
        served.give();
    }
    served.wait(1);
    log.join().expect("it ends");
}

/// Number of interleavings that each scheduler tries.
const INTERLEAVINGS: usize = 1_500;

/// The depth of the errors that the PCT scheduler looks for: the number of ordered steps that cause
/// them.
const DEPTH_MAX: usize = 3;

/// Runs a test in many interleavings, on a thread with its name.
fn explore(name: &str, test: impl Fn() + Send + Sync + 'static) {
    let test = Arc::new(test);
    let run = move || {
        let mut config = Config::new();
        // The warning that all atomics are treated as sequentially consistent.
        config.silence_warnings = true;
        let schedulers: [Box<dyn Scheduler + Send>; 2] = [
            Box::new(RandomScheduler::new_from_seed(1, INTERLEAVINGS)),
            Box::new(PctScheduler::new_from_seed(1, DEPTH_MAX, INTERLEAVINGS)),
        ];
        for scheduler in schedulers {
            let test = Arc::clone(&test);
            Runner::new(scheduler, config.clone()).run(move || test());
        }
    };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    thread.expect("a thread").join().expect("no interleaving fails");
}

fn main() {
    let now = Time::at(Millis(0));
    let mut engine = Engine::new(Settings::default(), Process::default(), now, [0; 4]);
    let client = engine.connect(Origin::default(), now);
    let buffers = Arc::clone(&engine.session(client).expect("the client").buffers);
    let caller = move || caller_gets_the_message_when_it_is_released(&buffers, client);
    explore("output_is_sent_when_it_is_released", output_is_sent_when_it_is_released);
    explore("caller_gets_the_message_when_it_is_released", caller);
    explore("wait_ends_with_the_release_or_the_log", wait_ends_with_the_release_or_the_log);
    explore("flush_that_is_awaited_is_reported", flush_that_is_awaited_is_reported);
}
