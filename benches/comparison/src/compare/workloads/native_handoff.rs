//! Many clients compete for one lock, with native locks on Lockwheel and with the protocol of
//! Redisson on other servers. A client that has had the lock joins the queue again.

use std::time::{Duration, Instant};

use lockwheel_comparison::Outcome;
use lockwheel_compat::wire::request;
use mio::{Events, Poll};

use crate::measure::bare_server;
use crate::measure::effort::Effort;
use crate::measure::generator::{Connection, Throughput, wrong};
use crate::measure::metric::Reading;
use crate::measure::running::Running;
use crate::measure::servers::{ComparedServer, ServerType};
use crate::workloads::handoff::{HandOff, Waits, await_events};
use crate::workloads::workload::Workload;

const CLIENTS: [usize; 3] = [2, 16, 128];
const KEY: &str = "lock:orders";
/// Time that a client waits for the lock: longer than a measurement.
const WAIT_MS: &str = "120000";
/// Bytes that are read at once: more than a client receives, which is the reply to one request.
const CHUNK_BYTES: usize = 4 * 1024;
/// The lines of a granted lock: a map of four fields as an array of names and values.
const GRANT_LINES: usize = 14;
const GRANTED: &str = "*8\r\n$6\r\nstatus\r\n$8\r\nacquired\r\n";
/// The fields that the bare server sends after the status.
const BARE_FIELDS: &str = "$5\r\ntoken\r\n:1790000000000000\r\n$3\r\nttl\r\n:30000\r\n\
                           $5\r\ncount\r\n:1\r\n";
const RELEASED: &str = ":0\r\n";

fn acquire(owner: &str) -> [&str; 7] {
    ["LOCK.ACQUIRE", KEY, owner, "TTL", "30000", "WAIT", WAIT_MS]
}

fn release(owner: &str) -> [&str; 3] {
    ["LOCK.RELEASE", KEY, owner]
}

pub(crate) fn all() -> Vec<Box<dyn Workload>> {
    CLIENTS.map(|clients| -> Box<dyn Workload> { Box::new(NativeHandOff { clients }) }).into()
}

struct NativeHandOff {
    clients: usize,
}

impl Workload for NativeHandOff {
    fn group(&self) -> &'static str {
        "Contended hand-off of native locks"
    }

    fn parameters(&self) -> String {
        format!("{} clients", self.clients)
    }

    fn note(&self) -> &'static str {
        "One lock that all clients want: on Lockwheel with LOCK.ACQUIRE and WAIT, on other servers \
         with the protocol of Redisson 4.7's RLock, as above. The holder releases the lock at \
         once, and then waits for it again. The bare server has a queue of clients and no lease."
    }

    fn has_lower_bound(&self) -> bool {
        true
    }

    fn refuses(&self, server: &ComparedServer) -> Option<&'static str> {
        let lacks = ServerType::Build { has_native_locks: false };
        (server.server_type == lacks).then_some("it has no LOCK.ACQUIRE")
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        if server.server_type == ServerType::Other {
            return HandOff::like_redisson(self.clients).measure(server, effort);
        }
        let running = server.start(&[])?;
        if server.server_type == ServerType::Bare {
            let grant = [GRANTED, BARE_FIELDS].concat();
            let (acquire, release) = (acquire("").len(), release("").len());
            bare_server::configure_queue(&running, acquire, release, &grant, RELEASED)?;
        }
        let mut queue = ContendedQueue::begin(&running, self.clients)?;
        queue.run(effort.warm_up)?;
        queue.waits.clear();
        let granted = queue.granted;
        let (began, before) = (Instant::now(), running.cpu()?);
        queue.run(effort.span)?;
        let operations = queue.granted - granted;
        let done = Throughput { operations, span: began.elapsed(), cpu: running.cpu()? - before };
        Ok(queue.waits.readings(&done, 1.0))
    }
}

/// A client, with one request at a time.
struct Contender {
    connection: Connection,
    acquire: Vec<u8>,
    release: Vec<u8>,
    received: Vec<u8>,
    releases: bool,
}

/// The clients that compete for the lock.
struct ContendedQueue {
    poll: Poll,
    events: Events,
    contenders: Vec<Contender>,
    granted: u64,
    waits: Waits,
}

impl ContendedQueue {
    /// Connects all clients, which send their first requests.
    fn begin(running: &Running, clients: usize) -> Outcome<ContendedQueue> {
        let poll = Poll::new()?;
        let contender = |number| -> Outcome<Contender> {
            let owner = format!("worker-{number:07}");
            let (acquire, release) = (request(&acquire(&owner)), request(&release(&owner)));
            let mut connection = Connection::open(running.address, &poll, number)?;
            connection.send(&acquire)?;
            Ok(Contender { connection, acquire, release, received: Vec::new(), releases: false })
        };
        let contenders = (0..clients).map(contender).collect::<Outcome<Vec<_>>>()?;
        Ok(ContendedQueue {
            poll,
            events: Events::with_capacity(clients),
            contenders,
            granted: 0,
            waits: Waits::begin(clients)?,
        })
    }

    /// Runs for this time, and until the lock has been granted.
    fn run(&mut self, span: Duration) -> Outcome<()> {
        let (began, granted) = (Instant::now(), self.granted);
        while self.granted == granted || began.elapsed() < span {
            await_events(&mut self.poll, &mut self.events)?;
            let ready: Vec<usize> = self.events.iter().map(|event| event.token().0).collect();
            for client in ready {
                self.handle_reply(client)?;
            }
        }
        Ok(())
    }

    fn handle_reply(&mut self, client: usize) -> Outcome<()> {
        let contender = &mut self.contenders[client];
        contender.connection.flush()?;
        let mut chunk = [0; CHUNK_BYTES];
        let Some(count) = contender.connection.read(&mut chunk)? else { return Ok(()) };
        contender.received.extend_from_slice(&chunk[..count]);
        let lines = if contender.releases { 1 } else { GRANT_LINES };
        let received = &contender.received;
        if received.windows(2).filter(|it| it == b"\r\n").count() < lines {
            return Ok(());
        }
        let expected = if contender.releases { RELEASED } else { GRANTED };
        if !received.starts_with(expected.as_bytes()) {
            return Err(wrong(received, expected.as_bytes()).into());
        }
        contender.received.clear();
        contender.releases = !contender.releases;
        if contender.releases {
            self.granted += 1;
            self.waits.granted(client);
            contender.connection.send(&contender.release)?;
        } else {
            self.waits.begins(client);
            contender.connection.send(&contender.acquire)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::workloads::workload::tests::check_runs;

    #[test]
    fn native_handoff_workloads_run() {
        all().iter_mut().for_each(|workload| check_runs(workload.as_mut()));
    }
}
