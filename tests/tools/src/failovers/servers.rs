//! Servers on the hosts of a network, one of which serves: the leader of a cluster, or the primary
//! of Redis.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use lockwheel_compat::wire::Wire;
use lockwheel_compat::wire::address::Endpoint;
use lockwheel_prove::demo::failovers;
use lockwheel_prove::demo::lockwheel_cluster::LockwheelCluster;
use lockwheel_prove::demo::place::{Hosts, Place};
use lockwheel_prove::demo::program::{Folder, Program};
use lockwheel_prove::demo::redis_sentinel::RedisSentinel;
use lockwheel_prove::faults::FaultRun;
use lockwheel_tests::{daemon, redis_server};

use crate::network::Network;

/// The longest time until all servers work together; far longer than they need.
const WHOLE_LIMIT: Duration = Duration::from_secs(120);

/// The kinds of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A cluster of Lockwheel
    Lockwheel,
    /// Redis with sentinels, if it is installed
    Redis,
}

/// The servers.
pub(crate) struct Servers {
    servers: Box<dyn failovers::Servers>,
    sentinels: Vec<Place>,
    folder: Arc<Folder>,
    network: Arc<Network>,
}

impl Servers {
    /// Starts servers, one on each host of a network. `None` if they are not installed.
    pub(crate) fn start(kind: Kind, network: Network) -> Result<Option<Servers>, String> {
        let (folder, network) = (Arc::new(Folder::new()?), Arc::new(network));
        let (places, others) = (network.places()?, network.places()?);
        let of_commands = Arc::clone(&network);
        let hosts = Hosts {
            servers: places.clone(),
            on: Box::new(move |index, command| of_commands.on(index, command)),
            folder: Arc::clone(&folder),
        };
        let (servers, sentinels): (Box<dyn failovers::Servers>, _) = match kind {
            Kind::Lockwheel => {
                let raft_ports = others.iter().map(|place| place.port).collect();
                (Box::new(LockwheelCluster::start(daemon::program(), hosts, raft_ports)?), places)
            }
            Kind::Redis => {
                let Some(program) = redis_server::program() else { return Ok(None) };
                (Box::new(RedisSentinel::start(program, hosts, others.clone())?), others)
            }
        };
        Ok(Some(Servers { servers, sentinels, folder, network }))
    }

    pub(crate) fn network(&self) -> &Network {
        &self.network
    }

    /// Where the servers are, by host.
    pub(crate) fn places(&self) -> &[Place] {
        self.servers.places()
    }

    /// Where `SENTINEL` is answered.
    pub(crate) fn sentinels(&self) -> &[Place] {
        &self.sentinels
    }

    pub(crate) fn program(&mut self, index: usize) -> &mut Program {
        self.servers.program(index)
    }

    /// Starts a server again when another one leads.
    pub(crate) fn start_again(&mut self, index: usize) -> Result<(), String> {
        let other = || self.servers.primary_other_than(index);
        let other = FaultRun::default().wait_for(WHOLE_LIMIT, other);
        other.ok_or("timed out: another server leads")?;
        self.servers.start_again(index)
    }

    /// Waits until all servers work together, and returns the one that serves.
    pub(crate) fn wait_until_whole(&mut self) -> Result<usize, String> {
        let leader = FaultRun::default().wait_for(WHOLE_LIMIT, || self.servers.primary_of_all());
        self.servers.check_alive()?;
        leader.ok_or_else(|| "timed out: all servers in contact".to_owned())
    }

    /// Keeps the files of the servers. Returns their path.
    pub(crate) fn keep_folder(&self) -> &Path {
        self.folder.keep()
    }
}

/// Connects to a server.
pub(crate) fn open(place: &Place, timeout: Duration) -> Option<Wire> {
    Wire::open(&Endpoint::Tcp(place.host.clone(), place.port), timeout).ok()
}
