//! All limits of the network and its threads, with their reasons. The limits of the engine are in
//! `lockwheel_engine::limits`.
//!
//! Limits that an operator can change are directives; the value here is then the bound or the
//! default.

use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

// Requests.

/// Bytes of an inline request, and of a line that holds a count. As in Redis: a client that never
/// ends its line does not use this protocol.
pub(crate) const INLINE_BYTES_MAX: usize = 64 * KIB;

/// Arguments of one request. Redis counts them in a C `int`.
pub(crate) const ARGS_MAX: usize = i32::MAX as usize;

/// Arguments of a request before AUTH: enough for `HELLO 3 AUTH user password SETNAME name`.
/// An unauthenticated client must not make the server reserve memory for a million.
pub(crate) const UNAUTHENTICATED_ARGS_MAX: usize = 10;

/// Bytes of one argument before AUTH. Longer than any password in use.
pub(crate) const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16 * KIB;

/// Bytes read from a socket with one system call: some hundred pipelined lock requests.
pub(crate) const READ_BYTES: usize = 16 * KIB;

/// Bytes reserved at once for a long argument, whatever length the client has announced.
pub(crate) const READ_BYTES_MAX: usize = MIB;

// Replies.

/// Bytes that may wait for a client before AUTH. Thousands of unauthenticated clients that send
/// and never read cost little memory.
pub(crate) const UNAUTHENTICATED_OUTBOX_BYTES_MAX: usize = 64 * KIB;

/// Bytes of replies produced under one hold of the engine's lock, and produced or sent by one
/// connection's task before other tasks run: some 100 us of copying.
pub(crate) const BATCH_REPLY_BYTES_MAX: usize = MIB;

/// Bytes in one chunk of the replies that a client has not read yet. Chunks are freed as they are
/// sent; smaller ones would need more system calls.
pub(crate) const OUTPUT_CHUNK_BYTES: usize = 64 * KIB;

/// Bytes of a client's output that are held back until the end of a turn. For more, one system call
/// does not matter; and all output held back stays within 16 MiB.
pub(crate) const HELD_BACK_BYTES: usize = 64 * KIB;

/// Clients with a pending reply at which a turn ends: about a millisecond of work. Larger turns
/// save nothing, and the first client waits for the last.
pub(crate) const TURN_CLIENTS_MAX: usize = 256;

/// Clients that are sent messages between two polls for input, when few are sent replies. A poll
/// costs a fifth of sending a message. In batches of two, waiters that try once for all messages
/// received try four times per release of a lock, whether there are sixteen waiters or a hundred.
pub(crate) const MESSAGES_BETWEEN_POLLS: usize = 2;

/// Tasks that a thread runs between two polls for input: a whole turn, since new input is not run
/// before the other tasks anyway, and a poll is a system call.
pub(crate) const TASKS_BETWEEN_POLLS: u32 = 256;

/// Longest time that a thread waits for the engine before it sends the output it holds back: longer
/// than most threads hold the engine, shorter than a client notices.
pub(crate) const ENGINE_WAIT_BEFORE_SEND: Duration = Duration::from_micros(200);

/// Time that a script runs before its thread sends the output it holds back. Scripts of lock
/// libraries take some 10 us; no client should wait 2 ms.
pub(crate) const SCRIPT_TIME_BEFORE_SEND: Duration = Duration::from_millis(1);

// Connections.

/// Bytes of stack of a thread that serves clients. Lua's parser and deep values recurse, with large
/// frames in a debug build.
pub(crate) const THREAD_STACK_BYTES: usize = 4 * MIB;

/// Connections accepted in one turn, some 10 us each. Many new connections must not delay the
/// connected clients.
pub(crate) const ACCEPTS_PER_TURN: usize = 64;

/// Longest time for which connections wait until the server is ready: shorter than clients wait for
/// a first reply. If a start takes longer, they learn the reason from the reply `-LOADING`.
pub(crate) const ACCEPT_DELAY_MAX: Duration = Duration::from_secs(1);

/// Pause when the process has no file descriptor left. A retry at once would keep a core
/// busy; after a longer wait clients would notice the delay.
pub(crate) const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// File descriptors for listening sockets, files and standard streams. As in Redis, so that the
/// same `ulimit -n` allows as many clients.
pub(crate) const DESCRIPTORS_RESERVED: u64 = 32;

/// File descriptors of each further thread that serves clients: those of its runtime.
pub(crate) const DESCRIPTORS_PER_THREAD: u64 = 4;

/// File descriptors of a log and a restart guard: the directory, its lock, the segment, a snapshot
/// that is written while another one is removed, the ceiling; and as many again.
pub(crate) const LOG_DESCRIPTORS: u64 = 16;

/// Unanswered TCP keepalive probes after which a connection is closed, as in Redis.
pub(crate) const KEEPALIVE_PROBES: u32 = 3;

/// Bytes of a TLS connection that are read with one system call, and encrypted bytes that are kept
/// until there is room for what they contain: a whole record with its header.
#[cfg(feature = "tls")]
pub(crate) const TLS_READ_BYTES: usize = READ_BYTES + 512;

/// Bytes that are encrypted at once: four records. Until the socket has taken them all, they are in
/// memory twice.
#[cfg(feature = "tls")]
pub(crate) const TLS_WRITE_BYTES_MAX: usize = 64 * KIB;

/// TLS connections whose handshake is not complete; with one more, the oldest is closed. Each takes
/// up to some 30 KiB of memory. A handshake takes milliseconds, so a server that is not attacked
/// has only a few.
#[cfg(feature = "tls")]
pub(crate) const TLS_HANDSHAKES_MAX: usize = 1024;

/// Part of the file descriptors that unfinished handshakes may use, where that is less.
#[cfg(feature = "tls")]
pub(crate) const TLS_HANDSHAKES_PART: u64 = 8;

/// Bytes of a file with certificates or a key. Those of all public authorities take 250 KB.
#[cfg(feature = "tls")]
pub(crate) const CERTIFICATE_FILE_BYTES_MAX: u64 = 4 * MIB as u64;

/// TLS sessions that are kept to be resumed, some 500 bytes each, whatever the directive says.
#[cfg(feature = "tls")]
pub(crate) const TLS_SESSIONS_MAX: usize = 1 << 17;

/// Requests of one connection for which the clock is read once, unless the turn ends in between.
/// The clock is read after the requests have arrived, so no lease begins before its request;
/// reading the clock costs as much as a small command.
pub(crate) const REQUESTS_PER_CLOCK_READ: u32 = 16;

/// Requests of one connection run under one hold of the engine's lock. Larger batches save
/// little, and other threads wait for them.
pub(crate) const BATCH_REQUESTS_MAX: usize = 256;

/// Shards of the registry of clients, each with a lock of its own: several for each possible
/// thread.
pub(crate) const REGISTRY_SHARDS: usize = 64;

// The log and snapshots.

/// Most bytes of a batch of units, unless a single unit is longer: the memory that two batches
/// take, one of which is being written.
pub(crate) const LOG_BATCH_BYTES: usize = 16 * MIB;

/// Part of the time of the last flush for which the log's thread waits for more units before it
/// flushes again. Clients that were just released get their replies and send their next
/// requests within a fraction of a millisecond, which is less on all disks where flushes matter.
pub(crate) const FLUSH_PARTS_TO_WAIT: u32 = 2;

/// The longest wait for more units: on a very slow disk more time saves nothing.
pub(crate) const FLUSH_WAIT_MAX: Duration = Duration::from_millis(2);

/// Bytes of the log between two messages about the progress of loading it: a second or less.
pub(crate) const LOAD_REPORT_BYTES: u64 = 256 * MIB as u64;

/// Turns in which a thread serves only one connection, after which it writes the log itself: others
/// are idle then, and to change threads takes longer than some disks need for a flush. Once another
/// connection sends a request, it waits for one flush at most.
pub(crate) const LONE_TURNS: u32 = 16;

/// Keys that a snapshot takes from the engine at once, some 50 us of work: other clients wait no
/// longer for it.
pub(crate) const SNAPSHOT_PART_KEYS: usize = 256;

/// Pause after each part of a snapshot. The system makes it some 50 us long. Without it, the
/// thread that writes the snapshot uses its processor for several milliseconds before the system
/// gives the processor to a thread that serves clients.
pub(crate) const SNAPSHOT_PAUSE: Duration = Duration::from_micros(1);

// The disk.

/// Free bytes of the log's disk below which growth is refused, checked once a second: half of them
/// for a million releases and renewals, half for the snapshot that then replaces older segments, of
/// half a million locks.
pub(crate) const DISK_RESERVE_BYTES: u64 = 128 * MIB as u64;

/// Free bytes that a snapshot leaves for the log, which grows until the snapshot replaces older
/// segments: for some hundred thousand releases and renewals.
pub(crate) const SNAPSHOT_RESERVE_BYTES: u64 = 16 * MIB as u64;

/// The free bytes of the log's disk without which a snapshot is given up that has yet to write so
/// many. Their number is an estimate, so with half of [`DISK_RESERVE_BYTES`] it goes on anyway.
pub(crate) fn snapshot_needs_bytes(missing_bytes: u64) -> u64 {
    (SNAPSHOT_RESERVE_BYTES + missing_bytes).min(DISK_RESERVE_BYTES / 2)
}

/// As [`DISK_RESERVE_BYTES`], where there is only the lease ceiling. It has its space already,
/// except on file systems that overwrite nothing in place.
pub(crate) const CEILING_RESERVE_BYTES: u64 = MIB as u64;

/// Part of the reserve by which the free bytes must exceed it before growth is accepted again, so
/// that messages do not repeat while other programs write a little.
pub(crate) const DISK_RESERVE_MARGIN_PART: u64 = 8;

/// Bytes of the file of users: half a million of them.
pub(crate) const ACL_FILE_BYTES_MAX: u64 = 64 * MIB as u64;

// Expiry and scripts.

/// Longest time that keys are expired before clients are served: a million may expire at one
/// deadline, and clients should not notice. Interrupting costs some 5 us when no client has a
/// request, little compared with the slice. Keys that are left are invisible meanwhile.
pub(crate) const EXPIRE_SLICE: Duration = Duration::from_micros(150);

/// Deadlines handled between two readings of the clock: some 50 us of work, by which a slice may be
/// exceeded. With fewer, too few keys are handled together to overlap their memory accesses.
pub(crate) const EXPIRE_KEYS_BETWEEN_CLOCK_READS: u32 = 64;

/// Interval at which clients are polled while a slow script runs: SCRIPT KILL must work within
/// 10 ms, and the script needs time to end.
pub(crate) const BUSY_POLL_INTERVAL: Duration = Duration::from_millis(2);

// Fencing tokens.

/// Fencing tokens skipped by a server whose log was repaired or restored: more than two years of
/// the microseconds that tokens begin with, so that an old backup repeats none, also where the wall
/// clock was set back.
pub(crate) const TOKENS_AFTER_RESTORE: u64 = 1 << 46;

/// How often clients are shown anew how far the followers are, while none waits for it.
#[cfg(feature = "replication")]
pub(crate) const RAFT_PROGRESS_PAUSE: Duration = Duration::from_millis(10);

/// Threads of a node that replicates: one may wait for the engine or the disk, while the other
/// one sends heartbeats.
#[cfg(feature = "replication")]
pub(crate) const RAFT_THREADS: usize = 2;

/// Longest time that a node waits for a connection to another one.
#[cfg(feature = "replication")]
pub(crate) const RAFT_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest time that a request waits for a leader: longer than most elections, and no longer than
/// clients of lock libraries wait before they send it again. They expect a reply within three
/// seconds.
#[cfg(feature = "replication")]
pub(crate) const NO_LEADER_WAIT: Duration = Duration::from_secs(2);

/// Time within which requests arrive that are refused together.
#[cfg(feature = "replication")]
pub(crate) const NO_LEADER_WAIT_GRAIN: Duration = Duration::from_millis(100);

/// Longest time that a node waits for the end of another one with the same directory. One that has
/// ended closes its files some milliseconds later, or more on a busy machine.
#[cfg(feature = "replication")]
pub(crate) const RAFT_LOCK_WAIT: Duration = Duration::from_secs(5);

/// Pause between two attempts to lock the directory.
#[cfg(feature = "replication")]
pub(crate) const RAFT_LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Connections at the port for other nodes that have neither shown the key of a node nor sent a
/// request; with one more, the oldest is closed. A handshake takes milliseconds.
#[cfg(feature = "replication")]
pub(crate) const RAFT_UNIDENTIFIED_MAX: usize = 64;

/// Connections with other nodes, and those of programs that ask about them; further ones are
/// closed. Each node has a few.
#[cfg(feature = "replication")]
pub(crate) const RAFT_CONNECTIONS_MAX: usize = 128;

/// Longest time that a connection that asks about the nodes takes to send its request.
#[cfg(feature = "replication")]
pub(crate) const RAFT_REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause of a node after a connection of another node could not be accepted.
#[cfg(feature = "replication")]
pub(crate) const RAFT_ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Interval at which a leader sends its followers the lease clock: the longest time by which leases
/// last longer after a failover, and by which followers show more of them.
#[cfg(feature = "replication")]
pub(crate) const RAFT_SECOND: Duration = Duration::from_secs(1);

/// Pause between two attempts of a leader whose disk is full to have another node lead: an attempt
/// that fails costs an election timeout.
#[cfg(feature = "replication")]
pub(crate) const RAFT_HANDOVER_PAUSE: Duration = Duration::from_secs(60);

/// Batches whose last units are known: those of some seconds. A follower that is
/// further behind has acknowledged nothing that a client still waits for.
#[cfg(feature = "replication")]
pub(crate) const RAFT_BATCHES_KNOWN: usize = 1 << 14;

/// Entries before a snapshot that are kept: those of some seconds, so that a node which is
/// restarted needs no snapshot.
#[cfg(feature = "replication")]
pub(crate) const RAFT_ENTRIES_KEPT: u64 = 1_000;

/// Most bytes of a request about the nodes of a cluster, or of its reply: some hundred nodes fit.
#[cfg(feature = "replication")]
pub(crate) const RAFT_MEMBERSHIP_BYTES_MAX: u32 = 1 << 16;

/// Longest time that such a request takes: a new node gets the whole log meanwhile.
#[cfg(feature = "replication")]
pub(crate) const RAFT_MEMBERSHIP_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Shortest time between two requests for the current nodes by a node that does not know the key of
/// another one: anyone can show it a key.
#[cfg(feature = "replication")]
pub(crate) const RAFT_LEARN_PAUSE: Duration = Duration::from_millis(500);

/// Number of attempts to reach a leader, with pauses of [`RAFT_MEMBERSHIP_PAUSE`]: some elections
/// long.
#[cfg(feature = "replication")]
pub(crate) const RAFT_MEMBERSHIP_ATTEMPTS: u32 = 20;

/// Pause between two attempts to reach a leader.
#[cfg(feature = "replication")]
pub(crate) const RAFT_MEMBERSHIP_PAUSE: Duration = Duration::from_millis(500);

/// Most nodes that are asked because another one has named them as the leader, which may change
/// meanwhile.
#[cfg(feature = "replication")]
pub(crate) const RAFT_MEMBERSHIP_REDIRECTIONS: u32 = 3;

/// Interval at which a node asks to be one of its cluster, whether it is or not: so it announces
/// its addresses, and finds out that it was removed.
#[cfg(feature = "replication")]
pub(crate) const RAFT_REMOVAL_CHECK: Duration = Duration::from_secs(10);
