//! Bytes on their way from the engine to a client that are not the reply to its current request:
//! messages, and replies of commands that waited.
//!
//! An outbox is filled under the engine's lock, so that the order is the engine's order. The thread
//! that writes to the client's socket empties it, or the caller in this process.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use bytes::BytesMut;

use crate::durability::dependencies::Dependencies;
use crate::limits;
use crate::net::output::Output;
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering};
use lockwheel_engine::Delivery;
use lockwheel_engine::durability::unit_log::Position;
use lockwheel_engine::sessions::Close;
use lockwheel_engine::sessions::buffers::{BufferSizes, Buffers};
use lockwheel_engine::settings::OutputBufferLimit;
use lockwheel_engine::timing::time::Millis;

/// The messages and late replies that wait for one client.
#[derive(Debug)]
pub(crate) struct Outbox {
    state: Mutex<State>,
    /// The client's memory usage, here and in its connection.
    pub(crate) buffers: Arc<Buffers>,
    /// Whether there is something to take. Read without the lock, since the outbox is mostly empty.
    filled: AtomicBool,
    /// Bytes that have been taken and not yet sent.
    unsent_bytes: AtomicUsize,
    /// The soft limit while it is exceeded, else 0.
    soft_bytes: AtomicU64,
    woken: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bytes: BytesMut,
    /// The positions that the bytes depend on.
    dependencies: Dependencies,
    resume: bool,
    close: Option<Close>,
    /// Number of `bytes` that are counted as the client's memory.
    counted_bytes: usize,
    /// Time since which the soft limit is exceeded.
    over_soft_since: Option<Millis>,
    /// The time of the next check that was returned to a caller.
    next_check_at: Option<Millis>,
    /// Whether [`Outbox::wake`] was called since the last wait.
    woken_early: bool,
    /// Wakes the client's task, or the caller in this process.
    waker: Option<Waker>,
}

/// The bytes that wait for a client, compared with its output buffer limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitCheck {
    /// Within the limit.
    Within,
    /// Above the soft limit, which is allowed for now. The time of the next check, if it was not
    /// returned before.
    OverSoft(Option<Millis>),
    /// Too many bytes, of this number: the client must be disconnected.
    Overrun(usize),
}

/// Everything taken from an outbox.
#[derive(Debug, Default)]
pub(crate) struct OutboxContents {
    /// Bytes to send.
    pub(crate) bytes: BytesMut,
    /// Whether the client's wait is over.
    pub(crate) resume: bool,
    /// How the client must be disconnected, if it must.
    pub(crate) close: Option<Close>,
    /// Whether there is more, which is not released.
    pub(crate) is_held: bool,
}

impl Outbox {
    /// An empty outbox; `buffers` counts the client's memory.
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

    /// Whether there is something to take.
    pub(crate) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    /// Adds a delivery, which depends on `position`, and may swap its buffer for another; wakes no
    /// task. Compares the bytes that wait for the client with `limit`.
    pub(crate) fn put(
        &self,
        delivery: &mut Delivery,
        position: Position,
        limit: OutputBufferLimit,
        now: impl FnOnce() -> Millis,
    ) -> LimitCheck {
        let mut state = self.state.lock();
        let start = state.bytes.len();
        state.dependencies.add(start, position);
        if state.bytes.is_empty() {
            // Nothing is copied, and both buffers keep their capacity.
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

    /// Discards all bytes: the client must be disconnected at once.
    pub(crate) fn disconnect(&self) {
        let mut state = self.state.lock();
        state.close = Some(Close::Now);
        // The end of its wait is that of the client.
        state.resume = false;
        state.bytes = BytesMut::new();
        state.dependencies.clear();
        state.count(&self.buffers);
        self.filled.store(true, Ordering::Release);
    }

    /// Takes everything if all of it is released, else the bytes that are. The caller must have
    /// called [`CommitGate::hold_caller`] before it waits for the rest.
    ///
    /// [`CommitGate::hold_caller`]: crate::durability::commit_gate::CommitGate::hold_caller
    pub(crate) fn take(&self, released: Position) -> OutboxContents {
        let Some(mut state) = self.begin_take() else { return OutboxContents::default() };
        let length = state.bytes.len();
        let sendable = state.dependencies.sendable(length, || released);
        if sendable < length {
            self.filled.store(true, Ordering::Release);
            let bytes = state.bytes.split_to(sendable);
            state.dependencies.advance(sendable);
            return OutboxContents { bytes, is_held: true, ..OutboxContents::default() };
        }
        let bytes = std::mem::take(&mut state.bytes);
        state.count(&self.buffers);
        state.over_soft_since = None;
        OutboxContents {
            bytes,
            resume: std::mem::take(&mut state.resume),
            close: state.close.take(),
            is_held: false,
        }
    }

    /// Takes everything and appends the bytes to `output`. They still count as the client's memory
    /// and as unsent: `counted` is what is counted of its connection. Returns whether the client's
    /// wait is over, and whether the client must be disconnected.
    pub(crate) fn take_into(
        &self,
        output: &mut Output,
        counted: &mut BufferSizes,
    ) -> (bool, Option<Close>) {
        let Some(mut state) = self.begin_take() else { return (false, None) };
        let State { bytes, dependencies, .. } = &mut *state;
        output.append(bytes, dependencies);
        self.unsent_bytes.store(output.len(), Ordering::Relaxed);
        if state.counted_bytes > 0 {
            state.counted_bytes = 0;
            output.measure(counted);
            self.buffers.set_without_messages(*counted);
        }
        (std::mem::take(&mut state.resume), state.close.take())
    }

    /// Locks the state if there is something to take. The caller must take everything.
    fn begin_take(&self) -> Option<MutexGuard<'_, State>> {
        if !self.filled.load(Ordering::Acquire) {
            return None;
        }
        let state = self.state.lock();
        self.filled.store(false, Ordering::Relaxed);
        Some(state)
    }

    /// Sets how many of the bytes taken are still unsent. Without it, a subscriber that stops
    /// reading would not be noticed.
    pub(crate) fn set_unsent(&self, bytes: usize) {
        self.unsent_bytes.store(bytes, Ordering::Relaxed);
        let soft_bytes = self.soft_bytes.load(Ordering::Relaxed);
        if soft_bytes > 0 && bytes as u64 <= soft_bytes {
            self.reset_soft_limit();
        }
    }

    /// Ends the time of the client above the soft limit, when it has read.
    #[cold]
    fn reset_soft_limit(&self) {
        self.state.lock().over_soft_since = None;
        self.soft_bytes.store(0, Ordering::Relaxed);
    }

    /// Compares the bytes that wait for the client with `limit`.
    pub(crate) fn check_limit(
        &self,
        limit: OutputBufferLimit,
        now: impl FnOnce() -> Millis,
    ) -> LimitCheck {
        self.compare(&mut self.state.lock(), limit, now)
    }

    fn compare(
        &self,
        state: &mut State,
        limit: OutputBufferLimit,
        now: impl FnOnce() -> Millis,
    ) -> LimitCheck {
        let check = state.check_limit(self.unsent_bytes.load(Ordering::Relaxed), limit, now);
        if let LimitCheck::OverSoft(_) = check {
            self.soft_bytes.store(limit.soft_bytes, Ordering::Relaxed);
        }
        check
    }

    /// Wakes the client's task, or the caller in this process.
    pub(crate) fn wake(&self) {
        let waker = {
            // A caller that has found nothing and is about to wait must not miss this.
            let mut state = self.state.lock();
            state.woken_early = true;
            state.waker.clone()
        };
        self.woken.notify_all();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Sets the waker that [`Outbox::wake`] wakes.
    pub(crate) fn set_waker(&self, waker: Waker) {
        self.state.lock().waker = Some(waker);
    }

    /// Waits for [`Outbox::wake`], or returns at once if it was called since the last wait.
    pub(crate) async fn woken(&self) {
        poll_fn(|context| {
            let mut state = self.state.lock();
            if std::mem::take(&mut state.woken_early) {
                return Poll::Ready(());
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// As [`Outbox::woken`], but blocks this thread, and ends also if `is_over` returns true. For
    /// clients in this process.
    pub(crate) fn wait(&self, is_over: impl Fn() -> bool) {
        let mut state = self.state.lock();
        while !std::mem::take(&mut state.woken_early) && !is_over() {
            self.woken.wait(&mut state);
        }
    }
}

impl State {
    fn check_limit(
        &mut self,
        unsent_bytes: usize,
        limit: OutputBufferLimit,
        now: impl FnOnce() -> Millis,
    ) -> LimitCheck {
        let bytes = self.bytes.len() + unsent_bytes;
        let over = |max: u64| max > 0 && bytes as u64 > max;
        if over(limit.hard_bytes) {
            return LimitCheck::Overrun(bytes);
        }
        if !over(limit.soft_bytes) {
            self.over_soft_since = None;
            return LimitCheck::Within;
        }
        let now = now();
        let since = *self.over_soft_since.get_or_insert(now);
        let soft_ms = i64::try_from(limit.soft_seconds.saturating_mul(1000)).unwrap_or(i64::MAX);
        let end = Millis(since.0.saturating_add(soft_ms).saturating_add(1));
        if now >= end {
            return LimitCheck::Overrun(bytes);
        }
        if self.next_check_at.is_some_and(|moment| now < moment && moment <= end) {
            return LimitCheck::OverSoft(None);
        }
        self.next_check_at = Some(end);
        LimitCheck::OverSoft(Some(end))
    }

    /// Counts `bytes` as the client's memory, if they are more than a turn holds back.
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
    use lockwheel_engine::engine::inputs::Process;
    use lockwheel_engine::sessions::{ClientId, Origin};
    use lockwheel_engine::settings::Settings;
    use lockwheel_engine::timing::time::Time;

    const LIMIT: OutputBufferLimit =
        OutputBufferLimit { hard_bytes: 100, soft_bytes: 50, soft_seconds: 2 };

    /// An outbox, and its client.
    struct TestOutbox(Outbox, Engine, ClientId);

    impl TestOutbox {
        fn new() -> TestOutbox {
            let now = Time::at(Millis(0));
            let mut engine = Engine::new(Settings::default(), Process::default(), now, [0; 4]);
            let client = engine.connect(Origin::default(), now);
            let buffers = &engine.session(client).expect("the client").buffers;
            TestOutbox(Outbox::new(Arc::clone(buffers)), engine, client)
        }

        /// Puts `bytes` at `now_ms` while a connection has `unsent` bytes, and checks the result.
        fn check(&self, (unsent, bytes, now_ms): (usize, usize, i64), expected: LimitCheck) {
            let TestOutbox(outbox, _, client) = self;
            outbox.set_unsent(unsent);
            let bytes = BytesMut::from(&vec![b'x'; bytes][..]);
            let mut delivery = Delivery { client: *client, bytes, resume: false, close: None };
            assert_eq!(outbox.put(&mut delivery, 0, LIMIT, || Millis(now_ms)), expected);
            assert!(delivery.bytes.is_empty());
        }
    }

    #[test]
    fn taken_bytes_count_until_they_are_sent() {
        let test = TestOutbox::new();
        test.check((0, 40, 0), LimitCheck::Within);
        assert_eq!(test.0.take(0).bytes.len(), 40);
        test.check((40, 61, 0), LimitCheck::Overrun(101));
        test.0.disconnect();
        let contents = test.0.take(0);
        assert_eq!((contents.bytes.len(), contents.close), (0, Some(Close::Now)));
    }

    /// A node that steps down has not committed what the wait has ended with.
    #[test]
    fn wait_of_a_disconnected_client_does_not_end_with_a_reply() {
        let TestOutbox(outbox, _, client) = TestOutbox::new();
        let bytes = BytesMut::from("+OK\r\n");
        let mut delivery = Delivery { client, bytes, resume: true, close: None };
        outbox.put(&mut delivery, 7, OutputBufferLimit::default(), || Millis(0));
        assert!(outbox.take(6).is_held);
        outbox.disconnect();
        let contents = outbox.take(7);
        assert_eq!((contents.bytes.len(), contents.resume), (0, false));
        assert_eq!(contents.close, Some(Close::Now));
    }

    #[test]
    fn time_above_soft_limit_starts_again_after_client_has_read() {
        let test = TestOutbox::new();
        let mut output = Output::default();
        test.check((0, 60, 0), LimitCheck::OverSoft(Some(Millis(2_001))));
        test.check((0, 0, 2_000), LimitCheck::OverSoft(None));
        test.0.take_into(&mut output, &mut BufferSizes::default());
        test.check((60, 0, 2_000), LimitCheck::OverSoft(None));
        // The client reads; this counts although nothing is sent to it then.
        test.0.set_unsent(0);
        test.check((60, 0, 2_001), LimitCheck::OverSoft(Some(Millis(4_002))));
        test.check((60, 0, 4_001), LimitCheck::OverSoft(None));
        test.check((60, 0, 4_002), LimitCheck::Overrun(60));
    }

    #[test]
    fn messages_count_as_client_memory_until_they_are_taken() {
        let TestOutbox(outbox, engine, client) = TestOutbox::new();
        let before = engine.client_memory_bytes();
        let bytes = BytesMut::from(&vec![b'x'; 2 * limits::HELD_BACK_BYTES][..]);
        let mut delivery = Delivery { client, bytes, resume: false, close: None };
        outbox.put(&mut delivery, 0, OutputBufferLimit::default(), || Millis(0));
        assert_eq!(engine.client_memory_bytes(), before + 2 * limits::HELD_BACK_BYTES);
        outbox.take(0);
        assert_eq!(engine.client_memory_bytes(), before);
    }

    #[test]
    fn messages_count_without_gap_while_connection_takes_them() {
        let test = TestOutbox::new();
        let TestOutbox(outbox, engine, client) = &test;
        let bytes = 2 * limits::HELD_BACK_BYTES;
        test.check((0, bytes, 0), LimitCheck::Overrun(bytes));
        let mut output = Output::default();
        outbox.take_into(&mut output, &mut BufferSizes::default());
        assert_eq!(outbox.check_limit(LIMIT, || Millis(0)), LimitCheck::Overrun(bytes));
        let sizes = engine.session(*client).expect("the client").buffers.sizes();
        assert_eq!(sizes.output(), bytes);
    }
}
