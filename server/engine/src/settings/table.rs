//! The table of directives, one row each: name, kind of value, default and documentation. To add a
//! directive of our own, add a field to `Settings` and a row here.

use super::types::{
    ChannelDefault, ClientClass, ClientOutputBufferLimits, EndpointType, FlushPolicy, LogLevel,
    MaxmemoryPolicy, MemoryShare, Permission, Secret, Supervised,
};
use super::value::ValueKind::{
    Addresses, Bool, BufferLimits, Choice, Choices, Events, FileName, HostAndPort, Int, Memory,
    MemoryOrPercent, Octal, OomScores, Percentiles, SavePoints, Span, Text, Words,
};
use super::{CompatVersion, Settings, Value, ValueKind};
use crate::limits::{DATABASES_MAX, JOURNAL_ENTRIES_MAX};
use crate::store::events;
use Mutability::{AtStart, Fixed, Live, Protected};

/// A configuration directive.
#[derive(Debug)]
pub struct Directive {
    /// The name in Redis 7.2.
    pub name: &'static str,
    /// An older name that is still accepted.
    pub alias: Option<&'static str>,
    /// The kind of its value.
    pub kind: ValueKind,
    /// The default value as it is printed.
    pub default: &'static str,
    /// Whether it can change while the server runs.
    pub mutability: Mutability,
    /// Which part of the server uses it.
    pub role: Role,
    /// Whether its value must not be logged.
    pub is_sensitive: bool,
    /// Whether it is a directive of this server, which Redis does not have.
    pub is_own: bool,
    /// Its documentation: a phrase for the configuration reference.
    pub doc: &'static str,
}

/// Whether a directive can change while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutability {
    /// Yes.
    Live,
    /// Only if `enable-protected-configs` permits it.
    Protected,
    /// No, but `CONFIG SET` accepts the value that it has.
    AtStart,
    /// No.
    Fixed,
}

/// Which part of the server uses a directive.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// The engine uses it, or a layer above reads it from the engine while it runs.
    Used(Access),
    /// A layer above the engine uses it when the process starts: sockets, threads, files, the log.
    /// The engine keeps its value for `CONFIG`.
    Process,
    /// Accepted and shown by `CONFIG GET`, without any effect on a lock server.
    Accepted,
    /// Without a log only the default is accepted, except at the start: many launchers pass such
    /// options, so the value is then dropped with a warning. Clients see the default, which is what
    /// applies.
    NeedsLog,
    /// Only the default is accepted. Accepting another value without effect would suggest a
    /// protection or a role that the server does not have.
    Unsupported,
}

/// How to access the field of a directive in [`Settings`].
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Reads the field.
    pub get: fn(&Settings) -> Value,
    /// Sets the field to a value that the directive's kind has read.
    pub set: fn(&mut Settings, Value),
}

impl Directive {
    /// The value in these settings.
    pub fn value(&self, settings: &Settings) -> Value {
        match self.role {
            Role::Used(access) => (access.get)(settings),
            _ => settings.kept.get(self.name).cloned().unwrap_or_else(|| self.default_value()),
        }
    }

    fn default_value(&self) -> Value {
        self.kind.read(&[self.default]).expect("a default that its kind reads")
    }

    const fn alias(mut self, old: &'static str) -> Directive {
        self.alias = Some(old);
        self
    }

    const fn own(mut self) -> Directive {
        self.is_own = true;
        self
    }

    /// Whether its value is the password of the default user.
    pub(crate) fn sets_default_password(&self) -> bool {
        self.name == "requirepass"
    }

    const fn secret(mut self) -> Directive {
        self.is_sensitive = true;
        self
    }
}

impl PartialEq for Directive {
    fn eq(&self, other: &Directive) -> bool {
        self.name == other.name
    }
}

/// Finds a directive by any of its names, ignoring case; returns the name that matched.
pub fn find(name: &str) -> Option<(&'static str, &'static Directive)> {
    names().find(|(known, _)| known.eq_ignore_ascii_case(name))
}

/// Every name, including older ones, with its directive.
pub fn names() -> impl Iterator<Item = (&'static str, &'static Directive)> {
    DIRECTIVES.iter().flat_map(|directive| {
        [Some(directive.name), directive.alias].into_iter().flatten().map(move |n| (n, directive))
    })
}

const fn row(
    name: &'static str,
    kind: ValueKind,
    default: &'static str,
    mutability: Mutability,
    role: Role,
    doc: &'static str,
) -> Directive {
    let (alias, is_sensitive, is_own) = (None, false, false);
    Directive { name, alias, kind, default, mutability, role, is_sensitive, is_own, doc }
}

const fn used(
    name: &'static str,
    kind: ValueKind,
    default: &'static str,
    mutability: Mutability,
    access: Access,
    doc: &'static str,
) -> Directive {
    row(name, kind, default, mutability, Role::Used(access), doc)
}

macro_rules! rows_of_role {
    ($($constructor:ident => $role:ident),*) => {$(
        const fn $constructor(
            name: &'static str,
            kind: ValueKind,
            default: &'static str,
            mutability: Mutability,
            doc: &'static str,
        ) -> Directive {
            row(name, kind, default, mutability, Role::$role, doc)
        }
    )*};
}

rows_of_role!(process => Process, accepted => Accepted, unsupported => Unsupported);

const fn needs_log(
    name: &'static str,
    kind: ValueKind,
    default: &'static str,
    doc: &'static str,
) -> Directive {
    row(name, kind, default, Live, Role::NeedsLog, doc)
}

/// The access to a field that can be converted to one [`Value`].
macro_rules! field {
    ($field:ident) => {
        Access {
            get: |settings| settings.$field.to_value(),
            set: |settings, value| settings.$field.assign(value),
        }
    };
}

/// The largest C `int`: the maximum of most counts.
const INT_MAX: i64 = i32::MAX as i64;
/// The smallest C `int`.
const INT_MIN: i64 = i32::MIN as i64;
/// The largest size that Redis accepts.
const SIZE_MAX: u64 = i64::MAX as u64;
/// One mebibyte: a lower limit would refuse ordinary requests.
const MIB: u64 = 1 << 20;

const INT: ValueKind = Int(0, INT_MAX);
/// The value of `clock-start` for the current time.
const CURRENT_TIME: i64 = -1;
const LONG: ValueKind = Int(0, i64::MAX);
const PORT: ValueKind = Int(0, 65535);
const SIZE: ValueKind = Memory(0, SIZE_MAX);
const PERMISSION: ValueKind = Choice(Permission::NAMES);

const SHUTDOWN_FLAGS: &[&str] = &["default", "save", "nosave", "now", "force"];
const SYSLOG_FACILITIES: &[&str] =
    &["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"];
const OOM_MODES: &[&str] = &["no", "yes", "relative", "absolute"];
const SANITIZE: &[&str] = &["no", "yes", "clients"];
const DISKLESS_LOAD: &[&str] = &["disabled", "on-empty-db", "swapdb"];
const PROPAGATION: &[&str] = &["ignore", "panic", "panic-on-replicas"];
const BUFFERS: &str = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
const TLS_AUTH: &[&str] = &["no", "yes", "optional"];

/// Every directive of Redis 7.2, and our own.
#[rustfmt::skip]
pub static DIRECTIVES: &[Directive] = &[
    // Network
    used("port", PORT, "6379", Fixed, field!(port), "TCP port to listen on; 0 disables TCP."),
    process("bind", Addresses, "127.0.0.1 -::1", Fixed,
        "Addresses to listen on. The prefix `-` marks an address that may be unavailable."),
    used("protected-mode", Bool, "yes", Live, field!(protected_mode),
        "Refuse connections from other hosts while no password is set."),
    process("tcp-backlog", INT, "511", Fixed,
        "Maximum length of the kernel's queue of pending connections."),
    process("unixsocket", Text, "", Fixed,
        "Path of a Unix socket to listen on; empty disables it."),
    process("unixsocketperm", Octal(0o777), "0", Fixed,
        "Permission bits of the Unix socket in octal; 0 keeps those of the umask."),
    used("timeout", INT, "0", Live, field!(timeout_seconds),
        "Seconds after which an idle client is disconnected; 0 disables the timeout."),
    used("tcp-keepalive", INT, "300", Live, field!(tcp_keepalive_seconds),
        "Seconds after which an idle connection is probed; it is closed after twice as long \
         without an answer, and on Linux also if the client acknowledges no data for as long. 0 \
         disables both."),
    used("maxclients", Int(1, u32::MAX as i64), "10000", Live, field!(maxclients),
        "Maximum number of connected clients."),
    process("io-threads", Int(1, 128), "1", Fixed, "Number of threads that serve connections."),
    accepted("io-threads-do-reads", Bool, "no", Fixed,
        "Whether I/O threads also read. They always do in this server."),
    accepted("bind-source-addr", Text, "", Live,
        "Source address of outgoing connections; empty lets the system choose."),
    accepted("socket-mark-id", Int(0, u32::MAX as i64), "0", Fixed,
        "Mark of the listening sockets, for packet filters; 0 sets none."),

    process("admin-port", Int(0, u16::MAX as i64), "0", Fixed,
        "Port for monitoring over HTTP; 0 disables it.").own(),
    process("admin-bind", Addresses, "127.0.0.1 -::1", Fixed,
        "Addresses of the port for monitoring. Others than loopback addresses need \
         `admin-tls yes`.").own(),
    process("admin-hosts", Words, "", Fixed,
        "Names by which browsers and programs reach the port for monitoring, other than \
         `localhost` and its addresses.").own(),
    process("admin-tls", Bool, "no", Fixed,
        "Whether the port for monitoring uses TLS, with the certificate of `tls-cert-file`.").own(),

    process("raft-port", PORT, "0", Fixed,
        "Port for the other nodes of a cluster that replicates its log; 0 if the server is no \
         node. See docs/replication.md.").own(),
    process("raft-announce-ip", Text, "", Fixed,
        "Address by which other nodes and clients reach this one; empty takes the first of `bind`. \
         For clients, `replica-announce-ip` overrides it.").own(),
    process("raft-announce-port", PORT, "0", Fixed,
        "Port by which other nodes reach this one; 0 takes `raft-port`.").own(),
    process("raft-election-timeout", Int(100, 60_000), "1000", Fixed,
        "Milliseconds without a message of the leader after which the other nodes may elect \
         another one. The same on all nodes.").own(),
    used("raft-request-max", Memory(MIB, SIZE_MAX), "16777216", Live,
        field!(raft_request_max_bytes),
        "Maximum bytes of the arguments of one request to a node of a cluster: other clients wait \
         until a majority has its effects.").own(),
    process("raft-master-name", Text, "mymaster", Fixed,
        "Name of the master for clients that ask a node of a cluster as a sentinel.").own(),

    // Process and log
    process("daemonize", Bool, "no", Fixed, "Run in the background."),
    process("supervised", Choice(Supervised::NAMES), "no", Fixed,
        "Supervisor to notify when the server is ready."),
    process("end-with-stdin", Bool, "no", Fixed,
        "Shut down when standard input is closed, for example because the parent process has \
         ended.").own(),
    process("pidfile", Text, "", Fixed, "File for the process id; empty writes none."),
    process("dir", Text, ".", Protected, "Working directory: the base of relative paths."),
    process("loglevel", Choice(LogLevel::NAMES), "notice", Live,
        "Minimum level of the messages that are logged."),
    process("logfile", Text, "", Fixed, "Log file; empty logs to standard output."),
    used("shutdown-timeout", INT, "10", Live, field!(shutdown_timeout_seconds),
        "Maximum seconds that a shutdown waits for replicas."),
    accepted("shutdown-on-sigint", Choices(SHUTDOWN_FLAGS), "default", Live,
        "Options of the shutdown on SIGINT."),
    accepted("shutdown-on-sigterm", Choices(SHUTDOWN_FLAGS), "default", Live,
        "Options of the shutdown on SIGTERM."),
    accepted("syslog-enabled", Bool, "no", Fixed, "Log to syslog."),
    accepted("syslog-ident", Text, "redis", Fixed, "Program name in syslog."),
    accepted("syslog-facility", Choice(SYSLOG_FACILITIES), "local0", Fixed, "Facility in syslog."),
    accepted("always-show-logo", Bool, "no", Fixed, "Show the logo at every start."),
    accepted("set-proc-title", Bool, "yes", Fixed,
        "Show details of the server in the process title."),
    accepted("proc-title-template", Text, "{title} {listen-addr} {server-mode}", Live,
        "Template of the process title."),
    accepted("crash-log-enabled", Bool, "yes", Live, "Log a report after a crash."),
    accepted("crash-memcheck-enabled", Bool, "yes", Live, "Test the memory after a crash."),
    accepted("ignore-warnings", Text, "", Live, "Start-up warnings to ignore."),
    accepted("locale-collate", Text, "", Live,
        "Locale for comparing strings; empty uses that of the environment."),
    accepted("disable-thp", Bool, "yes", Fixed, "Disable transparent huge pages."),
    accepted("oom-score-adj", Choice(OOM_MODES), "no", Live,
        "Whether to adjust the score of the kernel's out-of-memory killer."),
    accepted("oom-score-adj-values", OomScores, "0 200 800", Live,
        "Scores of a master, a replica and a background process for the out-of-memory killer."),
    accepted("server_cpulist", Text, "", Fixed,
        "Processors of the main and I/O threads; empty means all."),
    accepted("bio_cpulist", Text, "", Fixed, "Processors of background threads; empty means all."),
    accepted("aof_rewrite_cpulist", Text, "", Fixed,
        "Processors of the process that rewrites the append-only file; empty means all."),
    accepted("bgsave_cpulist", Text, "", Fixed,
        "Processors of the process that writes a snapshot; empty means all."),

    used("compat-version", Choice(CompatVersion::NAMES), "7.2", Fixed, field!(compat_version),
        "Version of Redis or Valkey that is announced; it determines the available commands."
        ).own(),

    // Access
    used("requirepass", Text, "", Live, field!(requirepass),
        "Password of the default user; empty requires none.").secret(),
    used("enable-debug-command", PERMISSION, "no", Fixed, field!(enable_debug_command),
        "Which clients may use DEBUG."),
    used("enable-test-commands", PERMISSION, "no", Fixed, field!(enable_test_commands),
        "Which clients may use the test commands: LOCKWHEEL, which controls the clock, injects \
         faults and reads the journal.").own(),
    process("clock-frozen", Bool, "no", Fixed,
        "For tests: the clock is stopped at the start.").own(),
    process("clock-start", Int(CURRENT_TIME, i64::MAX), "-1", Fixed,
        "For tests: the time that the clock shows at the start, in milliseconds since 1970; -1 is \
         the current time.").own(),
    used("lock-view", Bool, "yes", Live, field!(lock_view),
        "Keeps which client made a lock, its renewals and the last events of locks: for LOCKWHEEL \
         LOCKS and the page of admin-port. 32 bytes for each lock, and at most 3 MB.").own(),
    used("journal-max-entries", Int(1, JOURNAL_ENTRIES_MAX as i64), "16384", Fixed,
        field!(journal_max_entries),
        "For tests: entries that the journal keeps; a new one replaces the oldest.").own(),
    used("lock-keys", Text, "", Fixed, field!(lock_keys),
        "Patterns of keys that are locks, however they are made, separated by blanks: for the lock \
         view and the journal.").own(),
    used("ignored-lock-keys", Text, "", Fixed, field!(ignored_lock_keys),
        "Patterns of keys that are no locks, separated by blanks: for the lock view and the \
         journal.").own(),
    used("verify-effects", Bool, "no", Fixed, field!(verify_effects),
        "For tests: applies the effects of every command to a second engine, and ends the server \
         if the states differ. Slow.").own(),
    used("enable-protected-configs", PERMISSION, "no", Fixed, field!(enable_protected_configs),
        "Which clients may change protected directives."),
    accepted("enable-module-command", PERMISSION, "no", Fixed, "Which clients may use MODULE."),
    process("aclfile", Text, "", Fixed, "File with the ACL users."),
    used("acllog-max-len", LONG, "128", Live, field!(acllog_max_len),
        "Maximum number of entries in the ACL log."),
    used("acl-pubsub-default", Choice(ChannelDefault::NAMES), "resetchannels", Live,
        field!(acl_pubsub_default),
        "Channel permissions of new users."),

    // Limits and memory
    used("databases", Int(1, DATABASES_MAX as i64), "16", Fixed, field!(databases),
        "Number of databases."),
    used("maxmemory", Memory(0, u64::MAX), "0", Live, field!(maxmemory_bytes),
        "Maximum bytes of memory; writes beyond it are refused. 0 means no limit."),
    used("maxmemory-policy", Choice(MaxmemoryPolicy::NAMES), "noeviction", Live,
        field!(maxmemory_policy),
        "Eviction policy that clients are shown. Keys are never evicted. Under an LFU policy \
         OBJECT FREQ is counted, otherwise OBJECT IDLETIME."),
    accepted("maxmemory-samples", Int(1, INT_MAX), "5", Live,
        "Number of keys compared for an eviction."),
    accepted("maxmemory-eviction-tenacity", Int(0, 100), "10", Live,
        "Effort of eviction, from 0 to 100."),
    used("maxmemory-clients", MemoryOrPercent, "0", Live, field!(maxmemory_clients),
        "Maximum memory of all clients, in bytes or percent of `maxmemory`; beyond it, the \
         clients with most memory are disconnected. 0 means no limit."),
    used("proto-max-bulk-len", Memory(MIB, SIZE_MAX), "536870912", Live,
        field!(proto_max_bulk_len_bytes),
        "Maximum bytes of one argument."),
    used("client-query-buffer-limit", Memory(MIB, SIZE_MAX), "1073741824", Live,
        field!(client_query_buffer_limit_bytes),
        "Maximum bytes of one request."),
    used("client-output-buffer-limit", BufferLimits, BUFFERS, Live,
        field!(client_output_buffer_limits),
        "Output limits for each class of client: hard limit in bytes, soft limit in bytes, and \
         seconds above the soft limit. A client beyond its limit is disconnected. 0 means no \
         limit."),
    used("tracking-table-max-keys", LONG, "1000000", Live, field!(tracking_table_max_keys),
        "Maximum number of keys tracked for client side caching; 0 means no limit."),
    accepted("lazyfree-lazy-eviction", Bool, "no", Live, "Free evicted values in the background."),
    accepted("lazyfree-lazy-expire", Bool, "no", Live, "Free expired values in the background."),
    accepted("lazyfree-lazy-server-del", Bool, "no", Live,
        "Free values that commands such as RENAME replace in the background."),
    accepted("lazyfree-lazy-user-del", Bool, "no", Live,
        "Make DEL free values in the background, as UNLINK does."),
    accepted("lazyfree-lazy-user-flush", Bool, "no", Live,
        "Make FLUSHALL and FLUSHDB free values in the background by default."),
    accepted("jemalloc-bg-thread", Bool, "yes", Live,
        "Let the allocator release memory in the background."),
    accepted("activerehashing", Bool, "yes", Live, "Resize hash tables in idle time."),
    accepted("activedefrag", Bool, "no", Live, "Defragment memory in the background."),
    accepted("active-defrag-cycle-max", Int(1, 99), "25", Live,
        "Maximum effort of defragmentation, in percent of a processor."),
    accepted("active-defrag-cycle-min", Int(1, 99), "1", Live,
        "Minimum effort of defragmentation, in percent of a processor."),
    accepted("active-defrag-threshold-lower", Int(0, 1000), "10", Live,
        "Percentage of fragmentation at which defragmentation starts."),
    accepted("active-defrag-threshold-upper", Int(0, 1000), "100", Live,
        "Percentage of fragmentation at which the effort is greatest."),
    accepted("active-defrag-max-scan-fields", Int(1, i64::MAX), "1000", Live,
        "Maximum number of fields processed in one step of the scan."),
    accepted("active-defrag-ignore-bytes", Memory(1, SIZE_MAX), "104857600", Live,
        "Bytes of wasted memory below which defragmentation does not start."),
    used("lfu-log-factor", INT, "10", Live, field!(lfu_log_factor),
        "Growth of the counter that OBJECT FREQ shows: a greater factor counts more slowly."),
    used("lfu-decay-time", INT, "1", Live, field!(lfu_decay_minutes),
        "Minutes after which the counter that OBJECT FREQ shows is decremented; 0 for never."),

    // Time, scripts and events
    used("hz", INT, "10", Live, Access { get: hz, set: set_hz },
        "Frequency of background tasks that clients are shown, per second."),
    accepted("dynamic-hz", Bool, "yes", Live,
        "Increase the frequency of background tasks with the number of clients."),
    accepted("active-expire-effort", Int(1, 10), "1", Live,
        "Effort of expiration, from 1 to 10. Expiration is exact in this server."),
    used("busy-reply-threshold", LONG, "5000", Live, field!(busy_reply_threshold_ms),
        "Milliseconds of a running script after which other clients get BUSY errors; 0 disables \
         them.").alias("lua-time-limit"),
    used("script-plans", Bool, "yes", Live, field!(script_plans),
        "Run scripts of a supported subset of Lua as plans, without the Lua interpreter.").own(),
    used("notify-keyspace-events", Events, "", Live, field!(notify_keyspace_events),
        "Classes of keyspace events that are published; empty publishes none."),
    used("slowlog-log-slower-than", Int(-1, i64::MAX), "10000", Live,
        field!(slowlog_log_slower_than_us),
        "Minimum microseconds of a command in the slow log; -1 disables the log."),
    used("slowlog-max-len", LONG, "128", Live, field!(slowlog_max_len),
        "Maximum number of entries in the slow log."),
    used("latency-monitor-threshold", LONG, "0", Live, field!(latency_monitor_threshold_ms),
        "Minimum milliseconds of a latency event; 0 disables the latency monitor."),
    used("latency-tracking", Bool, "yes", Live, field!(latency_tracking),
        "Record the latencies of every command."),
    used("latency-tracking-info-percentiles", Percentiles, "50 99 99.9", Live,
        field!(latency_percentiles), "Percentiles of latency in INFO."),

    // Encodings
    used("hash-max-listpack-entries", LONG, "512", Live, field!(hash_max_listpack_entries),
        "Maximum number of fields of a hash that is reported as a listpack."
        ).alias("hash-max-ziplist-entries"),
    used("hash-max-listpack-value", SIZE, "64", Live, field!(hash_max_listpack_value_bytes),
        "Maximum bytes of a field or value in a hash that is reported as a listpack."
        ).alias("hash-max-ziplist-value"),
    used("list-max-listpack-size", Int(INT_MIN, INT_MAX), "-2", Live,
        field!(list_max_listpack_size),
        "Maximum size of a list that is reported as a listpack: a number of elements, or from -1 \
         to -5 a limit from 4 to 64 KiB.").alias("list-max-ziplist-size"),
    accepted("list-compress-depth", INT, "0", Live,
        "Number of nodes at each end of a list that are not compressed; 0 compresses none."),
    used("set-max-intset-entries", LONG, "512", Live, field!(set_max_intset_entries),
        "Maximum number of members of a set of integers that is reported as an intset."),
    used("set-max-listpack-entries", LONG, "128", Live, field!(set_max_listpack_entries),
        "Maximum number of members of a set that is reported as a listpack."),
    used("set-max-listpack-value", LONG, "64", Live, field!(set_max_listpack_value_bytes),
        "Maximum bytes of a member in a set that is reported as a listpack."),
    used("zset-max-listpack-entries", LONG, "128", Live, field!(zset_max_listpack_entries),
        "Maximum number of members of a sorted set that is reported as a listpack."
        ).alias("zset-max-ziplist-entries"),
    used("zset-max-listpack-value", SIZE, "64", Live, field!(zset_max_listpack_value_bytes),
        "Maximum bytes of a member in a sorted set that is reported as a listpack."
        ).alias("zset-max-ziplist-value"),
    used("stream-node-max-bytes", SIZE, "4096", Live, field!(stream_node_max_bytes),
        "Maximum bytes of stream entries that are trimmed together; 0 means no limit."),
    used("stream-node-max-entries", LONG, "100", Live, field!(stream_node_max_entries),
        "Maximum number of stream entries that are trimmed together; 0 means no limit."),
    accepted("hll-sparse-max-bytes", SIZE, "3000", Live,
        "Maximum bytes of a HyperLogLog in its sparse encoding."),

    // Persistence: keys are kept in memory only
    needs_log("save", SavePoints, "",
        "Seconds and changes after which a snapshot is written; empty writes none."),
    accepted("dbfilename", FileName("dbfilename can't be a path, just a filename"), "dump.rdb",
        Protected,
        "File name of the snapshot."),
    accepted("rdbcompression", Bool, "yes", Live, "Compress strings in snapshots."),
    accepted("rdbchecksum", Bool, "yes", Fixed, "Write and verify a checksum of snapshots."),
    accepted("rdb-del-sync-files", Bool, "no", Live,
        "Delete snapshots that were written for replication only."),
    accepted("rdb-save-incremental-fsync", Bool, "yes", Live,
        "Sync a snapshot to disk in steps while it is written."),
    accepted("sanitize-dump-payload", Choice(SANITIZE), "no", Live,
        "Whether to validate the payloads of RESTORE in depth."),
    accepted("stop-writes-on-bgsave-error", Bool, "yes", Live,
        "Refuse writes after a snapshot has failed."),
    process("appendonly", Bool, "no", AtStart,
        "Log every change to files, from which the next start restores the keys."),
    process("restart-guard", Bool, "no", AtStart,
        "After a restart that may have lost locks, refuse commands until all of them are over. On \
         by default if `dir` is given, the log is on or the server is a node, and it is not \
         started for tests."
        ).own(),
    process("restart-guard-minimum", Span, "0ms", AtStart,
        "How long commands are refused if nothing is recorded of an earlier run: the longest lease \
         that another server may have granted before.").own(),
    process("restart-guard-exempt", Text, "", AtStart,
        "Patterns of keys that are no locks, separated by blanks: nothing waits for their end."
        ).own(),
    process("trust-wall-clock", Bool, "no", AtStart,
        "After the machine was restarted, count the time that has passed on the wall clock. \
         Otherwise leases last longer by that time.").own(),
    accepted("appendfilename", FileName("appendfilename can't be a path, just a filename"),
        "appendonly.aof", Fixed,
        "Base name of the append-only files."),
    process("appenddirname", FileName("appenddirname can't be a path, just a dirname"),
        "appendonlydir", Fixed,
        "Directory of the log, within `dir`."),
    used("appendfsync", Choice(FlushPolicy::NAMES), "always", Live, field!(appendfsync),
        "When the log is flushed to disk: before each reply, once a second, or when the system \
         does it."),
    accepted("no-appendfsync-on-rewrite", Bool, "no", Live,
        "Do not sync the append-only file during a rewrite."),
    accepted("aof-load-truncated", Bool, "yes", Live,
        "Load an append-only file with a truncated end."),
    accepted("aof-use-rdb-preamble", Bool, "yes", Live,
        "Begin a rewritten append-only file with a snapshot."),
    accepted("aof-timestamp-enabled", Bool, "no", Live,
        "Record timestamps in the append-only file."),
    accepted("aof-rewrite-incremental-fsync", Bool, "yes", Live,
        "Sync a rewritten append-only file to disk in steps."),
    accepted("aof-disable-auto-gc", Bool, "no", Live,
        "Keep append-only files that are no longer needed."),
    used("auto-aof-rewrite-percentage", INT, "100", Live, field!(auto_aof_rewrite_percentage),
        "Growth of the log since the last snapshot that begins another one, in percent; 0 disables \
         these."),
    used("auto-aof-rewrite-min-size", SIZE, "67108864", Live,
        field!(auto_aof_rewrite_min_size_bytes),
        "Minimum bytes of the log for a snapshot that begins because of its growth."),

    // Replication
    unsupported("replicaof", HostAndPort, "", Fixed,
        "Host and port of the master to replicate; empty makes this server a master."
        ).alias("slaveof"),
    accepted("masteruser", Text, "", Live, "User name for the master.").secret(),
    accepted("masterauth", Text, "", Live, "Password for the master.").secret(),
    accepted("replica-serve-stale-data", Bool, "yes", Live,
        "Let a replica answer while it is not synchronised.").alias("slave-serve-stale-data"),
    accepted("replica-read-only", Bool, "yes", Live,
        "Refuse writes on a replica.").alias("slave-read-only"),
    accepted("replica-lazy-flush", Bool, "no", Live,
        "Free the old data of a replica in the background.").alias("slave-lazy-flush"),
    accepted("replica-ignore-maxmemory", Bool, "yes", Live,
        "Apply no memory limit on a replica.").alias("slave-ignore-maxmemory"),
    accepted("replica-announced", Bool, "yes", Live,
        "List this replica in the replies of sentinels."),
    accepted("replica-ignore-disk-write-errors", Bool, "no", Live,
        "Let a replica continue when it cannot write to disk."),
    accepted("replica-priority", INT, "100", Live,
        "Priority of a replica for promotion: the lowest is preferred; 0 means never."
        ).alias("slave-priority"),
    process("replica-announce-ip", Text, "", Fixed,
        "Address that a node of a cluster announces to clients; empty announces that for other \
         nodes.").alias("slave-announce-ip"),
    process("replica-announce-port", PORT, "0", Fixed,
        "Port that a node of a cluster announces to clients; 0 announces `port`, or `tls-port` if \
         that is 0.").alias("slave-announce-port"),
    accepted("repl-timeout", Int(1, INT_MAX), "60", Live,
        "Seconds without data after which a replication link is closed."),
    accepted("repl-ping-replica-period", Int(1, INT_MAX), "10", Live,
        "Seconds between pings to replicas.").alias("repl-ping-slave-period"),
    accepted("repl-backlog-size", Memory(1, SIZE_MAX), "1048576", Live,
        "Bytes of the replication backlog, from which replicas resume."),
    accepted("repl-backlog-ttl", LONG, "3600", Live,
        "Seconds after which the backlog of a master without replicas is freed; 0 keeps it."),
    accepted("repl-disable-tcp-nodelay", Bool, "no", Live,
        "Send fewer and larger packets to replicas."),
    accepted("repl-diskless-load", Choice(DISKLESS_LOAD), "disabled", Live,
        "When a replica loads a snapshot directly from the connection."),
    accepted("repl-diskless-sync", Bool, "yes", Live,
        "Send snapshots to replicas without writing a file."),
    accepted("repl-diskless-sync-delay", INT, "5", Live,
        "Seconds to wait for further replicas before a diskless synchronisation."),
    accepted("repl-diskless-sync-max-replicas", INT, "0", Live,
        "Number of replicas at which a diskless synchronisation starts at once; 0 always waits."),
    accepted("min-replicas-to-write", INT, "0", Live,
        "Minimum number of connected replicas for a write; 0 disables the check."
        ).alias("min-slaves-to-write"),
    accepted("min-replicas-max-lag", INT, "10", Live,
        "Maximum lag in seconds of a replica that counts as connected."
        ).alias("min-slaves-max-lag"),
    accepted("propagation-error-behavior", Choice(PROPAGATION), "ignore", Live,
        "Reaction to a replicated command that fails."),

    // Cluster
    used("cluster-enabled", Bool, "no", Fixed, field!(cluster_enabled),
        "Run as the only node of a cluster."),
    accepted("cluster-config-file", Text, "nodes.conf", Fixed,
        "File with the state of the cluster."),
    accepted("cluster-node-timeout", LONG, "15000", Live,
        "Milliseconds after which an unreachable node is considered down."),
    used("cluster-port", PORT, "0", Fixed, field!(cluster_port),
        "Port of the cluster bus that is announced; the server does not listen on it. 0 means \
         `port` + 10000."),
    used("cluster-announce-ip", Text, "", Live, field!(cluster_announce_ip),
        "Address that the node announces; empty announces the one that the client is connected \
         to."),
    used("cluster-announce-hostname", Text, "", Live, field!(cluster_announce_hostname),
        "Host name that the node announces; empty announces none."),
    accepted("cluster-announce-human-nodename", Text, "", Live,
        "Name of the node in log messages."),
    used("cluster-announce-port", PORT, "0", Live, field!(cluster_announce_port),
        "Port that the node announces; 0 announces `port`."),
    process("cluster-announce-tls-port", PORT, "0", Live,
        "TLS port that the node announces; 0 announces `tls-port`."),
    used("cluster-announce-bus-port", PORT, "0", Live, field!(cluster_announce_bus_port),
        "Port of the cluster bus that the node announces; 0 announces `cluster-port`."),
    used("cluster-preferred-endpoint-type", Choice(EndpointType::NAMES), "ip", Live,
        field!(cluster_preferred_endpoint_type),
        "Kind of endpoint in redirections and in CLUSTER SLOTS."),
    accepted("cluster-allow-reads-when-down", Bool, "no", Live,
        "Allow reads while the cluster is down."),
    accepted("cluster-allow-pubsubshard-when-down", Bool, "yes", Live,
        "Allow sharded channels while the cluster is down."),
    accepted("cluster-allow-replica-migration", Bool, "yes", Live,
        "Let replicas move to masters without replicas."),
    accepted("cluster-require-full-coverage", Bool, "yes", Live,
        "Refuse requests if any slot is not served."),
    accepted("cluster-replica-no-failover", Bool, "no", Live,
        "Never promote this node to a master automatically.").alias("cluster-slave-no-failover"),
    accepted("cluster-replica-validity-factor", INT, "10", Live,
        "Maximum age of a replica's data for a failover, as a multiple of the node timeout; 0 \
         means no limit.").alias("cluster-slave-validity-factor"),
    accepted("cluster-migration-barrier", INT, "1", Live,
        "Minimum number of replicas that a master keeps when replicas migrate."),
    accepted("cluster-link-sendbuf-limit", Memory(0, u64::MAX), "0", Live,
        "Maximum bytes queued for another node; 0 means no limit."),

    // TLS
    process("tls-port", PORT, "0", AtStart, "TLS port to listen on; 0 disables TLS."),
    process("tls-handshake-timeout", Int(1, 3600), "10", Live,
        "Seconds after which a connection without a complete TLS handshake is closed.").own(),
    accepted("tls-cluster", Bool, "no", Live, "Use TLS on the cluster bus."),
    accepted("tls-replication", Bool, "no", Live, "Use TLS for replication."),
    process("tls-prefer-server-ciphers", Bool, "no", Live,
        "Prefer the order of ciphers of the server."),
    process("tls-auth-clients", Choice(TLS_AUTH), "yes", Live,
        "Whether clients have to present a certificate."),
    process("tls-cert-file", Text, "", Live, "File with the server's certificate."),
    process("tls-key-file", Text, "", Live, "File with the server's private key."),
    accepted("tls-client-cert-file", Text, "", Live,
        "File with the certificate for outgoing connections."),
    accepted("tls-client-key-file", Text, "", Live,
        "File with the private key for outgoing connections."),
    accepted("tls-dh-params-file", Text, "", Live, "File with Diffie-Hellman parameters."),
    process("tls-ca-cert-file", Text, "", Live,
        "File with the certificates of trusted authorities."),
    process("tls-ca-cert-dir", Text, "", Live,
        "Directory with the certificates of trusted authorities."),
    process("tls-protocols", Text, "", Live,
        "Versions of TLS to allow; empty uses the defaults of the library."),
    process("tls-ciphers", Text, "", Live,
        "Ciphers up to TLS 1.2; empty uses the defaults of the library."),
    process("tls-ciphersuites", Text, "", Live,
        "Cipher suites of TLS 1.3; empty uses the defaults of the library."),
    unsupported("tls-key-file-pass", Text, "", Live,
        "Password of the server's private key.").secret(),
    accepted("tls-client-key-file-pass", Text, "", Live,
        "Password of the private key for outgoing connections.").secret(),
    process("tls-session-caching", Bool, "yes", Live, "Let clients resume TLS sessions."),
    process("tls-session-cache-size", INT, "20480", Live,
        "Maximum number of cached TLS sessions."),
    process("tls-session-cache-timeout", INT, "300", Live,
        "Seconds for which a TLS session is cached."),
];

/// Directives of other versions of Redis and of Valkey: accepted and ignored.
pub const FOREIGN: &[&str] = &[
    // Redis 2 to 6.
    "glueoutputbuf",
    "gopher-enabled",
    "hash-max-zipmap-entries",
    "hash-max-zipmap-value",
    "list-max-ziplist-entries",
    "list-max-ziplist-value",
    "lua-replicate-commands",
    "vm-enabled",
    "vm-max-memory",
    "vm-max-threads",
    "vm-page-size",
    "vm-pages",
    "vm-swap-file",
    // Redis 7.4 and 8.
    "cluster-compatibility-sample-ratio",
    "cluster-slot-stats-enabled",
    "hide-user-data-from-log",
    "lazyexpire-nested-arbitrary-keys",
    "lookahead",
    "lua-enable-deprecated-api",
    "max-new-connections-per-cycle",
    "max-new-tls-connections-per-cycle",
    "repl-rdb-channel",
    "replica-full-sync-buffer-limit",
    "tls-auth-clients-user",
    "unixsocketgroup",
    // Valkey.
    "aof-rewrite-cpulist",
    "availability-zone",
    "bgsave-cpulist",
    "bio-cpulist",
    "cluster-blacklist-ttl",
    "cluster-databases",
    "cluster-manual-failover-timeout",
    "commandlog-execution-slower-than",
    "commandlog-large-reply-max-len",
    "commandlog-large-request-max-len",
    "commandlog-reply-larger-than",
    "commandlog-request-larger-than",
    "commandlog-slow-execution-max-len",
    "dual-channel-replication-enabled",
    "events-per-io-thread",
    "extended-redis-compatibility",
    "import-mode",
    "log-format",
    "log-timestamp-format",
    "min-io-threads-avoid-copy-reply",
    "mptcp",
    "prefetch-batch-max-size",
    "primaryauth",
    "primaryuser",
    "rdb-version-check",
    "rdma-bind",
    "rdma-port",
    "repl-mptcp",
    "server-cpulist",
];

/// Prefixes of the directives of Redis 8's modules.
pub const FOREIGN_PREFIXES: &[&str] = &["bf-", "cf-", "search-", "ts-"];

/// Directives that cannot be ignored safely, although they are not options.
pub const FORBIDDEN: &[&str] = &["loadmodule", "rename-command"];

/// A field that can be converted to one [`Value`].
trait Field {
    fn to_value(&self) -> Value;

    /// Sets the field. The value was read by the kind of the field's row, which must match the
    /// field.
    fn assign(&mut self, value: Value);
}

/// Panics: the kind of a row does not match its field, which is a mistake in the table.
fn kind_mismatch(value: &Value) -> ! {
    unreachable!("the kind of the row does not match its field: {value:?}")
}

macro_rules! number_fields {
    ($($number:ty => $value:ident,)*) => {$(
        impl Field for $number {
            fn to_value(&self) -> Value {
                Value::$value((*self).into())
            }

            fn assign(&mut self, value: Value) {
                let number = match value {
                    Value::Int(number) => number.try_into().ok(),
                    Value::Memory(bytes) => bytes.try_into().ok(),
                    Value::Octal(bits) => bits.try_into().ok(),
                    _ => None,
                };
                *self = number.unwrap_or_else(|| kind_mismatch(&value));
            }
        }
    )*};
}

number_fields! {
    u16 => Int,
    u32 => Int,
    i32 => Int,
    i64 => Int,
    u64 => Memory,
}

macro_rules! choice_fields {
    ($($choice:ty),*) => {$(
        impl Field for $choice {
            fn to_value(&self) -> Value {
                Value::Text(self.name().into())
            }

            fn assign(&mut self, value: Value) {
                let found = match &value {
                    Value::Text(name) => <$choice>::from_name(name),
                    _ => None,
                };
                *self = found.unwrap_or_else(|| kind_mismatch(&value));
            }
        }
    )*};
}

choice_fields!(
    ChannelDefault,
    CompatVersion,
    EndpointType,
    FlushPolicy,
    MaxmemoryPolicy,
    Permission
);

macro_rules! plain_fields {
    ($($field:ty => $value:ident,)*) => {$(
        impl Field for $field {
            fn to_value(&self) -> Value {
                Value::$value(self.clone())
            }

            fn assign(&mut self, value: Value) {
                match value {
                    Value::$value(inner) => *self = inner,
                    other => kind_mismatch(&other),
                }
            }
        }
    )*};
}

plain_fields! {
    bool => Bool,
    String => Text,
    Vec<String> => Words,
    events::Events => Events,
}

/// An empty text means none.
impl Field for Option<String> {
    fn to_value(&self) -> Value {
        Value::Text(self.clone().unwrap_or_default())
    }

    fn assign(&mut self, value: Value) {
        match value {
            Value::Text(text) => *self = Some(text).filter(|text| !text.is_empty()),
            other => kind_mismatch(&other),
        }
    }
}

/// An empty password means none.
impl Field for Option<Secret> {
    fn to_value(&self) -> Value {
        Value::Text(self.as_ref().map(|secret| secret.expose().into()).unwrap_or_default())
    }

    fn assign(&mut self, value: Value) {
        match value {
            Value::Text(text) => *self = (!text.is_empty()).then(|| Secret::new(text)),
            other => kind_mismatch(&other),
        }
    }
}

impl Field for MemoryShare {
    fn to_value(&self) -> Value {
        match self {
            MemoryShare::Bytes(bytes) => Value::Memory(*bytes),
            MemoryShare::Percent(percent) => Value::Text(format!("{percent}%")),
        }
    }

    fn assign(&mut self, value: Value) {
        let percent = |text: &str| text.strip_suffix('%')?.parse().ok();
        *self = match &value {
            Value::Memory(bytes) => MemoryShare::Bytes(*bytes),
            Value::Text(text) => {
                MemoryShare::Percent(percent(text).unwrap_or_else(|| kind_mismatch(&value)))
            }
            _ => kind_mismatch(&value),
        };
    }
}

/// Assigning does not change the classes that are not named.
impl Field for ClientOutputBufferLimits {
    fn to_value(&self) -> Value {
        Value::BufferLimits(ClientClass::ALL.map(|class| (class, self.of(class))).to_vec())
    }

    fn assign(&mut self, value: Value) {
        match value {
            Value::BufferLimits(limits) => {
                limits.into_iter().for_each(|(class, limit)| self.set(class, limit));
            }
            other => kind_mismatch(&other),
        }
    }
}

fn hz(settings: &Settings) -> Value {
    settings.hz.to_value()
}

/// Redis accepts any frequency and clamps it to this range.
fn set_hz(settings: &mut Settings, value: Value) {
    settings.hz.assign(value);
    settings.hz = settings.hz.clamp(1, 500);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_rows_match_the_default_settings() {
        let settings = Settings::default();
        for directive in DIRECTIVES {
            assert_eq!(directive.value(&settings).to_string(), directive.default, "{directive:?}");
        }
    }

    /// Otherwise a default would change when it is written and read again.
    #[test]
    fn defaults_are_unchanged_by_reading_and_printing() {
        for directive in DIRECTIVES {
            let read = directive.kind.read(&[directive.default]);
            let printed = read.map(|value| value.to_string());
            assert_eq!(printed.as_deref(), Ok(directive.default), "{directive:?}");
        }
    }

    #[test]
    fn fields_hold_every_value_of_their_kinds() {
        for directive in DIRECTIVES {
            let texts: Vec<String> = match directive.kind {
                ValueKind::Int(min, max) => vec![min.to_string(), max.to_string()],
                ValueKind::Memory(min, max) => vec![min.to_string(), max.to_string()],
                ValueKind::Octal(max) => vec!["0".into(), format!("{max:o}")],
                ValueKind::Choice(names) => names.iter().map(|name| name.to_string()).collect(),
                ValueKind::Bool => vec!["yes".into(), "no".into()],
                ValueKind::Text => vec![String::new(), "text".into()],
                _ => continue,
            };
            // `hz` is clamped; directives with a fixed value accept only their default.
            let default_only = matches!(directive.role, Role::Unsupported | Role::NeedsLog);
            if directive.name == "hz" || default_only {
                continue;
            }
            for text in texts {
                let mut settings = Settings::default();
                assert_eq!(settings.assign(directive, &[&text]), Ok(()), "{directive:?}");
                assert_eq!(directive.value(&settings).to_string(), text, "{directive:?}");
            }
        }
    }

    #[test]
    fn names_are_lower_case_and_unique() {
        let mut seen: Vec<&str> = Vec::new();
        let others = FOREIGN.iter().chain(FORBIDDEN).copied();
        for name in names().map(|(name, _)| name).chain(others) {
            assert_eq!(name, name.to_ascii_lowercase());
            assert!(!seen.contains(&name), "duplicate name {name}");
            seen.push(name);
        }
    }
}
