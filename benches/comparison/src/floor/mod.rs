//! The floor: a server that does only what a durable or a replicated change costs, as the lower
//! bound for servers with a log.
//!
//! The [leader](serve) reads requests, finds the end of each, and collects them in a batch. It
//! sends the batch to its followers, writes it to its log, flushes the log, and replies when one
//! follower has flushed the batch as well. A [follower](follow) only reads, writes, flushes and
//! acknowledges. Without followers, the leader is the floor of one durable node. No node keeps
//! any lock: the reply depends only on the name of the command and on the number of its
//! arguments.
//!
//! A node has one thread and blocking sockets; the leader waits for all of them with one epoll. A
//! thread of its own for the log or for a follower would add two wake-ups to each round. Requests
//! that arrive during a flush are in the buffers of their sockets, and the leader collects them
//! while it waits for an acknowledgement. One batch is in flight at a time.
//!
//! What is missing on purpose: a lock table, leases, scripts, terms and elections, checksums, and
//! files that are divided and deleted.
//!
//! Begin with `leader.rs`.

mod follower;
mod leader;
mod log;

pub use follower::follow;
pub use leader::serve;

/// The bytes before the requests of a batch: their length, in the log and between nodes.
const HEADER_BYTES: usize = size_of::<u32>();
/// Bytes that are read at once.
const CHUNK_BYTES: usize = 64 * 1024;
