//! A connected socket: TCP, with or without TLS, or unix.

use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::task::{Context, Poll};

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

#[cfg(feature = "tls")]
use crate::net::tls_stream::{Access, TlsStream};
#[cfg(feature = "simulation")]
use crate::simulation::pipe::Pipe;

/// A TCP or unix socket.
#[derive(Debug)]
pub(crate) enum Stream {
    /// A TCP socket.
    Tcp(TcpStream),
    /// A unix socket.
    Unix(UnixStream),
    /// A TCP socket with TLS.
    #[cfg(feature = "tls")]
    Tls(Box<TlsStream>),
    /// A connection of a simulation.
    #[cfg(feature = "simulation")]
    Simulated(Pipe),
}

impl Stream {
    /// Whether the socket may be readable; if not, the task is woken when it is.
    pub(crate) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => stream.poll_read_ready(context),
            Stream::Unix(stream) => stream.poll_read_ready(context),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.poll_readable(context),
            #[cfg(feature = "simulation")]
            Stream::Simulated(pipe) => pipe.poll_readable(context),
        }
    }

    /// Whether the socket may be writable; if not, the task is woken when it is.
    pub(crate) fn poll_writable(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Tcp(stream) => stream.poll_write_ready(context),
            Stream::Unix(stream) => stream.poll_write_ready(context),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.poll_writable(context),
            #[cfg(feature = "simulation")]
            Stream::Simulated(pipe) => pipe.poll_writable(context),
        }
    }

    /// Reads the available bytes, as many as fit. With `Interrupted`, there were bytes that made no
    /// input: the caller should try again after other connections.
    pub(crate) fn read(&self, into: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Stream::Tls(stream) = self {
            return stream.read(into, Access::Runtime);
        }
        let most = into.len();
        self.transfer(Interest::READABLE, most, || self.read_directly(into))
    }

    /// Writes as many bytes as the socket takes now. After `WouldBlock`, the next call must begin
    /// with the same bytes: some of them may be encrypted already.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(feature = "tls")]
        if let Stream::Tls(stream) = self {
            return stream.write(bytes, Access::Runtime);
        }
        self.transfer(Interest::WRITABLE, bytes.len(), || self.write_directly(bytes))
    }

    /// Makes one system call that moves up to `most` bytes, if the runtime believes the socket
    /// ready. When the call moves fewer, the socket is not ready any more, and the readiness is
    /// cleared: this saves a second call that would only find this out.
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
            #[cfg(feature = "tls")]
            Stream::Tls(_) => unreachable!("callers handle it before"),
            #[cfg(feature = "simulation")]
            Stream::Simulated(_) => attempt(),
        };
        if moved > 0 { Ok(moved) } else { outcome }
    }

    /// Reads without the runtime: for use while a script keeps the runtime from polling.
    pub(crate) fn read_directly(&self, into: &mut [u8]) -> io::Result<usize> {
        #[cfg(feature = "simulation")]
        if let Stream::Simulated(pipe) = self {
            return pipe.read(into);
        }
        #[cfg(feature = "tls")]
        if let Stream::Tls(stream) = self {
            return stream.read(into, Access::Direct);
        }
        (&*self.socket()).read(into)
    }

    /// Writes without the runtime.
    pub(crate) fn write_directly(&self, bytes: &[u8]) -> io::Result<usize> {
        #[cfg(feature = "simulation")]
        if let Stream::Simulated(pipe) = self {
            return pipe.write(bytes);
        }
        #[cfg(feature = "tls")]
        if let Stream::Tls(stream) = self {
            return stream.write(bytes, Access::Direct);
        }
        (&*self.socket()).write(bytes)
    }

    /// Whether the client has closed its side and all bytes have been read. Gives no bytes to the
    /// caller, but may take them from the socket: see [`Stream::has_input`].
    pub(crate) fn is_at_end(&self) -> bool {
        #[cfg(feature = "simulation")]
        if let Stream::Simulated(pipe) = self {
            return pipe.is_at_end();
        }
        #[cfg(feature = "tls")]
        if let Stream::Tls(stream) = self {
            return stream.is_at_end();
        }
        match self.socket().peek(&mut [MaybeUninit::uninit()]) {
            Ok(bytes) => bytes == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// Whether there are bytes to read that were taken from the socket already: the runtime may not
    /// wake the task for them.
    pub(crate) fn has_input(&self) -> bool {
        #[cfg(feature = "tls")]
        if let Stream::Tls(stream) = self {
            return stream.has_input();
        }
        false
    }

    /// Begins the last write, which must follow. The bytes are sent together with the shutdown, so
    /// that the client does not see one without the other and send more in between.
    pub(crate) fn begin_last_write(&self) {
        #[cfg(feature = "simulation")]
        if let Stream::Simulated(_) = self {
            return;
        }
        // On other systems the two follow each other closely.
        #[cfg(target_os = "linux")]
        let _ = self.socket().set_tcp_cork(true);
    }

    /// Shuts the socket down; bytes written before still arrive.
    pub(crate) fn shut_down(&self) {
        #[cfg(feature = "simulation")]
        if let Stream::Simulated(pipe) = self {
            return pipe.shut_down();
        }
        #[cfg(feature = "tls")]
        if let Stream::Tls(stream) = self {
            stream.send_close_notify();
        }
        // Fails if the client has closed the connection already.
        let _ = self.socket().shutdown(Shutdown::Both);
    }

    /// The socket, for its options.
    pub(crate) fn socket(&self) -> SockRef<'_> {
        match self {
            Stream::Tcp(stream) => SockRef::from(stream),
            Stream::Unix(stream) => SockRef::from(stream),
            #[cfg(feature = "tls")]
            Stream::Tls(stream) => stream.socket(),
            #[cfg(feature = "simulation")]
            Stream::Simulated(_) => unreachable!("callers handle it before"),
        }
    }
}
