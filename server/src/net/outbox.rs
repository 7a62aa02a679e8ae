//! What a client is to receive that it did not just ask for, on its way from the engine to the
//! client.
//!
//! Filled under the engine's lock, so that the order here is the engine's order; emptied by whoever
//! writes to the client's socket, or by the caller in this process.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use bytes::BytesMut;
use parking_lot::{Condvar, Mutex};

use crate::config::OutputBufferLimit;
use crate::engine::Delivery;
use crate::engine::client::Close;
use crate::engine::time::Millis;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// There is something to take. Told without the lock, since most of the time there is not.
    filled: AtomicBool,
    /// What has been taken and not yet sent.
    unsent_bytes: AtomicUsize,
    woken: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bytes: BytesMut,
    resume: bool,
    close: Option<Close>,
    /// Since when there is more than the soft limit.
    over_soft_since: Option<Millis>,
    /// Woken since somebody last waited.
    rung: bool,
    /// Who is to be woken.
    waker: Option<Waker>,
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
    /// Adds a delivery, whose buffer it may swap for another; nobody is woken. Returns how many
    /// bytes the client owes its attention to if that is more than `limit` allows.
    pub(crate) fn put(
        &self,
        delivery: &mut Delivery,
        limit: OutputBufferLimit,
        now: impl FnOnce() -> Millis,
    ) -> Option<usize> {
        let mut state = self.state.lock();
        append(&mut state.bytes, &mut delivery.bytes);
        state.resume |= delivery.resume;
        state.close = state.close.or(delivery.close);
        self.filled.store(true, Ordering::Release);
        state.excess(self.unsent_bytes.load(Ordering::Relaxed), limit, now)
    }

    /// Forgets what there is to send: the client is to go at once.
    pub(crate) fn give_up(&self) {
        let mut state = self.state.lock();
        state.close = Some(Close::Now);
        state.bytes.clear();
        self.filled.store(true, Ordering::Release);
    }

    /// Takes everything.
    pub(crate) fn take(&self) -> Mail {
        let mut mail = Mail::default();
        (mail.resume, mail.close) = self.take_into(&mut mail.bytes);
        mail
    }

    /// Takes everything, the bytes to the end of `output`. Returns whether the client's wait is
    /// over, and whether it is to be disconnected.
    pub(crate) fn take_into(&self, output: &mut BytesMut) -> (bool, Option<Close>) {
        if !self.filled.load(Ordering::Acquire) {
            return (false, None);
        }
        let mut state = self.state.lock();
        self.filled.store(false, Ordering::Relaxed);
        append(output, &mut state.bytes);
        (std::mem::take(&mut state.resume), state.close.take())
    }

    /// Tells how much of what was taken is still to be sent. Without it, nobody would notice that
    /// a client that only listens has stopped to read.
    pub(crate) fn set_unsent(&self, bytes: usize) {
        self.unsent_bytes.store(bytes, Ordering::Relaxed);
    }

    /// As [`Outbox::put`], says if there is too much.
    pub(crate) fn excess(
        &self,
        limit: OutputBufferLimit,
        now: impl FnOnce() -> Millis,
    ) -> Option<usize> {
        self.state.lock().excess(self.unsent_bytes.load(Ordering::Relaxed), limit, now)
    }

    /// Wakes the client's task, or the caller in this process, without giving it anything.
    pub(crate) fn wake(&self) {
        let waker = {
            // Whoever is about to wait has looked and not yet begun to, or is waiting.
            let mut state = self.state.lock();
            state.rung = true;
            state.waker.clone()
        };
        self.woken.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// From now on `waker` is who is woken.
    pub(crate) fn set_waker(&self, waker: Waker) {
        self.state.lock().waker = Some(waker);
    }

    /// Waits until it is woken, or has been since the last wait.
    pub(crate) async fn woken(&self) {
        poll_fn(|context| {
            let mut state = self.state.lock();
            if std::mem::take(&mut state.rung) {
                return Poll::Ready(());
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Keeps this thread waiting until there is something to take. For clients without a socket.
    pub(crate) fn wait(&self, or_until: impl Fn() -> bool) {
        let mut state = self.state.lock();
        while state.bytes.is_empty() && !state.resume && state.close.is_none() && !or_until() {
            self.woken.wait(&mut state);
        }
    }
}

/// Moves all of `more` to the end of `bytes`. Where that is empty they change places, so nothing is
/// copied and both keep their room.
fn append(bytes: &mut BytesMut, more: &mut BytesMut) {
    if bytes.is_empty() {
        std::mem::swap(bytes, more);
    } else {
        bytes.extend_from_slice(more);
    }
    more.clear();
}

impl State {
    fn excess(
        &mut self,
        unsent_bytes: usize,
        limit: OutputBufferLimit,
        now: impl FnOnce() -> Millis,
    ) -> Option<usize> {
        let bytes = self.bytes.len() + unsent_bytes;
        let over = |max: u64| max > 0 && bytes as u64 > max;
        if over(limit.hard_bytes) {
            return Some(bytes);
        }
        if !over(limit.soft_bytes) {
            self.over_soft_since = None;
            return None;
        }
        let now = now();
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
        let mut delivery = Delivery { client, bytes, resume: false, close: None };
        assert_eq!(outbox.put(&mut delivery, LIMIT, || Millis(now_ms)), excess);
        assert!(delivery.bytes.is_empty());
    }

    #[test]
    fn what_was_taken_counts_until_it_is_sent() {
        let outbox = Outbox::default();
        check(&outbox, (0, 40, 0), None);
        assert_eq!(outbox.take().bytes.len(), 40);
        check(&outbox, (40, 61, 0), Some(101));
        outbox.give_up();
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
