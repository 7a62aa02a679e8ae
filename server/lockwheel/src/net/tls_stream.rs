//! A TCP socket with TLS.
//!
//! The TLS state is driven here, directly on the socket, rather than by a stream of tokio: while a
//! slow script runs on a connection's thread, the sockets are polled without a runtime
//! ([`crate::host::slow_script`]), and `SCRIPT KILL` must arrive then over TLS as well.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use rustls::ServerConfig;
use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::limits;
use crate::tls::state::TlsState;

/// A TCP socket with TLS. No lock that is taken elsewhere is waited for while its own lock
/// is held.
#[derive(Debug)]
pub(crate) struct TlsStream {
    tcp: TcpStream,
    state: Mutex<TlsState>,
}

/// How a socket is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// If the runtime believes the socket ready, which is updated.
    Runtime,
    /// Without the runtime.
    Direct,
}

/// The result of a step of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeStep {
    /// Complete.
    Complete,
    /// To be continued when the socket is readable.
    NeedsInput,
    /// To be continued when the socket is writable.
    NeedsOutput,
}

impl TlsStream {
    /// A connection that has been accepted, before its handshake.
    ///
    /// # Errors
    /// If the configuration does not allow a connection.
    pub(crate) fn new(tcp: TcpStream, config: Arc<ServerConfig>) -> io::Result<TlsStream> {
        Ok(TlsStream { tcp, state: Mutex::new(TlsState::new(config)?) })
    }

    /// Continues the handshake as far as the socket allows.
    ///
    /// # Errors
    /// If the handshake fails; the peer has been sent the alert.
    pub(crate) fn continue_handshake(&self, access: Access) -> io::Result<HandshakeStep> {
        let mut state = self.state.lock();
        loop {
            if self.flush(&mut state, access)? == Flushed::Partly {
                return Ok(HandshakeStep::NeedsOutput);
            }
            if !state.is_handshaking() {
                return Ok(HandshakeStep::Complete);
            }
            if state.has_ended() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            match self.receive(&mut state, &mut [], access) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(HandshakeStep::NeedsInput);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// As [`crate::net::stream::Stream::read`].
    pub(crate) fn read(&self, into: &mut [u8], access: Access) -> io::Result<usize> {
        let mut state = self.state.lock();
        let read = state.take_input(into)?;
        if read > 0 || state.has_ended() {
            return Ok(read);
        }
        let received = self.receive(&mut state, into, access)?;
        match received.input {
            0 if state.has_ended() => Ok(0),
            0 if received.is_last => Err(ErrorKind::WouldBlock.into()),
            0 => Err(ErrorKind::Interrupted.into()),
            input => Ok(input),
        }
    }

    /// As [`crate::net::stream::Stream::write`].
    pub(crate) fn write(&self, bytes: &[u8], access: Access) -> io::Result<usize> {
        let mut state = self.state.lock();
        state.encrypt(bytes)?;
        match self.flush(&mut state, access)? {
            Flushed::Completely => Ok(state.take_encrypted()),
            Flushed::Partly => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// As [`crate::net::stream::Stream::is_at_end`]. The end is a record, so what comes before it
    /// has to be read.
    pub(crate) fn is_at_end(&self) -> bool {
        let mut state = self.state.lock();
        while !state.has_ended() && !state.has_input() {
            match self.receive(&mut state, &mut [], Access::Direct) {
                Ok(_) => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
        state.has_ended() && !state.has_input()
    }

    /// Whether there is input that was received from the socket already, or its end.
    pub(crate) fn has_input(&self) -> bool {
        let state = self.state.lock();
        state.has_input() || state.has_ended()
    }

    /// Whether there is input.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.has_input() {
            return Poll::Ready(Ok(()));
        }
        self.tcp.poll_read_ready(context)
    }

    /// Whether the socket may be writable.
    pub(crate) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.tcp.poll_write_ready(context)
    }

    /// Tells the peer that the connection ends, if the socket takes the record now.
    pub(crate) fn send_close_notify(&self) {
        let mut state = self.state.lock();
        if !state.is_handshaking() {
            state.close();
        }
        // Nothing else can be done: the socket is shut down next.
        let _ = self.flush(&mut state, Access::Direct);
    }

    /// The socket, for its options.
    pub(crate) fn socket(&self) -> SockRef<'_> {
        SockRef::from(&self.tcp)
    }

    /// Receives bytes with one system call, decrypts them and moves what fits to `into`.
    fn receive(
        &self,
        state: &mut TlsState,
        into: &mut [u8],
        access: Access,
    ) -> io::Result<Received> {
        RECEIVED.with_borrow_mut(|buffer| {
            buffer.resize(limits::TLS_READ_BYTES, 0);
            let most = buffer.len();
            let received =
                self.transfer(access, Interest::READABLE, most, || (&*self.socket()).read(buffer))?;
            if received == 0 {
                state.end();
                return Ok(Received { input: 0, is_last: true });
            }
            let taken = state.receive(&buffer[..received], into);
            // Alerts and updates of keys; what the socket does not take goes with the next reply.
            let flushed = self.flush(state, access);
            let input = taken?;
            flushed?;
            Ok(Received { input, is_last: received < most })
        })
    }

    /// Sends the encrypted bytes, as far as the socket takes them.
    fn flush(&self, state: &mut TlsState, access: Access) -> io::Result<Flushed> {
        while state.wants_write() {
            let mut socket = SocketWriter { stream: self, access };
            match state.write_to(&mut socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Flushed::Partly),
                Err(error) => return Err(error),
            }
        }
        Ok(Flushed::Completely)
    }

    /// Makes one system call that moves up to `most` bytes. As for other sockets, a call that moves
    /// fewer shows that the socket is not ready any more.
    fn transfer(
        &self,
        access: Access,
        interest: Interest,
        most: usize,
        call: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        if access == Access::Direct {
            return call();
        }
        let mut moved = 0;
        let outcome = self.tcp.try_io(interest, || {
            moved = call()?;
            let exhausted = 0 < moved && moved < most;
            if exhausted { Err(ErrorKind::WouldBlock.into()) } else { Ok(moved) }
        });
        if moved > 0 { Ok(moved) } else { outcome }
    }
}

thread_local! {
    /// Encrypted bytes between the socket and the connection that decrypts them.
    static RECEIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What one system call has brought.
struct Received {
    /// The bytes that were moved to the caller.
    input: usize,
    /// Whether the socket had no more.
    is_last: bool,
}

/// Whether all encrypted bytes have been sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flushed {
    Completely,
    Partly,
}

/// Writes to the socket of a stream.
struct SocketWriter<'a> {
    stream: &'a TlsStream,
    access: Access,
}

impl Write for SocketWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let most = slices.iter().map(|slice| slice.len()).sum();
        let call = || (&*self.stream.socket()).write_vectored(slices);
        self.stream.transfer(self.access, Interest::WRITABLE, most, call)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
