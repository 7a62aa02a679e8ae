//! Every limit of the network and its threads, with its reason. Those of the engine are in
//! `lockwheel_engine::limits`.
//!
//! What an operator may change is a directive; the value here is then its bound or its default.

use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

// Requests.

/// Bytes of an inline request, and of a line that holds a count. As in Redis: a peer that never
/// ends its line is not speaking this protocol.
pub const INLINE_BYTES_MAX: usize = 64 * KIB;

/// Arguments of one request. Redis counts them in a C `int`.
pub const ARGS_MAX: usize = i32::MAX as usize;

/// Arguments of a request before AUTH: enough for `HELLO 3 AUTH user password SETNAME name`.
/// Strangers may not make the server reserve room for a million.
pub const UNAUTHENTICATED_ARGS_MAX: usize = 10;

/// Bytes of one argument before AUTH. Longer than any password in use.
pub const UNAUTHENTICATED_BULK_BYTES_MAX: usize = 16 * KIB;

/// Bytes read from a socket at once: some hundred pipelined lock requests, one system call.
pub const READ_BYTES: usize = 16 * KIB;

/// Bytes of room made at once for a long argument that is on its way, however long it says it is.
pub const READ_BYTES_MAX: usize = MIB;

// Replies.

/// Bytes that may wait for a client before AUTH. A stranger who sends and never reads is told so
/// little that thousands of them do no harm.
pub const UNAUTHENTICATED_OUTBOX_BYTES_MAX: usize = 64 * KIB;

/// Bytes of replies that are made under one hold of the engine's lock, and that a connection's task
/// makes or sends before it lets others run: some 100 us of copying.
pub const BATCH_REPLY_BYTES_MAX: usize = MIB;

/// Bytes in one chunk of the replies that a client has not read yet. Chunks are freed as they are
/// sent; smaller ones would take more system calls.
pub const OUTPUT_CHUNK_BYTES: usize = 64 * KIB;

/// Bytes of output that are held back until the end of a turn at most. For more, one system call
/// does not matter; and all that is held back stays within 16 MiB.
pub const HELD_BACK_BYTES: usize = 64 * KIB;

/// Clients who are owed a reply when a turn ends at the latest: some millisecond of work.
/// Larger turns save nothing, and whoever was served first waits for the last.
pub const TURN_CLIENTS_MAX: usize = 256;

/// Clients who are sent messages between two looks for what has come in, when few are sent replies.
/// A look costs a fifth of what sending a message costs; told two by two, those who try once for
/// all messages they have heard of do so four times a hand-off, be they sixteen or a hundred.
pub const MESSAGES_BETWEEN_LOOKS: usize = 2;

/// Tasks a thread runs between two looks for what has come in: a whole turn, since what comes in
/// meanwhile is not run before the others anyway, and a look is a system call.
pub const TASKS_BETWEEN_LOOKS: u32 = 256;

/// How long a thread waits for the engine before it sends what it holds back: more than most have
/// it for, less than anybody notices.
pub const ENGINE_PATIENCE: Duration = Duration::from_micros(200);

/// How long a script runs before its thread sends what it holds back. Those of lock libraries take
/// some 10 us; no client should wait 2 ms.
pub const HELD_BACK_BY_SCRIPT: Duration = Duration::from_millis(1);

// Connections.

/// Bytes of stack of a thread that serves clients. Lua's parser and deep values recurse, in a debug
/// build through large frames.
pub const THREAD_STACK_BYTES: usize = 4 * MIB;

/// Connections accepted in one turn of the loop, some 10 us each. A storm of them may not keep the
/// others waiting.
pub const ACCEPTS_PER_TURN: usize = 64;

/// How long to wait when the process has no file descriptor left. Trying again at once would
/// burn a core, and later would keep clients out for longer than they notice.
pub const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Unanswered TCP keepalive probes after which a peer is taken for dead, as in Redis.
pub const KEEPALIVE_PROBES: u32 = 3;

/// Requests of one connection for which the clock is read once, unless the turn ends in between.
/// It is read after they have come, so no lease begins before it was asked for; and to read it
/// costs as much as a small command.
pub const REQUESTS_IN_A_MOMENT: u32 = 16;

/// Requests of one connection run under one hold of the engine's lock. Larger batches save
/// little, and the others wait for them.
pub const BATCH_REQUESTS_MAX: usize = 256;

/// Parts of the registry of clients, each with a lock of its own: some for each thread there may
/// be. To count processors for a number of its own, the map would read files at every start.
pub const REGISTRY_SHARDS: usize = 64;

// Expiry and scripts.

/// How long leases are ended before the others are served: a million may end on one deadline, and
/// nobody else should notice. Serving nobody takes some 5 us, so this costs a storm little; what is
/// left is dead meanwhile.
pub const EXPIRE_SLICE: Duration = Duration::from_micros(150);

/// Deadlines drained between two looks at the time, some 50 us of work. More than that may not come
/// on top of a slice; less, and those that end together are too few to wait for memory together.
pub const EXPIRE_KEYS_BETWEEN_LOOKS: u32 = 64;

/// How often the others are heard while a script runs past its time: SCRIPT KILL must work within
/// 10 ms, and the script should end some time, too.
pub const BUSY_HEARING_EVERY: Duration = Duration::from_millis(2);
