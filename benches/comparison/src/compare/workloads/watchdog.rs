//! Redisson's watchdog: many locks are held, and a script renews 100 of them at once.

use lockwheel_comparison::Outcome;
use lockwheel_compat::wire::request;

use crate::measure::effort::Effort;
use crate::measure::generator::{Batch, Requests, saturate};
use crate::measure::metric::{Metric, Reading};
use crate::measure::requests::NUMBER;
use crate::measure::running::Running;
use crate::measure::servers::ComparedServer;
use crate::workloads::cycles::{LEASE_MS, OWNER, load, named, redisson_4};
use crate::workloads::workload::Workload;

const LOCKS: u64 = 100_000;
const LOCKS_QUICK: u64 = 1_000;
/// Locks that Redisson renews with one request.
const AT_ONCE: u64 = 100;
/// One for each process with a watchdog.
const CONNECTIONS: usize = 10;

pub(crate) fn all() -> Vec<Box<dyn Workload>> {
    vec![Box::new(Watchdog)]
}

struct Watchdog;

impl Workload for Watchdog {
    fn group(&self) -> &'static str {
        "Watchdog renewal"
    }

    fn parameters(&self) -> String {
        format!("100,000 locks held, {CONNECTIONS} connections")
    }

    fn note(&self) -> &'static str {
        "The watchdog of Redisson 4.7: a script renews 100 locks at once, each if its owner still \
         holds it. An operation is the renewal of one lock."
    }

    fn runs_scripts(&self) -> bool {
        true
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let running = server.start(&[])?;
        let locks = if effort.quick { LOCKS_QUICK } else { LOCKS };
        hold(&running, locks)?;
        let mut renewals = Renewals::new(&load(&running, named("redisson/renew")?)?, locks);
        let done = saturate(&running, &mut renewals, CONNECTIONS, effort)?;
        let mib = running.resident_bytes()? as f64 / f64::from(1 << 20);
        Ok(vec![
            Metric::cost("server CPU per renewed lock", "us").with(done.cpu_us()),
            Metric::rate("renewed locks", "/s").with(done.rate()),
            Metric::info("server CPU", "%").with(done.cpu_percent()),
            Metric::info("resident memory", "MiB").with(mib),
        ])
    }
}

/// Takes locks with Redisson's script.
fn hold(running: &Running, locks: u64) -> Outcome<()> {
    let [mut lock, ..] = redisson_4(running, &key(NUMBER), "channel", OWNER)?;
    let mut wire = running.open()?;
    for first in (0..locks).step_by(AT_ONCE as usize) {
        let requests: Vec<u8> = (first..first + AT_ONCE)
            .flat_map(|number| lock.request.fill(number).to_vec())
            .collect();
        wire.send_bytes(&requests)?;
        for _ in 0..AT_ONCE {
            let reply = wire.read()?.bytes();
            if reply != lock.reply.as_bytes() {
                return Err(format!("a lock: {}", String::from_utf8_lossy(&reply)).into());
            }
        }
    }
    Ok(())
}

fn key(number: &str) -> String {
    format!("lock:{number}")
}

/// The request that renews 100 locks, starting with a number.
fn renewal(renew: &str, first: u64) -> Vec<u8> {
    let keys = (first..first + AT_ONCE).map(|number| key(&format!("{number:010}")));
    let head = ["EVALSHA", renew, &AT_ONCE.to_string()].map(str::to_owned);
    let owners = vec![OWNER.to_owned(); AT_ONCE as usize];
    let words = head.into_iter().chain(keys).chain([LEASE_MS.to_owned()]).chain(owners);
    request(&words.collect::<Vec<_>>())
}

/// Clients of which each renews all groups of 100 locks in turn, and starts with a different one.
struct Renewals {
    requests: Vec<Vec<u8>>,
    next: Vec<usize>,
    expected: Vec<u8>,
}

impl Renewals {
    fn new(renew: &str, locks: u64) -> Renewals {
        let groups = (0..locks).step_by(AT_ONCE as usize);
        let requests: Vec<_> = groups.map(|first| renewal(renew, first)).collect();
        let next = (0..CONNECTIONS).map(|it| it * requests.len() / CONNECTIONS).collect();
        let ones = ":1\r\n".repeat(AT_ONCE as usize);
        Renewals { requests, next, expected: format!("*{AT_ONCE}\r\n{ones}").into_bytes() }
    }
}

impl Requests for Renewals {
    fn next(&mut self, connection: usize) -> Batch<'_> {
        let next = &mut self.next[connection];
        let sent = &self.requests[*next];
        *next = (*next + 1) % self.requests.len();
        Batch { sent, reply: 0, operations: AT_ONCE }
    }

    fn expected(&self, _reply: usize) -> &[u8] {
        &self.expected
    }
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::workloads::workload::tests::check_runs;

    #[test]
    fn watchdog_workload_runs() {
        all().iter_mut().for_each(|workload| check_runs(workload.as_mut()));
    }
}
