//! A connected socket of either family.

use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// A TCP or unix socket.
#[derive(Debug)]
pub(crate) enum Stream {
    /// TCP
    Tcp(TcpStream),
    /// A unix socket.
    Unix(UnixStream),
}

impl Stream {
    /// Whether there may be something to read; if not, the task is woken when there is.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => stream.poll_read_ready(context),
            Stream::Unix(stream) => stream.poll_read_ready(context),
        }
    }

    /// Whether there may be room to write; if not, the task is woken when there is.
    pub(crate) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => stream.poll_write_ready(context),
            Stream::Unix(stream) => stream.poll_write_ready(context),
        }
    }

    /// Reads what there is, as far as it fits.
    pub(crate) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        let room = into.len();
        self.transfer(Interest::READABLE, room, || self.read_directly(into))
    }

    /// Writes what can be written now.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.transfer(Interest::WRITABLE, bytes.len(), || self.write_directly(bytes))
    }

    /// One system call that may move up to `most` bytes, if the runtime thinks that it can. When it
    /// moves fewer, the socket can do no more for now, and the runtime is told so: that saves a
    /// second call to find it out.
    fn transfer(
        &self,
        interest: Interest,
        most: usize,
        call: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let mut moved = 0;
        let attempt = || {
            moved = call()?;
            let exhausted = 0 < moved && moved < most;
            if exhausted { Err(ErrorKind::WouldBlock.into()) } else { Ok(moved) }
        };
        let outcome = match self {
            Stream::Tcp(stream) => stream.try_io(interest, attempt),
            Stream::Unix(stream) => stream.try_io(interest, attempt),
        };
        if moved > 0 { Ok(moved) } else { outcome }
    }

    /// Reads past the runtime: for when its thread is busy and cannot say what is readable.
    pub(crate) fn read_directly(&self, into: &mut [u8]) -> io::Result<usize> {
        (&*self.socket()).read(into)
    }

    /// Writes past the runtime, likewise.
    pub(crate) fn write_directly(&self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.socket()).write(bytes)
    }

    /// Whether there is nothing more to read, nor ever will be. Leaves what there is unread.
    pub(crate) fn is_at_end(&self) -> bool {
        match self.socket().peek(&mut [MaybeUninit::uninit()]) {
            Ok(bytes) => bytes == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// Says that what is written next is the last: it is sent together with the hanging up, so that
    /// nobody sees one without the other and sends more in between.
    pub(crate) fn begin_last_words(&self) {
        // Where this cannot be had, the two follow each other closely.
        #[cfg(target_os = "linux")]
        let _ = self.socket().set_tcp_cork(true);
    }

    /// Tells the other side that this was all; what has been written still arrives.
    pub(crate) fn hang_up(&self) {
        // It may have gone already.
        let _ = self.socket().shutdown(Shutdown::Both);
    }

    /// The socket, for its options.
    pub(crate) fn socket(&self) -> SockRef<'_> {
        match self {
            Stream::Tcp(stream) => SockRef::from(stream),
            Stream::Unix(stream) => SockRef::from(stream),
        }
    }
}
