//! A connected socket of either family.

use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;

use bytes::BytesMut;
use socket2::SockRef;
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
    /// Waits until there may be something to read.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.readable().await,
            Stream::Unix(stream) => stream.readable().await,
        }
    }

    /// Waits until there may be room to write.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.writable().await,
            Stream::Unix(stream) => stream.writable().await,
        }
    }

    /// Appends what can be read now. Call it when the socket was said to be readable.
    pub(crate) fn try_read(&self, into: &mut BytesMut) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_read_buf(into),
            Stream::Unix(stream) => stream.try_read_buf(into),
        }
    }

    /// Writes what can be written now.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.try_write(bytes),
            Stream::Unix(stream) => stream.try_write(bytes),
        }
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
