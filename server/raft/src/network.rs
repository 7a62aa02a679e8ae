//! Connections to the other nodes. Each replication and each election has connections of its own,
//! on which one request follows the other.

use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use lockwheel_defects::defect;
use lockwheel_log::Position;
use openraft::error::{
    Fatal, NetworkError, RPCError, RaftError, RemoteError, ReplicationClosed, StreamingError,
    Unreachable,
};
use openraft::network::{Backoff, RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::storage::Snapshot;
use openraft::{LogId, OptionalSend, Vote};
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::batch::{Peer, Types};
use crate::contact::Contacts;
use crate::limits;
use crate::log_store::Shared;
use crate::pace::Pace;
use crate::rounds::Moment;
use crate::snapshot_file::SnapshotFile;
use crate::types::{NodeId, position_of};
use crate::wire::{Hello, Reply, Request, Stream, VERSION, Welcome, milliseconds, receive, send};

/// Makes connections to the other nodes.
pub trait Connect: Debug + Send + Sync + 'static {
    /// A connection to the node.
    fn connect(&self, node: NodeId, peer: &Peer) -> Connecting<'_>;
}

/// A connection that is being made.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

/// The other nodes.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) cluster: String,
    pub(crate) lease: Duration,
    pub(crate) connect: Arc<dyn Connect>,
    pub(crate) contacts: Arc<Contacts>,
    pub(crate) log: Arc<Shared>,
}

/// One connection to one node, made when it is needed.
pub(crate) struct Connection {
    hello: Hello,
    peer: Peer,
    connect: Arc<dyn Connect>,
    contacts: Arc<Contacts>,
    log: Arc<Shared>,
    /// [`Shared::cuts`] when the leader that uses the connection made it: a leader never cuts off
    /// the end of its log.
    cuts: u64,
    /// `None` also while a request is under way: if that is given up, its reply may still come.
    stream: Option<Box<dyn Stream>>,
    pace: Pace,
    /// The last entry of the node when the leader with this vote asked for it: see
    /// [`Connection::skip_known`].
    last_entry: Option<(Vote<NodeId>, Option<LogId<NodeId>>)>,
}

impl RaftNetworkFactory<Types> for Network {
    type Network = Connection;

    async fn new_client(&mut self, target: NodeId, peer: &Peer) -> Connection {
        self.connection(target, peer)
    }
}

impl Network {
    pub(crate) fn connection(&self, target: NodeId, peer: &Peer) -> Connection {
        let lease_ms = milliseconds(self.lease);
        let cluster = self.cluster.clone();
        Connection {
            hello: Hello { version: VERSION, cluster, to: target, lease_ms },
            peer: peer.clone(),
            connect: Arc::clone(&self.connect),
            contacts: Arc::clone(&self.contacts),
            log: Arc::clone(&self.log),
            cuts: self.log.cuts(),
            stream: None,
            pace: Pace::default(),
            last_entry: None,
        }
    }
}

impl Connection {
    /// The connection, ready for a request.
    async fn open(&mut self) -> io::Result<Box<dyn Stream>> {
        if let Some(stream) = self.stream.take() {
            return Ok(stream);
        }
        let mut stream = self.connect.connect(self.hello.to, &self.peer).await?;
        send(&mut stream, &self.hello).await?;
        match receive(&mut stream, limits::HELLO_BYTES_MAX).await? {
            Some(Welcome::Accepted) => Ok(stream),
            Some(Welcome::Refused(reason)) => {
                Err(io::Error::new(io::ErrorKind::PermissionDenied, reason))
            }
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    pub(crate) async fn call(&mut self, request: &Request) -> io::Result<Reply> {
        let mut stream = self.open().await?;
        send(&mut stream, request).await?;
        let reply = Self::reply(&mut stream).await?;
        self.stream = Some(stream);
        Ok(reply)
    }

    async fn reply(stream: &mut Box<dyn Stream>) -> io::Result<Reply> {
        let reply = receive(stream, limits::MESSAGE_BYTES_MAX).await?;
        reply.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Sends a snapshot, until another node has taken over.
    async fn send_snapshot(
        &mut self,
        vote: Vote<NodeId>,
        snapshot: Snapshot<Types>,
    ) -> io::Result<Reply> {
        let SnapshotFile::Complete { file, .. } = *snapshot.snapshot else {
            return Err(io::Error::other("a snapshot that is not complete"));
        };
        let mut stream = self.open().await?;
        send(&mut stream, &Request::Snapshot { vote, meta: snapshot.meta }).await?;
        let (mut buffer, mut offset) = (vec![0; limits::SNAPSHOT_PART_BYTES], 0);
        loop {
            let read = file.read_at(offset, &mut buffer)?;
            let part = Part(buffer[..read].to_vec().into());
            timeout(limits::SNAPSHOT_STALL, send(&mut stream, &part)).await??;
            if read == 0 {
                break;
            }
            offset += read as u64;
        }
        let reply = loop {
            match timeout(limits::SNAPSHOT_STALL, Self::reply(&mut stream)).await?? {
                Reply::Loading => {}
                reply => break reply,
            }
        };
        self.stream = Some(stream);
        Ok(reply)
    }

    /// Checks that a follower still has what it has acknowledged to this leader. `openraft` relies
    /// on that: it would fail here. The follower is informed, and ends.
    async fn check_progress(
        &mut self,
        vote: &Vote<NodeId>,
        reply: &AppendEntriesResponse<NodeId>,
        (before, last): (Position, Position),
    ) -> Result<(), Unreachable> {
        let follower = self.hello.to;
        let acknowledged = match reply {
            AppendEntriesResponse::Success => last,
            AppendEntriesResponse::PartialSuccess(up_to) => position_of(*up_to),
            AppendEntriesResponse::Conflict => {
                let acknowledged = self.contacts.acknowledged(vote, follower).unwrap_or(0);
                if acknowledged < before || defect!(RaftLostLogNotNoticed) {
                    return Ok(());
                }
                let lost = Request::LogIsLost { vote: *vote, acknowledged };
                let reason = match self.call(&lost).await {
                    Ok(Reply::Refused(reason)) => reason,
                    Ok(_) => "a reply to another request".to_owned(),
                    Err(error) => error.to_string(),
                };
                warn!(follower, acknowledged, reason, "a node has lost a part of its log");
                return Err(unreachable(&io::Error::other("it has lost a part of its log")));
            }
            AppendEntriesResponse::HigherVote(_) => return Ok(()),
        };
        self.contacts.note_acknowledged(vote, follower, acknowledged);
        self.log.rounds.note(Moment::Acknowledged, acknowledged);
        Ok(())
    }

    /// Lets a message say only what is committed and flushed on this node: see
    /// [`crate::log_store`]. A message that says nothing else waits a little for that.
    async fn send_what_is_flushed(
        &self,
        request: &mut AppendEntriesRequest<Types>,
        limit: Duration,
    ) {
        let Some(committed) = request.leader_commit else { return };
        if self.log.is_flushed(committed) || defect!(RaftUnflushedCommitSent) {
            return;
        }
        if request.entries.is_empty() {
            let is_flushed = self.log.wait_until_flushed(position_of(Some(committed)));
            // It has failed, or takes long: the message keeps contact.
            let _ = timeout(limit / 4, is_flushed).await;
        }
        request.leader_commit = request.leader_commit.filter(|it| self.log.is_flushed(*it));
    }

    /// Removes the first entries of a message that the follower has already, as far as its last
    /// entry shows; returns whether there were any. A new leader does not know how far its
    /// followers are, and `openraft` would send them half the log to find out. The follower still
    /// checks that it has the entry before those that are sent.
    async fn skip_known(&mut self, request: &mut AppendEntriesRequest<Types>) -> bool {
        let is_asked = |(vote, _): &(Vote<NodeId>, _)| *vote == request.vote;
        if request.entries.is_empty() {
            return false;
        }
        if !self.last_entry.as_ref().is_some_and(is_asked) {
            let Ok(Reply::LastEntry(answer)) = self.call(&Request::LastEntry).await else {
                return false;
            };
            self.last_entry = Some((request.vote, answer.last));
        }
        let last = self.last_entry.and_then(|(_, last)| last);
        let known = request.entries.partition_point(|entry| Some(entry.log_id) <= last);
        let Some(last_known) = known.checked_sub(1) else { return false };
        request.prev_log_id = Some(request.entries[last_known].log_id);
        request.entries.drain(..known);
        true
    }

    fn remote<E: std::error::Error>(&self, error: E) -> RemoteError<NodeId, Peer, E> {
        RemoteError::new_with_node(self.hello.to, self.peer.clone(), error)
    }
}

/// A part of the file of a snapshot; the last one is empty.
#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) struct Part(pub(crate) bytes::Bytes);

type CallError = RPCError<NodeId, Peer, RaftError<NodeId>>;

fn unreachable(error: &io::Error) -> Unreachable {
    Unreachable::new(error)
}

/// A reply that does not belong to the request, or a refusal.
pub(crate) fn unexpected(reply: Reply) -> NetworkError {
    let reason = match reply {
        Reply::Refused(reason) => reason,
        _ => "a reply to another request".to_owned(),
    };
    NetworkError::new(&io::Error::other(reason))
}

impl RaftNetwork<Types> for Connection {
    async fn append_entries(
        &mut self,
        mut request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<NodeId>, CallError> {
        // `openraft` 0.9.25 goes on to send the entries of a deposed leader. It reads them by their
        // places, where there may be those of the next leader by now, or none. A follower would
        // take them for entries that come after those it has. After this error `openraft` begins
        // anew if the leader still leads, if need be with a snapshot. A message without entries
        // only keeps contact.
        if !request.entries.is_empty() && !self.log.goes_on_after(request.prev_log_id, self.cuts) {
            let error = io::Error::other("the entries that follow have been removed or replaced");
            return Err(NetworkError::new(&error).into());
        }
        let (vote, sent) = (request.vote, Instant::now());
        if self.contacts.is_silent(&vote) {
            let error = io::Error::other("this node hands its leadership over");
            return Err(NetworkError::new(&error).into());
        }
        let skips = self.skip_known(&mut request).await;
        let before = position_of(request.prev_log_id);
        self.send_what_is_flushed(&mut request, option.hard_ttl()).await;
        let is_partial = self.pace.begin(&mut request.entries);
        let last_id = request.entries.last().map(|last| last.log_id).or(request.prev_log_id);
        let last = position_of(last_id);
        let begun = Instant::now();
        self.log.rounds.note(Moment::Sent, last);
        let reply = self.call(&Request::Append(request)).await;
        self.pace.end(begun.elapsed(), option.hard_ttl(), reply.is_ok());
        match reply {
            Ok(Reply::Append(Ok(mut reply))) => {
                if !matches!(reply, AppendEntriesResponse::HigherVote(_)) {
                    self.contacts.note(&vote, self.hello.to, sent);
                }
                if skips && matches!(reply, AppendEntriesResponse::Conflict) {
                    // Its log has changed meanwhile. `openraft` tries again.
                    self.last_entry = Some((vote, None));
                    let error = io::Error::other("the follower has other entries than before");
                    return Err(NetworkError::new(&error).into());
                }
                self.check_progress(&vote, &reply, (before, last)).await?;
                if is_partial && matches!(reply, AppendEntriesResponse::Success) {
                    reply = AppendEntriesResponse::PartialSuccess(last_id);
                }
                Ok(reply)
            }
            Ok(Reply::Append(Err(error))) => Err(self.remote(error).into()),
            Ok(reply) => Err(unexpected(reply).into()),
            Err(error) => Err(unreachable(&error).into()),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<NodeId>,
        _: RPCOption,
    ) -> Result<VoteResponse<NodeId>, CallError> {
        match self.call(&Request::Vote(request)).await {
            Ok(Reply::Vote(Ok(reply))) => Ok(reply),
            Ok(Reply::Vote(Err(error))) => Err(self.remote(error).into()),
            Ok(reply) => Err(unexpected(reply).into()),
            Err(error) => Err(unreachable(&error).into()),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<NodeId>,
        snapshot: Snapshot<Types>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<NodeId>, StreamingError<Types, Fatal<NodeId>>> {
        let reply = tokio::select! {
            biased;
            closed = cancel => return Err(closed.into()),
            reply = self.send_snapshot(vote, snapshot) => reply,
        };
        match reply {
            Ok(Reply::Snapshot(Ok(reply))) => Ok(reply),
            Ok(Reply::Snapshot(Err(error))) => Err(self.remote(error).into()),
            Ok(reply) => Err(unexpected(reply).into()),
            Err(error) => Err(unreachable(&error).into()),
        }
    }

    fn backoff(&self) -> Backoff {
        Backoff::new(std::iter::repeat(limits::RECONNECT_PAUSE))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use lockwheel_simulated_disk::SimulatedDisk;
    use parking_lot::Mutex;
    use tokio::io::{DuplexStream, duplex};
    use tokio::time::sleep;

    use super::*;

    const FOLLOWER: NodeId = 2;
    const DELAY: Duration = Duration::from_millis(300);

    /// What a follower replies after [`DELAY`], one message after the other; afterwards nothing.
    #[derive(Debug)]
    struct Follower(Arc<Mutex<VecDeque<AppendEntriesResponse<NodeId>>>>);

    impl Connect for Follower {
        fn connect(&self, _: NodeId, _: &Peer) -> Connecting<'_> {
            let (near, far) = duplex(1 << 16);
            tokio::spawn(answer(far, Arc::clone(&self.0)));
            Box::pin(async move { Ok(Box::new(near) as Box<dyn Stream>) })
        }
    }

    async fn answer(
        mut stream: DuplexStream,
        replies: Arc<Mutex<VecDeque<AppendEntriesResponse<NodeId>>>>,
    ) -> io::Result<()> {
        let _: Option<Hello> = receive(&mut stream, limits::HELLO_BYTES_MAX).await?;
        send(&mut stream, &Welcome::Accepted).await?;
        let mut request = receive::<Request>(&mut stream, limits::MESSAGE_BYTES_MAX).await?;
        while request.is_some() {
            let reply = replies.lock().pop_front();
            sleep(DELAY).await;
            match reply {
                Some(reply) => send(&mut stream, &Reply::Append(Ok(reply))).await?,
                None => std::future::pending().await,
            }
            request = receive(&mut stream, limits::MESSAGE_BYTES_MAX).await?;
        }
        Ok(())
    }

    /// A leader with a connection to the follower.
    struct Leader {
        connection: Connection,
        contacts: Arc<Contacts>,
    }

    impl Leader {
        fn new(replies: impl IntoIterator<Item = AppendEntriesResponse<NodeId>>) -> Leader {
            let replies = Arc::new(Mutex::new(replies.into_iter().collect()));
            let disk = Arc::new(SimulatedDisk::new());
            let log = Shared::open(disk, |_, _| Ok(())).expect("an empty log");
            let contacts = Arc::<Contacts>::default();
            let network = Network {
                cluster: "test".to_owned(),
                lease: Duration::from_secs(1),
                connect: Arc::new(Follower(replies)),
                contacts: Arc::clone(&contacts),
                log: Arc::new(log),
            };
            let connection = network.connection(FOLLOWER, &Peer::default());
            Leader { connection, contacts }
        }

        /// Sends a message without entries; returns whether there was a reply in time.
        async fn send(&mut self, vote: Vote<NodeId>) -> bool {
            let (prev_log_id, leader_commit) = (None, None);
            let entries = Vec::new();
            let request = AppendEntriesRequest { vote, prev_log_id, entries, leader_commit };
            let option = RPCOption::new(DELAY * 3 / 2);
            let sent = self.connection.append_entries(request, option);
            matches!(timeout(DELAY * 3 / 2, sent).await, Ok(Ok(_)))
        }

        /// When the last message was sent that counts as contact.
        fn last(&self, vote: Vote<NodeId>) -> Option<Instant> {
            self.contacts.last(&vote, FOLLOWER)
        }
    }

    fn vote(term: u64) -> Vote<NodeId> {
        Vote::new_committed(term, 1)
    }

    /// Runs in simulated time.
    fn simulate(run: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().expect("a runtime").block_on(run);
    }

    #[test]
    fn contact_counts_from_when_the_message_was_sent_that_was_acknowledged() {
        simulate(async {
            let mut leader = Leader::new([(); 2].map(|()| AppendEntriesResponse::Success));
            for _ in 0..2 {
                sleep(DELAY).await;
                let sent = Instant::now();
                assert!(leader.send(vote(3)).await);
                assert!(sent.elapsed() >= DELAY);
                assert_eq!(leader.last(vote(3)), Some(sent));
            }
        });
    }

    #[test]
    fn message_that_is_not_acknowledged_is_no_contact() {
        simulate(async {
            let follows_another = AppendEntriesResponse::HigherVote(vote(4));
            let mut leader = Leader::new([follows_another]);
            assert!(leader.send(vote(3)).await);
            assert!(!leader.send(vote(3)).await);
            assert_eq!(leader.last(vote(3)), None);
        });
    }

    /// The reply to a message that was given up is not that to the next one.
    #[test]
    fn late_reply_acknowledges_no_later_message() {
        simulate(async {
            let mut leader = Leader::new([AppendEntriesResponse::Success]);
            {
                let mut early = std::pin::pin!(leader.send(vote(3)));
                assert!(timeout(DELAY / 2, &mut early).await.is_err());
            }
            assert!(!leader.send(vote(3)).await);
            assert_eq!(leader.last(vote(3)), None);
        });
    }

    #[test]
    fn reply_to_an_earlier_leader_is_no_contact_of_the_next_one() {
        simulate(async {
            let success = || AppendEntriesResponse::Success;
            let mut leader = Leader::new([success(), success()]);
            let contacts = Arc::clone(&leader.contacts);
            let next = vote(5);
            // Another follower is in contact with the next leader before the reply comes.
            let is_elected = async {
                sleep(DELAY / 2).await;
                contacts.note(&next, 3, Instant::now());
            };
            let (is_answered, ()) = tokio::join!(leader.send(vote(3)), is_elected);
            assert!(is_answered);
            assert_eq!((leader.last(vote(3)), leader.last(next)), (None, None));
            assert_eq!(contacts.acknowledged(&next, FOLLOWER), None);
            let sent = Instant::now();
            assert!(leader.send(next).await);
            assert_eq!((leader.last(vote(3)), leader.last(next)), (None, Some(sent)));
        });
    }
}
