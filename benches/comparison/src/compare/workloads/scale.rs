//! Rate and cost by the number of connections and threads.

use lockwheel_comparison::Outcome;

use crate::measure::effort::Effort;
use crate::measure::generator::saturate;
use crate::measure::load::grouped;
use crate::measure::metric::{Metric, Reading};
use crate::measure::requests::{Cycles, NUMBER, Step};
use crate::measure::servers::ComparedServer;
use crate::workloads::cycles::{LEASE_MS, OWNER};
use crate::workloads::workload::Workload;

const THREADS: [u32; 3] = [1, 2, 4];
const CONNECTIONS: [u32; 5] = [1, 10, 100, 1000, 10_000];
/// Descriptors other than connections, in the client and in the server.
const SPARE_DESCRIPTORS: u64 = 200;
const LOCKS: u32 = 1_000_000;
/// The most connections of a quick run.
const QUICK_CONNECTIONS_MAX: u32 = 20;

pub(crate) fn all() -> Vec<Box<dyn Workload>> {
    let mut all: Vec<Box<dyn Workload>> = Vec::new();
    for threads in THREADS {
        for connections in CONNECTIONS {
            all.push(Box::new(Scale { threads, connections }));
        }
    }
    all
}

struct Scale {
    threads: u32,
    connections: u32,
}

impl Workload for Scale {
    fn group(&self) -> &'static str {
        "Scale"
    }

    fn parameters(&self) -> String {
        let threads = match self.threads {
            1 => "1 thread".to_owned(),
            several => format!("{several} threads"),
        };
        let connections = match self.connections {
            1 => "1 connection".to_owned(),
            several => format!("{} connections", grouped(several)),
        };
        format!("{threads}, {connections}")
    }

    fn note(&self) -> &'static str {
        "A lock as a string, SET NX PX and DEL, pipeline 1, with `io-threads` at 1, 2 and 4. The \
         server may run on every processor here, and shares them with its clients."
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let connections = match effort.quick {
            true => self.connections.min(QUICK_CONNECTIONS_MAX),
            false => self.connections,
        };
        ensure_descriptors(connections)?;
        let threads = self.threads.to_string();
        let clients_max = (u64::from(connections) + SPARE_DESCRIPTORS).to_string();
        let arguments = ["--io-threads", &threads, "--maxclients", &clients_max];
        let running = server.start_anywhere(&arguments)?;
        let key = format!("lock:{NUMBER}");
        let steps = [
            Step::new(&["SET", &key, OWNER, "NX", "PX", LEASE_MS], "+OK\r\n"),
            Step::new(&["DEL", &key], ":1\r\n"),
        ];
        let connections = connections as usize;
        let mut cycles = Cycles::new(&steps, 1, connections, LOCKS);
        let done = saturate(&running, &mut cycles, connections, effort)?;
        Ok(vec![
            Metric::cost("server CPU per lock", "us").with(done.cpu_us()),
            Metric::rate("locks", "/s").with(done.rate()),
            Metric::info("server CPU", "%").with(done.cpu_percent()),
        ])
    }
}

/// Raises the limit of descriptors of this process, which a server inherits.
fn ensure_descriptors(connections: u32) -> Outcome<()> {
    let wanted = u64::from(connections) + SPARE_DESCRIPTORS;
    match rlimit::increase_nofile_limit(wanted)? {
        limit if limit >= wanted => Ok(()),
        limit => Err(format!("{connections} connections with {limit} descriptors").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::all;
    use crate::workloads::workload::tests::check_runs;

    #[test]
    fn scale_workloads_run() {
        all().iter_mut().for_each(|workload| check_runs(workload.as_mut()));
    }
}
