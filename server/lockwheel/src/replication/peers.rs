//! The port for other nodes, and the connections that there may be.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Weak};

use lockwheel_raft::{Node, receive, refuse};
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, server};
use tracing::debug;

use super::keys::{RAFT, Shown};
use super::known_nodes::KnownNodes;
use super::membership::{Asking, Request, UNKNOWN_KEY, answer};
use crate::limits;

/// What connections of other nodes are served with.
#[derive(Debug)]
pub(super) struct Services {
    pub(super) config: Arc<ServerConfig>,
    pub(super) node: Weak<Node>,
    pub(super) cluster: String,
    pub(super) known: Arc<KnownNodes>,
    pub(super) places: Places,
}

/// The connections that there may be.
#[derive(Debug)]
pub(super) struct Places {
    unidentified: Mutex<Unidentified>,
    /// Places of connections that have.
    known: Semaphore,
}

impl Default for Places {
    fn default() -> Places {
        Places {
            unidentified: Mutex::default(),
            known: Semaphore::new(limits::RAFT_CONNECTIONS_MAX),
        }
    }
}

/// Connections that have neither shown the key of a node nor sent a request.
#[derive(Debug, Default)]
struct Unidentified {
    last_number: u64,
    /// The oldest first. A connection is closed when its sender is dropped.
    all: VecDeque<(u64, oneshot::Sender<()>)>,
}

impl Unidentified {
    /// Adds a connection: its number, and what is ready when the connection must be closed.
    fn add(&mut self) -> (u64, oneshot::Receiver<()>) {
        if self.all.len() >= limits::RAFT_UNIDENTIFIED_MAX {
            self.all.pop_front();
        }
        self.last_number += 1;
        let (sender, closed) = oneshot::channel();
        self.all.push_back((self.last_number, sender));
        (self.last_number, closed)
    }

    fn remove(&mut self, number: u64) {
        self.all.retain(|(other, _)| *other != number);
    }
}

/// Serves the connections of other nodes, until the node ends.
pub(super) async fn accept(listener: TcpListener, services: Arc<Services>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            stream = next(&listener, &services.node) => {
                let Some(stream) = stream else { return };
                let services = Arc::clone(&services);
                connections.spawn(async move {
                    if let Err(error) = serve(stream, &services).await {
                        debug!(%error, "a connection of another node has ended");
                    }
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// A connection that has shown the key of a node, or has sent a request.
struct Identified {
    stream: server::TlsStream<TcpStream>,
    asking: Asking,
    /// The request about the nodes; without one, the connection is that of a node.
    request: Option<Request>,
}

async fn serve(stream: TcpStream, services: &Services) -> io::Result<()> {
    let (number, closed) = services.places.unidentified.lock().add();
    let identified = tokio::select! {
        identified = identify(stream, services) => identified,
        _ = closed => Err(io::Error::other("too many unidentified connections")),
    };
    services.places.unidentified.lock().remove(number);
    let Some(Identified { mut stream, asking, request }) = identified? else { return Ok(()) };
    let place = services.places.known.try_acquire();
    let _place = place.map_err(|_| io::Error::other("too many connections with nodes"))?;
    let Some(node) = services.node.upgrade() else { return Ok(()) };
    let Some(request) = request else {
        return tokio::select! {
            served = node.serve(stream) => served,
            () = services.known.until_removed(&asking.shown) => {
                Err(io::Error::other("the node was removed"))
            }
        };
    };
    let serving = answer(&mut stream, request, &node, &services.cluster, &asking);
    // A new node is one of the cluster only when it has the whole log.
    timeout(limits::RAFT_MEMBERSHIP_TIMEOUT, serving).await?
}

/// Waits for the key or the request of a connection, for some seconds. `None` if it is
/// closed before.
async fn identify(stream: TcpStream, services: &Services) -> io::Result<Option<Identified>> {
    stream.set_nodelay(true)?;
    let acceptor = TlsAcceptor::from(Arc::clone(&services.config));
    let mut stream = timeout(limits::RAFT_CONNECT_TIMEOUT, acceptor.accept(stream)).await??;
    let (_, connection) = stream.get_ref();
    let is_raft = connection.alpn_protocol() == Some(RAFT);
    let shown = Shown::on(connection)?;
    let asking = Asking { node: services.known.node_of(&shown), shown };
    if !is_raft {
        let received = receive(&mut stream, limits::RAFT_MEMBERSHIP_BYTES_MAX);
        let request = timeout(limits::RAFT_REQUEST_TIMEOUT, received).await??;
        return Ok(request.map(|request| Identified { stream, asking, request: Some(request) }));
    }
    if asking.node.is_none() {
        let refusal = refuse(&mut stream, UNKNOWN_KEY);
        return timeout(limits::RAFT_REQUEST_TIMEOUT, refusal).await?.map(|()| None);
    }
    Ok(Some(Identified { stream, asking, request: None }))
}

/// The next connection; `None` if the node has ended.
async fn next(listener: &TcpListener, node: &Weak<Node>) -> Option<TcpStream> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return Some(stream),
            Err(_) if node.strong_count() == 0 => return None,
            // There are no descriptors left, for example.
            Err(error) => {
                debug!(%error, "a connection of another node was not accepted");
                tokio::time::sleep(limits::RAFT_ACCEPT_PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_unidentified_connection_is_closed_whenever_there_are_too_many() {
        let mut connections = Unidentified::default();
        let mut open = VecDeque::new();
        for _ in 0..3 {
            while open.len() < limits::RAFT_UNIDENTIFIED_MAX {
                open.push_back(connections.add());
            }
            let is_open = |(_, closed): &mut (u64, oneshot::Receiver<()>)| {
                matches!(closed.try_recv(), Err(oneshot::error::TryRecvError::Empty))
            };
            assert!(open.iter_mut().all(is_open));
            for _ in 0..2 {
                open.push_back(connections.add());
                assert!(!is_open(&mut open.pop_front().expect("the oldest")));
                assert!(open.iter_mut().all(is_open));
            }
            // Some identify themselves or end, among them the oldest.
            open.retain(|(number, _)| {
                let is_kept = *number % 3 > 0;
                if !is_kept {
                    connections.remove(*number);
                }
                is_kept
            });
        }
    }
}
