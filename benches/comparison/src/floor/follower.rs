//! A node that has each batch of the leader in its log before it acknowledges it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use super::log::Log;
use super::{CHUNK_BYTES, HEADER_BYTES};
use crate::Outcome;

/// Acknowledges one batch.
const ACKNOWLEDGEMENT: u8 = b'.';

/// Follows one leader after another until the process ends.
///
/// # Errors
/// The address cannot be bound, or the log cannot be written.
pub fn follow(address: SocketAddr, directory: &Path) -> Outcome<()> {
    let listener = TcpListener::bind(address)?;
    let mut log = Log::open(directory)?;
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        follow_until_end(stream, &mut log)?;
    }
}

/// Logs the batches of a connection until it is closed or fails. Batches that arrive together are
/// flushed together, so that a follower that is behind catches up.
fn follow_until_end(mut stream: TcpStream, log: &mut Log) -> Outcome<()> {
    let (mut received, mut chunk) = (Vec::new(), vec![0; CHUNK_BYTES]);
    loop {
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return Ok(()),
            Ok(count) => received.extend_from_slice(&chunk[..count]),
        }
        let (mut bytes, mut acknowledgements) = (0, Vec::new());
        while let Some(batch) = batch_bytes(&received[bytes..]) {
            bytes += batch;
            acknowledgements.push(ACKNOWLEDGEMENT);
        }
        if bytes > 0 {
            log.append(&received[..bytes])?;
            received.drain(..bytes);
            if stream.write_all(&acknowledgements).is_err() {
                return Ok(());
            }
        }
    }
}

/// The size of the first batch, if all of it has arrived.
fn batch_bytes(received: &[u8]) -> Option<usize> {
    let length = u32::from_be_bytes(*received.first_chunk()?);
    let bytes = HEADER_BYTES + usize::try_from(length).ok()?;
    (received.len() >= bytes).then_some(bytes)
}
