//! A turn of an event loop: what a thread does between two sleeps. It reads the requests of
//! several clients, runs them, and at the end sends the replies together with the messages for
//! other clients. A reply sent at once would wake its client early, and the client's next request
//! would need a turn of its own.
//!
//! All replies are sent first. Messages to subscribers are sent in small batches between polls, and
//! after each batch the thread runs the requests that have come in. A message announces to many
//! waiters that a lock is free, and only one gets the lock: a waiter can take and release it before
//! the last waiter is woken, which then receives both messages at once and tries once. There is at
//! least one message to two replies, so sending all messages takes at most three times as long as
//! without any requests; and there are fewer messages than replies, since each message causes a
//! request: with as many messages as refusals, the number of refusals would never fall.
//!
//! Bytes for a client are written:
//!
//! - by the thread that produced them, whichever thread the client belongs to, at the end of its
//!   turn ([`before_sleep`], which the runtime calls before it sleeps). Neither replies nor
//!   messages wake a connection's task;
//! - at once on threads without an event loop: by callers in this process when they have released
//!   the engine ([`engine_released`]);
//! - between two slices of mass expiry, by [`crate::net::ticker`];
//! - by the connection's own task: the last bytes before it closes, output too long to be held
//!   back, and what a socket did not take, when it is writable again;
//! - by [`crate::host::slow_script`] while a slow script blocks all clients.
//!
//! A long turn ends early, so that no output waits for a sleep that does not come: when a
//! connection is polled for the second time, when [`limits::TURN_CLIENTS_MAX`] clients have a
//! pending reply, when the thread waits for the engine, sleeps while it holds the engine, or runs a
//! script for long, and when more connections are queued than are accepted at once.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use lockwheel_engine::timing::time::Millis;

use crate::durability::FileLog;
use crate::durability::commit_gate::CommitGate;
use crate::limits;
use crate::net::connection::Connection;

/// The kind of output that waits to be sent to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// Messages only.
    Messages,
    /// A reply, and perhaps messages before and after it.
    Reply,
}

/// The turn of one thread.
struct Turn {
    /// Whether the thread runs an event loop of this server, which calls [`before_sleep`].
    has_loop: Cell<bool>,
    /// The number of the turn.
    number: Cell<u64>,
    /// Connections with unsent replies.
    replies: RefCell<Vec<Arc<Connection>>>,
    /// Connections with unsent messages, the oldest first. Some may have been sent since.
    messages: RefCell<VecDeque<Arc<Connection>>>,
    /// Keeps the loop from sleeping when woken.
    loop_waker: OnceCell<Waker>,
    /// The gate of the server that the loop belongs to.
    gate: OnceCell<Arc<CommitGate>>,
    /// The log that the thread has appended units to which it writes itself.
    unwritten: RefCell<Option<Arc<FileLog>>>,
    /// The last client that the thread has served, and the number of turns since another one.
    last_client: Cell<(u64, u32)>,
    /// The number of the last turn that is counted there.
    last_client_turn: Cell<u64>,
}

thread_local! {
    static TURN: Turn = const {
        Turn {
            has_loop: Cell::new(false),
            number: Cell::new(1),
            replies: RefCell::new(Vec::new()),
            messages: RefCell::new(VecDeque::new()),
            loop_waker: OnceCell::new(),
            gate: OnceCell::new(),
            unwritten: RefCell::new(None),
            last_client: Cell::new((0, 0)),
            last_client_turn: Cell::new(0),
        }
    };
}

/// Lets the event loop of this thread end its turns. It sends the output that `gate` has held back.
pub(crate) fn begin_loop(gate: &Arc<CommitGate>) {
    TURN.with(|turn| {
        turn.has_loop.set(true);
        // A thread has only one loop.
        let _ = turn.gate.set(Arc::clone(gate));
    });
}

/// Records which client the thread serves next.
pub(crate) fn serving(client: u64) {
    TURN.with(|turn| {
        let (last, turns) = turn.last_client.get();
        if last != client {
            turn.last_client.set((client, 0));
        } else if turn.last_client_turn.replace(turn.number.get()) != turn.number.get() {
            turn.last_client.set((client, turns.saturating_add(1)));
        }
    });
}

/// Whether this thread writes what it is about to append to `log`, because it serves only one
/// client: it does so before it sends output at the end of the turn. `gate` is that of the log's
/// server.
pub(crate) fn writes_log(gate: &Arc<CommitGate>, log: &Arc<FileLog>) -> bool {
    let writes = TURN.try_with(|turn| {
        let (_, turns) = turn.last_client.get();
        let is_own = turn.gate.get().is_some_and(|own| Arc::ptr_eq(own, gate));
        let writes = is_own && turns >= limits::LONE_TURNS;
        if writes {
            turn.unwritten.borrow_mut().get_or_insert_with(|| Arc::clone(log));
        }
        writes
    });
    writes.unwrap_or(false)
}

/// A task that does nothing and never ends. Every event loop has one: to wake it before the loop
/// sleeps makes the loop poll for input instead.
pub(crate) async fn keep_awake() {
    let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
    // Each loop has only one such task.
    TURN.with(|turn| {
        if let Some(gate) = turn.gate.get() {
            gate.add_loop(waker.clone());
        }
        let _ = turn.loop_waker.set(waker);
    });
    pending::<()>().await;
}

/// Queues the connection: its output is sent at the end of this thread's turn.
pub(crate) fn enqueue(connection: Arc<Connection>, pending: Pending) {
    if !connection.mark_pending(pending) {
        return;
    }
    let mut unqueued = Some(connection);
    let queued = TURN.try_with(|turn| match pending {
        Pending::Reply => turn.replies.borrow_mut().extend(unqueued.take()),
        Pending::Messages => turn.messages.borrow_mut().extend(unqueued.take()),
    });
    if let (Err(_), Some(connection)) = (queued, unqueued) {
        // This thread is ending and has no turn any more.
        connection.leave_to_its_task();
    }
}

/// Writes the units that this thread has appended and not written. The caller must not hold the
/// engine.
pub(crate) fn write_log() {
    // A thread that is ending has written everything.
    let _ = TURN.try_with(Turn::write_log);
}

/// Lets a simulation end the turns of this thread, with [`before_sleep`].
#[cfg(feature = "simulation")]
pub(crate) fn begin_simulated_loop() {
    TURN.with(|turn| turn.has_loop.set(true));
}

/// Discards what is queued: the simulated process has ended.
#[cfg(feature = "simulation")]
pub(crate) fn discard() {
    let queued = TURN.with(|turn| (turn.replies.take(), turn.messages.take()));
    drop(queued);
}

/// Ends the turn: sends all replies and all messages.
pub(crate) fn end() {
    // A thread that is ending has nothing queued: see `enqueue`.
    let _ = TURN.try_with(|turn| {
        if let Some(log) = turn.unwritten.take() {
            // This thread may hold the engine.
            log.wake();
        }
        turn.send_replies();
        turn.send_messages(usize::MAX);
    });
}

/// `DEBUG SLEEP`: the caller holds the engine, so all clients wait.
#[expect(clippy::disallowed_methods, reason = "its purpose is to block all clients")]
pub(crate) fn sleep_holding_engine(span: Millis) {
    end();
    std::thread::sleep(Duration::from_millis(u64::try_from(span.0).unwrap_or(0)));
}

/// Ends the turn of an event loop: sends all replies and some messages. If messages are left, the
/// loop polls for input and does not sleep.
pub(crate) fn before_sleep() {
    let _ = TURN.try_with(|turn| {
        turn.write_log();
        let replies = turn.send_replies();
        if let Some(gate) = turn.gate.get() {
            gate.send_released();
        }
        let Some(loop_waker) = turn.loop_waker.get() else {
            // The loop has not begun, or is ending.
            return turn.send_messages(usize::MAX);
        };
        turn.send_messages((replies / 2).max(limits::MESSAGES_BETWEEN_POLLS));
        if !turn.messages.borrow().is_empty() {
            loop_waker.wake_by_ref();
        }
    });
}

/// Called when the thread has released the engine. Ends the turn if it is long, or if no event loop
/// does.
pub(crate) fn engine_released() {
    let due = TURN.try_with(|turn| {
        let replies = turn.replies.borrow().len();
        replies >= limits::TURN_CLIENTS_MAX || (!turn.has_loop.get() && turn.has_pending())
    });
    if due == Ok(true) {
        end();
    }
}

/// Called when a connection is polled; `last` is the number of the turn it was last polled in. Ends
/// the turn at the second poll of a connection.
pub(crate) fn connection_polled(last: &mut u64) {
    if *last == number() {
        end();
    }
    *last = number();
}

/// The number of this thread's turn.
pub(crate) fn number() -> u64 {
    TURN.try_with(|turn| turn.number.get()).unwrap_or(0)
}

impl Turn {
    fn write_log(&self) {
        if let Some(log) = self.unwritten.take() {
            log.write_here();
        }
    }

    fn has_pending(&self) -> bool {
        !self.replies.borrow().is_empty() || !self.messages.borrow().is_empty()
    }

    /// Sends all replies and returns how many there were.
    fn send_replies(&self) -> usize {
        self.number.set(self.number.get() + 1);
        let mut connections = self.replies.take();
        let count = connections.len();
        for connection in connections.drain(..) {
            connection.send_pending();
        }
        // The next turn uses the same allocation.
        if self.replies.borrow().is_empty() {
            self.replies.replace(connections);
        }
        count
    }

    /// Sends the messages of at most `clients_max` clients.
    fn send_messages(&self, clients_max: usize) {
        let mut sent = 0;
        while sent < clients_max {
            let next = self.messages.borrow_mut().pop_front();
            let Some(connection) = next else { break };
            // Otherwise the messages were sent with a reply, or will be.
            if connection.has_pending(Pending::Messages) {
                connection.send_pending();
                sent += 1;
            }
        }
    }
}
