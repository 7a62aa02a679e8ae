//! Clients of a leader, on one thread: each repeats cycles of two requests, one at a time.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockwheel_benches::Random;
use lockwheel_comparison::Outcome;
use mio::{Events, Poll};

use crate::measure::generator::{Connection, REPLY_TIMEOUT, wrong};
use crate::measure::latencies::{histogram, record};
use crate::measure::requests::{Step, Template, concatenate};
use crate::workloads::cycles::LOCKS;

/// The requests of a cycle.
pub(super) const STEPS: usize = 2;
/// Bytes that are read at once: more than a client receives.
const CHUNK_BYTES: usize = 4 * 1024;

/// What one client sends and receives.
pub(super) trait Dialog {
    /// The bytes of the request of a step, with this lock.
    fn request(&mut self, step: usize, lock: u64) -> &[u8];

    /// Removes the reply to the request of a step, if it is complete; returns whether it was. An
    /// unexpected reply is an error.
    fn take_reply(&mut self, step: usize, received: &mut Vec<u8>) -> Outcome<bool>;
}

/// Requests of the protocol of Redis, each with all replies that may come.
pub(super) struct RedisDialog {
    steps: Vec<(Template, Vec<Vec<u8>>)>,
}

impl RedisDialog {
    /// The steps, each followed by `WAIT 1` if a replica is to have the change.
    pub(super) fn new(steps: &[Step], waits: bool) -> RedisDialog {
        let with_replies = |step: &Step| {
            let wait = Step::new(&["WAIT", "1", "0"], "");
            let (parts, counts) = match waits {
                true => (vec![step.clone(), wait], vec![":1\r\n", ":2\r\n"]),
                false => (vec![step.clone()], vec![""]),
            };
            let replies = counts.iter().map(|count| [step.reply, count].concat().into_bytes());
            (concatenate(&parts), replies.collect())
        };
        RedisDialog { steps: steps.iter().map(with_replies).collect() }
    }
}

impl Dialog for RedisDialog {
    fn request(&mut self, step: usize, lock: u64) -> &[u8] {
        self.steps[step].0.fill(lock)
    }

    fn take_reply(&mut self, step: usize, received: &mut Vec<u8>) -> Outcome<bool> {
        let (_, replies) = &self.steps[step];
        if !replies.iter().any(|reply| reply.starts_with(received)) {
            return Err(wrong(received, &replies[0]).into());
        }
        let is_complete = replies.contains(received);
        if is_complete {
            received.clear();
        }
        Ok(is_complete)
    }
}

/// A client with a pending request.
struct Client {
    connection: Connection,
    dialog: Box<dyn Dialog>,
    received: Vec<u8>,
    /// Step of the next request.
    step: usize,
    lock: u64,
    /// When the cycle began.
    began: Instant,
}

impl Client {
    /// Reads available bytes. Returns whether the reply is complete.
    fn receive(&mut self) -> Outcome<bool> {
        self.connection.flush()?;
        let mut chunk = [0; CHUNK_BYTES];
        while let Some(count) = self.connection.read(&mut chunk)? {
            self.received.extend_from_slice(&chunk[..count]);
            if count < chunk.len() {
                break;
            }
        }
        let sent = (self.step + STEPS - 1) % STEPS;
        self.dialog.take_reply(sent, &mut self.received)
    }
}

/// Clients that are always busy.
pub(super) struct Load {
    poll: Poll,
    events: Events,
    clients: Vec<Client>,
    random: Random,
    /// The latencies of whole cycles.
    pub(super) latencies: Histogram<u64>,
}

impl Load {
    /// Connects clients, which send their first requests.
    pub(super) fn begin(address: SocketAddr, dialogs: Vec<Box<dyn Dialog>>) -> Outcome<Load> {
        let (poll, count) = (Poll::new()?, dialogs.len());
        let client = |(number, dialog)| -> Outcome<Client> {
            let connection = Connection::open(address, &poll, number)?;
            let (received, began) = (Vec::new(), Instant::now());
            Ok(Client { connection, dialog, received, step: 0, lock: 0, began })
        };
        let clients = dialogs.into_iter().enumerate().map(client).collect::<Outcome<Vec<_>>>()?;
        let (events, random) = (Events::with_capacity(count), Random::new());
        let mut load = Load { poll, events, clients, random, latencies: histogram()? };
        (0..count).try_for_each(|client| load.send(client))?;
        Ok(load)
    }

    /// Keeps all clients busy for this time, and until a cycle is complete. Returns the cycles.
    pub(super) fn run(&mut self, span: Duration) -> Outcome<u64> {
        let began = Instant::now();
        let mut done = 0;
        while done == 0 || began.elapsed() < span {
            self.poll.poll(&mut self.events, Some(REPLY_TIMEOUT))?;
            if self.events.is_empty() {
                return Err("the server does not reply any more".into());
            }
            let now = Instant::now();
            let ready: Vec<usize> = self.events.iter().map(|event| event.token().0).collect();
            for number in ready {
                let client = &mut self.clients[number];
                if !client.receive()? {
                    continue;
                }
                if client.step == 0 {
                    record(&mut self.latencies, client.began, now);
                    done += 1;
                }
                self.send(number)?;
            }
        }
        Ok(done)
    }

    /// Sends the next request of a client. No other client uses its locks.
    fn send(&mut self, number: usize) -> Outcome<()> {
        let count = self.clients.len() as u64;
        let client = &mut self.clients[number];
        if client.step == 0 {
            let draw = u64::from(self.random.below(LOCKS / count as u32));
            client.lock = draw * count + number as u64;
            client.began = Instant::now();
        }
        client.connection.send(client.dialog.request(client.step, client.lock))?;
        client.step = (client.step + 1) % STEPS;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Dialog, RedisDialog};
    use crate::measure::requests::Step;

    #[test]
    fn change_is_complete_when_a_replica_has_it() {
        let steps = [Step::new(&["SET", "key", "value"], "+OK\r\n")];
        let mut dialog = RedisDialog::new(&steps, true);
        assert!(dialog.request(0, 0).ends_with(b"WAIT\r\n$1\r\n1\r\n$1\r\n0\r\n"));
        for (reply, is_complete) in
            [("+OK\r\n", false), ("+OK\r\n:1\r\n", true), ("+OK\r\n:2\r\n", true)]
        {
            let taken = dialog.take_reply(0, &mut reply.as_bytes().to_vec());
            assert_eq!(taken.expect("an expected reply"), is_complete, "{reply:?}");
        }
        assert!(dialog.take_reply(0, &mut b"+OK\r\n:0\r\n".to_vec()).is_err());
    }
}
