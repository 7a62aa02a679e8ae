//! Situations that each depend on one rule of the protocol.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lockwheel_log::Disk;
use lockwheel_raft::{
    Batch, Contents, Failure, Guard, JoinToken, MembershipError, NodeId, Peer, Role, State,
    begin_with, read_log,
};
use lockwheel_simulated_disk::{DiskFault, SimulatedDisk};

use crate::clients::Client;
use crate::cluster::{Cluster, Execution, HEARTBEAT, LEASE, SETTLED, both_directions, peer};
use crate::locks::{Complaints, Locks, Request};
#[cfg(feature = "defects")]
use crate::reads;

/// All scenarios, for the search for defects.
#[cfg(feature = "defects")]
pub(crate) const ALL: &[fn()] = &[
    entries,
    cluster_from_a_log,
    divided_leader,
    same_term,
    new_node,
    damaged_snapshot,
    snapshot_on_a_full_disk,
    learners_in_contact,
    restart_of_all_nodes,
    suspended_leader,
    failed_rebuild,
    promise_while_asking,
    promise_of_a_voter,
    leases_of_different_length,
    lost_end_of_a_log,
    lost_vote,
    interrupted_removal,
    join_token,
    doubt,
    doubt_of_a_leader,
    leader_that_starts_again,
    removed_leader,
    doubt_of_all_nodes,
    slow_links,
    new_leader_of_a_long_log,
    leader_within_a_batch,
    replaced_entries,
    snapshot_within_a_batch,
    handover,
    handover_for_space,
    reads::confirmed_read_has_what_was_acknowledged,
    reads::divided_leader_confirms_no_reads,
];

/// Executes `count` notes; returns their numbers when all are acknowledged.
fn notes(cluster: &mut Cluster, count: usize) -> Vec<u64> {
    let notes: Vec<Execution> =
        (0..count).map(|_| cluster.execute(Request::Note).expect("a leader")).collect();
    let acknowledged = |note: Execution| {
        assert_eq!(cluster.finish(note.is_committed), Some(true));
        note.number
    };
    notes.into_iter().map(acknowledged).collect()
}

fn units(cluster: &Cluster, id: NodeId) -> Vec<u64> {
    cluster.locks(id).known().units
}

pub(crate) fn entries() {
    let mut cluster = Cluster::start(1, 3);
    cluster.leader();
    let notes = notes(&mut cluster, 10);
    cluster.sleep(SETTLED);
    for id in 1..=3 {
        assert_eq!(units(&cluster, id), notes);
    }
}

pub(crate) fn divided_leader() {
    let mut cluster = Cluster::start(1, 3);
    let (old, barrier) = cluster.leader();
    cluster.isolate(old);
    let note = cluster.execute(Request::Note).expect("it leads");
    let is_over = |cluster: &mut Cluster| cluster.leader != Some((old, barrier));
    cluster.wait("end of the lease", |cluster| is_over(cluster).then_some(()));
    assert_eq!(cluster.leader, None);
    let (new, _) = cluster.leader();
    assert_ne!(new, old);
    // The old leader has discarded what was not committed.
    assert_eq!(units(&cluster, old), [0_u64; 0]);
    cluster.network.lock().heal();
    assert_eq!(cluster.finish(note.is_committed), Some(false));
    let later = cluster.acknowledge();
    cluster.sleep(SETTLED);
    for id in 1..=3 {
        let units = units(&cluster, id);
        assert!(units.contains(&later) && !units.contains(&note.number), "{units:?}");
    }
}

/// A leader without contact discards what was not committed. If it leads again in the same term and
/// that is committed nevertheless, all nodes apply it; but later batches of its first leadership
/// have no effect.
pub(crate) fn same_term() {
    let mut cluster = Cluster::start(1, 3);
    let (leader, barrier) = cluster.leader();
    let (near, far) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    cluster.isolate(leader);
    cluster.isolate(far);
    let note = cluster.execute(Request::Note).expect("it leads");
    let role = cluster.node(leader).role();
    cluster.wait("follower", |_| (*role.borrow() == Role::Follower).then_some(()));
    let open = both_directions(leader, near);
    cluster.network.lock().cut.retain(|direction| !open.contains(direction));
    let (again, later) = cluster.leader();
    assert!(again == leader && later > barrier, "{again} {later}");
    let late = Batch::new(barrier, 0, 9, b"of no unit".as_slice());
    let late = cluster.call(leader, |node| async move { node.replicate(late).await });
    cluster.finish(late).expect("it runs").expect("it is committed");
    let last = cluster.acknowledge();
    cluster.network.lock().heal();
    cluster.sleep(SETTLED);
    for id in 1..=3 {
        assert_eq!(units(&cluster, id), [note.number, last]);
    }
}

/// Bandwidth of the link of a node, with which an entry reaches two other nodes in less than half a
/// heartbeat interval.
const SLOW_BYTES_PER_SECOND: u64 = 4_000_000;

/// Size of a unit that takes several election timeouts to be sent over that link.
const LARGE_BYTES: usize = 4 << 20;

/// A leader hands its leadership over within two leases, under load, and nothing is lost.
pub(crate) fn handover() {
    let mut cluster = Cluster::start(1, 3);
    let (mut leader, _) = cluster.leader();
    cluster.clients.resize_with(4, Client::default);
    for _ in 0..6 {
        let to = leader % 3 + 1;
        let begin = cluster.now;
        let done = cluster.call(leader, move |node| async move { node.hand_over(to).await });
        cluster.finish(done).expect("it runs").expect("the other node leads");
        cluster.wait("the chosen leader", |cluster| (cluster.leader?.0 == to).then_some(()));
        let time = cluster.now - begin;
        assert!(time < LEASE * 2, "{time:?}");
        leader = to;
    }
    let to = leader % 3 + 1;
    let is_in_contact =
        |cluster: &Cluster| cluster.node(leader).status().nodes[&to].is_in_contact == Some(true);
    // The majority of the new leader may be with the other node.
    cluster.wait("contact with the node", |cluster| is_in_contact(cluster).then_some(()));
    cluster.kill(to, false);
    assert!(is_in_contact(&cluster), "its end is not known yet");
    let done = cluster.call(leader, move |node| async move { node.hand_over(to).await });
    let refused = cluster.finish(done).expect("it runs").expect_err("an error").to_string();
    assert!(refused.starts_with(&format!("node {to} ")), "{refused}");
    // One of the others goes on.
    cluster.check_end();
}

/// A leader whose disk is full hands its leadership over to a node whose disk has space.
pub(crate) fn handover_for_space() {
    let mut cluster = Cluster::start(1, 3);
    let (leader, _) = cluster.leader();
    let (full, spacious) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    let hand_over = |cluster: &mut Cluster| {
        let done = cluster.call(leader, |node| async move { node.hand_over_for_space().await });
        cluster.finish(done).expect("it runs")
    };
    cluster.node(full).set_disk_is_full(true);
    cluster.node(spacious).set_disk_is_full(true);
    let refused = hand_over(&mut cluster).expect_err("no space").to_string();
    assert_eq!(refused, "no other node has space on its disk");
    assert_eq!(cluster.leader.map(|(id, _)| id), Some(leader));
    cluster.node(spacious).set_disk_is_full(false);
    assert_eq!(hand_over(&mut cluster), Ok(spacious));
    cluster.check_end();
    assert_eq!(cluster.leader.map(|(id, _)| id), Some(spacious));
}

/// A disk has no space for a snapshot, then space, and then none again. The node goes on, and
/// leaves no part of a snapshot.
pub(crate) fn snapshot_on_a_full_disk() {
    const SPACE_BYTES: u64 = 1 << 30;
    let mut cluster = Cluster::start(1, 3);
    let (leader, _) = cluster.leader();
    let mut expected = Vec::new();
    for id in [leader, leader % 3 + 1] {
        let disk = cluster.machines[&id].disk.clone();
        for left_bytes in [200, SPACE_BYTES, 300, 400, SPACE_BYTES] {
            expected.append(&mut notes(&mut cluster, 50));
            cluster.sleep(SETTLED);
            let before = snapshots(&disk);
            disk.set_space(Some(SPACE_BYTES));
            let free_bytes = lockwheel_log::Disk::free_bytes(&disk).expect("a disk");
            disk.set_space(Some(SPACE_BYTES - free_bytes + left_bytes));
            begin_snapshot(&mut cluster, id);
            cluster.sleep(SETTLED);
            disk.set_space(None);
            assert_eq!(snapshots(&disk) == before, left_bytes < SPACE_BYTES, "node {id}");
        }
    }
    assert_eq!(cluster.leader.map(|(id, _)| id), Some(leader));
    for id in 1..=3 {
        assert_eq!(units(&cluster, id), expected, "node {id}");
    }
    cluster.check_end();
}

/// The names of the files of snapshots on a disk, including partial ones.
fn snapshots(disk: &SimulatedDisk) -> Vec<String> {
    let mut names = lockwheel_log::Disk::names(disk).expect("a disk");
    names.retain(|name| !name.ends_with(".log"));
    names
}

/// A leader keeps its followers on slow links, even with a large unit or a node that lacks much.
pub(crate) fn slow_links() {
    let mut cluster = Cluster::start(1, 3);
    let (leader, barrier) = cluster.leader();
    let lagging = leader % 3 + 1;
    cluster.kill(lagging, false);
    let mut expected = Vec::new();
    for _ in 0..20 {
        let note = cluster.execute_padded(Request::Note, 100_000).expect("it leads");
        assert_eq!(cluster.finish(note.is_committed), Some(true));
        expected.push(note.number);
    }
    cluster.network.lock().bytes_per_second = Some(SLOW_BYTES_PER_SECOND);
    cluster.run(lagging);
    let large = cluster.execute_padded(Request::Note, LARGE_BYTES).expect("it leads");
    expected.push(large.number);
    let is_committed = cluster.finish(large.is_committed);
    assert_eq!(is_committed, Some(true));
    expected.append(&mut notes(&mut cluster, 3));
    cluster.sleep(SETTLED);
    for id in 1..=3 {
        assert_eq!(units(&cluster, id), expected, "node {id}");
    }
    assert_eq!(cluster.leader, Some((leader, barrier)));
}

/// A new leader finds out how far its followers are without sending them entries that they have.
pub(crate) fn new_leader_of_a_long_log() {
    let mut cluster = Cluster::start(1, 3);
    let (leader, _) = cluster.leader();
    for _ in 0..80 {
        let note = cluster.execute_padded(Request::Note, 100_000).expect("it leads");
        assert_eq!(cluster.finish(note.is_committed), Some(true));
    }
    cluster.sleep(LEASE);
    // Sending the whole log would take eight seconds.
    cluster.network.lock().bytes_per_second = Some(1_000_000);
    cluster.kill(leader, false);
    let begin = cluster.now;
    cluster.acknowledge();
    let time = cluster.now - begin;
    assert!(time < LEASE * 4, "{time:?}");
}

/// Executes a large unit until a follower has applied some of its entries. Returns the leader, that
/// follower and the unit.
fn begin_large_unit(cluster: &mut Cluster) -> (NodeId, NodeId, Execution) {
    let (leader, _) = cluster.leader();
    cluster.network.lock().bytes_per_second = Some(SLOW_BYTES_PER_SECOND);
    let follower = leader % 3 + 1;
    let progress = cluster.node(follower).progress();
    let applied = || progress.borrow().last_applied.map_or(0, |last| last.index);
    let before = applied();
    let large = cluster.execute_padded(Request::Note, LARGE_BYTES).expect("it leads");
    cluster.wait("parts", |_| (applied() > before + 10).then_some(()));
    (leader, follower, large)
}

/// While a leader sends a long log to the only follower that it can reach, entries of the next
/// leader replace its own.
pub(crate) fn replaced_entries() {
    let mut cluster = Cluster::start(1, 5);
    let (old, _) = cluster.leader();
    let behind = old % 5 + 1;
    cluster.isolate(old);
    cluster.isolate(behind);
    let open = |cluster: &mut Cluster, one, other| {
        cluster
            .network
            .lock()
            .cut
            .retain(|direction| !both_directions(one, other).contains(direction));
    };
    open(&mut cluster, old, behind);
    cluster.network.lock().bytes_per_second = Some(SLOW_BYTES_PER_SECOND);
    let execute = |_| cluster.execute_padded(Request::Note, 30_000).expect("it leads");
    let replaced: Vec<Execution> = (0..400).map(execute).collect();
    let next = |cluster: &mut Cluster| cluster.leader.filter(|(id, _)| *id != old);
    let (new, _) = cluster.wait("other leader", next);
    let entries = |cluster: &Cluster, id| cluster.node(id).progress().borrow().last_log;
    let index = |cluster: &Cluster, id| entries(cluster, id).map_or(0, |last| last.index);
    let missing = index(&cluster, old) - index(&cluster, new);
    let expected = notes(&mut cluster, missing as usize + 1);
    assert!(index(&cluster, behind) < index(&cluster, old), "all was sent before");
    open(&mut cluster, old, new);
    cluster.wait("entries of the new leader", |cluster| {
        let has_all = entries(cluster, old) == entries(cluster, new);
        has_all.then_some(())
    });
    cluster.sleep(LEASE);
    // The check of its vote and its log finds entries of a leader for which it has not voted.
    cluster.kill(behind, false);
    cluster.run(behind);
    cluster.network.lock().heal();
    cluster.network.lock().bytes_per_second = None;
    for replaced in replaced {
        assert_eq!(cluster.finish(replaced.is_committed), Some(false));
    }
    cluster.sleep(SETTLED);
    for id in 1..=5 {
        assert_eq!(units(&cluster, id), expected, "node {id}");
    }
}

/// A batch of which a leader has replicated only the first parts has no effect.
pub(crate) fn leader_within_a_batch() {
    let mut cluster = Cluster::start(1, 3);
    let (leader, _, large) = begin_large_unit(&mut cluster);
    cluster.isolate(leader);
    let is_over = |cluster: &mut Cluster| cluster.leader.is_none_or(|(other, _)| other != leader);
    cluster.wait("end of the lease", |cluster| is_over(cluster).then_some(()));
    let mut expected = vec![cluster.acknowledge()];
    cluster.network.lock().heal();
    cluster.network.lock().bytes_per_second = None;
    assert_eq!(cluster.finish(large.is_committed), Some(false));
    let large = cluster.execute_padded(Request::Note, LARGE_BYTES).expect("a leader");
    expected.push(large.number);
    assert_eq!(cluster.finish(large.is_committed), Some(true));
    cluster.sleep(SETTLED);
    for id in 1..=3 {
        assert_eq!(units(&cluster, id), expected, "node {id}");
    }
}

/// A snapshot contains whole batches only: after a restart, a node gets all parts of the batch that
/// follows.
pub(crate) fn snapshot_within_a_batch() {
    let mut cluster = Cluster::start(1, 3);
    let before = cluster.acknowledge();
    let (_, follower, large) = begin_large_unit(&mut cluster);
    begin_snapshot(&mut cluster, follower);
    cluster.kill(follower, false);
    cluster.run(follower);
    assert_eq!(cluster.finish(large.is_committed), Some(true));
    cluster.sleep(SETTLED);
    for id in 1..=3 {
        assert_eq!(units(&cluster, id), [before, large.number], "node {id}");
    }
}

fn begin_snapshot(cluster: &mut Cluster, id: NodeId) {
    let begun = cluster.call(id, |node| async move { node.begin_snapshot().await });
    cluster.finish(begun).expect("it runs").expect("it is begun");
}

/// Makes a snapshot that a new node needs. Returns the leader and all units.
fn prepare_snapshot(cluster: &mut Cluster) -> (NodeId, Vec<u64>) {
    let (leader, _) = cluster.leader();
    let mut expected = notes(cluster, 50);
    begin_snapshot(cluster, leader);
    cluster.sleep(SETTLED);
    expected.append(&mut notes(cluster, 10));
    (leader, expected)
}

/// Adds a node without a vote.
fn add_node(cluster: &mut Cluster, leader: NodeId) -> NodeId {
    let id = cluster.add_machine();
    let added =
        cluster.call(leader, move |node| async move { node.add_learner(id, peer(id)).await });
    cluster.finish(added).expect("it runs").expect("it is added");
    id
}

/// A snapshot that has changed on its way is not used, but sent again.
pub(crate) fn damaged_snapshot() {
    let mut cluster = Cluster::start(1, 3);
    let (leader, expected) = prepare_snapshot(&mut cluster);
    let disk = &cluster.machines[&leader].disk;
    // The leader's latest entries are in memory: these operations read the snapshot.
    for operation in disk.operations()..disk.operations() + 12 {
        disk.add_fault(operation, DiskFault::ReadsWrongBit);
    }
    let id = add_node(&mut cluster, leader);
    cluster.sleep(SETTLED);
    assert_eq!(units(&cluster, id), expected);
    cluster.check_end();
}

pub(crate) fn new_node() {
    let mut cluster = Cluster::start(1, 3);
    let (leader, expected) = prepare_snapshot(&mut cluster);
    assert_eq!(add_node(&mut cluster, leader), 4);
    cluster.sleep(SETTLED);
    assert_eq!(units(&cluster, 4), expected);
    let names = lockwheel_log::Disk::names(&cluster.machines[&4].disk).expect("names");
    assert!(names.iter().any(|name| name.ends_with(".snapshot")), "{names:?}");
    let voters = (1..=4).filter(move |id| *id != leader);
    let changed = cluster.call(leader, |node| async move { node.change_voters(1..=4).await });
    cluster.finish(changed).expect("it runs").expect("a majority of both");
    // The new node takes the place of the leader.
    cluster.kill(leader, false);
    let (next, _) = cluster.leader();
    let changed = cluster.call(next, |node| async move { node.change_voters(voters).await });
    cluster.finish(changed).expect("it runs").expect("a majority of both");
    cluster.machines.remove(&leader);
    assert_ne!(cluster.leader().0, leader);
    cluster.check_end();
}

/// A leader that is in contact with new nodes only stops leading, whether they have votes already
/// or not: without it, the earlier nodes are a majority.
pub(crate) fn learners_in_contact() {
    for change_voters in [false, true] {
        let mut cluster = Cluster::start(1, 3);
        let (leader, _) = cluster.leader();
        assert_eq!([(); 2].map(|()| add_node(&mut cluster, leader)), [4, 5]);
        let others: Vec<NodeId> = (1..=3).filter(|id| *id != leader).collect();
        for old in &others {
            cluster.cut([leader, 4, 5].into_iter().flat_map(|id| both_directions(id, *old)));
        }
        if change_voters {
            let voters = [leader, 4, 5];
            drop(cluster.call(leader, move |node| async move { node.change_voters(voters).await }));
        }
        cluster.sleep(LEASE * 4);
        assert_ne!(cluster.leader().0, leader);
        cluster.acknowledge();
        cluster.network.lock().heal();
        cluster.check_end();
    }
}

/// Leases continue from where they were after a time in which no node ran.
pub(crate) fn restart_of_all_nodes() {
    let mut cluster = Cluster::start(1, 3);
    let (leader, _) = cluster.leader();
    cluster.sleep(Duration::from_secs(3));
    let acquire = Request::Acquire { lock: 1, lease_ms: 2_000 };
    let acquired = cluster.execute(acquire).expect("a leader");
    assert_eq!(cluster.finish(acquired.is_committed), Some(true));
    let before = cluster.locks(leader).known().holds;
    for id in 1..=3 {
        begin_snapshot(&mut cluster, id);
    }
    cluster.sleep(LEASE);
    for id in 1..=3 {
        cluster.kill(id, true);
    }
    cluster.sleep(SETTLED);
    for id in 1..=3 {
        cluster.run(id);
    }
    let (leader, _) = cluster.leader();
    assert_eq!(cluster.locks(leader).known().holds, before);
    cluster.sleep(Duration::from_secs(1));
    assert_eq!(cluster.locks(leader).known().holds, before);
    cluster.sleep(Duration::from_secs(2));
    assert!(cluster.locks(leader).known().holds.is_empty());
    cluster.check_end();
}

/// Reads the log on a disk.
fn contents(disk: &SimulatedDisk) -> (Contents, Locks) {
    let (complaints, names) = (Complaints::default(), lockwheel_log::Disk::names(disk));
    let locks = Locks::new(&complaints);
    let read = read_log(disk, |effects, lease_ms| locks.load(effects, lease_ms));
    assert!(complaints.lock().is_empty(), "{complaints:?}");
    assert_eq!(lockwheel_log::Disk::names(disk).expect("names"), names.expect("names"));
    (read.expect("a log").expect("entries"), locks)
}

/// A new cluster begins with the log of a lost node, including uncommitted entries. Every leader
/// applies the restart guard until it ends, after any restart and failover.
pub(crate) fn cluster_from_a_log() {
    let mut cluster = Cluster::start(1, 3);
    let (leader, _) = cluster.leader();
    let mut expected = notes(&mut cluster, 20);
    let acquire = Request::Acquire { lock: 1, lease_ms: 600_000 };
    let acquired = cluster.execute(acquire).expect("a leader");
    expected.push(acquired.number);
    assert_eq!(cluster.finish(acquired.is_committed), Some(true));
    begin_snapshot(&mut cluster, leader);
    cluster.sleep(LEASE);
    expected.append(&mut notes(&mut cluster, 2));
    cluster.isolate(leader);
    expected.push(cluster.execute(Request::Note).expect("it leads").number);
    cluster.sleep(HEARTBEAT);
    cluster.kill(leader, false);

    let (read, locks) = contents(&cluster.machines[&leader].disk);
    assert_eq!(locks.known().units, expected);
    let until_ms = read.lease_ms + 60_000;
    let guard = Some(Guard { until_ms, reason: "a test".into() });
    let disk = SimulatedDisk::new();
    let on_disk: Arc<dyn lockwheel_log::Disk> = Arc::new(disk.clone());
    let mut parts = locks.begin_snapshot();
    let begun = begin_with(&on_disk, (1, Peer::default()), read.lease_ms, guard.clone(), |file| {
        parts.write(file).map(drop)
    });
    begun.expect("a disk");
    let mut cluster = Cluster::start_on(2, disk, expected.len() as u64);
    assert_eq!(cluster.leader().0, 1);
    assert_eq!(cluster.locks(1).known().holds, locks.known().holds);
    assert_eq!(cluster.locks(1).guard(), guard);
    assert_eq!([(); 2].map(|()| add_node(&mut cluster, 1)), [2, 3]);
    let changed = cluster.call(1, |node| async move { node.change_voters(1..=3).await });
    cluster.finish(changed).expect("it runs").expect("a majority");
    expected.append(&mut notes(&mut cluster, 20));
    cluster.sleep(SETTLED);
    for id in 1..=3 {
        begin_snapshot(&mut cluster, id);
    }
    cluster.sleep(LEASE);
    for _ in 0..3 {
        let (leader, _) = cluster.leader();
        assert_eq!(cluster.locks(leader).guard(), guard);
        assert_eq!(units(&cluster, leader), expected);
        cluster.kill(leader, true);
        assert_ne!(cluster.leader().0, leader);
        cluster.run(leader);
    }
    let (leader, _) = cluster.leader();
    assert_eq!(cluster.locks(leader).guard(), guard);
    // After its end, no node has the guard.
    cluster.sleep(Duration::from_secs(60));
    cluster.acknowledge();
    cluster.sleep(LEASE);
    cluster.kill(leader, true);
    let (leader, _) = cluster.leader();
    assert_eq!(cluster.locks(leader).guard(), None);
    cluster.check_end();
}

/// A leader that was suspended for longer than its lease does not lead when it is resumed.
pub(crate) fn suspended_leader() {
    let mut cluster = Cluster::start(1, 3);
    for _ in 0..10 {
        let (old, _) = cluster.leader();
        let note = cluster.execute(Request::Note).expect("it leads");
        let steps = cluster.random.below(20);
        (0..steps).for_each(|_| cluster.step());
        cluster.suspend(old, LEASE * 5);
        assert_ne!(cluster.leader().0, old);
        cluster.acknowledge();
        cluster.sleep(LEASE * 6);
        // It may have been committed or not; all nodes agree.
        cluster.finish(note.is_committed).expect("it runs");
    }
    cluster.check_end();
}

/// A leader steps down while a snapshot waits for its effects, and its disk fails when it rebuilds
/// its state: the snapshot is not written.
pub(crate) fn failed_rebuild() {
    let mut cluster = Cluster::start(1, 3);
    let (leader, _) = cluster.leader();
    let notes = notes(&mut cluster, 10);
    begin_snapshot(&mut cluster, leader);
    cluster.sleep(LEASE);
    cluster.isolate(leader);
    cluster.execute(Request::Note).expect("it leads");
    begin_snapshot(&mut cluster, leader);
    cluster.sleep(HEARTBEAT);
    assert_eq!(cluster.leader.map(|(id, _)| id), Some(leader));
    let disk = cluster.machines[&leader].disk.clone();
    // Rebuilding begins with the previous snapshot.
    disk.add_fault(disk.operations() + 1, DiskFault::Fails);
    let node = cluster.node(leader).clone();
    cluster.wait("failure", |_| node.ended().now_or_never());
    cluster.kill(leader, false);
    cluster.run(leader);
    assert_eq!(units(&cluster, leader)[..10], notes);
    cluster.network.lock().heal();
    cluster.check_end();
}

/// A node that would become a candidate gets a message of the leader before the last answer: the
/// leader goes on to lead.
pub(crate) fn promise_while_asking() {
    let mut cluster = Cluster::start(1, 3);
    let (leader, _) = cluster.leader();
    let vote = cluster.node(leader).metrics().borrow().vote;
    cluster.sleep(LEASE);
    cluster.suspend(leader, LEASE * 10);
    cluster.network.lock().last_connection = None;
    let (asking, _) = cluster.wait("question", |cluster| cluster.network.lock().last_connection);
    assert_ne!(asking, leader);
    // Hello, its reply and the question arrive after two steps each. The answer is held back.
    (0..6).for_each(|_| cluster.step());
    cluster.cut(both_directions(asking, 6 - leader - asking));
    cluster.suspend(leader, Duration::ZERO);
    cluster.sleep(LEASE / 4);
    cluster.network.lock().heal();
    cluster.sleep(LEASE * 2);
    assert_eq!(cluster.leader().0, leader);
    assert_eq!(cluster.node(leader).metrics().borrow().vote, vote);
}

/// A follower does not vote for a node that received its last message of the leader earlier.
pub(crate) fn promise_of_a_voter() {
    let mut cluster = Cluster::start(1, 3);
    let (leader, _) = cluster.leader();
    cluster.sleep(LEASE);
    cluster.cut([(leader, leader % 3 + 1)]);
    cluster.sleep(LEASE);
    cluster.isolate(leader);
    cluster.wait("other leader", |cluster| cluster.leader.filter(|(id, _)| *id != leader));
    cluster.network.lock().heal();
    cluster.check_end();
}

/// A node follows a leader whose lease is shorter than its own, but none whose lease is longer:
/// that leader would rely on a promise that the node does not give.
pub(crate) fn leases_of_different_length() {
    let mut cluster = Cluster::start(1, 3);
    let (leader, _) = cluster.leader();
    let follower = leader % 3 + 1;
    let is_in_contact = |cluster: &mut Cluster| {
        let asked = cluster.call(leader, async move |node| node.is_in_contact(follower));
        cluster.finish(asked).expect("it runs")
    };
    cluster.restart_with_lease(follower, LEASE * 2);
    cluster.wait("contact", |cluster| is_in_contact(cluster).then_some(()));
    cluster.restart_with_lease(follower, LEASE / 2);
    cluster.sleep(SETTLED);
    assert!(!is_in_contact(&mut cluster));
    // The others go on, and it does not disturb them.
    let numbers = notes(&mut cluster, 1);
    assert_eq!(cluster.leader().0, leader);
    assert!(!units(&cluster, follower).ends_with(&numbers));
    cluster.restart_with_lease(follower, LEASE);
    cluster.wait("contact", |cluster| is_in_contact(cluster).then_some(()));
    cluster.check_end();
}

/// The last file of the log of a node that has ended.
fn last_segment(disk: &SimulatedDisk) -> String {
    let names = disk.names().expect("the names").into_iter();
    names.filter(|name| name.ends_with(".log")).max().expect("a segment")
}

/// Truncates the log of a node that has ended, by this number of bytes.
fn tear(cluster: &Cluster, id: NodeId, lost_bytes: usize) {
    let disk = &cluster.machines[&id].disk;
    let name = last_segment(disk);
    let bytes = disk.contents(&name).expect("its bytes");
    disk.set_contents(&name, &bytes[..bytes.len() - lost_bytes]);
}

/// A follower that has lost entries which it has acknowledged ends, and the others go on.
pub(crate) fn lost_end_of_a_log() {
    for lost_bytes in [30, 1_000] {
        let mut cluster = Cluster::start(1, 3);
        let (leader, _) = cluster.leader();
        notes(&mut cluster, 10);
        cluster.sleep(SETTLED);
        let follower = leader % 3 + 1;
        cluster.kill(follower, false);
        tear(&cluster, follower, lost_bytes);
        cluster.run(follower);
        let node = cluster.node(follower).clone();
        let failure = cluster.wait("failure", |_| node.ended().now_or_never().flatten());
        assert!(matches!(failure, Failure::LogIsLost(_)), "{failure}");
        cluster.kill(follower, false);
        assert_eq!(cluster.leader().0, leader);
        notes(&mut cluster, 1);
    }
}

/// A node whose vote is lost, or of an earlier term than its log, does not start.
pub(crate) fn lost_vote() {
    let mut cluster = Cluster::start(1, 3);
    let (first, _) = cluster.leader();
    let follower = first % 3 + 1;
    let earlier = cluster.machines[&follower].disk.contents("vote").expect("a vote");
    cluster.isolate(first);
    cluster.wait("other leader", |cluster| cluster.leader.filter(|(id, _)| *id != first));
    cluster.network.lock().heal();
    notes(&mut cluster, 3);
    cluster.sleep(SETTLED);
    cluster.kill(follower, false);
    let disk = cluster.machines[&follower].disk.clone();
    disk.set_contents("vote", &earlier);
    let error = cluster.start_error(follower);
    assert!(error.contains("a later one is lost"), "{error}");
    disk.remove("vote").expect("it is removed");
    let error = cluster.start_error(follower);
    assert!(error.contains("the file is lost"), "{error}");
}

/// A removal during which the leader ends can be repeated until it succeeds.
pub(crate) fn interrupted_removal() {
    let mut was_interrupted = false;
    for steps in 0..20 {
        let mut cluster = Cluster::start(1, 4);
        let (leader, _) = cluster.leader();
        cluster.sleep(SETTLED);
        let removed = leader % 4 + 1;
        drop(cluster.call(leader, move |node| async move { node.remove(removed).await }));
        (0..steps).for_each(|_| cluster.step());
        cluster.kill(leader, false);
        let (next, _) = cluster.leader();
        cluster.sleep(LEASE);
        let configurations = |cluster: &Cluster, id| {
            let membership = cluster.node(id).metrics().borrow().membership_config.clone();
            membership.membership().get_joint_config().len()
        };
        was_interrupted |= configurations(&cluster, next) > 1;
        let is_there = cluster.node(next).status().nodes.contains_key(&removed);
        let again = remove(&mut cluster, removed);
        assert_eq!(again.is_ok(), is_there, "{steps} {again:?}");
        let (next, _) = cluster.leader();
        assert!(!cluster.node(next).status().nodes.contains_key(&removed));
        assert_eq!(configurations(&cluster, next), 1);
    }
    assert!(was_interrupted);
}

/// Removes a node. A leader that removes itself hands its leadership over; the request is then sent
/// to the next leader.
fn remove(cluster: &mut Cluster, removed: NodeId) -> Result<(), MembershipError> {
    loop {
        let (leader, _) = cluster.leader();
        let done = cluster.call(leader, move |node| async move { node.remove(removed).await });
        match cluster.finish(done).expect("it runs") {
            Err(MembershipError::NotLeader(_)) => {}
            done => return done,
        }
    }
}

/// A leader that is removed hands its leadership over first.
pub(crate) fn removed_leader() {
    let mut cluster = Cluster::start(1, 4);
    let (leader, _) = cluster.leader();
    cluster.sleep(LEASE);
    let done = cluster.call(leader, move |node| async move { node.remove(leader).await });
    let next = cluster.finish(done).expect("it runs");
    let (other, _) = cluster.leader();
    assert_eq!(next, Err(MembershipError::NotLeader(Some(peer(other)))));
    assert_ne!(other, leader);
    cluster.sleep(LEASE);
    remove(&mut cluster, leader).expect("a majority");
}

/// Requests the admission of a new node with this key by a join token, at time `now` in seconds;
/// returns the number of the node.
fn admit(cluster: &mut Cluster, fingerprint: &str, now: u64) -> Option<NodeId> {
    let (leader, _) = cluster.leader();
    let peer = Peer { fingerprint: fingerprint.to_owned(), ..Peer::default() };
    let admitted =
        cluster.call(leader, move |node| async move { node.admit("digest", now, peer).await });
    cluster.finish(admitted).expect("it runs").ok().map(|(number, _)| number)
}

/// A join token admits one node until it expires, even if the leader that recorded it has ended.
pub(crate) fn join_token() {
    const UNTIL_SECONDS: u64 = 100;
    let mut cluster = Cluster::start(1, 3);
    let (leader, _) = cluster.leader();
    assert_eq!(admit(&mut cluster, "new", 0), None);
    let token = JoinToken { digest: "digest".to_owned(), until: UNTIL_SECONDS };
    let added =
        cluster.call(leader, move |node| async move { node.add_token(leader, token, 0).await });
    cluster.finish(added).expect("it runs").expect("it is recorded");
    cluster.kill(leader, false);
    assert_eq!(admit(&mut cluster, "new", UNTIL_SECONDS), None);
    let number = admit(&mut cluster, "new", UNTIL_SECONDS - 1).expect("a number");
    // It asks again if it has not got the reply.
    assert_eq!(admit(&mut cluster, "new", UNTIL_SECONDS - 1), Some(number));
    assert_eq!(admit(&mut cluster, "other", UNTIL_SECONDS - 1), None);
    let (leader, _) = cluster.leader();
    let removed = cluster.call(leader, move |node| async move { node.remove(number).await });
    cluster.finish(removed).expect("it runs").expect("it is removed");
    assert_eq!(admit(&mut cluster, "new", UNTIL_SECONDS - 1), None);
}

/// Two nodes elect no leader if a majority has acknowledged entries that one of them has lost and
/// the other has never received.
pub(crate) fn doubt() {
    let mut cluster = Cluster::start(1, 3);
    let (leader, _) = cluster.leader();
    let (torn, away) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    cluster.acknowledge();
    cluster.sleep(SETTLED);
    cluster.isolate(away);
    cluster.acknowledge();
    cluster.sleep(SETTLED);
    cluster.kill(torn, false);
    cluster.kill(leader, false);
    tear(&cluster, torn, 30);
    cluster.network.lock().heal();
    for _ in 0..2 {
        // The doubt remains after another restart.
        cluster.run(torn);
        cluster.sleep(LEASE * 10);
        assert_eq!(cluster.leader, None);
        cluster.kill(torn, false);
    }
    cluster.run(torn);
    cluster.run(leader);
    cluster.check_end();
    // The doubt has ended.
    cluster.kill(torn, true);
    cluster.run(torn);
    cluster.kill(leader, false);
    cluster.leader();
}

/// A leader that was stopped goes on in its term when it starts, and one that was killed does not:
/// it may have sent entries that it has not flushed, and would make others in their places.
pub(crate) fn leader_that_starts_again() {
    for is_stopped in [true, false] {
        let mut cluster = Cluster::start(1, 3);
        let (leader, _) = cluster.leader();
        cluster.acknowledge();
        let term = cluster.node(leader).metrics().borrow().vote.leader_id.term;
        if is_stopped {
            stop(&mut cluster, leader);
        }
        cluster.kill(leader, false);
        cluster.run(leader);
        let (next, _) = cluster.leader();
        let next_term = cluster.node(next).metrics().borrow().vote.leader_id.term;
        assert_eq!(next_term == term, is_stopped);
        assert!(next == leader || !is_stopped);
        cluster.check_end();
    }
}

/// Stops a node as at the end of a server.
fn stop(cluster: &mut Cluster, id: NodeId) {
    let stopped = cluster.call(id, |node| async move { node.stop().await });
    cluster.finish(stopped).expect("it ends");
}

/// A leader that has lost entries does not lead again in its term: it would write other entries in
/// their places.
pub(crate) fn doubt_of_a_leader() {
    let mut cluster = Cluster::start(1, 3);
    let (leader, _) = cluster.leader();
    cluster.acknowledge();
    cluster.sleep(SETTLED);
    stop(&mut cluster, leader);
    cluster.kill(leader, false);
    tear(&cluster, leader, 30);
    cluster.run(leader);
    assert_ne!(cluster.leader().0, leader);
    cluster.check_end();
}

/// Nodes that have all lost the end of their logs in a power failure can go on.
pub(crate) fn doubt_of_all_nodes() {
    for nodes in [1, 3] {
        let mut cluster = Cluster::start(1, nodes);
        cluster.leader();
        notes(&mut cluster, 3);
        cluster.sleep(SETTLED);
        let ids: Vec<NodeId> = cluster.machines.keys().copied().collect();
        ids.iter().for_each(|id| cluster.kill(*id, true));
        ids.iter().for_each(|id| tear(&cluster, *id, 30));
        ids.iter().for_each(|id| cluster.run(*id));
        cluster.check_end();
    }
}
