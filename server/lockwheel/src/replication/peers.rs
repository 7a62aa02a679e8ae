//! Connections between nodes: TLS with certificates of the cluster's authority.

use std::io;
use std::sync::{Arc, Weak};

use lockwheel_raft::{Connect, Connecting, Node, NodeId, Peer, Stream};
use rustls::{ClientConfig, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};
use tracing::debug;

use super::authority::{RAFT, server_name};
use super::membership::Membership;
use crate::limits;

/// Connects to the addresses of the nodes.
#[derive(Debug)]
pub(super) struct Peers(pub(super) Arc<ClientConfig>);

impl Connect for Peers {
    fn connect(&self, node: NodeId, peer: &Peer) -> Connecting<'_> {
        let address = peer.address.clone();
        Box::pin(async move {
            let stream = connect(&address, Some(node), &self.0).await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

/// Connects to the node at this address, whichever it is if there is no number.
pub(super) async fn connect(
    address: &str,
    node: Option<NodeId>,
    config: &Arc<ClientConfig>,
) -> io::Result<client::TlsStream<TcpStream>> {
    let connecting = async {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        TlsConnector::from(Arc::clone(config)).connect(server_name(node), stream).await
    };
    timeout(limits::RAFT_CONNECT_TIMEOUT, connecting).await?
}

/// What connections of other nodes are served with.
#[derive(Debug)]
pub(super) struct Services {
    pub(super) config: Arc<ServerConfig>,
    pub(super) node: Weak<Node>,
    pub(super) membership: Membership,
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

async fn serve(stream: TcpStream, services: &Services) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let acceptor = TlsAcceptor::from(Arc::clone(&services.config));
    let stream = timeout(limits::RAFT_CONNECT_TIMEOUT, acceptor.accept(stream)).await??;
    let Some(node) = services.node.upgrade() else { return Ok(()) };
    let (_, connection) = stream.get_ref();
    let is_node = connection.peer_certificates().is_some();
    match connection.alpn_protocol() == Some(RAFT) {
        true if is_node => node.serve(stream).await,
        true => Err(io::ErrorKind::PermissionDenied.into()),
        false => serve_membership(stream, services, &node, is_node).await,
    }
}

async fn serve_membership(
    mut stream: server::TlsStream<TcpStream>,
    services: &Services,
    node: &Node,
    is_node: bool,
) -> io::Result<()> {
    let serving = services.membership.serve(&mut stream, node, is_node);
    // A new node is one of the cluster only when it has the whole log.
    timeout(limits::RAFT_MEMBERSHIP_TIMEOUT, serving).await?
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
