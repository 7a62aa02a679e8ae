//! All limits of the program, with their reasons.

use std::time::Duration;

/// The limit of open files that is asked for at least, so that `maxclients` can be raised later. No
/// more: some programs that are started with this limit close that many.
pub(crate) const OPEN_FILES_MIN: u64 = 1 << 16;

/// File descriptors that monitoring needs beside those of its connections: listening sockets and a
/// runtime.
pub(crate) const ADMIN_DESCRIPTORS: u64 = 8;

/// Log lines that may wait to be written; further ones are dropped. Memory for all of them is
/// allocated and initialized at the start: with the default of 128 thousand that took 1.5 ms and
/// 4 MB.
pub(crate) const LOG_LINES_MAX: usize = 4096;

/// Held locks that `lockwheel run` prints when its command has ended: one screen.
pub(crate) const LOCKS_SHOWN_MAX: usize = 50;

/// Longest wait of `lockwheel lock` for a reply, also at most a sixth of the lease: another attempt
/// must be possible before the lease ends.
pub(crate) const LOCK_REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// Shortest and longest pause between two attempts of `lockwheel lock` to acquire a lock. A server
/// that has no native locks does not say when a lock is free.
pub(crate) const LOCK_POLL_MIN: Duration = Duration::from_millis(50);
pub(crate) const LOCK_POLL_MAX: Duration = Duration::from_millis(500);

/// Longest time for which `lockwheel lock` waits in the queue of a native lock. Then it enters the
/// queue again: the server must not wait for ever for a client that is gone.
pub(crate) const LOCK_WAIT_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Longest time for which `lockwheel lock` waits at its end until its messages are written.
pub(crate) const LOCK_MESSAGES_TIMEOUT: Duration = Duration::from_secs(1);

/// Shortest and longest pause after which `lockwheel lock` looks whether the lease is about to end:
/// a sixtieth of the lease, which is less than the shortest part of it that counts, a twelfth.
pub(crate) const LOCK_LOOK_MIN: Duration = Duration::from_millis(16);
pub(crate) const LOCK_LOOK_MAX: Duration = Duration::from_secs(1);

/// Bytes of a history for `lockwheel judge`: some 300,000 requests, which take a few hundred MiB of
/// memory.
#[cfg(feature = "prove")]
pub(crate) const HISTORY_BYTES_MAX: u64 = 64 << 20;

/// Clients of `lockwheel prove`, each with a thread and connections.
#[cfg(feature = "prove")]
pub(crate) const PROVE_CLIENTS_MAX: u32 = 1000;

/// Requests a second of `lockwheel prove`. Its clients send no more.
#[cfg(feature = "prove")]
pub(crate) const PROVE_RATE_MAX: u32 = 100_000;

/// Locks of each kind that `lockwheel prove` uses at a time. Their keys are deleted one by one.
#[cfg(feature = "prove")]
pub(crate) const PROVE_LOCKS_MAX: u32 = 1000;

/// Longest wait of a client of `lockwheel prove` for a reply. Then the request is not judged.
#[cfg(feature = "prove")]
pub(crate) const PROVE_REPLY_TIMEOUT: Duration = Duration::from_secs(2);

/// Longest time for which the end of the server waits until its locks are counted: a script may
/// run.
pub(crate) const LOCKS_COUNT_TIMEOUT: Duration = Duration::from_secs(2);

/// Bytes of a configuration file. A device could be read forever.
pub(crate) const CONFIG_FILE_BYTES_MAX: u64 = 1 << 20;

/// Levels of nested `include` directives. A file that includes itself has no end.
pub(crate) const INCLUDE_DEPTH_MAX: usize = 16;

/// Attempts to read the log of a running server, which removes files at each snapshot.
pub(crate) const LOG_READ_ATTEMPTS: u32 = 10;

/// How often a supervisor is asked to wait for longer while the server is not ready. systemd waits
/// 90 s by default.
pub(crate) const NOTIFY_INTERVAL: Duration = Duration::from_secs(10);

/// Connections for monitoring. More than monitoring systems and browsers open; further ones wait.
pub(crate) const ADMIN_CONNECTIONS_MAX: usize = 64;

/// Seconds in which a request for monitoring must arrive, so that one that never ends does not keep
/// its place.
pub(crate) const ADMIN_REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection for monitoring may last. Monitoring systems connect again.
pub(crate) const ADMIN_CONNECTION_LIFETIME: Duration = Duration::from_secs(300);

/// Bytes of the header of a request for monitoring, and of a reply that waits.
pub(crate) const ADMIN_BUFFER_BYTES_MAX: usize = 16 * 1024;

/// How long a page waits for its commands. Less than the 10 seconds that Prometheus waits.
pub(crate) const ADMIN_COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause after a connection could not be accepted.
pub(crate) const ADMIN_ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bytes of the body of a request for monitoring: a login has less than 1 KiB.
pub(crate) const ADMIN_BODY_BYTES_MAX: usize = 4 * 1024;

/// Logins that are remembered at once. A further one ends the oldest. Each is a client within the
/// process.
pub(crate) const ADMIN_SESSIONS_MAX: usize = 256;

/// How long a login lasts: a working day.
pub(crate) const ADMIN_SESSION_LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// Wrong passwords from one address in [`ADMIN_LOGIN_WINDOW`]. More than a person mistypes, and too
/// few to guess passwords.
pub(crate) const ADMIN_LOGIN_FAILURES_MAX: u32 = 10;

/// The time in which wrong passwords are counted.
pub(crate) const ADMIN_LOGIN_WINDOW: Duration = Duration::from_secs(60);

/// Addresses with wrong passwords that are remembered. Beyond that, other addresses cannot log in
/// until the time is over.
pub(crate) const ADMIN_LOGIN_ADDRESSES_MAX: usize = 1024;

/// Keys that the server examines for one reply with locks, unless the request says more.
pub(crate) const ADMIN_LOCKS_DEFAULT: usize = LOCKS_PER_REQUEST;

/// Keys that it examines at most. It runs no other command meanwhile: for a few milliseconds.
pub(crate) const ADMIN_LOCKS_MAX: usize = 1000;

/// How often new events are looked for. A person sees no shorter delay.
pub(crate) const ADMIN_EVENTS_INTERVAL: Duration = Duration::from_millis(100);

/// Events in one reply of the server. If there are as many, there may be more.
pub(crate) const ADMIN_EVENTS_MAX: usize = 1000;

/// How often a comment is sent where there are no events, so that proxies keep the connection.
pub(crate) const ADMIN_KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Keys that the server examines for one request of `lockwheel locks`: other clients wait for about
/// two milliseconds meanwhile.
pub(crate) const LOCKS_PER_REQUEST: usize = 200;

/// How often `lockwheel locks --watch` reads the locks.
pub(crate) const WATCH_INTERVAL: Duration = Duration::from_secs(1);
