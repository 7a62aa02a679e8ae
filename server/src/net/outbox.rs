//! What a client is to receive that it did not just ask for, on its way from the engine to the
//! client's own connection.
//!
//! Filled under the engine's lock, so that the order here is the engine's order; emptied by the
//! connection alone.

use bytes::BytesMut;
use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::config::OutputBufferLimit;
use crate::engine::Delivery;
use crate::engine::client::Close;
use crate::engine::time::Millis;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    wake: Notify,
    woken: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bytes: BytesMut,
    resume: bool,
    close: Option<Close>,
    /// What the connection has taken and not yet sent.
    unsent_bytes: usize,
    /// Since when there is more than the soft limit.
    over_soft_since: Option<Millis>,
}

/// What an outbox held.
#[derive(Debug, Default)]
pub(crate) struct Mail {
    /// Bytes to send.
    pub(crate) bytes: BytesMut,
    /// The client's wait is over.
    pub(crate) resume: bool,
    /// The client is to be disconnected.
    pub(crate) close: Option<Close>,
}

impl Outbox {
    /// Adds a delivery and wakes the connection. Returns how many bytes the client owes its
    /// attention to if that is more than `limit` allows; the client is then to be closed.
    pub(crate) fn put(
        &self,
        delivery: &Delivery,
        limit: OutputBufferLimit,
        now: Millis,
    ) -> Option<usize> {
        let mut state = self.state.lock();
        state.bytes.extend_from_slice(&delivery.bytes);
        state.resume |= delivery.resume;
        state.close = state.close.or(delivery.close);
        let excess = state.excess(limit, now);
        if excess.is_some() {
            state.close = Some(Close::Now);
            state.bytes.clear();
        }
        drop(state);
        self.wake();
        excess
    }

    /// Takes everything.
    pub(crate) fn take(&self) -> Mail {
        let mut state = self.state.lock();
        Mail {
            bytes: state.bytes.split(),
            resume: std::mem::take(&mut state.resume),
            close: state.close.take(),
        }
    }

    /// Tells how much of what was taken is still to be sent. Without it, nobody would notice that
    /// a client that only listens has stopped to read.
    pub(crate) fn set_unsent(&self, bytes: usize) {
        self.state.lock().unsent_bytes = bytes;
    }

    /// As [`Outbox::set_unsent`]; as [`Outbox::put`], says if it is too much.
    pub(crate) fn check_unsent(
        &self,
        bytes: usize,
        limit: OutputBufferLimit,
        now: Millis,
    ) -> Option<usize> {
        let mut state = self.state.lock();
        state.unsent_bytes = bytes;
        state.excess(limit, now)
    }

    /// Wakes the connection without giving it anything.
    pub(crate) fn wake(&self) {
        // Whoever is about to wait has looked and not yet begun to, or is waiting.
        drop(self.state.lock());
        self.wake.notify_one();
        self.woken.notify_all();
    }

    /// Waits for something to be put.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Keeps this thread waiting until there is something to take. For clients without a socket.
    pub(crate) fn wait(&self, or_until: impl Fn() -> bool) {
        let mut state = self.state.lock();
        while state.bytes.is_empty() && !state.resume && state.close.is_none() && !or_until() {
            self.woken.wait(&mut state);
        }
    }
}

impl State {
    fn excess(&mut self, limit: OutputBufferLimit, now: Millis) -> Option<usize> {
        let bytes = self.bytes.len() + self.unsent_bytes;
        let over = |max: u64| max > 0 && bytes as u64 > max;
        if over(limit.hard_bytes) {
            return Some(bytes);
        }
        if !over(limit.soft_bytes) {
            self.over_soft_since = None;
            return None;
        }
        let since = *self.over_soft_since.get_or_insert(now);
        let patience_ms =
            i64::try_from(limit.soft_seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
        (now.0.saturating_sub(since.0) > patience_ms).then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::engine::client::Origin;
    use crate::engine::time::Time;

    const LIMIT: OutputBufferLimit =
        OutputBufferLimit { hard_bytes: 100, soft_bytes: 50, soft_seconds: 2 };

    /// Puts `bytes` at `now_ms` after a connection said that `unsent` are still to be sent.
    fn check(outbox: &Outbox, (unsent, bytes, now_ms): (usize, usize, i64), excess: Option<usize>) {
        outbox.set_unsent(unsent);
        let client = Engine::new(crate::config::Config::default(), Time::at(Millis(0)), [0; 4])
            .connect(Origin::default(), Time::at(Millis(0)));
        let bytes = BytesMut::from(&vec![b'x'; bytes][..]);
        let delivery = Delivery { client, bytes, resume: false, close: None };
        assert_eq!(outbox.put(&delivery, LIMIT, Millis(now_ms)), excess);
    }

    #[test]
    fn what_was_taken_counts_until_it_is_sent() {
        let outbox = Outbox::default();
        check(&outbox, (0, 40, 0), None);
        assert_eq!(outbox.take().bytes.len(), 40);
        check(&outbox, (40, 61, 0), Some(101));
        let mail = outbox.take();
        assert_eq!((mail.bytes.len(), mail.close), (0, Some(Close::Now)));
    }

    #[test]
    fn patience_with_the_soft_limit_begins_anew_when_the_client_has_read() {
        let outbox = Outbox::default();
        check(&outbox, (0, 60, 0), None);
        check(&outbox, (0, 0, 2_000), None);
        outbox.take();
        check(&outbox, (0, 0, 2_000), None);
        check(&outbox, (60, 0, 2_001), None);
        check(&outbox, (60, 0, 4_001), None);
        check(&outbox, (60, 0, 4_002), Some(60));
    }
}
