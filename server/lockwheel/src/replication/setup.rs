//! What an operator does with a cluster: to begin it, add nodes and remove them, and see its state.

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lockwheel_engine::settings::Settings;
use lockwheel_log::recovery::recover;
use lockwheel_log::{Directory, Disk};
use lockwheel_raft::{MembershipError, NodeId, Status};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::ClientConfig;
use tokio::runtime;

use super::authority::{Authority, MEMBERSHIP, client_config_of_new_node};
use super::identity::Identity;
use super::import::{Taken, import};
use super::membership::{Reply, Request, ask, ask_node, now_seconds};
use super::token::Token;
use super::{NodeSettings, block_on};
use crate::error::{Error, ErrorKind};
use crate::log::directory;

/// The number of the node that begins a cluster.
pub(super) const FIRST_NODE: NodeId = 1;

/// How long a join token is valid if nothing else is said.
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
    // Without its identity: the new node would go on with it.
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
    first_identity(&node)?.write(&node.dir).map_err(failed)?;
    new_token(&node.dir, None)
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
    let identity = first_identity(&node)?;
    let folder = Identity::folder(&node.dir);
    // It gets its name when it is complete.
    let partial = folder.with_extension("partial");
    match std::fs::remove_dir_all(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    identity.write_in(&partial).map_err(failed)?;
    let taken = import(settings, from, &node.own, &partial)?;
    let moved = std::fs::rename(&partial, &folder).and_then(|()| sync(&node.dir));
    moved.map_err(|error| failed(format!("{}: {error}", folder.display())))?;
    Ok((new_token(&node.dir, None)?, taken))
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

/// The identity of the first node of a new cluster.
fn first_identity(node: &NodeSettings) -> Result<Identity, Error> {
    let mut name = [0; 8];
    SystemRandom::new().fill(&mut name).map_err(failed)?;
    Ok(Identity {
        cluster: format!("{:016x}", u64::from_be_bytes(name)),
        node: FIRST_NODE,
        is_member: false,
        address: node.own.address.clone(),
        authority: Authority::create().map_err(failed)?,
    })
}

/// Gets a number in the cluster of this join token for the server with these settings; the server
/// enters the cluster when it is started. Returns the number.
///
/// # Errors
/// If there is a node in `dir` already, no leader can be reached, or it refuses the token.
pub fn join_cluster(settings: &Settings, token: &str) -> Result<NodeId, Error> {
    let node = new_node(settings)?;
    let token = Token::decode(token).map_err(|error| Error::new(ErrorKind::Usage, error))?;
    let config = client_config_of_new_node(token.fingerprint).map_err(failed)?;
    let request = Request::Admit { until: token.until, permission: token.permission.to_vec() };
    let addresses = [token.address.clone()];
    match run(ask(&addresses, &config, &request))?.map_err(failed)? {
        Reply::Admitted { cluster, node: number, authority } => {
            let address = token.address;
            let identity = Identity { cluster, node: number, is_member: false, address, authority };
            identity.write(&node.dir).map_err(failed)?;
            Ok(number)
        }
        _ => Err(unexpected()),
    }
}

/// A new join token of the node in `dir`, which is valid for so long, or for a day.
///
/// # Errors
/// If there is no node.
pub fn new_token(dir: &Path, valid: Option<Duration>) -> Result<String, Error> {
    let Identity { address, authority, .. } = identity(dir)?;
    let until = now_seconds().saturating_add(valid.unwrap_or(TOKEN_VALID).as_secs());
    let token = Token::new(&authority, &address, until).map_err(failed)?;
    Ok(token.encode())
}

/// The state of the cluster, as its leader sees it, or the node in `dir` if there is none.
///
/// # Errors
/// If there is no node, or it does not run.
pub fn status(dir: &Path) -> Result<Status, Error> {
    let (identity, config) = own_node(dir)?;
    let status_of = async |address: &str| {
        let reply = ask_node(address, &config, &Request::Status).await;
        match reply.map_err(|error| failed(format!("{address}: {error}")))? {
            Reply::Status(status) => Ok(status),
            _ => Err(unexpected()),
        }
    };
    run(async {
        let status = status_of(&identity.address).await?;
        let leader = status.leader.and_then(|leader| status.nodes.get(&leader));
        match leader {
            // It may have failed just now.
            Some(leader) => Ok(status_of(&leader.peer.address).await.unwrap_or(status)),
            None => Ok(status),
        }
    })?
}

/// Removes a node from the cluster for good. It is asked of the leader, through the node in `dir`.
///
/// # Errors
/// If there is no node in `dir`, it does not run, or the leader refuses.
pub fn remove_node(dir: &Path, node: NodeId) -> Result<(), Error> {
    ask_leader(dir, node, &Request::Remove { node })
}

/// Has a node lead the cluster; returns when it does. It is asked of the leader, through the node
/// in `dir`. No commands are executed for a little more than `raft-election-timeout`.
///
/// # Errors
/// If there is no node in `dir`, it does not run, or the leader refuses: the node has no vote,
/// cannot be reached or lacks entries.
pub fn lead(dir: &Path, node: NodeId) -> Result<(), Error> {
    ask_leader(dir, node, &Request::Lead { node })
}

/// Asks the leader for something about a node, through the node in `dir`.
fn ask_leader(dir: &Path, node: NodeId, request: &Request) -> Result<(), Error> {
    let (identity, config) = own_node(dir)?;
    match run(ask(&[identity.address], &config, request))? {
        Ok(_) => Ok(()),
        Err(error @ MembershipError::Removed) => Err(failed(format!("node {node}: {error}"))),
        Err(error) => Err(failed(error)),
    }
}

fn identity(dir: &Path) -> Result<Identity, Error> {
    Identity::read(dir).map_err(failed)?.ok_or_else(|| {
        let reason = format!("there is no node of a cluster in '{}'", dir.display());
        Error::new(ErrorKind::Config, reason)
    })
}

/// The node in `dir`, and how to ask it.
fn own_node(dir: &Path) -> Result<(Identity, Arc<ClientConfig>), Error> {
    let identity = identity(dir)?;
    let config = identity.authority.client_config(identity.node, MEMBERSHIP);
    Ok((identity, config.map_err(failed)?))
}

fn unexpected() -> Error {
    failed("the node has sent a reply to another request")
}

/// Runs `work` to its end.
fn run<T: Send>(work: impl Future<Output = T> + Send) -> Result<T, Error> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    Ok(block_on(&runtime, work))
}
