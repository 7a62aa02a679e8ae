//! The network between the nodes: bytes arrive one step after they were sent, unless their
//! direction is cut.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lockwheel_raft::{Connect, Connecting, Node, NodeId, Peer, Stream};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::runtime::Handle;

/// A direction: from the first node to the second one.
pub type Direction = (NodeId, NodeId);

/// The simulated network.
#[derive(Debug, Default)]
pub struct Network {
    /// The nodes that accept connections.
    pub running: BTreeMap<NodeId, (Arc<Node>, Handle)>,
    /// Directions in which nothing arrives.
    pub cut: BTreeSet<Direction>,
    /// Directions in which nothing arrives in every second interval of this length.
    pub flapping: Option<(BTreeSet<Direction>, Duration)>,
    /// What the link of each node carries in a second from it, if that is bounded.
    pub bytes_per_second: Option<u64>,
    /// When bytes arrived last.
    carried: Duration,
    channels: Vec<Channel>,
    /// The last connection that was made.
    pub last_connection: Option<Direction>,
}

/// One direction of a connection.
#[derive(Debug)]
struct Channel {
    direction: Direction,
    source: ReadHalf<DuplexStream>,
    sink: WriteHalf<DuplexStream>,
    /// What was sent and has not arrived.
    bytes: Vec<u8>,
    /// Whether the sender has closed the connection.
    is_closed: bool,
}

/// What a connection holds back from its sender.
const BUFFER_BYTES: usize = 1 << 16;

impl Network {
    /// Bytes arrive, at this time since the beginning.
    pub fn carry(&mut self, now: Duration) {
        let Network { cut, flapping, channels, bytes_per_second, carried, .. } = self;
        let flapping = flapping.as_ref().filter(|(_, interval)| {
            let intervals = now.as_nanos() / interval.as_nanos();
            intervals.is_multiple_of(2)
        });
        let is_cut = |direction: &Direction| {
            cut.contains(direction)
                || flapping.is_some_and(|(directions, _)| directions.contains(direction))
        };
        let mut buffer = [0; 4096];
        let step = now - std::mem::replace(carried, now);
        let of_step = bytes_per_second.map(|bytes| (bytes as f64 * step.as_secs_f64()) as usize);
        let mut left: BTreeMap<NodeId, usize> = BTreeMap::new();
        channels.retain_mut(|channel| {
            let left = left.entry(channel.direction.0).or_insert(of_step.unwrap_or(usize::MAX));
            is_cut(&channel.direction) || channel.carry(&mut buffer, left)
        });
        // Another channel is the first one each time.
        if !channels.is_empty() {
            channels.rotate_left(1);
        }
    }

    /// Opens all directions.
    pub fn heal(&mut self) {
        self.cut.clear();
        self.flapping = None;
    }

    fn connect(&mut self, from: NodeId, to: NodeId) -> io::Result<Box<dyn Stream>> {
        let (node, runtime) = self.running.get(&to).ok_or(io::ErrorKind::ConnectionRefused)?;
        let node = Arc::clone(node);
        let (near, link_near) = duplex(BUFFER_BYTES);
        let (link_far, far) = duplex(BUFFER_BYTES);
        runtime.spawn(async move { node.serve(far).await });
        let ((near_source, near_sink), (far_source, far_sink)) =
            (split(link_near), split(link_far));
        self.last_connection = Some((from, to));
        self.channels.push(Channel::new((from, to), near_source, far_sink));
        self.channels.push(Channel::new((to, from), far_source, near_sink));
        Ok(Box::new(near))
    }
}

impl Channel {
    fn new(
        direction: Direction,
        source: ReadHalf<DuplexStream>,
        sink: WriteHalf<DuplexStream>,
    ) -> Channel {
        Channel { direction, source, sink, bytes: Vec::new(), is_closed: false }
    }

    /// What was sent before the last step arrives, as far as the link has `left` bytes for it;
    /// returns whether more may come.
    fn carry(&mut self, buffer: &mut [u8], left: &mut usize) -> bool {
        while !self.bytes.is_empty() {
            let length = self.bytes.len().min(*left);
            match self.sink.write(&self.bytes[..length]).now_or_never() {
                Some(Ok(0)) | None => return true,
                Some(Ok(written)) => {
                    self.bytes.drain(..written);
                    *left -= written;
                }
                Some(Err(_)) => return false,
            }
        }
        if self.is_closed {
            // It only sets a flag, which the receiver sees.
            let _ = self.sink.shutdown().now_or_never();
            return false;
        }
        while let Some(read) = self.source.read(buffer).now_or_never() {
            match read {
                Ok(length @ 1..) => self.bytes.extend_from_slice(&buffer[..length]),
                _ => {
                    self.is_closed = true;
                    break;
                }
            }
        }
        true
    }
}

/// The network as one node sees it.
#[derive(Debug)]
pub struct From(pub NodeId, pub Arc<Mutex<Network>>);

impl Connect for From {
    fn connect(&self, to: NodeId, _: &Peer) -> Connecting<'_> {
        let From(from, network) = self;
        let stream = network.lock().connect(*from, to);
        Box::pin(std::future::ready(stream))
    }
}
