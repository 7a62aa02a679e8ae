//! A node of a cluster, and its role.
//!
//! The role is not that of `openraft`, which calls a node leader until it is notified of another
//! one, and at once after a restart. A node *leads* here only when an entry of its own, the
//! barrier, is committed and applied, and only while a majority has acknowledged a message that was
//! sent less than a lease ago. To lead again it needs another barrier, even in the same term.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockwheel_defects::defect;
use lockwheel_log::Disk;
use openraft::error::{ClientWriteError, Fatal, ForwardToLeader, InitializeError, RaftError};
use openraft::metrics::{RaftDataMetrics, RaftServerMetrics};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, ClientWriteResult, VoteRequest};
use openraft::storage::Snapshot;
use openraft::{Config, Raft, ServerState, SnapshotMeta, SnapshotPolicy, Vote};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{error, info, warn};

use crate::batch::{Batch, Peer, Types};
use crate::doubt::Doubt;
use crate::handover::Choice;
use crate::limits;
use crate::log_store::WritesOn;
use crate::network::{Connect, Network, Part};
use crate::promises::Promises;
use crate::rounds::Rounds;
use crate::snapshot_file::SnapshotFile;
use crate::state_machine::{State, StateMachine, blocking};
use crate::types::{NodeId, position_of};
use crate::wire::{Hello, Reply, Request, Stream, VERSION, Welcome, milliseconds, receive, send};

/// Why an entry was not written, or is not known to be committed.
pub(crate) type WriteError = RaftError<NodeId, ClientWriteError<NodeId, Peer>>;

/// How a node takes part in its cluster.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its number.
    pub id: NodeId,
    /// The name of the cluster: nodes of others are refused.
    pub cluster: String,
    /// Longest time between two messages of a leader to a follower.
    pub heartbeat: Duration,
    /// Time after a message of a leader during which a follower votes for no other node. An
    /// election begins within half of it afterwards.
    pub lease: Duration,
    /// Number of entries kept before a snapshot: a follower that is not further behind needs no
    /// snapshot.
    pub entries_kept: u64,
    /// Where the log is written.
    pub writes_on: WritesOn,
}

/// What a node does for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It has the state of the entries that are committed, as far as it has got them.
    Follower,
    /// It executes commands, and its batches have this barrier.
    Leader {
        /// The index of the entry with which it began.
        barrier: u64,
    },
}

/// A node of a cluster.
pub struct Node {
    pub(crate) settings: Settings,
    pub(crate) raft: Raft<Types>,
    pub(crate) network: Network,
    pub(crate) machine: StateMachine,
    role: watch::Sender<Role>,
    started: Instant,
    /// Moment until which this node leads, in nanoseconds after `started`; 0 if it does not.
    leads_until_ns: AtomicU64,
    pub(crate) promises: Promises,
    pub(crate) doubt: Doubt,
    /// Held by the one change of the nodes that may be under way.
    pub(crate) membership_change: tokio::sync::Mutex<()>,
    /// The node that a leader has chosen to lead next.
    pub(crate) choice: watch::Sender<Option<Choice>>,
    /// Whether the disk of this node has no space for a leader.
    pub(crate) disk_is_full: AtomicBool,
    /// Held while the parts of a batch are given to `openraft`: they follow each other.
    batch: tokio::sync::Mutex<()>,
    is_stopped: watch::Sender<bool>,
    is_lost: watch::Sender<Option<LostLog>>,
}

/// Why a node has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Its log or its state could not be written or read, or `openraft` has failed.
    Core(String),
    /// It lacks entries that it has acknowledged.
    LogIsLost(LostLog),
}

/// Entries that a node has acknowledged and lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostLog {
    /// The index of its last entry.
    pub last: u64,
    /// The index of the last entry that it has acknowledged.
    pub acknowledged: u64,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Core(reason) => f.write_str(reason),
            Failure::LogIsLost(LostLog { last, acknowledged }) => write!(
                f,
                "its log ends at entry {last}, but it has acknowledged entry {acknowledged}: \
                 remove it from the cluster, remove its folder 'raft', and join again"
            ),
        }
    }
}

impl Node {
    /// Starts a node with the log on this disk. `state` must be empty.
    ///
    /// # Errors
    /// If the log cannot be read, the settings contradict each other, or a thread cannot be
    /// created.
    pub async fn start(
        settings: Settings,
        disk: Arc<dyn Disk>,
        state: Arc<dyn State>,
        connect: Arc<dyn Connect>,
    ) -> io::Result<Arc<Node>> {
        let config = config(&settings)?;
        let (log, machine) =
            StateMachine::open(disk, state, settings.writes_on).map_err(io::Error::other)?;
        let Settings { lease, ref cluster, .. } = settings;
        let (cluster, contacts) = (cluster.clone(), Arc::default());
        let log_of_node = Arc::clone(&machine.shared);
        log_of_node.begin_as(settings.id)?;
        let network = Network { cluster, lease, connect, contacts, log: log_of_node };
        let raft =
            Raft::new(settings.id, Arc::new(config), network.clone(), log, machine.clone()).await;
        let (started, doubt) = (Instant::now(), Doubt::new(machine.shared.is_in_doubt));
        // A node that has last voted for itself has promised nothing since.
        let contact = match machine.shared.has_own_vote() {
            true => started.checked_sub(settings.lease * 2).unwrap_or(started),
            false => started,
        };
        let node = Arc::new(Node {
            settings,
            raft: raft.map_err(io::Error::other)?,
            network,
            machine,
            role: watch::Sender::new(Role::Follower),
            started,
            leads_until_ns: AtomicU64::new(0),
            promises: Promises::new(contact),
            doubt,
            membership_change: tokio::sync::Mutex::default(),
            choice: watch::Sender::new(None),
            disk_is_full: AtomicBool::new(false),
            batch: tokio::sync::Mutex::default(),
            is_stopped: watch::Sender::new(false),
            is_lost: watch::Sender::new(None),
        });
        tokio::spawn(Arc::clone(&node).watch_leader());
        tokio::spawn(Arc::clone(&node).follow_elections());
        tokio::spawn(Arc::clone(&node).confirm_log());
        Ok(node)
    }

    /// Begins a new cluster of these nodes. Called on one of them, once.
    ///
    /// # Errors
    /// If the node has entries already, or is not one of them.
    pub async fn begin_cluster(
        &self,
        nodes: BTreeMap<NodeId, Peer>,
    ) -> Result<(), RaftError<NodeId, InitializeError<NodeId, Peer>>> {
        self.raft.initialize(nodes).await
    }

    /// Whether the node has any entry, or has voted.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn has_log(&self) -> io::Result<bool> {
        self.raft.is_initialized().await.map_err(io::Error::other)
    }

    /// Whether the node has what every member of a cluster has: a vote, and any entry.
    pub fn has_been_member(&self) -> bool {
        self.machine.shared.has_vote() && self.machine.shared.last().is_some()
    }

    /// The role, and changes of it.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.role.subscribe()
    }

    /// Sets whether the disk of this node has no space: another node had better lead then.
    pub fn set_disk_is_full(&self, is_full: bool) {
        self.disk_is_full.store(is_full, Ordering::Relaxed);
    }

    /// What `openraft` knows of the cluster, and changes of it.
    pub fn metrics(&self) -> watch::Receiver<RaftServerMetrics<NodeId, Peer>> {
        self.raft.server_metrics()
    }

    pub(crate) fn stopped(&self) -> watch::Receiver<bool> {
        self.is_stopped.subscribe()
    }

    /// When the last message of a leader has arrived, or the node has started.
    pub(crate) fn last_contact(&self) -> Instant {
        self.promises.lock().last_contact
    }

    /// Records that a message of a leader has arrived.
    pub(crate) fn note_contact(&self) {
        self.promises.lock().last_contact = Instant::now();
    }

    /// Whether a message of a leader has arrived less than a lease ago.
    pub fn has_leader(&self) -> bool {
        let last = self.last_contact();
        last > self.started && last.elapsed() < self.settings.lease
    }

    /// Longest time between two messages of a leader to a follower.
    pub fn heartbeat(&self) -> Duration {
        self.settings.heartbeat
    }

    /// Returns the last entry that each node has acknowledged, and changes of it, if this node
    /// leads.
    pub fn progress(&self) -> watch::Receiver<RaftDataMetrics<NodeId>> {
        self.raft.data_metrics()
    }

    /// Until when no other node leads; `None` if this node does not lead. It is cheap to ask.
    pub fn leads_until(&self) -> Option<Instant> {
        let until_ns = self.leads_until_ns.load(Ordering::Acquire);
        (until_ns > 0).then(|| self.started + Duration::from_nanos(until_ns))
    }

    /// Whether this node leads for certain.
    pub fn leads(&self) -> bool {
        self.leads_until().is_some_and(|until| until > Instant::now())
    }

    /// The rounds of replication. The caller of [`Node::replicate`] begins and ends them.
    pub fn rounds(&self) -> &Rounds {
        &self.machine.shared.rounds
    }

    /// Checks that no other program has removed a file of the log.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if one is missing, or as the disk returns them.
    pub fn check_files(&self) -> io::Result<()> {
        self.machine.check_files()
    }

    /// The bytes of the snapshot and of the log after it, and those that are free on the disk.
    pub fn sizes(&self) -> (u64, u64, io::Result<u64>) {
        self.machine.sizes()
    }

    fn leads_until_of(&self, metrics: &RaftServerMetrics<NodeId, Peer>) -> Option<Instant> {
        let configurations = metrics.membership_config.membership().get_joint_config();
        let contact = self.network.contacts.with_majority(
            self.settings.id,
            &metrics.vote,
            configurations,
            Instant::now(),
        )?;
        if defect!(RaftLeaseTooLong) {
            return Some(contact + self.settings.lease * 2);
        }
        // Their clocks may be faster.
        Some(contact + self.settings.lease - self.settings.lease / LEASE_MARGIN)
    }

    /// Replicates a batch, in parts if it is large; returns the index of its last entry when that
    /// is committed and applied here. Batches are committed in the order of the calls.
    ///
    /// # Errors
    /// If this node does not lead: it is not known whether the batch will be committed. Later
    /// batches of the same barrier must not be replicated.
    pub async fn replicate(&self, batch: Batch) -> Result<u64, WriteError> {
        self.while_leading(self.write(batch)).await
    }

    async fn write(&self, batch: Batch) -> Result<u64, WriteError> {
        if defect!(RaftReplyBeforeCommit) {
            let raft = self.raft.clone();
            tokio::spawn(async move { raft.client_write(batch).await });
            return Ok(0);
        }
        let mut parts = VecDeque::new();
        let turn = self.batch.lock().await;
        for part in batch.divided(self.entry_bytes_max()) {
            if parts.len() == limits::PARTS_UNDER_WAY
                && let Some(part) = parts.pop_front()
            {
                committed(part).await?;
            }
            parts.push_back(self.raft.client_write_ff(part).await?);
        }
        drop(turn);
        let mut index = 0;
        for part in parts {
            index = committed(part).await?;
        }
        Ok(index)
    }

    /// Waits for a write of this leader; an error if it leads no more. `openraft` does not answer
    /// one that was not committed if it then installs a snapshot instead of other entries.
    pub(crate) async fn while_leading<T>(
        &self,
        write: impl Future<Output = Result<T, WriteError>>,
    ) -> Result<T, WriteError> {
        if defect!(RaftUnansweredWriteAwaited) {
            return write.await;
        }
        let vote = self.raft.server_metrics().borrow().vote;
        tokio::select! {
            biased;
            written = write => written,
            () = self.loses_office(&vote) => {
                let no_leader = ForwardToLeader::empty();
                Err(RaftError::APIError(ClientWriteError::ForwardToLeader(no_leader)))
            }
        }
    }

    /// The effects of an entry at most. Earlier programs, which have recorded no key of the node,
    /// would apply each part of a batch by itself.
    fn entry_bytes_max(&self) -> usize {
        let membership = self.metrics().borrow().membership_config.clone();
        let mut nodes = membership.nodes();
        let divides = nodes.all(|(_, peer)| !peer.fingerprint.is_empty());
        match divides && !defect!(RaftBatchesNotDivided) {
            true => limits::ENTRY_BYTES,
            false => usize::MAX,
        }
    }

    /// Writes a snapshot, if none is being written.
    ///
    /// # Errors
    /// If the node has ended.
    pub async fn begin_snapshot(&self) -> io::Result<()> {
        self.raft.trigger().snapshot().await.map_err(io::Error::other)
    }

    /// Adds a node, which gets the log but has no vote yet; returns when it lacks no more entries
    /// than are kept before a snapshot.
    ///
    /// # Errors
    /// If this node does not lead, or another change is under way.
    pub async fn add_learner(&self, node: NodeId, peer: Peer) -> Result<(), WriteError> {
        self.while_leading(self.raft.add_learner(node, peer, true)).await.map(drop)
    }

    /// Changes which nodes vote: this one is among them. Others are removed.
    ///
    /// # Errors
    /// As [`Node::add_learner`].
    pub async fn change_voters(
        &self,
        voters: impl IntoIterator<Item = NodeId>,
    ) -> Result<(), WriteError> {
        let voters: std::collections::BTreeSet<NodeId> = voters.into_iter().collect();
        self.while_leading(self.raft.change_membership(voters, false)).await.map(drop)
    }

    /// Whether the node lacks entries that it has acknowledged.
    pub fn log_is_lost(&self) -> bool {
        self.is_lost.borrow().is_some()
    }

    /// Waits until the node has ended, or must end; returns why, unless it was stopped.
    pub async fn ended(&self) -> Option<Failure> {
        let (mut metrics, mut is_lost) = (self.metrics(), self.is_lost.subscribe());
        // These metrics change seldom; their sender is dropped when the task of `openraft` ends.
        let task_has_ended = async { while metrics.changed().await.is_ok() {} };
        let reason = tokio::select! {
            biased;
            lost = is_lost.wait_for(Option::is_some) => {
                lost.ok().and_then(|lost| *lost).map(Failure::LogIsLost)
            }
            () = task_has_ended => {
                let metrics = self.raft.metrics();
                let reason = metrics.borrow().running_state.as_ref().err().map(ToString::to_string);
                Some(Failure::Core(reason.unwrap_or_else(|| "its task has panicked".to_owned())))
            }
        };
        reason.filter(|_| !*self.is_stopped.borrow())
    }

    /// Ends the node, and all its connections.
    pub async fn stop(&self) {
        self.is_stopped.send_replace(true);
        // A panic of the task has been reported where it happened.
        let _ = self.raft.shutdown().await;
        let ended = timeout(self.settings.lease, self.machine.shared.end()).await;
        if !matches!(ended, Ok(Ok(()))) {
            warn!("the log was not flushed: the node must be elected when it starts again");
        }
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("id", &self.settings.id).finish_non_exhaustive()
    }
}

/// Waits until an entry is committed and applied; returns its index.
async fn committed<E>(
    entry: impl Future<Output = Result<ClientWriteResult<Types>, E>>,
) -> Result<u64, WriteError> {
    let written = entry.await.map_err(|_| RaftError::Fatal(Fatal::Stopped))?;
    Ok(written.map_err(RaftError::APIError)?.log_id.index)
}

/// The part of its lease that a leader does not use.
const LEASE_MARGIN: u32 = 10;

/// The settings of `openraft`.
fn config(settings: &Settings) -> io::Result<Config> {
    let (mut lease, mut lease_min) = (settings.lease, settings.lease / 2);
    if defect!(RaftVotesDuringLease) {
        lease_min = settings.heartbeat * 11 / 10;
        lease = lease_min * 11 / 10;
    }
    let config = Config {
        cluster_name: settings.cluster.clone(),
        heartbeat_interval: milliseconds(settings.heartbeat),
        // This one is the lease.
        election_timeout_max: milliseconds(lease),
        election_timeout_min: milliseconds(lease_min),
        // See `elections`.
        enable_elect: false,
        max_in_snapshot_log_to_keep: settings.entries_kept,
        replication_lag_threshold: settings.entries_kept,
        // The server decides when.
        snapshot_policy: SnapshotPolicy::Never,
        install_snapshot_timeout: milliseconds(limits::SNAPSHOT_TIMEOUT),
        ..Config::default()
    };
    config.validate().map_err(io::Error::other)
}

// --- the role ---

impl Node {
    /// Leads whenever the node is elected, until it ends.
    async fn follow_elections(self: Arc<Self>) {
        while let Some(vote) = self.elected().await {
            if self.network.contacts.has_resigned(&vote) {
                sleep(self.settings.heartbeat).await;
                continue;
            }
            let barrier = self.pass_barrier(&vote).await;
            let barrier = barrier.filter(|barrier| self.machine.begin_leading(*barrier));
            let Some(barrier) = barrier else {
                sleep(self.settings.heartbeat).await;
                continue;
            };
            info!(term = vote.leader_id.term, barrier, "this node leads");
            self.role.send_replace(Role::Leader { barrier });
            let reason = self.deposed(&vote).await;
            self.leads_until_ns.store(0, Ordering::Release);
            self.role.send_replace(Role::Follower);
            warn!(term = vote.leader_id.term, reason, "this node leads no more");
            if let Err(error) = blocking(|| self.machine.stop_leading()) {
                error!(%error, "the state cannot be rebuilt; the node stops");
                // Not `stop`: that the node has failed must reach `ended`.
                let _ = self.raft.shutdown().await;
                return;
            }
        }
    }

    /// Waits until `openraft` calls this node leader; `None` if it has ended.
    async fn elected(&self) -> Option<Vote<NodeId>> {
        let (mut metrics, mut stopped) = (self.raft.server_metrics(), self.stopped());
        let is_leader =
            |metrics: &RaftServerMetrics<NodeId, Peer>| metrics.state == ServerState::Leader;
        tokio::select! {
            biased;
            _ = stopped.wait_for(|is_stopped| *is_stopped) => None,
            metrics = metrics.wait_for(is_leader) => Some(metrics.ok()?.vote),
        }
    }

    /// Replicates a barrier, unless the node is deposed before it is applied.
    async fn pass_barrier(&self, vote: &Vote<NodeId>) -> Option<u64> {
        if defect!(RaftBarrierLeftOut) {
            return self.leads_with(vote).map(|_| self.machine.barrier());
        }
        let barrier = Batch::barrier(self.machine.lease_ms());
        tokio::select! {
            biased;
            replicated = self.raft.client_write(barrier) => {
                Some(replicated.ok()?.log_id.index).filter(|_| self.leads_with(vote).is_some())
            }
            () = self.loses_office(vote) => None,
        }
    }

    /// Until when this node leads with this vote, if `openraft` still calls it leader.
    fn leads_with(&self, vote: &Vote<NodeId>) -> Option<Instant> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow();
        let is_in_office = metrics.state == ServerState::Leader && metrics.vote == *vote;
        if is_in_office && defect!(RaftLeaseIgnored) {
            return Some(Instant::now() + self.settings.lease);
        }
        let until = is_in_office.then(|| self.leads_until_of(&metrics)).flatten();
        let has_resigned = self.network.contacts.has_resigned(vote);
        until.filter(|until| *until > Instant::now() && !has_resigned)
    }

    /// Waits until another node may lead; returns why.
    async fn deposed(&self, vote: &Vote<NodeId>) -> &'static str {
        while let Some(until) = self.leads_with(vote) {
            let until_ns = u64::try_from((until - self.started).as_nanos()).unwrap_or(u64::MAX);
            let extend = || self.leads_until_ns.store(until_ns, Ordering::Release);
            if !self.promises.extend(vote, extend) {
                return "it may have voted for another node";
            }
            tokio::select! {
                biased;
                () = sleep(self.settings.heartbeat / 2) => {}
                () = self.loses_office(vote) => break,
            }
        }
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow();
        match metrics.state == ServerState::Leader && metrics.vote == *vote {
            true if self.network.contacts.has_resigned(vote) => "it hands its leadership over",
            true => "no majority is in contact",
            false => "another node has a later term, or this one ends",
        }
    }

    /// Waits until `openraft` does not call this node leader with this vote any more, or has ended.
    async fn loses_office(&self, vote: &Vote<NodeId>) {
        let mut metrics = self.raft.server_metrics();
        let is_over = |metrics: &RaftServerMetrics<NodeId, Peer>| {
            metrics.state != ServerState::Leader || metrics.vote != *vote
        };
        // An error means that `openraft` has ended.
        let _ = metrics.wait_for(is_over).await;
    }
}

// --- requests of other nodes ---

impl Node {
    /// Answers the requests of another node on this connection, until it or this node ends.
    ///
    /// # Errors
    /// As the connection returns them, or if what arrives is no request.
    pub async fn serve(&self, mut stream: impl Stream) -> io::Result<()> {
        let mut stopped = self.stopped();
        tokio::select! {
            biased;
            served = self.serve_until_end(&mut stream) => served,
            _ = stopped.wait_for(|is_stopped| *is_stopped) => Ok(()),
        }
    }

    async fn serve_until_end(&self, stream: &mut impl Stream) -> io::Result<()> {
        let hello: Option<Hello> = receive(stream, limits::HELLO_BYTES_MAX).await?;
        let Some(hello) = hello else { return Ok(()) };
        if let Some(reason) = self.refuses(&hello) {
            return send(stream, &Welcome::Refused(reason)).await;
        }
        send(stream, &Welcome::Accepted).await?;
        while let Some(request) = receive(stream, limits::MESSAGE_BYTES_MAX).await? {
            let reply = self.answer(request, stream).await?;
            send(stream, &reply).await?;
        }
        Ok(())
    }

    fn refuses(&self, hello: &Hello) -> Option<String> {
        let Hello { version, cluster, to, lease_ms } = hello;
        if *version != VERSION {
            return Some(format!("protocol {version} is not spoken here, but {VERSION}"));
        }
        if *cluster != self.settings.cluster {
            return Some("this node belongs to another cluster".to_owned());
        }
        if *to != self.settings.id {
            return Some(format!("this is node {}", self.settings.id));
        }
        // It would count on votes that this node does not refuse for that time.
        let own_ms = milliseconds(self.settings.lease);
        (*lease_ms > own_ms).then(|| format!("the lease of this node is shorter: {own_ms} ms"))
    }

    async fn answer(&self, request: Request, stream: &mut impl Stream) -> io::Result<Reply> {
        Ok(match request {
            Request::Append(request) => Reply::Append(self.append(request).await),
            // A node that has just started keeps what it may have promised before: `openraft`
            // counts its lease from the start.
            Request::WouldVote(last) => Reply::WouldVote(self.would_vote_for(last)),
            Request::LastEntry => Reply::LastEntry(self.answer_last_entry()),
            Request::Chosen { node } => self.note_choice(node),
            Request::ReadIndex => Reply::ReadIndex(self.confirmed_index()),
            Request::LogIsLost { vote, acknowledged } => self.lose_log(vote, acknowledged),
            Request::Vote(request) => self.vote(request).await,
            Request::Snapshot { vote, meta } => self.receive_snapshot(vote, meta, stream).await?,
        })
    }

    async fn append(
        &self,
        request: AppendEntriesRequest<Types>,
    ) -> Result<AppendEntriesResponse<NodeId>, RaftError<NodeId>> {
        // Recorded before the leader is followed: see `become_candidate`.
        if request.vote >= self.raft.server_metrics().borrow().vote {
            self.note_contact();
        }
        let reply = self.raft.append_entries(request).await;
        if !matches!(reply, Err(_) | Ok(AppendEntriesResponse::HigherVote(_))) {
            self.note_contact();
        }
        reply
    }

    /// Records that this node has lost entries: the leader with this vote knows that it had those
    /// up to `acknowledged`. Without them this node must not vote: an entry that was committed
    /// could be lost.
    fn lose_log(&self, vote: Vote<NodeId>, acknowledged: u64) -> Reply {
        let last = position_of(self.last_entry());
        let is_leader = self.raft.server_metrics().borrow().vote == vote;
        if !is_leader || last >= acknowledged {
            return Reply::Refused("it has them, or another leader".to_owned());
        }
        self.is_lost.send_replace(Some(LostLog { last, acknowledged }));
        Reply::Refused("it ends".to_owned())
    }

    async fn vote(&self, request: VoteRequest<NodeId>) -> Reply {
        if !self.doubt.permits(request.last_log_id) {
            return Reply::Refused("the log of this node is not confirmed".to_owned());
        }
        // `openraft` counts a promise only if the vote on the disk is a leader's. That of a node
        // that was in doubt at its start is not.
        if self.has_promised() {
            return Reply::Refused(
                "this node follows a leader, or did before its start".to_owned(),
            );
        }
        let Some(undecided) = self.promises.decide(request.vote, || self.leads()) else {
            return Reply::Refused("this node leads".to_owned());
        };
        let reply = self.raft.vote(request).await;
        undecided.end(reply.as_ref().is_ok_and(|reply| reply.vote_granted));
        Reply::Vote(reply)
    }

    async fn receive_snapshot(
        &self,
        vote: Vote<NodeId>,
        meta: SnapshotMeta<NodeId, Peer>,
        stream: &mut impl Stream,
    ) -> io::Result<Reply> {
        let mut file = self.machine.receive_snapshot(position_of(meta.last_log_id))?;
        loop {
            let part = receive(stream, limits::MESSAGE_BYTES_MAX);
            let part: Option<Part> = timeout(limits::SNAPSHOT_STALL, part).await??;
            let Some(Part(bytes)) = part else { return Err(io::ErrorKind::UnexpectedEof.into()) };
            if bytes.is_empty() {
                break;
            }
            // Meanwhile `openraft` sends nothing else to this node.
            self.note_contact();
            blocking(|| file.write(&bytes))?;
        }
        if !defect!(RaftSnapshotNotChecked) {
            blocking(|| file.check())?;
        }
        let snapshot = Snapshot { meta, snapshot: Box::new(SnapshotFile::Received(file)) };
        let install = self.raft.install_full_snapshot(vote, snapshot);
        let mut install = std::pin::pin!(install);
        loop {
            match timeout(limits::SNAPSHOT_LOADING, &mut install).await {
                Ok(installed) => return Ok(Reply::Snapshot(installed)),
                Err(_) => send(stream, &Reply::Loading).await?,
            }
            self.note_contact();
        }
    }
}
