//! When clients are sent what they are owed: at the end of a turn.
//!
//! A turn is what a thread does between two sleeps of its loop: it reads what several clients have
//! sent, runs it, and sends the replies together with the messages to others. Answering each client
//! at once would wake it early, and its next request would need a turn of its own.
//!
//! Who writes, then:
//!
//! - The thread on which bytes came to be, whichever thread serves their client, when its turn ends
//!   ([`end`], which the runtime calls before it sleeps). Neither replies nor messages wake a task.
//! - Where no loop will sleep, at once: the ticker and callers within this process when they have
//!   let go of the engine ([`engine_let_go`]).
//! - A connection's own task: the last words, what is too long to be held back, and what a socket
//!   did not take, when there is room again.
//! - [`crate::net::busy`], while a script keeps everyone waiting.
//!
//! A turn that gets long ends early, so nothing waits for a sleep that does not come: when a
//! connection comes round for the second time, when [`limits::TURN_CLIENTS_MAX`] are owed
//! something, when the thread has to wait for the engine, sleeps holding it, or runs a script for
//! long, and when more visitors are at the door than are let in at once.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use crate::limits;
use crate::net::connection::Connection;

/// This thread's.
struct Turn {
    /// A loop of ours runs on this thread, and calls [`end`] before it sleeps.
    loops: Cell<bool>,
    /// Counts the turns.
    number: Cell<u64>,
    /// Who is owed something.
    owed: RefCell<Vec<Arc<Connection>>>,
}

thread_local! {
    static TURN: Turn = const {
        Turn { loops: Cell::new(false), number: Cell::new(1), owed: RefCell::new(Vec::new()) }
    };
}

/// From now on this thread's loop ends its turns.
pub(crate) fn begin_loop() {
    TURN.with(|turn| turn.loops.set(true));
}

/// The connection is to be sent what it is owed at the end of this thread's turn.
pub(crate) fn enlist(connection: Arc<Connection>) {
    if connection.is_enlisted_already() {
        return;
    }
    let mut homeless = Some(connection);
    let enlisted = TURN.try_with(|turn| turn.owed.borrow_mut().extend(homeless.take()));
    if let (Err(_), Some(connection)) = (enlisted, homeless) {
        // A thread that is about to be gone leaves it to the connection's own.
        connection.leave_to_its_task();
    }
}

/// Ends the turn: sends everyone what they are owed.
pub(crate) fn end() {
    // A thread that is about to be gone owes nothing: see `enlist`.
    let _ = TURN.try_with(|turn| {
        turn.number.set(turn.number.get() + 1);
        let mut owed = turn.owed.take();
        for connection in owed.drain(..) {
            connection.send_owed();
        }
        // Its room is for the next turn.
        if turn.owed.borrow().is_empty() {
            turn.owed.replace(owed);
        }
    });
}

/// The thread has let go of the engine: ends the turn if nothing else will, or if it is long.
pub(crate) fn engine_let_go() {
    let due = TURN.try_with(|turn| {
        let owed = turn.owed.borrow().len();
        owed >= limits::TURN_CLIENTS_MAX || (owed > 0 && !turn.loops.get())
    });
    if due == Ok(true) {
        end();
    }
}

/// A connection gets its turn, which was last in the turn of this number.
pub(crate) fn come_round(last: &mut u64) {
    let number = || TURN.try_with(|turn| turn.number.get()).unwrap_or(0);
    if *last == number() {
        end();
    }
    *last = number();
}
