//! The server's side of one TLS connection, without its socket.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use rustls::{ServerConfig, ServerConnection};

use crate::limits;

/// The server's side of a TLS connection: its caller passes in and takes out encrypted bytes.
#[derive(Debug)]
pub struct TlsState {
    connection: ServerConnection,
    /// Received bytes that have not been decrypted, because there was no room for their content.
    /// Usually empty.
    unprocessed: Vec<u8>,
    /// Decrypted bytes within `connection`.
    decrypted: usize,
    /// The first bytes of the output that are encrypted and not completely taken out.
    encrypted: usize,
    has_ended: bool,
}

impl TlsState {
    /// A connection before its handshake.
    ///
    /// # Errors
    /// If the configuration does not allow a connection.
    pub fn new(config: Arc<ServerConfig>) -> io::Result<TlsState> {
        let mut connection = ServerConnection::new(config).map_err(io::Error::other)?;
        // What is encrypted at once is limited here.
        connection.set_buffer_limit(None);
        Ok(TlsState {
            connection,
            unprocessed: Vec::new(),
            decrypted: 0,
            encrypted: 0,
            has_ended: false,
        })
    }

    /// Whether the handshake is not complete.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the peer sends no more.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Records that the peer has closed the connection, perhaps without the alert of TLS. That is
    /// accepted: a request that lacks its end is not run in any case.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Whether there is input that [`TlsState::receive`] has left.
    pub fn has_input(&self) -> bool {
        self.decrypted > 0 || !self.unprocessed.is_empty()
    }

    /// Moves input that was received before to `into`.
    ///
    /// # Errors
    /// As [`TlsState::receive`].
    pub fn take_input(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let unprocessed = std::mem::take(&mut self.unprocessed);
        self.receive(&unprocessed, into)
    }

    /// Decrypts `received` and moves the content to `into`. What does not fit is kept: the caller
    /// must take it before it receives more.
    ///
    /// # Errors
    /// If the bytes are not valid. The output then has the alert for the peer.
    pub fn receive(&mut self, received: &[u8], into: &mut [u8]) -> io::Result<usize> {
        let mut rest = received;
        let mut taken = 0;
        loop {
            while self.decrypted > 0 && taken < into.len() {
                let read = self.connection.reader().read(&mut into[taken..])?;
                taken += read;
                self.decrypted -= read.min(self.decrypted);
            }
            if rest.is_empty() {
                break;
            }
            if self.decrypted > 0 {
                self.unprocessed.extend_from_slice(rest);
                break;
            }
            if self.connection.read_tls(&mut rest)? == 0 {
                // What comes after the end is ignored.
                break;
            }
            let state = self
                .connection
                .process_new_packets()
                .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
            self.decrypted = state.plaintext_bytes_to_read();
            self.has_ended |= state.peer_has_closed();
        }
        Ok(taken)
    }

    /// Encrypts the first bytes of the output, unless they are encrypted already.
    ///
    /// # Errors
    /// If the connection cannot encrypt.
    pub fn encrypt(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.encrypted == 0 {
            let count = bytes.len().min(limits::TLS_WRITE_BYTES_MAX);
            self.encrypted = self.connection.writer().write(&bytes[..count])?;
        }
        Ok(())
    }

    /// Records that the encrypted bytes have been taken out. Returns how many bytes of the output
    /// they were.
    pub fn take_encrypted(&mut self) -> usize {
        std::mem::take(&mut self.encrypted)
    }

    /// Adds the record for the end of the connection to the output.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Whether there are encrypted bytes to take out.
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    /// Writes encrypted bytes to `out`.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_to(&mut self, out: &mut dyn Write) -> io::Result<usize> {
        self.connection.write_tls(out)
    }
}
