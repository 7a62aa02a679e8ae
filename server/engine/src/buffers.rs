//! What connections hold for their clients outside the engine: requests that have not been run and
//! replies that have not been sent. Connections keep the figures, the engine reads them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// The buffers of one connection, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferSizes {
    /// What has been read and not run.
    pub input: usize,
    /// Room in that buffer.
    pub input_free: usize,
    /// What the parser holds of an unfinished request beside its bytes.
    pub arguments: usize,
    /// Replies in the buffer that further ones are appended to.
    pub reply: usize,
    /// The size of that buffer.
    pub reply_room: usize,
    /// How many full buffers of replies wait before it.
    pub chunks: usize,
    /// The replies in them, and messages from other clients.
    pub chunk_bytes: usize,
}

impl BufferSizes {
    /// Replies and messages that have not been sent.
    pub fn output(&self) -> usize {
        self.reply + self.chunk_bytes
    }

    /// What the buffers take.
    pub fn total(&self) -> usize {
        let input = self.input + self.input_free + self.arguments;
        input + self.reply_room.max(self.reply) + self.chunk_bytes
    }
}

/// The buffers of one connection, shared by the connection and the engine.
#[derive(Debug)]
pub struct Buffers {
    state: Mutex<State>,
    /// What all connections hold together.
    sum: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct State {
    sizes: BufferSizes,
    /// Messages from other clients that the connection has not taken yet.
    mail_bytes: usize,
    /// The engine has forgotten the client, so its buffers no longer count.
    forgotten: bool,
}

impl Buffers {
    /// Buffers that are empty and count towards `sum`.
    pub(super) fn new(sum: &Arc<AtomicUsize>) -> Buffers {
        Buffers { state: Mutex::default(), sum: Arc::clone(sum) }
    }

    /// The buffers are of these sizes now.
    pub fn set(&self, sizes: BufferSizes) {
        self.change(|state| state.sizes = sizes);
    }

    /// So many bytes of messages from other clients wait for the connection now.
    pub fn set_mail(&self, bytes: usize) {
        self.change(|state| state.mail_bytes = bytes);
    }

    /// The buffers are of these sizes now, and no message from another client waits.
    pub fn set_without_mail(&self, sizes: BufferSizes) {
        self.change(|state| {
            state.sizes = sizes;
            state.mail_bytes = 0;
        });
    }

    /// The client is gone: what its connection still holds is about to be freed.
    pub(super) fn forget(&self) {
        self.change(|state| *state = State { forgotten: true, ..State::default() });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state.lock();
        if !state.forgotten {
            let before = state.sizes().total();
            change(&mut state);
            self.sum.fetch_add(state.sizes().total(), Ordering::Relaxed);
            self.sum.fetch_sub(before, Ordering::Relaxed);
        }
    }

    /// The sizes that were set last.
    pub fn sizes(&self) -> BufferSizes {
        self.state.lock().sizes()
    }
}

impl State {
    fn sizes(&self) -> BufferSizes {
        let chunk_bytes = self.sizes.chunk_bytes + self.mail_bytes;
        BufferSizes { chunk_bytes, ..self.sizes }
    }
}
