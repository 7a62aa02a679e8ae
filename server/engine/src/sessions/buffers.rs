//! The memory of a connection's buffers outside the engine: requests that have not been run and
//! replies that have not been sent. The connection sets the sizes, and the engine reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// The buffers of one connection, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferSizes {
    /// Bytes that have been read but not run.
    pub input: usize,
    /// Free space in that buffer.
    pub input_free: usize,
    /// Memory of the parser for an unfinished request, besides its bytes.
    pub arguments: usize,
    /// Bytes in the current reply buffer.
    pub reply: usize,
    /// The size of that buffer.
    pub reply_room: usize,
    /// Number of full reply buffers that are queued before it.
    pub chunks: usize,
    /// Bytes in those buffers, and in messages from other clients.
    pub chunk_bytes: usize,
}

impl BufferSizes {
    /// The memory of requests that have not been run.
    pub fn input(&self) -> usize {
        self.input + self.input_free + self.arguments
    }

    /// Bytes of replies and messages that have not been sent.
    pub fn output(&self) -> usize {
        self.reply + self.chunk_bytes
    }

    /// The memory of all buffers.
    pub fn total(&self) -> usize {
        self.input() + self.reply_room.max(self.reply) + self.chunk_bytes
    }
}

/// The buffers of one connection, shared by the connection and the engine.
#[derive(Debug)]
pub struct Buffers {
    state: Mutex<State>,
    all: Arc<AllBuffers>,
}

/// The buffers of all connections, in bytes.
#[derive(Debug, Default)]
pub struct AllBuffers {
    sum: AtomicUsize,
    /// The largest input and output of one connection since they were taken.
    input_peak: AtomicUsize,
    output_peak: AtomicUsize,
}

impl AllBuffers {
    /// The memory of all buffers.
    pub(crate) fn sum(&self) -> usize {
        self.sum.load(Ordering::Relaxed)
    }

    /// The largest input and output of one connection since the last call. Those that have not
    /// changed since are left out.
    pub(crate) fn take_peaks(&self) -> (usize, usize) {
        let take = |peak: &AtomicUsize| peak.swap(0, Ordering::Relaxed);
        (take(&self.input_peak), take(&self.output_peak))
    }

    fn replace(&self, before: BufferSizes, after: BufferSizes) {
        self.sum.fetch_add(after.total(), Ordering::Relaxed);
        self.sum.fetch_sub(before.total(), Ordering::Relaxed);
        raise(&self.input_peak, before.input().max(after.input()));
        raise(&self.output_peak, before.output().max(after.output()));
    }
}

fn raise(peak: &AtomicUsize, bytes: usize) {
    if bytes > peak.load(Ordering::Relaxed) {
        peak.fetch_max(bytes, Ordering::Relaxed);
    }
}

#[derive(Debug, Default)]
struct State {
    sizes: BufferSizes,
    /// Bytes of messages from other clients that the connection has not taken yet.
    message_bytes: usize,
    /// Whether the engine has removed the client: its buffers then no longer count.
    removed: bool,
}

impl Buffers {
    /// Empty buffers that count towards `all`.
    pub(crate) fn new(all: &Arc<AllBuffers>) -> Buffers {
        Buffers { state: Mutex::default(), all: Arc::clone(all) }
    }

    /// Sets the sizes of the buffers.
    pub fn set(&self, sizes: BufferSizes) {
        self.change(|state| state.sizes = sizes);
    }

    /// Sets the bytes of queued messages from other clients.
    pub fn set_message_bytes(&self, bytes: usize) {
        self.change(|state| state.message_bytes = bytes);
    }

    /// Sets the sizes of the buffers, with no message from another client queued.
    pub fn set_without_messages(&self, sizes: BufferSizes) {
        self.change(|state| {
            state.sizes = sizes;
            state.message_bytes = 0;
        });
    }

    /// Stops counting the buffers after the client was removed; its connection is about to free
    /// them.
    pub(crate) fn remove(&self) {
        self.change(|state| *state = State { removed: true, ..State::default() });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        if !state.removed {
            let before = state.sizes();
            change(&mut state);
            self.all.replace(before, state.sizes());
        }
    }

    /// The current sizes.
    pub fn sizes(&self) -> BufferSizes {
        self.state.lock().sizes()
    }
}

impl State {
    fn sizes(&self) -> BufferSizes {
        let chunk_bytes = self.sizes.chunk_bytes + self.message_bytes;
        BufferSizes { chunk_bytes, ..self.sizes }
    }
}
