//! What a client is to receive that it did not just ask for, on its way from the engine to the
//! client.
//!
//! Filled under the engine's lock, so that the order here is the engine's order; emptied by whoever
//! writes to the client's socket, or by the caller in this process.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use bytes::BytesMut;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::limits;
use crate::net::output::Output;
use lockwheel_engine::Delivery;
use lockwheel_engine::buffers::{BufferSizes, Buffers};
use lockwheel_engine::session::Close;
use lockwheel_engine::settings::OutputBufferLimit;
use lockwheel_engine::time::Millis;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// What counts as the client's memory, here and in its connection.
    pub(crate) buffers: Arc<Buffers>,
    /// There is something to take. Told without the lock, since most of the time there is not.
    filled: AtomicBool,
    /// What has been taken and not yet sent.
    unsent_bytes: AtomicUsize,
    /// The soft limit while there is more than it allows, else 0.
    soft_bytes: AtomicU64,
    woken: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bytes: BytesMut,
    resume: bool,
    close: Option<Close>,
    /// How many of `bytes` are counted in the client's buffers.
    counted_bytes: usize,
    /// Since when there is more than the soft limit.
    over_soft_since: Option<Millis>,
    /// When that was to be looked at again, as the caller was told.
    checked_at: Option<Millis>,
    /// Woken since somebody last waited.
    rung: bool,
    /// Who is to be woken.
    waker: Option<Waker>,
}

/// How much waits for a client, beside what its limits allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Excess {
    /// It is within the limits.
    None,
    /// It is above the soft limit, and may be for now. This is when to look again, if the caller
    /// does not know yet.
    Soft(Option<Millis>),
    /// These bytes are too many: the client is to be disconnected.
    Over(usize),
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
    /// An empty outbox of a client with these buffers.
    pub(crate) fn new(buffers: Arc<Buffers>) -> Outbox {
        Outbox {
            state: Mutex::default(),
            buffers,
            filled: AtomicBool::new(false),
            unsent_bytes: AtomicUsize::new(0),
            soft_bytes: AtomicU64::new(0),
            woken: Condvar::new(),
        }
    }

    /// Adds a delivery, whose buffer it may swap for another; nobody is woken. Returns how what
    /// waits for the client compares with `limit`.
    pub(crate) fn put(
        &self,
        delivery: &mut Delivery,
        limit: OutputBufferLimit,
        now: impl FnOnce() -> Millis,
    ) -> Excess {
        let mut state = self.state.lock();
        if state.bytes.is_empty() {
            // Nothing is copied, and both keep their room.
            std::mem::swap(&mut state.bytes, &mut delivery.bytes);
        } else {
            state.bytes.extend_from_slice(&delivery.bytes);
        }
        delivery.bytes.clear();
        state.resume |= delivery.resume;
        state.close = state.close.or(delivery.close);
        self.filled.store(true, Ordering::Release);
        state.count(&self.buffers);
        self.compare(&mut state, limit, now)
    }

    /// Forgets what there is to send: the client is to go at once.
    pub(crate) fn give_up(&self) {
        let mut state = self.state.lock();
        state.close = Some(Close::Now);
        state.bytes = BytesMut::new();
        state.count(&self.buffers);
        self.filled.store(true, Ordering::Release);
    }

    /// Takes everything.
    pub(crate) fn take(&self) -> Mail {
        let Some(mut state) = self.open() else { return Mail::default() };
        let bytes = std::mem::take(&mut state.bytes);
        state.count(&self.buffers);
        state.over_soft_since = None;
        Mail { bytes, resume: std::mem::take(&mut state.resume), close: state.close.take() }
    }

    /// Takes everything, the bytes to the end of `output`. They go on counting as the client's
    /// memory and as unsent: `counted` is what counts of its connection. Returns whether the
    /// client's wait is over, and whether it is to be disconnected.
    pub(crate) fn take_into(
        &self,
        output: &mut Output,
        counted: &mut BufferSizes,
    ) -> (bool, Option<Close>) {
        let Some(mut state) = self.open() else { return (false, None) };
        output.append(&mut state.bytes);
        self.unsent_bytes.store(output.len(), Ordering::Relaxed);
        if state.counted_bytes > 0 {
            state.counted_bytes = 0;
            output.measure(counted);
            self.buffers.set_without_messages(*counted);
        }
        (std::mem::take(&mut state.resume), state.close.take())
    }

    /// The state, if there is something to take, which the caller takes.
    fn open(&self) -> Option<MutexGuard<'_, State>> {
        if !self.filled.load(Ordering::Acquire) {
            return None;
        }
        let state = self.state.lock();
        self.filled.store(false, Ordering::Relaxed);
        Some(state)
    }

    /// Tells how much of what was taken is still to be sent. Without it, nobody would notice that
    /// a client that only listens has stopped to read.
    pub(crate) fn set_unsent(&self, bytes: usize) {
        self.unsent_bytes.store(bytes, Ordering::Relaxed);
        let soft_bytes = self.soft_bytes.load(Ordering::Relaxed);
        if soft_bytes > 0 && bytes as u64 <= soft_bytes {
            self.begin_anew();
        }
    }

    /// The client has read: its time above the soft limit is over.
    #[cold]
    fn begin_anew(&self) {
        self.state.lock().over_soft_since = None;
        self.soft_bytes.store(0, Ordering::Relaxed);
    }

    /// As [`Outbox::put`], says if there is too much.
    pub(crate) fn excess(&self, limit: OutputBufferLimit, now: impl FnOnce() -> Millis) -> Excess {
        self.compare(&mut self.state.lock(), limit, now)
    }

    fn compare(
        &self,
        state: &mut State,
        limit: OutputBufferLimit,
        now: impl FnOnce() -> Millis,
    ) -> Excess {
        let excess = state.excess(self.unsent_bytes.load(Ordering::Relaxed), limit, now);
        if let Excess::Soft(_) = excess {
            self.soft_bytes.store(limit.soft_bytes, Ordering::Relaxed);
        }
        excess
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

impl State {
    fn excess(
        &mut self,
        unsent_bytes: usize,
        limit: OutputBufferLimit,
        now: impl FnOnce() -> Millis,
    ) -> Excess {
        let bytes = self.bytes.len() + unsent_bytes;
        let over = |max: u64| max > 0 && bytes as u64 > max;
        if over(limit.hard_bytes) {
            return Excess::Over(bytes);
        }
        if !over(limit.soft_bytes) {
            self.over_soft_since = None;
            return Excess::None;
        }
        let now = now();
        let since = *self.over_soft_since.get_or_insert(now);
        let patience_ms =
            i64::try_from(limit.soft_seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
        let end = Millis(since.0.saturating_add(patience_ms).saturating_add(1));
        if now >= end {
            return Excess::Over(bytes);
        }
        if self.checked_at.is_some_and(|moment| now < moment && moment <= end) {
            return Excess::Soft(None);
        }
        self.checked_at = Some(end);
        Excess::Soft(Some(end))
    }

    /// Counts `bytes` as the client's memory, if they are more than leave at the end of a turn.
    fn count(&mut self, buffers: &Buffers) {
        let bytes = self.bytes.len();
        let counted_bytes = if bytes > limits::HELD_BACK_BYTES { bytes } else { 0 };
        if counted_bytes != self.counted_bytes {
            self.counted_bytes = counted_bytes;
            buffers.set_message_bytes(counted_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwheel_engine::Engine;
    use lockwheel_engine::session::{ClientId, Origin};
    use lockwheel_engine::time::Time;

    const LIMIT: OutputBufferLimit =
        OutputBufferLimit { hard_bytes: 100, soft_bytes: 50, soft_seconds: 2 };

    /// An outbox, and the client it belongs to.
    struct Stage(Outbox, Engine, ClientId);

    impl Stage {
        fn new() -> Stage {
            let now = Time::at(Millis(0));
            let mut engine =
                Engine::new(lockwheel_engine::settings::Settings::default(), now, [0; 4]);
            let client = engine.connect(Origin::default(), now);
            let buffers = &engine.sessions.get(client).expect("the client").buffers;
            Stage(Outbox::new(Arc::clone(buffers)), engine, client)
        }

        /// Puts `bytes` at `now_ms` after a connection said that `unsent` are still to be sent.
        fn check(&self, (unsent, bytes, now_ms): (usize, usize, i64), excess: Excess) {
            let Stage(outbox, _, client) = self;
            outbox.set_unsent(unsent);
            let bytes = BytesMut::from(&vec![b'x'; bytes][..]);
            let mut delivery = Delivery { client: *client, bytes, resume: false, close: None };
            assert_eq!(outbox.put(&mut delivery, LIMIT, || Millis(now_ms)), excess);
            assert!(delivery.bytes.is_empty());
        }
    }

    #[test]
    fn what_was_taken_counts_until_it_is_sent() {
        let stage = Stage::new();
        stage.check((0, 40, 0), Excess::None);
        assert_eq!(stage.0.take().bytes.len(), 40);
        stage.check((40, 61, 0), Excess::Over(101));
        stage.0.give_up();
        let mail = stage.0.take();
        assert_eq!((mail.bytes.len(), mail.close), (0, Some(Close::Now)));
    }

    #[test]
    fn patience_with_the_soft_limit_begins_anew_when_the_client_has_read() {
        let stage = Stage::new();
        let mut output = Output::default();
        stage.check((0, 60, 0), Excess::Soft(Some(Millis(2_001))));
        stage.check((0, 0, 2_000), Excess::Soft(None));
        stage.0.take_into(&mut output, &mut BufferSizes::default());
        stage.check((60, 0, 2_000), Excess::Soft(None));
        // It reads, which is seen though nothing is sent to it then.
        stage.0.set_unsent(0);
        stage.check((60, 0, 2_001), Excess::Soft(Some(Millis(4_002))));
        stage.check((60, 0, 4_001), Excess::Soft(None));
        stage.check((60, 0, 4_002), Excess::Over(60));
    }

    #[test]
    fn many_messages_count_as_the_clients_memory_until_they_are_taken() {
        let Stage(outbox, engine, client) = Stage::new();
        let before = engine.sessions.memory_bytes();
        let bytes = BytesMut::from(&vec![b'x'; 2 * limits::HELD_BACK_BYTES][..]);
        let mut delivery = Delivery { client, bytes, resume: false, close: None };
        outbox.put(&mut delivery, OutputBufferLimit::default(), || Millis(0));
        assert_eq!(engine.sessions.memory_bytes(), before + 2 * limits::HELD_BACK_BYTES);
        outbox.take();
        assert_eq!(engine.sessions.memory_bytes(), before);
    }

    #[test]
    fn messages_count_without_a_gap_while_a_connection_takes_them() {
        let stage = Stage::new();
        let Stage(outbox, engine, client) = &stage;
        let bytes = 2 * limits::HELD_BACK_BYTES;
        stage.check((0, bytes, 0), Excess::Over(bytes));
        let mut output = Output::default();
        outbox.take_into(&mut output, &mut BufferSizes::default());
        assert_eq!(outbox.excess(LIMIT, || Millis(0)), Excess::Over(bytes));
        let sizes = engine.sessions.get(*client).expect("the client").buffers.sizes();
        assert_eq!(sizes.output(), bytes);
    }
}
