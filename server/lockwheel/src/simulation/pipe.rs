//! A connection without sockets: two queues of bytes in memory.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// Both ends of a connection; clones are the same connection.
#[derive(Clone, Debug, Default)]
pub struct Pipe(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
    /// Whether the client has closed its side.
    client_has_ended: bool,
    /// Whether the server has closed its side.
    server_has_ended: bool,
    /// Whether the connection is lost: the server gets errors.
    is_lost: bool,
    /// Most bytes that the server reads at once.
    read_bytes_max: usize,
    /// Number of bytes waiting for the client from which on the server cannot write.
    space: usize,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Default for State {
    fn default() -> State {
        State {
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            client_has_ended: false,
            server_has_ended: false,
            is_lost: false,
            read_bytes_max: usize::MAX,
            space: usize::MAX,
            reader: None,
            writer: None,
        }
    }
}

/// The client's end.
impl Pipe {
    /// Bytes for the server arrive.
    pub fn send(&self, bytes: &[u8]) {
        let mut state = self.0.lock();
        state.to_server.extend(bytes);
        state.wake_reader();
    }

    /// Takes the bytes that the server has sent.
    pub fn receive(&self) -> Vec<u8> {
        let mut state = self.0.lock();
        let bytes = std::mem::take(&mut state.to_client);
        state.wake_writer();
        bytes.into()
    }

    /// Whether the server has closed the connection.
    pub fn is_closed(&self) -> bool {
        self.0.lock().server_has_ended
    }

    /// Closes the connection from the client's side.
    pub fn close(&self) {
        let mut state = self.0.lock();
        state.client_has_ended = true;
        state.wake_reader();
    }

    /// Loses the connection, with all bytes in transit.
    pub fn lose(&self) {
        let mut state = self.0.lock();
        state.is_lost = true;
        state.to_server.clear();
        state.to_client.clear();
        state.wake_reader();
        state.wake_writer();
    }

    /// Limits what the server can read at once, and what it can write ahead.
    pub fn limit(&self, read_bytes_max: usize, space: usize) {
        let mut state = self.0.lock();
        (state.read_bytes_max, state.space) = (read_bytes_max.max(1), space.max(1));
        state.wake_writer();
    }
}

/// The server's end.
impl Pipe {
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        if state.is_readable() {
            return Poll::Ready(Ok(()));
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }

    pub(crate) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.0.lock();
        if state.is_lost || state.to_client.len() < state.space {
            return Poll::Ready(Ok(()));
        }
        state.writer = Some(context.waker().clone());
        Poll::Pending
    }

    pub(crate) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        if state.is_lost {
            return Err(ErrorKind::ConnectionReset.into());
        }
        if !state.is_readable() {
            return Err(ErrorKind::WouldBlock.into());
        }
        let length = into.len().min(state.to_server.len()).min(state.read_bytes_max);
        for (place, byte) in into.iter_mut().zip(state.to_server.drain(..length)) {
            *place = byte;
        }
        Ok(length)
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.lock();
        if state.is_lost || state.server_has_ended {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let length = bytes.len().min(state.space.saturating_sub(state.to_client.len()));
        if length == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        state.to_client.extend(&bytes[..length]);
        Ok(length)
    }

    pub(crate) fn is_at_end(&self) -> bool {
        let state = self.0.lock();
        state.is_lost || state.client_has_ended && state.to_server.is_empty()
    }

    pub(crate) fn shut_down(&self) {
        self.0.lock().server_has_ended = true;
    }
}

impl State {
    fn is_readable(&self) -> bool {
        self.is_lost || self.client_has_ended || !self.to_server.is_empty()
    }

    fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    fn wake_writer(&mut self) {
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
    }
}
