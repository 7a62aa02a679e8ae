//! Requests about the nodes of a cluster, on connections of their own: to join it, to change or
//! remove a node, and for its state. Only the leader answers most of them; another node names it.

use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use lockwheel_raft::{MembershipError, Node, NodeId, Peer, Status, Stream, receive, send};
use rustls::ClientConfig;
use serde::{Deserialize, Serialize};
use tokio::time::{sleep, timeout};

use super::authority::Authority;
use super::peers::connect;
use crate::limits;

/// A request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// A new node asks for a number: see [`super::token::Token`].
    Admit { until: u64, permission: Vec<u8> },
    /// A node asks to be one of the cluster, with these addresses.
    Enter { node: NodeId, peer: Peer, was_member: bool },
    /// Removes a node for good.
    Remove { node: NodeId },
    /// Has a node lead.
    Lead { node: NodeId },
    /// Asks for the state of the cluster.
    Status,
}

/// The reply to a [`Request`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    Admitted { cluster: String, node: NodeId, authority: Authority },
    Done,
    Status(Status),
    Failed(MembershipError),
}

/// Serves requests.
#[derive(Debug)]
pub(super) struct Membership {
    pub(super) authority: Authority,
    pub(super) cluster: String,
}

impl Membership {
    /// Answers one request. `is_node` if it comes from a node of the cluster.
    pub(super) async fn serve(
        &self,
        stream: &mut impl Stream,
        request: Request,
        node: &Node,
        is_node: bool,
    ) -> io::Result<()> {
        let reply = self.answer(request, node, is_node).await;
        send(stream, &reply.unwrap_or_else(Reply::Failed)).await
    }

    async fn answer(
        &self,
        request: Request,
        node: &Node,
        is_node: bool,
    ) -> Result<Reply, MembershipError> {
        let refused = |reason: &str| MembershipError::Refused(reason.to_owned());
        match request {
            Request::Admit { until, permission } => {
                if !self.authority.permits(until, &permission) {
                    return Err(refused("the join token is not one of this cluster"));
                }
                if until <= now_seconds() {
                    let reason = "the join token has expired; 'lockwheel raft token' prints one";
                    return Err(refused(reason));
                }
                let (cluster, authority) = (self.cluster.clone(), self.authority.clone());
                Ok(Reply::Admitted { cluster, node: node.new_number().await?, authority })
            }
            _ if !is_node => Err(refused("the connection has no certificate of this cluster")),
            Request::Enter { node: number, peer, was_member } => {
                node.enter(number, peer, was_member).await.map(|()| Reply::Done)
            }
            Request::Remove { node: number } => node.remove(number).await.map(|()| Reply::Done),
            Request::Lead { node: number } => node.hand_over(number).await.map(|()| Reply::Done),
            Request::Status => Ok(Reply::Status(node.status())),
        }
    }
}

/// Asks the node at one of these addresses, and then the leader that it names. While there is no
/// leader, it asks again for some seconds.
pub(super) async fn ask(
    addresses: &[String],
    config: &Arc<ClientConfig>,
    request: &Request,
) -> Result<Reply, MembershipError> {
    let mut failed = MembershipError::Refused("there is no address to ask".to_owned());
    for _ in 0..limits::RAFT_MEMBERSHIP_ATTEMPTS {
        for address in addresses {
            let mut asked = address.clone();
            for _ in 0..limits::RAFT_MEMBERSHIP_REDIRECTIONS {
                match ask_node(&asked, config, request).await {
                    Ok(Reply::Failed(MembershipError::NotLeader(Some(leader)))) => {
                        asked = leader.address;
                    }
                    Ok(Reply::Failed(MembershipError::NotLeader(None))) => break,
                    Ok(Reply::Failed(error)) => return Err(error),
                    Ok(reply) => return Ok(reply),
                    Err(error) => {
                        failed = MembershipError::Refused(format!("{asked}: {error}"));
                        break;
                    }
                }
            }
        }
        sleep(limits::RAFT_MEMBERSHIP_PAUSE).await;
    }
    Err(failed)
}

/// Asks the node at this address and no other.
pub(super) async fn ask_node(
    address: &str,
    config: &Arc<ClientConfig>,
    request: &Request,
) -> io::Result<Reply> {
    let asking = async {
        let mut stream = connect(address, None, config).await?;
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
