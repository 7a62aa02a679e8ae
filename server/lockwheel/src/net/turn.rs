//! When clients are sent what they are owed: at the end of a turn.
//!
//! A turn is what a thread does between two sleeps of its loop: it reads what several clients have
//! sent, runs it, and sends the replies together with the messages to others. Answering each client
//! at once would wake it early, and its next request would need a turn of its own.
//!
//! Replies come first, and all of them. Messages to those who listen follow a few at a time, and in
//! between the thread looks for what has come in and runs that. A message says to many that a lock
//! is free, and only one of them gets it: whoever is told first may have taken and released it
//! before the last is told, who then hears of both releases at once and tries once. There is at
//! least a message to two replies, so telling all takes at most three times as long as if nobody
//! else was served; and fewer messages than replies, for each calls forth a request, and if as many
//! were told as have just been refused, there would always be as many to refuse.
//!
//! Who writes, then:
//!
//! - The thread on which bytes came to be, whichever thread serves their client, when its turn ends
//!   ([`rest`], which the runtime calls before it sleeps). Neither replies nor messages wake a
//!   connection's task.
//! - Where no loop will sleep, at once: callers within this process when they have let go of the
//!   engine ([`engine_let_go`]).
//! - Between two slices of a storm of leases that end, [`crate::net::ticker`].
//! - A connection's own task: the last words, what is too long to be held back, and what a socket
//!   did not take, when there is room again.
//! - [`crate::net::busy`], while a script keeps everyone waiting.
//!
//! A turn that gets long ends early, so nothing waits for a sleep that does not come: when a
//! connection comes round for the second time, when [`limits::TURN_CLIENTS_MAX`] are owed a reply,
//! when the thread has to wait for the engine, sleeps holding it, or runs a script for long, and
//! when more visitors are at the door than are let in at once.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::limits;
use crate::net::connection::Connection;

/// What a client is owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    /// Messages it listens for.
    Messages,
    /// What it has asked for, and perhaps messages before and behind it.
    Reply,
}

/// This thread's.
struct Turn {
    /// A loop of ours runs on this thread, and calls [`rest`] before it sleeps.
    loops: Cell<bool>,
    /// Counts the turns.
    number: Cell<u64>,
    /// Who is owed a reply.
    replies: RefCell<Vec<Arc<Connection>>>,
    /// Who is owed messages, the longest owed first. Some may have been sent them since.
    messages: RefCell<VecDeque<Arc<Connection>>>,
    /// Keeps the loop from sleeping when it is woken.
    loop_waker: OnceCell<Waker>,
}

thread_local! {
    static TURN: Turn = const {
        Turn {
            loops: Cell::new(false),
            number: Cell::new(1),
            replies: RefCell::new(Vec::new()),
            messages: RefCell::new(VecDeque::new()),
            loop_waker: OnceCell::new(),
        }
    };
}

/// From now on this thread's loop ends its turns.
pub(crate) fn begin_loop() {
    TURN.with(|turn| turn.loops.set(true));
}

/// A task that does nothing and never ends. Every loop has one: woken before the loop sleeps, it
/// makes it look for what has come in instead.
pub(crate) async fn keep_awake() {
    let waker = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
    // There is one to a loop.
    let _ = TURN.with(|turn| turn.loop_waker.set(waker));
    pending::<()>().await;
}

/// The connection is to be sent what it is owed at the end of this thread's turn.
pub(crate) fn enlist(connection: Arc<Connection>, owed: Pending) {
    if !connection.becomes_owed(owed) {
        return;
    }
    let mut unqueued = Some(connection);
    let enlisted = TURN.try_with(|turn| match owed {
        Pending::Reply => turn.replies.borrow_mut().extend(unqueued.take()),
        Pending::Messages => turn.messages.borrow_mut().extend(unqueued.take()),
    });
    if let (Err(_), Some(connection)) = (enlisted, unqueued) {
        // A thread that is about to be gone leaves it to the connection's own.
        connection.leave_to_its_task();
    }
}

/// Ends the turn: sends everyone what they are owed.
pub(crate) fn end() {
    // A thread that is about to be gone owes nothing: see `enlist`.
    let _ = TURN.try_with(|turn| {
        turn.send_replies();
        turn.send_messages(usize::MAX);
    });
}

/// Ends the turn of a loop: sends all replies and some messages. If there are more, the loop only
/// looks for what has come in, and does not sleep.
pub(crate) fn rest() {
    let _ = TURN.try_with(|turn| {
        let replies = turn.send_replies();
        let Some(loop_waker) = turn.loop_waker.get() else {
            // It has not begun, or is about to be gone.
            return turn.send_messages(usize::MAX);
        };
        turn.send_messages((replies / 2).max(limits::MESSAGES_BETWEEN_LOOKS));
        if !turn.messages.borrow().is_empty() {
            loop_waker.wake_by_ref();
        }
    });
}

/// The thread has let go of the engine: ends the turn if nothing else will, or if it is long.
pub(crate) fn engine_let_go() {
    let due = TURN.try_with(|turn| {
        let owed = turn.replies.borrow().len();
        owed >= limits::TURN_CLIENTS_MAX || (!turn.loops.get() && turn.owes_anything())
    });
    if due == Ok(true) {
        end();
    }
}

/// A connection gets its turn, which was last in the turn of this number.
pub(crate) fn come_round(last: &mut u64) {
    if *last == number() {
        end();
    }
    *last = number();
}

/// Counts this thread's turns.
pub(crate) fn number() -> u64 {
    TURN.try_with(|turn| turn.number.get()).unwrap_or(0)
}

impl Turn {
    fn owes_anything(&self) -> bool {
        !self.replies.borrow().is_empty() || !self.messages.borrow().is_empty()
    }

    /// Returns how many there were.
    fn send_replies(&self) -> usize {
        self.number.set(self.number.get() + 1);
        let mut owed = self.replies.take();
        let count = owed.len();
        for connection in owed.drain(..) {
            connection.send_owed();
        }
        // Its room is for the next turn.
        if self.replies.borrow().is_empty() {
            self.replies.replace(owed);
        }
        count
    }

    /// To so many clients at most.
    fn send_messages(&self, most: usize) {
        let mut sent = 0;
        while sent < most {
            let next = self.messages.borrow_mut().pop_front();
            let Some(connection) = next else { break };
            // Else they went with a reply, or will.
            if connection.is_owed(Pending::Messages) {
                connection.send_owed();
                sent += 1;
            }
        }
    }
}
