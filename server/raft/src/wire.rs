//! Messages between nodes: a length of four bytes, little-endian, and MessagePack.
//!
//! Fields have names, so that a later version can add some.

use std::io;
use std::time::Duration;

use openraft::error::{Fatal, Infallible, RaftError};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{LogId, SnapshotMeta, Vote};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::batch::{Peer, Types};
use crate::limits;
use crate::types::NodeId;

/// What a connection is made of.
pub trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// The first message of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The version of the protocol.
    pub(crate) version: u32,
    /// The cluster that both belong to.
    pub(crate) cluster: String,
    /// The node that is called: its address may have been given to another one.
    pub(crate) to: NodeId,
    /// The lease of the node that calls, in milliseconds: see [`crate::Settings::lease`].
    pub(crate) lease_ms: u64,
}

/// The version that this program speaks.
pub(crate) const VERSION: u32 = 1;

/// The reply to [`Hello`].
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Welcome {
    Accepted,
    Refused(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<NodeId>),
    /// Would the node vote for one whose last entry is this?
    WouldVote(Option<LogId<NodeId>>),
    /// How far is the log of the node, and has its disk space?
    LastEntry,
    /// A leader gives its leadership to this node.
    Chosen {
        node: NodeId,
    },
    /// How far is the log applied on a node that leads for certain?
    ReadIndex,
    /// The node has acknowledged entries up to this index to the leader with this vote, and does
    /// not have them any more.
    LogIsLost {
        vote: Vote<NodeId>,
        acknowledged: u64,
    },
    /// Parts of the file follow, until one is empty.
    Snapshot {
        vote: Vote<NodeId>,
        meta: SnapshotMeta<NodeId, Peer>,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Append(Result<AppendEntriesResponse<NodeId>, RaftError<NodeId, Infallible>>),
    Vote(Result<VoteResponse<NodeId>, RaftError<NodeId, Infallible>>),
    WouldVote(bool),
    LastEntry(LastEntry),
    /// The index of an entry; none if the node does not lead for certain.
    ReadIndex(Option<u64>),
    Snapshot(Result<SnapshotResponse<NodeId>, Fatal<NodeId>>),
    /// The snapshot has arrived and is being loaded.
    Loading,
    /// The message has been taken notice of.
    Noted,
    /// The node does not answer this request now.
    Refused(String),
}

/// How far the log of a node is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LastEntry {
    pub(crate) last: Option<LogId<NodeId>>,
    /// The entry with the members that the node knows.
    pub(crate) membership: Option<LogId<NodeId>>,
    /// Whether the node leads for certain.
    pub(crate) leads: bool,
    /// Whether the disk of the node has space for a leader.
    #[serde(default)]
    pub(crate) has_space: bool,
}

/// Refuses a connection for the log, and says why.
///
/// # Errors
/// As the stream returns them.
pub async fn refuse(stream: &mut impl Stream, reason: &str) -> io::Result<()> {
    let _: Option<Hello> = receive(stream, limits::HELLO_BYTES_MAX).await?;
    send(stream, &Welcome::Refused(reason.to_owned())).await
}

/// Sends one message.
///
/// # Errors
/// As the stream returns them, or if the message is longer than any may be.
pub async fn send(
    stream: &mut (impl AsyncWrite + Unpin + ?Sized),
    message: &impl Serialize,
) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    bytes.extend([0; LENGTH_BYTES]);
    rmp_serde::encode::write_named(&mut bytes, message).map_err(io::Error::other)?;
    let length = bytes.len() - LENGTH_BYTES;
    let length = u32::try_from(length).ok().filter(|length| *length <= limits::MESSAGE_BYTES_MAX);
    let length = length.ok_or_else(|| invalid("a message is too long"))?;
    bytes[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    stream.write_all(&bytes).await?;
    stream.flush().await
}

/// Receives one message; `None` if the connection has ended before it.
///
/// # Errors
/// [`io::ErrorKind::InvalidData`] if it is longer than `bytes_max` or no message of this type.
pub async fn receive<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin + ?Sized),
    bytes_max: u32,
) -> io::Result<Option<T>> {
    let mut length = [0; LENGTH_BYTES];
    match stream.read_exact(&mut length).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    };
    let length = u32::from_le_bytes(length);
    if length > bytes_max {
        return Err(invalid("a message is too long"));
    }
    // Beyond a usual message, memory grows with what has arrived, not with what was announced.
    let mut bytes = Vec::with_capacity(USUAL_BYTES.min(length as usize));
    stream.take(u64::from(length)).read_to_end(&mut bytes).await?;
    if bytes.len() < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    rmp_serde::from_slice(&bytes).map(Some).map_err(|error| invalid(&error.to_string()))
}

const LENGTH_BYTES: usize = 4;

/// Bytes of a message that carries the changes of some clients.
const USUAL_BYTES: usize = 4 << 10;

fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// A time in a message.
pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
