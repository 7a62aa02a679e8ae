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
    /// Bytes of replies and messages that have not been sent.
    pub fn output(&self) -> usize {
        self.reply + self.chunk_bytes
    }

    /// The memory of all buffers.
    pub fn total(&self) -> usize {
        let input = self.input + self.input_free + self.arguments;
        input + self.reply_room.max(self.reply) + self.chunk_bytes
    }
}

/// The buffers of one connection, shared by the connection and the engine.
#[derive(Debug)]
pub struct Buffers {
    state: Mutex<State>,
    /// The memory of the buffers of all connections.
    sum: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct State {
    sizes: BufferSizes,
    /// Bytes of messages from other clients that the connection has not taken yet.
    message_bytes: usize,
    /// The engine has removed the client, so its buffers no longer count.
    removed: bool,
}

impl Buffers {
    /// Empty buffers that count towards `sum`.
    pub(crate) fn new(sum: &Arc<AtomicUsize>) -> Buffers {
        Buffers { state: Mutex::default(), sum: Arc::clone(sum) }
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
            let before = state.sizes().total();
            change(&mut state);
            self.sum.fetch_add(state.sizes().total(), Ordering::Relaxed);
            self.sum.fetch_sub(before, Ordering::Relaxed);
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
