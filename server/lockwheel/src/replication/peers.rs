//! Connections between nodes over TCP.

use std::io;
use std::sync::{Arc, Weak};

use lockwheel_raft::{Connect, Connecting, Node, NodeId, Peer, Stream};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tracing::debug;

use crate::limits;

/// Connects to the addresses of the nodes.
#[derive(Debug)]
pub(crate) struct Peers;

impl Connect for Peers {
    fn connect(&self, _: NodeId, peer: &Peer) -> Connecting<'_> {
        let address = peer.address.clone();
        Box::pin(async move {
            let connecting = TcpStream::connect(&address);
            let stream = timeout(limits::RAFT_CONNECT_TIMEOUT, connecting).await??;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }
}

/// Accepts connections of other nodes at this address, until the node ends.
pub(crate) async fn accept(address: &str, node: &Arc<Node>) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let node = Arc::downgrade(node);
    tokio::spawn(async move {
        while let Some(stream) = next(&listener, &node).await {
            let Some(node) = node.upgrade() else { return };
            tokio::spawn(async move {
                if let Err(error) = node.serve(stream).await {
                    debug!(%error, "a connection of another node has ended");
                }
            });
        }
    });
    Ok(())
}

/// The next connection; `None` if the node has ended.
async fn next(listener: &TcpListener, node: &Weak<Node>) -> Option<TcpStream> {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Fails only if the other side has closed the connection already.
                let _ = stream.set_nodelay(true);
                return Some(stream);
            }
            Err(_) if node.strong_count() == 0 => return None,
            // There are no descriptors left, for example.
            Err(error) => {
                debug!(%error, "a connection of another node was not accepted");
                tokio::time::sleep(limits::RAFT_ACCEPT_PAUSE).await;
            }
        }
    }
}
