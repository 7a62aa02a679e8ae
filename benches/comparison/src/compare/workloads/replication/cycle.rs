//! Cycles of locks on each cluster.

use std::time::Instant;

use lockwheel_comparison::Outcome;

use super::clients::Load;
use super::cluster::Cluster;
use crate::measure::effort::Effort;
use crate::measure::generator::Throughput;
use crate::measure::latencies::quantiles;
use crate::measure::metric::{Metric, Reading};
use crate::measure::servers::ComparedServer;
use crate::workloads::workload::Workload;

const CLIENTS: [usize; 3] = [1, 16, 128];
const QUANTILES: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];

/// All workloads.
pub(crate) fn all() -> Vec<Box<dyn Workload>> {
    CLIENTS.map(|clients| -> Box<dyn Workload> { Box::new(ReplicatedCycle { clients }) }).into()
}

struct ReplicatedCycle {
    clients: usize,
}

impl Workload for ReplicatedCycle {
    fn group(&self) -> &'static str {
        "Replication: lock and unlock"
    }

    fn parameters(&self) -> String {
        match self.clients {
            1 => "1 client".to_owned(),
            several => format!("{several} clients"),
        }
    }

    fn note(&self) -> &'static str {
        "Each client takes and releases random locks without contention and without a pause, on a \
         connection of its own to the leader. A cycle is both requests and their replies. \
         Lockwheel and Redis: SET NX PX, and the script that deletes the key if it holds the \
         token. etcd: a transaction that creates the key with a lease, which the client has, and a \
         transaction that deletes the key if it holds the token. All nodes flush their logs: \
         Lockwheel and etcd until a majority has, before the reply; Redis with appendfsync always \
         on the master and its replicas, and WAIT 1 sent with each request, so that the reply \
         comes when one replica has the change too. Unlike the others, Redis may still lose the \
         change in a failover. All nodes and the clients share the processors of one machine. The \
         floor only writes, flushes and sends the requests, until a majority has them. A round is \
         a batch that is flushed and sent; rows about rounds are of servers that count them in \
         INFO."
    }

    fn has_lower_bound(&self) -> bool {
        true
    }

    fn measures_twice(&self) -> bool {
        false
    }

    fn measure(&self, server: &ComparedServer, effort: &Effort) -> Outcome<Vec<Reading>> {
        let cluster = Cluster::start(server)?;
        let dialogs = cluster.dialogs(self.clients)?;
        let mut load = Load::begin(cluster.leader().address, dialogs)?;
        load.run(effort.warm_up)?;
        load.latencies.clear();
        let cpu = || -> Outcome<_> { Ok((cluster.leader().cpu()?, cluster.cpu()?)) };
        let rounds = cluster.rounds()?;
        let (began, before) = (Instant::now(), cpu()?);
        let operations = load.run(effort.span)?;
        let (span, after) = (began.elapsed(), cpu()?);
        let leader = Throughput { operations, span, cpu: after.0 - before.0 };
        let all = Throughput { operations, span, cpu: after.1 - before.1 };
        let rounds = rounds.zip(cluster.rounds()?);
        let mut readings = quantiles("cycle", &load.latencies, &QUANTILES);
        readings.extend([
            Metric::rate("cycles", "/s").with(all.rate()),
            Metric::cost("CPU per cycle, leader", "us").with(leader.cpu_us()),
            Metric::cost("CPU per cycle, all nodes", "us").with(all.cpu_us()),
        ]);
        if let Some((before, after)) = rounds {
            let costs = [("CPU of the leader", leader), ("CPU of all nodes", all)];
            readings.extend(after.readings(before, &costs));
        }
        Ok(readings)
    }
}

#[cfg(test)]
mod tests {
    use super::ReplicatedCycle;
    use crate::measure::servers::{ComparedServer, FLOOR};
    use crate::workloads::replication::servers;
    use crate::workloads::workload::tests::check_runs_on;

    #[test]
    fn every_cluster_is_measured() {
        let floor = ComparedServer::named(FLOOR);
        for server in servers(&ComparedServer::lockwheel(), &[], &floor) {
            if server.name.starts_with(FLOOR) {
                continue;
            }
            check_runs_on(&server, &mut ReplicatedCycle { clients: 16 });
        }
    }
}
