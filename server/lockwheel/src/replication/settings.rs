//! The directives of a node.

use std::path::PathBuf;
use std::time::Duration;

use lockwheel_engine::settings::{Permission, Settings, directive};
use lockwheel_raft::Peer;

use super::identity::Identity;
use crate::error::{Error, ErrorKind};

/// How a server takes part in its cluster.
#[derive(Clone, Debug)]
pub(crate) struct NodeSettings {
    /// The directory of the server.
    pub(super) dir: PathBuf,
    /// The port for other nodes.
    pub(super) port: u16,
    /// Addresses to listen on, as for clients.
    pub(super) bind: Vec<String>,
    /// Connections that the kernel queues before they are accepted.
    pub(super) backlog: u32,
    /// Where others reach this node.
    pub(super) own: Peer,
    /// See [`lockwheel_raft::Settings::lease`].
    pub(super) lease: Duration,
}

impl NodeSettings {
    /// Reads the directives; `None` if the server is no node. The ports for clients must be known.
    pub(crate) fn of(settings: &Settings) -> Result<Option<NodeSettings>, Error> {
        if !settings.is_node() {
            return Ok(None);
        }
        if settings.enable_test_commands != Permission::No {
            let reason = "raft-port and enable-test-commands exclude each other: the commands for \
                          tests change the clock and the keys of one node only";
            return Err(Error::new(ErrorKind::Config, reason));
        }
        let bind = settings.get(directive::BIND);
        let bound = bind.iter().find(|address| !address.starts_with(['-', '*', ':']));
        let bound = bound.filter(|bound| *bound != "0.0.0.0").cloned();
        let host = settings.get(directive::RAFT_ANNOUNCE_IP).or(bound).ok_or_else(|| {
            let reason = "raft-announce-ip is needed: the address by which other nodes and clients \
                          reach this one does not follow from 'bind'";
            Error::new(ErrorKind::Config, reason)
        })?;
        let client_host = settings.get(directive::REPLICA_ANNOUNCE_IP);
        let client_host = client_host.unwrap_or_else(|| host.clone());
        let first = |ports: &[u16]| ports.iter().copied().find(|port| *port != 0).unwrap_or(0);
        let port = settings.get(directive::RAFT_PORT);
        let announced = first(&[settings.get(directive::RAFT_ANNOUNCE_PORT), port]);
        let client_port = settings.get(directive::REPLICA_ANNOUNCE_PORT);
        let ports = [client_port, settings.port, settings.get(directive::TLS_PORT)];
        Ok(Some(NodeSettings {
            dir: settings.get(directive::DIR).into(),
            port,
            backlog: settings.get(directive::TCP_BACKLOG),
            bind,
            own: Peer {
                address: with_port(&host, announced),
                client_address: with_port(&client_host, first(&ports)),
                // The identity has its key.
                ..Peer::default()
            },
            lease: settings.get(directive::RAFT_ELECTION_TIMEOUT),
        }))
    }

    /// Longest time between two messages of a leader: several may be lost within a lease.
    pub(super) fn heartbeat(&self) -> Duration {
        self.lease / 5
    }

    /// The identity of the node in `dir`.
    pub(super) fn identity(&self) -> Result<Identity, Error> {
        let dir = self.dir.display();
        let failed = |error: std::io::Error| {
            Error::new(ErrorKind::Io, format!("the node of '{dir}' cannot be read: {error}"))
        };
        Identity::read(&self.dir).map_err(failed)?.ok_or_else(|| {
            let reason = format!(
                "there is no node of a cluster in '{dir}': 'lockwheel raft init' begins a \
                 cluster, 'lockwheel raft join' adds a node to one"
            );
            Error::new(ErrorKind::Config, reason)
        })
    }
}

/// An address for clients of the system's resolver.
fn with_port(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}
