//! Requests about the nodes of a cluster, on connections of their own: to join it, to change or
//! remove a node, and for its state. Only the leader answers most of them; another node names it.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use lockwheel_raft::{
    JoinToken, Members, MembershipError, Node, NodeId, Peer, Status, Stream, receive, send,
};
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use super::keys::{Connector, Shown, sha_256};
use crate::limits;

/// Why a connection is refused.
pub(super) const UNKNOWN_KEY: &str =
    "this key is not that of a node of the cluster; a node that was removed must join again";

/// A request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// A new node asks for a number, with the secret of a [`super::token::Token`], which is valid
    /// until then.
    Admit { secret: Vec<u8>, until: u64, peer: Peer },
    /// A node asks to be one of those that vote, with these addresses. Earlier programs read
    /// `was_member`.
    Enter { node: NodeId, peer: Peer, was_member: bool },
    /// Removes a node for good.
    Remove { node: NodeId },
    /// Has a node lead.
    Lead { node: NodeId },
    /// Records a join token.
    AddToken { token: JoinToken },
    /// Asks for the state of the cluster.
    Status,
    /// Asks for the nodes of the cluster.
    Members,
}

/// The reply to a [`Request`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Admitted { cluster: String, node: NodeId, members: Members },
    Done,
    Status(Status),
    Members(Members),
    Failed(MembershipError),
}

/// A connection on which requests arrive.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) shown: Shown,
    /// The node that has this key.
    pub(super) node: Option<NodeId>,
}

/// Answers one request about the nodes of this cluster.
pub(super) async fn answer(
    stream: &mut impl Stream,
    request: Request,
    node: &Node,
    cluster: &str,
    asking: &Asking,
) -> io::Result<()> {
    let reply = reply(request, node, cluster, asking).await;
    send(stream, &reply.unwrap_or_else(Reply::Failed)).await
}

async fn reply(
    request: Request,
    node: &Node,
    cluster: &str,
    asking: &Asking,
) -> Result<Reply, MembershipError> {
    let refused = |reason: &str| MembershipError::Refused(reason.to_owned());
    match (request, asking.node) {
        (Request::Admit { secret, until, mut peer }, _) => {
            node.check_leads()?;
            let now = now_seconds();
            if until <= now {
                let reason = "the join token has expired; 'lockwheel raft token' prints one";
                return Err(refused(reason));
            }
            peer.fingerprint.clone_from(&asking.shown.fingerprint);
            let (number, members) = node.admit(&sha_256(&secret), now, peer).await?;
            Ok(Reply::Admitted { cluster: cluster.to_owned(), node: number, members })
        }
        // Only the leader knows for certain which nodes there are.
        (Request::Enter { .. }, None) => {
            Err(node.check_leads().err().unwrap_or(MembershipError::Removed))
        }
        (_, None) => Err(refused(UNKNOWN_KEY)),
        (Request::Enter { node: number, peer, .. }, Some(asking_node)) => {
            // An earlier program has another key at each start, and sends none.
            let is_own =
                peer.fingerprint.is_empty() || peer.fingerprint == asking.shown.fingerprint;
            if number != asking_node || !is_own {
                return Err(refused("a node can only enter as itself"));
            }
            node.enter(number, peer).await.map(|()| Reply::Done)
        }
        (Request::Remove { node: number }, _) => node.remove(number).await.map(|()| Reply::Done),
        (Request::Lead { node: number }, _) => node.hand_over(number).await.map(|()| Reply::Done),
        (Request::AddToken { token }, Some(maker)) => {
            node.add_token(maker, token, now_seconds()).await.map(|()| Reply::Done)
        }
        (Request::Status, _) => Ok(Reply::Status(node.status())),
        (Request::Members, _) => {
            let members = node.applied_members();
            members.map(Reply::Members).ok_or_else(|| refused("the nodes are being changed"))
        }
    }
}

/// Asks the first of these nodes that can be reached, and then the leader that it names. While
/// there is no leader, it asks again for some seconds.
pub(super) async fn ask(
    peers: &[Peer],
    connector: &Connector,
    request: &Request,
) -> Result<Reply, MembershipError> {
    let mut failed = MembershipError::Refused("there is no address to ask".to_owned());
    for _ in 0..limits::RAFT_MEMBERSHIP_ATTEMPTS {
        for peer in peers {
            let mut asked = peer.clone();
            for _ in 0..limits::RAFT_MEMBERSHIP_REDIRECTIONS {
                match ask_node(connector, None, &asked, request).await {
                    Ok(Reply::Failed(MembershipError::NotLeader(Some(leader)))) => asked = leader,
                    Ok(Reply::Failed(MembershipError::NotLeader(None))) => break,
                    Ok(Reply::Failed(error)) => return Err(error),
                    Ok(reply) => return Ok(reply),
                    Err(error) => {
                        let address = &asked.address;
                        failed = MembershipError::Refused(format!("{address}: {error}"));
                        break;
                    }
                }
            }
        }
        sleep(limits::RAFT_MEMBERSHIP_PAUSE).await;
    }
    Err(failed)
}

/// Asks this node and no other. Its number may be unknown.
pub(super) async fn ask_node(
    connector: &Connector,
    node: Option<NodeId>,
    peer: &Peer,
    request: &Request,
) -> io::Result<Reply> {
    let asking = async {
        let mut stream = connector.connect(node, peer).await?;
        send(&mut stream, request).await?;
        let reply = receive(&mut stream, limits::RAFT_MEMBERSHIP_BYTES_MAX).await?;
        reply.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    };
    timeout(limits::RAFT_MEMBERSHIP_TIMEOUT, asking).await?
}

/// The seconds of the wall clock since 1970.
#[expect(clippy::disallowed_methods, reason = "join tokens expire in real time, on any clock")]
pub(super) fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
