//! A client on a thread of its own that waits for each reply before its next request, so that its
//! latencies do not contain the work of other clients.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use hdrhistogram::Histogram;
use lockwheel_comparison::Outcome;

use crate::measure::generator::wrong;
use crate::measure::latencies::{histogram, record};
use crate::measure::load::connect;
use crate::measure::requests::Step;

/// Repeats a request as long as `next` returns the number of a lock. Returns the latencies.
pub(super) fn run(
    address: SocketAddr,
    mut step: Step,
    mut next: impl FnMut() -> Option<u64>,
) -> Outcome<Histogram<u64>> {
    let mut stream = connect(address)?;
    let mut latencies = histogram()?;
    let mut reply = vec![0; step.reply.len()];
    while let Some(number) = next() {
        let request = step.request.fill(number);
        let sent = Instant::now();
        stream.write_all(request)?;
        stream.read_exact(&mut reply)?;
        record(&mut latencies, sent, Instant::now());
        if reply != step.reply.as_bytes() {
            return Err(wrong(&reply, step.reply.as_bytes()).into());
        }
    }
    Ok(latencies)
}

/// The result of a client's thread, with its error as a text, because boxed errors are not `Send`.
pub(super) fn join<T>(thread: ScopedJoinHandle<'_, Result<T, String>>) -> Outcome<T> {
    let result = thread.join().map_err(|_| "a client has failed")?;
    Ok(result?)
}
