//! What an operator does with a cluster: to begin it, add nodes and remove them, and see its state.

use std::future::Future;
use std::io;
use std::path::Path;
use std::slice;
use std::time::Duration;

use lockwheel_engine::settings::Settings;
use lockwheel_log::recovery::recover;
use lockwheel_log::{Directory, Disk};
use lockwheel_raft::{Members, NodeId, NodeStatus, Peer, Status};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::runtime;

use super::cluster_node::block_on;
use super::identity::Identity;
use super::import::{Taken, import};
use super::keys::{Connector, Credentials, MEMBERSHIP, NodeKey};
use super::membership::{Reply, Request, ask, ask_node, now_seconds};
use super::settings::NodeSettings;
use super::token::Token;
use crate::durability::directory;
use crate::error::{Error, ErrorKind};

/// The number of the node that begins a cluster.
pub(super) const FIRST_NODE: NodeId = 1;

/// Validity of a join token by default.
const TOKEN_VALID: Duration = Duration::from_secs(24 * 3_600);

pub(super) fn failed(error: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Io, error.to_string())
}

/// Whether there is a node of a cluster in the directory of a server.
///
/// # Errors
/// If the directory cannot be read.
pub fn has_node(dir: &Path) -> Result<bool, Error> {
    Ok(Identity::read(dir).map_err(failed)?.is_some())
}

/// The node that a server with these settings is going to be.
fn new_node(settings: &Settings) -> Result<NodeSettings, Error> {
    let node = NodeSettings::of(settings)?.ok_or_else(|| {
        Error::new(ErrorKind::Config, "a node needs raft-port: its port for other nodes")
    })?;
    if has_node(&node.dir)? {
        let dir = node.dir.display();
        let reason =
            format!("there is a node of a cluster in '{dir}' already: start it as a server");
        return Err(Error::new(ErrorKind::Config, reason));
    }
    // The folder may not be used even without an identity: the new node would use its log.
    let folder = Identity::folder(&node.dir);
    if has_units(&folder)? {
        let reason = format!("there is the log of a node in '{}': move it away", folder.display());
        return Err(Error::new(ErrorKind::Config, reason));
    }
    Ok(node)
}

/// Begins a new cluster without keys, of which the server with these settings is the first node.
/// Returns a join token.
///
/// # Errors
/// If there is a node or the log of a server in `dir` already, or it cannot be written.
pub fn begin_cluster(settings: &Settings) -> Result<String, Error> {
    let node = new_node(settings)?;
    // It would be ignored from now on.
    let log = directory(settings);
    if has_units(&log)? {
        let log = log.display();
        let reason = format!(
            "there is the log of a server in '{log}': 'lockwheel raft init --from {log}' begins a \
             cluster with its keys; move it away to begin one without keys"
        );
        return Err(Error::new(ErrorKind::Config, reason));
    }
    let (identity, _, token) = first_identity(&node)?;
    identity.write(&node.dir).map_err(failed)?;
    Ok(token.encode())
}

/// As [`begin_cluster`], with the keys, functions and fencing tokens of a log: the directory of the
/// log of a server, the folder `raft` of a node of another cluster, or a copy of one of them. No
/// server may use it. Returns a join token, and what was taken.
///
/// # Errors
/// If there is a node in `dir` already, there is no log in `from`, it is damaged or in use, or
/// `dir` cannot be written.
pub fn begin_cluster_from(settings: &Settings, from: &Path) -> Result<(String, Taken), Error> {
    let node = new_node(settings)?;
    let (identity, own, token) = first_identity(&node)?;
    let folder = Identity::folder(&node.dir);
    // It gets its name when it is complete.
    let partial = folder.with_extension("partial");
    match std::fs::remove_dir_all(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    identity.write_in(&partial).map_err(failed)?;
    let taken = import(settings, from, &own, &partial)?;
    let moved = std::fs::rename(&partial, &folder).and_then(|()| sync(&node.dir));
    moved.map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    Ok((token.encode(), taken))
}

/// Makes the names in a directory durable.
fn sync(dir: &Path) -> io::Result<()> {
    Directory::existing(dir)?.sync()
}

/// Whether there is a log with units in a directory.
fn has_units(path: &Path) -> Result<bool, Error> {
    let disk = match Directory::read_only(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened.map_err(failed)?,
    };
    let found = recover(&disk, |_| Ok(()));
    let found = found.map_err(|error| failed(format!("{}: {error}", path.display())))?;
    Ok(found.last > 0)
}

/// The identity of the first node of a new cluster, the node itself, and a join token.
fn first_identity(node: &NodeSettings) -> Result<(Identity, Peer, Token), Error> {
    let mut name = [0; 8];
    SystemRandom::new().fill(&mut name).map_err(failed)?;
    let key = NodeKey::generate().map_err(failed)?;
    let fingerprint = key.fingerprint().map_err(failed)?;
    let token = Token::new(&node.own.address, &fingerprint, end_of(None)).map_err(failed)?;
    let own = Peer { fingerprint, tokens: vec![token.record()], ..node.own.clone() };
    let identity = Identity {
        cluster: format!("{:016x}", u64::from_be_bytes(name)),
        node: FIRST_NODE,
        is_member: false,
        address: own.address.clone(),
        key: Some(key),
        authority: None,
        members: Members { at: None, nodes: [(FIRST_NODE, own.clone())].into() },
    };
    Ok((identity, own, token))
}

/// The end of a join token that is valid for this time, by default [`TOKEN_VALID`].
fn end_of(valid: Option<Duration>) -> u64 {
    now_seconds().saturating_add(valid.unwrap_or(TOKEN_VALID).as_secs())
}

/// Gets a number in the cluster of this join token for the server with these settings; the server
/// enters the cluster when it is started. Returns the number.
///
/// # Errors
/// If there is a node in `dir` already, no leader can be reached, or it refuses the token.
pub fn join_cluster(settings: &Settings, token: &str) -> Result<NodeId, Error> {
    let new = new_node(settings)?;
    let token = Token::decode(token).map_err(|error| Error::new(ErrorKind::Usage, error))?;
    let key = NodeKey::generate().map_err(failed)?;
    let credentials = Credentials::new(&key, None, None).map_err(failed)?;
    let connector = credentials.connector(MEMBERSHIP).map_err(failed)?;
    let (secret, until) = (token.secret(), token.until);
    let request = Request::Admit { secret, until, peer: new.own.clone() };
    match run(ask(&[token.maker()], &connector, &request))?.map_err(failed)? {
        Reply::Admitted { cluster, node, members } => {
            let (address, key) = (new.own.address.clone(), Some(key));
            let (is_member, authority) = (false, None);
            let identity = Identity { cluster, node, is_member, address, key, authority, members };
            identity.write(&new.dir).map_err(failed)?;
            Ok(node)
        }
        _ => Err(unexpected()),
    }
}

/// A new join token of the node in `dir`, valid for this time, by default for a day. It is recorded
/// by the leader.
///
/// # Errors
/// If there is no node in `dir`, it does not run, or the leader refuses.
pub fn new_token(dir: &Path, valid: Option<Duration>) -> Result<String, Error> {
    let own = OwnNode::read(dir)?;
    let Peer { address, fingerprint, .. } = &own.peer;
    let token = Token::new(address, fingerprint, end_of(valid)).map_err(failed)?;
    own.change(&Request::AddToken { token: token.record() })?;
    Ok(token.encode())
}

/// The state of the cluster, as its leader sees it, or the node in `dir` if there is none.
///
/// # Errors
/// If there is no node, it does not run, or it was removed.
pub fn status(dir: &Path) -> Result<Status, Error> {
    let own = OwnNode::read(dir)?;
    run(status_from(&own.peer, &own.connector))?
}

/// The nodes that vote and are not in contact with the leader, with their addresses. Other nodes
/// are asked than the one in `dir`, which has just been admitted and does not run yet.
///
/// # Errors
/// If there is no node in `dir`, or no other one answers.
pub fn lost_voters(dir: &Path) -> Result<Vec<(NodeId, String)>, Error> {
    let (own, identity) = (OwnNode::read(dir)?, OwnNode::identity(dir)?);
    let others = identity.members.nodes.iter().filter(|(id, _)| **id != identity.node);
    let status = run(async {
        let mut status = Err(failed("there is no other node"));
        for (_, peer) in others {
            status = status_from(peer, &own.connector).await;
            if status.as_ref().is_ok_and(|status| status.leader.is_some()) {
                break;
            }
        }
        status
    })??;
    let is_lost = |node: &NodeStatus| node.is_voter && node.is_in_contact == Some(false);
    let lost = status.nodes.into_iter().filter(|(_, node)| is_lost(node));
    Ok(lost.map(|(id, node)| (id, node.peer.address)).collect())
}

/// The state of the cluster, as the leader sees it that this node names, or else the node itself.
async fn status_from(peer: &Peer, connector: &Connector) -> Result<Status, Error> {
    let ask = async |peer: &Peer| ask_node(connector, None, peer, &Request::Status).await;
    let status_in = |reply| match reply {
        Reply::Status(status) => Ok(status),
        Reply::Failed(error) => Err(failed(error)),
        _ => Err(unexpected()),
    };
    let address = &peer.address;
    let reply = ask(peer).await.map_err(|error| failed(format!("{address}: {error}")))?;
    let status = status_in(reply)?;
    let leader = status.leader.and_then(|leader| status.nodes.get(&leader));
    let Some(leader) = leader else { return Ok(status) };
    // It may have failed just now.
    ask(&leader.peer).await.map_or(Ok(status), status_in)
}

/// Removes a node from the cluster for good. It is asked of the leader, through the node in `dir`.
///
/// # Errors
/// If there is no node in `dir`, it does not run, or the leader refuses.
pub fn remove_node(dir: &Path, node: NodeId) -> Result<(), Error> {
    OwnNode::read(dir)?.change(&Request::Remove { node })
}

/// Makes a node the leader of the cluster; returns when it leads.
///
/// # Errors
/// If there is no node in `dir`, it does not run, or the leader refuses: the node has no vote,
/// cannot be reached or lacks entries.
pub fn lead(dir: &Path, node: NodeId) -> Result<(), Error> {
    OwnNode::read(dir)?.change(&Request::Lead { node })
}

/// A node that is asked from its own machine.
struct OwnNode {
    peer: Peer,
    connector: Connector,
}

impl OwnNode {
    fn identity(dir: &Path) -> Result<Identity, Error> {
        Identity::read(dir).map_err(failed)?.ok_or_else(|| {
            let reason = format!("there is no node of a cluster in '{}'", dir.display());
            Error::new(ErrorKind::Config, reason)
        })
    }

    fn read(dir: &Path) -> Result<OwnNode, Error> {
        let identity = OwnNode::identity(dir)?;
        let fingerprint = identity.fingerprint().map_err(failed)?;
        let credentials = identity.credentials().map_err(failed)?;
        let connector = credentials.connector(MEMBERSHIP).map_err(failed)?;
        let peer = Peer { address: identity.address, fingerprint, ..Peer::default() };
        Ok(OwnNode { peer, connector })
    }

    /// Asks the leader for a change, through this node.
    fn change(&self, request: &Request) -> Result<(), Error> {
        let reply = run(ask(slice::from_ref(&self.peer), &self.connector, request))?;
        reply.map(drop).map_err(failed)
    }
}

fn unexpected() -> Error {
    failed("the node has sent a reply to another request")
}

/// Runs `work` to its end.
fn run<T: Send>(work: impl Future<Output = T> + Send) -> Result<T, Error> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    Ok(block_on(&runtime, work))
}
