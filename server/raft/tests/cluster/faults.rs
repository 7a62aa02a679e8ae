//! Histories with random faults.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::FutureExt;
use lockwheel_raft::NodeId;
use lockwheel_simulated_disk::DiskFault;
use lockwheel_simulated_network::Direction;
use tokio::task::JoinHandle;

use crate::clients::Client;
use crate::cluster::{Cluster, both_directions, peer};
use crate::figures::Figures;

/// Number of clients that share the locks.
const CLIENTS: usize = 6;

/// Simulated time during which faults are injected.
const LENGTH: Duration = Duration::from_secs(30);

/// Longest time between two faults.
const PAUSE_MS: u64 = 80;

/// Longest suspension of a node, and longest interval in which a flapping direction opens or
/// closes.
const SUSPENSION_MS: u64 = 1_500;
const FLAP_MS: u64 = 300;

/// Time until a change of the members is given up, since a node that it needs may not run.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum number of machines in a cluster.
const MACHINES_MAX: usize = 6;

/// A change of the members that is under way.
struct Change {
    begun: Duration,
    is_done: JoinHandle<bool>,
}

/// Runs a cluster with this seed; returns the counts of faults and events.
pub(crate) fn run(seed: u64) -> Figures {
    let nodes = if seed.is_multiple_of(2) { 3 } else { 5 };
    let mut cluster = Cluster::start_with_slow_disks(seed, nodes);
    cluster.clients.resize_with(CLIENTS, Client::default);
    let mut change = None;
    while cluster.now < LENGTH {
        let pause = cluster.random.below(PAUSE_MS);
        cluster.sleep(Duration::from_millis(pause));
        cluster.kill_failed();
        cluster.follow_change(&mut change);
        cluster.inject_fault(&mut change);
    }
    cluster.mend();
    cluster.check_end();
    cluster.figures.histories = 1;
    cluster.figures.simulated_seconds = cluster.now.as_secs();
    std::mem::take(&mut cluster.figures)
}

impl Cluster {
    /// Injects a random fault, or repairs one; two of three concern the leader.
    fn inject_fault(&mut self, change: &mut Option<Change>) {
        let (id, other) = (self.any_node(), self.any_node());
        let id = match self.leader {
            Some((leader, _)) if self.random.below(3) > 0 => leader,
            _ => id,
        };
        let is_running = self.is_running(id);
        match self.random.below(60) {
            0..2 => {
                self.figures.symmetric_cuts += 1;
                self.cut(both_directions(id, other));
            }
            2..4 => {
                self.figures.asymmetric_cuts += 1;
                let direction = self.random.below(2) as usize;
                self.cut([both_directions(id, other)[direction]]);
            }
            4..7 => {
                self.figures.isolations += 1;
                self.isolate(id);
            }
            7..9 => self.let_network_flap(id),
            9..24 => self.network.lock().heal(),
            24..27 if is_running => {
                let with_machine = self.random.below(2) == 0;
                let kind = match with_machine {
                    true => &mut self.figures.crashes,
                    false => &mut self.figures.kills,
                };
                *kind += 1;
                self.kill(id, with_machine);
            }
            27..30 if is_running => {
                self.figures.suspensions += 1;
                let time = Duration::from_millis(self.random.below(SUSPENSION_MS));
                self.suspend(id, time);
            }
            30..32 if is_running => {
                self.figures.snapshots += 1;
                drop(self.call(id, |node| async move { node.begin_snapshot().await }));
            }
            32 if is_running => {
                self.figures.disk_faults += 1;
                let faults = [DiskFault::Fails, DiskFault::IsFull, DiskFault::Crash];
                let (fault, later) = (self.random.below(3), self.random.below(20));
                let disk = &self.machines[&id].disk;
                disk.add_fault(disk.operations() + 1 + later, faults[fault as usize]);
            }
            33..35 => self.begin_change(change),
            35 if is_running => {
                self.figures.handovers += 1;
                drop(self.call(id, move |node| async move { node.hand_over(other).await }));
            }
            35..60 if !is_running => self.run(id),
            _ => {}
        }
    }

    fn any_node(&mut self) -> NodeId {
        let at = self.random.below(self.machines.len() as u64) as usize;
        *self.machines.keys().nth(at).expect("a node")
    }

    /// Lets the directions to a node, from it, or both open and close by turns.
    fn let_network_flap(&mut self, id: NodeId) {
        self.figures.flapping_networks += 1;
        let ids: Vec<NodeId> = self.machines.keys().copied().collect();
        let from = self.random.below(3);
        let directions = ids.iter().flat_map(|other| both_directions(id, *other));
        let directions =
            directions.filter(|(sender, _)| from == 0 || (*sender == id) == (from == 1));
        let interval = Duration::from_millis(1 + self.random.below(FLAP_MS));
        let directions: BTreeSet<Direction> = directions.collect();
        self.network.lock().flapping = Some((directions, interval));
    }
}

// --- changes of the members ---

impl Cluster {
    /// Begins to add a node, to give it a vote, or to remove a node, if no change is under way.
    fn begin_change(&mut self, change: &mut Option<Change>) {
        let Some((leader, _)) = self.leader.filter(|_| change.is_none()) else { return };
        let (mut voters, learners) = self.members(leader);
        let machines = self.machines.keys().copied();
        let is_unknown = |id: &NodeId| !voters.contains(id) && !learners.contains(id);
        let unknown = machines.clone().find(is_unknown);
        let learner = machines.clone().find(|id| learners.contains(id));
        let is_done = if learner.is_none() && (unknown.is_some() || machines.len() < MACHINES_MAX) {
            self.figures.nodes_added += 1;
            let id = unknown.unwrap_or_else(|| self.add_machine());
            self.call(
                leader,
                move |node| async move { node.add_learner(id, peer(id)).await.is_ok() },
            )
        } else {
            self.figures.voters_changed += 1;
            voters.extend(learner);
            let at = self.random.below(voters.len() as u64) as usize;
            let chosen = *voters.iter().nth(at).expect("a voter");
            let removed = (voters.len() > 3).then_some(chosen);
            voters.retain(|id| Some(*id) != removed);
            self.call(leader, move |node| async move {
                match voters.contains(&leader) {
                    true => node.change_voters(voters).await.is_ok(),
                    // The leader removes itself; the next leader may finish that.
                    false => node.remove(leader).await.is_ok(),
                }
            })
        };
        self.note(format_args!("members {:?} change", self.members(leader)));
        *change = Some(Change { begun: self.now, is_done });
    }

    /// The nodes with and without a vote, as this node sees them.
    fn members(&self, id: NodeId) -> (BTreeSet<NodeId>, BTreeSet<NodeId>) {
        let members = self.node(id).metrics().borrow().membership_config.clone();
        let voters = members.membership().voter_ids().collect();
        let learners = members.membership().learner_ids().collect();
        (voters, learners)
    }

    /// Removes the machines that are no longer members, when a change is committed.
    fn follow_change(&mut self, change: &mut Option<Change>) {
        let Some(Change { begun, is_done }) = change else { return };
        let is_over = *begun + CHANGE_TIMEOUT <= self.now;
        let is_done = is_done.now_or_never();
        if is_done.is_none() && !is_over {
            return;
        }
        *change = None;
        self.note(format_args!("members have changed: {is_done:?}"));
        // A change that was given up may still be committed; no other one is under way.
        let Some((leader, _)) = self.leader.filter(|_| matches!(is_done, Some(Ok(true)))) else {
            return;
        };
        let (voters, learners) = self.members(leader);
        let machines = self.machines.keys().copied();
        let is_removed = |id: &NodeId| !voters.contains(id) && !learners.contains(id);
        for id in machines.filter(is_removed).collect::<Vec<_>>() {
            self.kill(id, false);
            self.machines.remove(&id);
        }
    }
}
