//! Holds back output until the log has released what it depends on.
//!
//! Output waits where it is, in the buffer of its connection or in an outbox, with the position
//! that it depends on ([`super::dependencies`]). The gate knows the position that is released, and
//! the clients that have output behind it. When the log releases more, it wakes the event loops,
//! which send the output at the end of their turns, and the callers in this process.

use std::sync::Arc;
use std::task::Waker;

use lockwheel_engine::durability::unit_log::Position;

use crate::net::connection::Connection;
use crate::net::outbox::Outbox;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, Ordering};

/// The gate that holds back output until its position is released.
#[derive(Debug, Default)]
pub(crate) struct CommitGate {
    released: AtomicU64,
    /// Position up to which everything is durable.
    flushed: AtomicU64,
    /// Whether a client waits until more is durable.
    is_flush_awaited: AtomicBool,
    /// Position that was released when held output was last sent.
    sent: AtomicU64,
    /// The number of clients in `held`; read without the lock.
    held_count: AtomicUsize,
    held: Mutex<HeldOutput>,
    /// Whether the log has failed.
    has_failed: AtomicBool,
    /// Whether the log has ended, perhaps with units that are never released.
    has_ended: AtomicBool,
    /// Wakes event loops from their sleep.
    loops: Mutex<Vec<Waker>>,
    changed: Condvar,
}

/// Clients with output that is not released.
#[derive(Debug, Default)]
struct HeldOutput {
    connections: Vec<Arc<Connection>>,
    callers: Vec<Arc<Outbox>>,
}

impl CommitGate {
    /// The position up to which output may be sent.
    #[inline]
    pub(crate) fn released(&self) -> Position {
        self.released.load(Ordering::Acquire)
    }

    /// The position up to which everything is durable.
    #[inline]
    pub(crate) fn flushed(&self) -> Position {
        self.flushed.load(Ordering::SeqCst)
    }

    /// Sets whether a client waits until more is durable. The caller looks then at what is durable
    /// already.
    pub(crate) fn await_flush(&self, is_awaited: bool) {
        if is_awaited != self.is_flush_awaited() {
            self.is_flush_awaited.store(is_awaited, Ordering::SeqCst);
        }
    }

    /// Whether a client waits until more is durable.
    pub(crate) fn is_flush_awaited(&self) -> bool {
        self.is_flush_awaited.load(Ordering::SeqCst)
    }

    /// Output that depends on units up to `position` may be sent now; units up to `flushed` are
    /// durable.
    pub(crate) fn release(&self, position: Position, flushed: Position) {
        // Sequentially consistent with `is_flush_awaited`, which the caller reads next.
        self.flushed.fetch_max(flushed, Ordering::SeqCst);
        self.released.fetch_max(position, Ordering::AcqRel);
        let callers = {
            let mut held = self.held.lock();
            let callers = std::mem::take(&mut held.callers);
            self.count(&held);
            self.changed.notify_all();
            callers
        };
        callers.iter().for_each(|outbox| outbox.wake());
        if self.held_count.load(Ordering::Acquire) > 0 {
            self.wake_loops();
        }
    }

    fn wake_loops(&self) {
        self.loops.lock().iter().for_each(Waker::wake_by_ref);
    }

    /// Adds the waker of an event loop that calls [`CommitGate::send_released`] before it sleeps.
    pub(crate) fn add_loop(&self, waker: Waker) {
        self.loops.lock().push(waker);
    }

    /// Holds a connection with output that was not released at `released`, which is sent when it
    /// is.
    pub(crate) fn hold(&self, connection: Arc<Connection>, released: Position) {
        {
            let mut held = self.held.lock();
            held.connections.push(connection);
            self.count(&held);
        }
        if self.released() > released {
            // The loops may have looked before.
            self.sent.store(0, Ordering::Release);
            self.wake_loops();
        }
    }

    /// Wakes the caller in this process when more is released than `released`, which the caller has
    /// read before it has looked for output.
    pub(crate) fn hold_caller(&self, outbox: &Arc<Outbox>, released: Position) {
        let mut held = self.held.lock();
        if self.released() == released {
            held.callers.push(Arc::clone(outbox));
            self.count(&held);
            return;
        }
        drop(held);
        outbox.wake();
    }

    /// Sends the output that has been released since it was held.
    #[inline]
    pub(crate) fn send_released(&self) {
        if self.held_count.load(Ordering::Acquire) > 0 {
            self.send_new();
        }
    }

    #[cold]
    fn send_new(&self) {
        let released = self.released();
        if self.sent.swap(released, Ordering::AcqRel) == released {
            return;
        }
        let connections = {
            let mut held = self.held.lock();
            let connections = std::mem::take(&mut held.connections);
            self.count(&held);
            connections
        };
        for connection in connections {
            connection.send_released();
        }
    }

    /// Blocks this thread until everything up to `position` is released, or nothing will be.
    pub(crate) fn wait(&self, position: Position) {
        let mut held = self.held.lock();
        let is_over = || self.has_failed() || self.has_ended.load(Ordering::Acquire);
        while self.released() < position && !is_over() {
            self.changed.wait(&mut held);
        }
    }

    /// Records that the log has ended: nothing more is released.
    #[cfg(feature = "replication")]
    pub(crate) fn end(&self) {
        let _held = self.held.lock();
        self.has_ended.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Records that the log has failed: nothing more is released.
    pub(crate) fn fail(&self) {
        let _held = self.held.lock();
        self.has_failed.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Whether the log has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    fn count(&self, held: &HeldOutput) {
        self.held_count.store(held.connections.len() + held.callers.len(), Ordering::Release);
    }
}
