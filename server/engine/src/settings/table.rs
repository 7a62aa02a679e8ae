//! One row per directive: the whole of what is known about it.
//! To add an option of our own, add a field to `Settings` and a row here.

use super::types::{
    ClientClass, ClientOutputBufferLimits, EndpointType, LogLevel, MaxmemoryPolicy, MemoryShare,
    Permission, Secret, Supervised,
};
use super::value::Kind::{
    Addresses, Bool, BufferLimits, Choice, Choices, Events, FileName, HostAndPort, Int, Memory,
    MemoryOrPercent, Octal, OomScores, Percentiles, SavePoints, Text,
};
use super::{CompatVersion, Kind, Settings, Value};
use crate::limits::DATABASES_MAX;
use crate::notify;
use Mutability::{Fixed, Live, Protected};

/// One option.
#[derive(Debug)]
pub struct Directive {
    /// The name in Redis 7.2.
    pub name: &'static str,
    /// The name it had before.
    pub alias: Option<&'static str>,
    /// What values it takes.
    pub kind: Kind,
    /// The value when nothing is said, as it is printed.
    pub default: &'static str,
    /// Whether it can change while the server runs.
    pub mutability: Mutability,
    /// What the server does with it.
    pub role: Role,
    /// Whether its value must stay out of the log.
    pub is_sensitive: bool,
    /// What it is for.
    pub doc: &'static str,
}

/// Whether a directive can change while the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutability {
    /// It can.
    Live,
    /// Only if `enable-protected-configs` says so.
    Protected,
    /// It cannot.
    Fixed,
}

/// What the server does with a directive.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    /// The engine uses it, or a layer above reads it from the engine while it runs.
    Used(Access),
    /// A layer above the engine uses it when the process starts: sockets, threads, files, the log.
    /// The engine keeps its value for `CONFIG`.
    Process,
    /// Remembers it for those who ask. A lock server has no need of it.
    Accepted,
    /// Takes the default only, but for the start: launchers ask for durability out of habit, so
    /// there the value is dropped with a warning. Sessions see the default, which is the truth.
    Durability,
    /// Takes the default only. To do otherwise in silence would let the operator believe in a
    /// protection, or a role, that is not there.
    Unsupported,
}

/// Where a directive lives in [`Settings`].
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Reads it.
    pub get: fn(&Settings) -> Value,
    /// Writes a value that the row's kind has read.
    pub set: fn(&mut Settings, Value),
}

impl Directive {
    /// The value this configuration gives it.
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

/// Finds a directive by any of its names, in any case; says by which.
pub fn find(name: &str) -> Option<(&'static str, &'static Directive)> {
    names().find(|(known, _)| known.eq_ignore_ascii_case(name))
}

/// Every name, old ones too, and what it stands for.
pub fn names() -> impl Iterator<Item = (&'static str, &'static Directive)> {
    DIRECTIVES.iter().flat_map(|directive| {
        [Some(directive.name), directive.alias].into_iter().flatten().map(move |n| (n, directive))
    })
}

const fn row(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    mutability: Mutability,
    role: Role,
    doc: &'static str,
) -> Directive {
    Directive { name, alias: None, kind, default, mutability, role, is_sensitive: false, doc }
}

const fn used(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    mutability: Mutability,
    access: Access,
    doc: &'static str,
) -> Directive {
    row(name, kind, default, mutability, Role::Used(access), doc)
}

const fn process(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    mutability: Mutability,
    doc: &'static str,
) -> Directive {
    row(name, kind, default, mutability, Role::Process, doc)
}

const fn accepted(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    mutability: Mutability,
    doc: &'static str,
) -> Directive {
    row(name, kind, default, mutability, Role::Accepted, doc)
}

const fn unsupported(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    mutability: Mutability,
    doc: &'static str,
) -> Directive {
    row(name, kind, default, mutability, Role::Unsupported, doc)
}

const fn durability(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Directive {
    row(name, kind, default, Live, Role::Durability, doc)
}

/// The access to a field of `Settings` that can be written as one [`Value`].
macro_rules! field {
    ($field:ident) => {
        Access {
            get: |settings| settings.$field.to_value(),
            set: |settings, value| settings.$field.assign(value),
        }
    };
}

/// The largest C `int`: the bound of most counts.
const INT_MAX: i64 = i32::MAX as i64;
/// The smallest C `int`.
const INT_MIN: i64 = i32::MIN as i64;
/// The largest size Redis takes.
const SIZE_MAX: u64 = i64::MAX as u64;
/// One mebibyte: below it the limits of requests would refuse ordinary ones.
const MIB: u64 = 1 << 20;

const INT: Kind = Int(0, INT_MAX);
const LONG: Kind = Int(0, i64::MAX);
const PORT: Kind = Int(0, 65535);
const SIZE: Kind = Memory(0, SIZE_MAX);
const PERMISSION: Kind = Choice(Permission::NAMES);

const SHUTDOWN_FLAGS: &[&str] = &["default", "save", "nosave", "now", "force"];
const SYSLOG_FACILITIES: &[&str] =
    &["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"];
const OOM_MODES: &[&str] = &["no", "yes", "relative", "absolute"];
const ACL_PUBSUB: &[&str] = &["allchannels", "resetchannels"];
const SANITIZE: &[&str] = &["no", "yes", "clients"];
const APPENDFSYNC: &[&str] = &["everysec", "always", "no"];
const DISKLESS_LOAD: &[&str] = &["disabled", "on-empty-db", "swapdb"];
const PROPAGATION: &[&str] = &["ignore", "panic", "panic-on-replicas"];
const BUFFERS: &str = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
const TLS_AUTH: &[&str] = &["no", "yes", "optional"];

/// Every directive of Redis 7.2, and what is ours.
#[rustfmt::skip]
pub static DIRECTIVES: &[Directive] = &[
    // Network
    used("port", PORT, "6379", Fixed, field!(port), "TCP port; 0 listens on none."),
    process("bind", Addresses, "127.0.0.1 -::1", Fixed,
        "Addresses to listen on; `-` marks one that may be missing."),
    used("protected-mode", Bool, "yes", Live, field!(protected_mode),
        "Refuse other hosts while there is no password."),
    process("tcp-backlog", INT, "511", Fixed,
        "Connections the kernel may queue."),
    process("unixsocket", Text, "", Fixed, "Path of a Unix socket to listen on."),
    process("unixsocketperm", Octal(0o777), "0", Fixed,
        "Permission bits of the Unix socket."),
    used("timeout", INT, "0", Live, field!(timeout_seconds),
        "Close a client idle for this many seconds; 0 never."),
    used("tcp-keepalive", INT, "300", Live, field!(tcp_keepalive_seconds),
        "Seconds between keepalive probes; 0 sends none."),
    used("maxclients", Int(1, u32::MAX as i64), "10000", Live, field!(maxclients),
        "Connections at one time."),
    process("io-threads", Int(1, 128), "1", Fixed,
        "Threads that serve connections."),
    accepted("io-threads-do-reads", Bool, "no", Fixed,
        "Whether the threads read too; ours always do."),
    accepted("bind-source-addr", Text, "", Live, "Source address of outgoing connections."),
    accepted("socket-mark-id", Int(0, u32::MAX as i64), "0", Fixed, "Mark put on the sockets."),

    // Process and log
    process("daemonize", Bool, "no", Fixed, "Go on in the background."),
    process("supervised", Choice(Supervised::NAMES), "no", Fixed,
        "Who waits to hear that the server is ready."),
    process("end-with-stdin", Bool, "no", Fixed,
        "End when standard input is closed, as when whoever started the server is gone."),
    process("pidfile", Text, "", Fixed, "File that holds the process id."),
    process("dir", Text, ".", Protected, "Folder that relative paths start from."),
    process("loglevel", Choice(LogLevel::NAMES), "notice", Live,
        "How much is logged."),
    process("logfile", Text, "", Fixed, "File for the log; none is standard output."),
    used("shutdown-timeout", INT, "10", Live, field!(shutdown_timeout_seconds),
        "Seconds a shutdown may wait for others."),
    accepted("shutdown-on-sigint", Choices(SHUTDOWN_FLAGS), "default", Live,
        "How SIGINT shuts down."),
    accepted("shutdown-on-sigterm", Choices(SHUTDOWN_FLAGS), "default", Live,
        "How SIGTERM shuts down."),
    accepted("syslog-enabled", Bool, "no", Fixed, "Log to syslog."),
    accepted("syslog-ident", Text, "redis", Fixed, "Name in syslog."),
    accepted("syslog-facility", Choice(SYSLOG_FACILITIES), "local0", Fixed, "Facility in syslog."),
    accepted("always-show-logo", Bool, "no", Fixed, "Show the banner."),
    accepted("set-proc-title", Bool, "yes", Fixed, "Show details in the process title."),
    accepted("proc-title-template", Text, "{title} {listen-addr} {server-mode}", Live,
        "Form of the process title."),
    accepted("crash-log-enabled", Bool, "yes", Live, "Log a report after a crash."),
    accepted("crash-memcheck-enabled", Bool, "yes", Live, "Check the memory after a crash."),
    accepted("ignore-warnings", Text, "", Live, "Warnings to keep quiet about."),
    accepted("locale-collate", Text, "", Live, "Locale for comparisons."),
    accepted("disable-thp", Bool, "yes", Fixed, "Turn transparent huge pages off."),
    accepted("oom-score-adj", Choice(OOM_MODES), "no", Live, "Tell the kernel whom to kill first."),
    accepted("oom-score-adj-values", OomScores, "0 200 800", Live, "Scores for the kernel."),
    accepted("server_cpulist", Text, "", Fixed, "Processors to run on."),
    accepted("bio_cpulist", Text, "", Fixed, "Processors to run on."),
    accepted("aof_rewrite_cpulist", Text, "", Fixed, "Processors to run on."),
    accepted("bgsave_cpulist", Text, "", Fixed, "Processors to run on."),

    used("compat-version", Choice(CompatVersion::NAMES), "7.2", Fixed, field!(compat_version),
        "The server announced, and so which commands there are."),

    // Access
    used("requirepass", Text, "", Live, field!(requirepass),
        "Password of the default user.").secret(),
    used("enable-debug-command", PERMISSION, "no", Fixed, field!(enable_debug_command),
        "Who may use DEBUG."),
    used("enable-test-commands", PERMISSION, "no", Fixed, field!(enable_test_commands),
        "Who may use LOCKWHEEL: stop the clock, break things, look behind the scenes."),
    used("enable-protected-configs", PERMISSION, "no", Fixed, field!(enable_protected_configs),
        "Who may change protected options."),
    accepted("enable-module-command", PERMISSION, "no", Fixed, "Who may use MODULE."),
    unsupported("aclfile", Text, "", Fixed, "File of users."),
    accepted("acllog-max-len", LONG, "128", Live, "Entries of the ACL log."),
    accepted("acl-pubsub-default", Choice(ACL_PUBSUB), "resetchannels", Live,
        "Channels a new user may use."),

    // Limits and memory
    used("databases", Int(1, DATABASES_MAX as i64), "16", Fixed, field!(databases),
        "Databases clients can select."),
    used("maxmemory", Memory(0, u64::MAX), "0", Live, field!(maxmemory_bytes),
        "Bytes beyond which writes are refused; 0 is no limit."),
    used("maxmemory-policy", Choice(MaxmemoryPolicy::NAMES), "noeviction", Live,
        field!(maxmemory_policy), "What clients are told; nothing is ever evicted."),
    accepted("maxmemory-samples", Int(1, INT_MAX), "5", Live,
        "Keys compared before one is evicted."),
    accepted("maxmemory-eviction-tenacity", Int(0, 100), "10", Live, "Effort of eviction."),
    used("maxmemory-clients", MemoryOrPercent, "0", Live, field!(maxmemory_clients),
        "Memory of all clients together beyond which the largest are disconnected."),
    used("proto-max-bulk-len", Memory(MIB, SIZE_MAX), "536870912", Live,
        field!(proto_max_bulk_len_bytes), "Bytes of one argument."),
    used("client-query-buffer-limit", Memory(MIB, SIZE_MAX), "1073741824", Live,
        field!(client_query_buffer_limit_bytes), "Bytes of one request."),
    used("client-output-buffer-limit", BufferLimits, BUFFERS, Live,
        field!(client_output_buffer_limits), "When clients that do not read are closed."),
    used("tracking-table-max-keys", LONG, "1000000", Live, field!(tracking_table_max_keys),
        "Keys of client side caching."),
    accepted("lazyfree-lazy-eviction", Bool, "no", Live, "Free in the background."),
    accepted("lazyfree-lazy-expire", Bool, "no", Live, "Free in the background."),
    accepted("lazyfree-lazy-server-del", Bool, "no", Live, "Free in the background."),
    accepted("lazyfree-lazy-user-del", Bool, "no", Live, "Free in the background."),
    accepted("lazyfree-lazy-user-flush", Bool, "no", Live, "Free in the background."),
    accepted("jemalloc-bg-thread", Bool, "yes", Live,
        "Let the allocator clean up in the background."),
    accepted("activerehashing", Bool, "yes", Live, "Grow the tables in idle time."),
    accepted("activedefrag", Bool, "no", Live, "Move values together."),
    accepted("active-defrag-cycle-max", Int(1, 99), "25", Live,
        "How eagerly to move values together."),
    accepted("active-defrag-cycle-min", Int(1, 99), "1", Live,
        "How eagerly to move values together."),
    accepted("active-defrag-threshold-lower", Int(0, 1000), "10", Live,
        "How eagerly to move values together."),
    accepted("active-defrag-threshold-upper", Int(0, 1000), "100", Live,
        "How eagerly to move values together."),
    accepted("active-defrag-max-scan-fields", Int(1, i64::MAX), "1000", Live,
        "How eagerly to move values together."),
    accepted("active-defrag-ignore-bytes", Memory(1, SIZE_MAX), "104857600", Live,
        "Waste that is not worth moving for."),
    accepted("lfu-log-factor", INT, "10", Live, "How fast use counts."),
    accepted("lfu-decay-time", INT, "1", Live, "How fast use is forgotten."),

    // Time, scripts and events
    used("hz", INT, "10", Live, Access { get: hz, set: set_hz },
        "Ticks a second that clients are told of."),
    accepted("dynamic-hz", Bool, "yes", Live, "Tick faster with many clients."),
    accepted("active-expire-effort", Int(1, 10), "1", Live, "Effort of expiry; ours is exact."),
    used("busy-reply-threshold", LONG, "5000", Live, field!(busy_reply_threshold_ms),
        "Milliseconds before others are told that a script is busy.").alias("lua-time-limit"),
    used("script-plans", Bool, "yes", Live, field!(script_plans),
        "Run scripts that need no Lua without it."),
    used("notify-keyspace-events", Events, "", Live, field!(notify_keyspace_events),
        "Events that are published."),
    accepted("slowlog-log-slower-than", Int(-1, i64::MAX), "10000", Live,
        "Microseconds that are slow."),
    accepted("slowlog-max-len", LONG, "128", Live, "Entries of the slow log."),
    accepted("latency-monitor-threshold", LONG, "0", Live, "Milliseconds that are a spike."),
    accepted("latency-tracking", Bool, "yes", Live, "Keep latencies of every command."),
    accepted("latency-tracking-info-percentiles", Percentiles, "50 99 99.9", Live,
        "Percentiles in INFO."),

    // Encodings
    used("hash-max-listpack-entries", LONG, "512", Live, field!(hash_max_listpack_entries),
        "Fields up to which a hash is a listpack.").alias("hash-max-ziplist-entries"),
    used("hash-max-listpack-value", SIZE, "64", Live, field!(hash_max_listpack_value_bytes),
        "Bytes of a value up to which a hash is a listpack.").alias("hash-max-ziplist-value"),
    used("list-max-listpack-size", Int(INT_MIN, INT_MAX), "-2", Live,
        field!(list_max_listpack_size),
        "Size up to which a list is a listpack.").alias("list-max-ziplist-size"),
    accepted("list-compress-depth", INT, "0", Live, "Nodes at the ends that stay plain."),
    used("set-max-intset-entries", LONG, "512", Live, field!(set_max_intset_entries),
        "Members up to which a set of integers is an intset."),
    used("set-max-listpack-entries", LONG, "128", Live, field!(set_max_listpack_entries),
        "Members up to which a set is a listpack."),
    used("set-max-listpack-value", LONG, "64", Live, field!(set_max_listpack_value_bytes),
        "Bytes of a member up to which a set is a listpack."),
    used("zset-max-listpack-entries", LONG, "128", Live, field!(zset_max_listpack_entries),
        "Members up to which a sorted set is a listpack.").alias("zset-max-ziplist-entries"),
    used("zset-max-listpack-value", SIZE, "64", Live, field!(zset_max_listpack_value_bytes),
        "Bytes up to which a sorted set is a listpack.").alias("zset-max-ziplist-value"),
    used("stream-node-max-bytes", SIZE, "4096", Live, field!(stream_node_max_bytes),
        "Bytes of a stream's entries that are trimmed together."),
    used("stream-node-max-entries", LONG, "100", Live, field!(stream_node_max_entries),
        "Entries of a stream that are trimmed together."),
    accepted("hll-sparse-max-bytes", SIZE, "3000", Live, "Bytes of a sparse HyperLogLog."),

    // Persistence: keys are kept in memory alone
    durability("save", SavePoints, "", "When to write a snapshot; never here."),
    accepted("dbfilename", FileName("dbfilename can't be a path, just a filename"), "dump.rdb",
        Protected, "Name of the snapshot."),
    accepted("rdbcompression", Bool, "yes", Live, "How snapshots are written."),
    accepted("rdbchecksum", Bool, "yes", Fixed, "How snapshots are written."),
    accepted("rdb-del-sync-files", Bool, "no", Live, "How snapshots are written."),
    accepted("rdb-save-incremental-fsync", Bool, "yes", Live, "How snapshots are written."),
    accepted("sanitize-dump-payload", Choice(SANITIZE), "no", Live, "Check what RESTORE loads."),
    accepted("stop-writes-on-bgsave-error", Bool, "yes", Live,
        "Refuse writes when a snapshot failed."),
    durability("appendonly", Bool, "no", "Write an append only file; there is none here."),
    accepted("appendfilename", FileName("appendfilename can't be a path, just a filename"),
        "appendonly.aof", Fixed, "Name of the append only file."),
    accepted("appenddirname", FileName("appenddirname can't be a path, just a dirname"),
        "appendonlydir", Fixed, "Folder of the append only files."),
    accepted("appendfsync", Choice(APPENDFSYNC), "everysec", Live, "When the file is synced."),
    accepted("no-appendfsync-on-rewrite", Bool, "no", Live, "How the append only file is kept."),
    accepted("aof-load-truncated", Bool, "yes", Live, "How the append only file is kept."),
    accepted("aof-use-rdb-preamble", Bool, "yes", Live, "How the append only file is kept."),
    accepted("aof-timestamp-enabled", Bool, "no", Live, "How the append only file is kept."),
    accepted("aof-rewrite-incremental-fsync", Bool, "yes", Live,
        "How the append only file is kept."),
    accepted("aof-disable-auto-gc", Bool, "no", Live, "How the append only file is kept."),
    accepted("auto-aof-rewrite-percentage", INT, "100", Live, "Growth that rewrites the file."),
    accepted("auto-aof-rewrite-min-size", SIZE, "67108864", Live,
        "Size below which it is not rewritten."),

    // Replication
    unsupported("replicaof", HostAndPort, "", Fixed, "The server to copy.").alias("slaveof"),
    accepted("masteruser", Text, "", Live, "User at the server that is copied.").secret(),
    accepted("masterauth", Text, "", Live, "Password at the server that is copied.").secret(),
    accepted("replica-serve-stale-data", Bool, "yes", Live,
        "How a replica behaves.").alias("slave-serve-stale-data"),
    accepted("replica-read-only", Bool, "yes", Live,
        "How a replica behaves.").alias("slave-read-only"),
    accepted("replica-lazy-flush", Bool, "no", Live,
        "How a replica behaves.").alias("slave-lazy-flush"),
    accepted("replica-ignore-maxmemory", Bool, "yes", Live,
        "How a replica behaves.").alias("slave-ignore-maxmemory"),
    accepted("replica-announced", Bool, "yes", Live, "How a replica behaves."),
    accepted("replica-ignore-disk-write-errors", Bool, "no", Live, "How a replica behaves."),
    accepted("replica-priority", INT, "100", Live,
        "Which replica is promoted first.").alias("slave-priority"),
    accepted("replica-announce-ip", Text, "", Live,
        "Address told to others.").alias("slave-announce-ip"),
    accepted("replica-announce-port", PORT, "0", Live,
        "Port told to others.").alias("slave-announce-port"),
    accepted("repl-timeout", Int(1, INT_MAX), "60", Live, "Seconds until a peer is gone."),
    accepted("repl-ping-replica-period", Int(1, INT_MAX), "10", Live,
        "Seconds between pings.").alias("repl-ping-slave-period"),
    accepted("repl-backlog-size", Memory(1, SIZE_MAX), "1048576", Live,
        "Bytes kept for replicas that come back."),
    accepted("repl-backlog-ttl", LONG, "3600", Live, "Seconds they are kept."),
    accepted("repl-disable-tcp-nodelay", Bool, "no", Live, "Send fewer packets."),
    accepted("repl-diskless-load", Choice(DISKLESS_LOAD), "disabled", Live, "Load without a file."),
    accepted("repl-diskless-sync", Bool, "yes", Live, "Send without a file."),
    accepted("repl-diskless-sync-delay", INT, "5", Live, "Seconds to wait for more replicas."),
    accepted("repl-diskless-sync-max-replicas", INT, "0", Live, "Replicas not to wait beyond."),
    accepted("min-replicas-to-write", INT, "0", Live,
        "Replicas a write needs.").alias("min-slaves-to-write"),
    accepted("min-replicas-max-lag", INT, "10", Live,
        "Seconds such a replica may lag.").alias("min-slaves-max-lag"),
    accepted("propagation-error-behavior", Choice(PROPAGATION), "ignore", Live,
        "What to do about a command that fails."),

    // Cluster
    used("cluster-enabled", Bool, "no", Fixed, field!(cluster_enabled),
        "Be the only node of a cluster."),
    accepted("cluster-config-file", Text, "nodes.conf", Fixed, "File of the cluster's state."),
    accepted("cluster-node-timeout", LONG, "15000", Live, "Milliseconds until a node is gone."),
    used("cluster-port", PORT, "0", Fixed, field!(cluster_port),
        "Port of the cluster bus that is told of; nobody listens there."),
    used("cluster-announce-ip", Text, "", Live, field!(cluster_announce_ip),
        "Address told to others."),
    used("cluster-announce-hostname", Text, "", Live, field!(cluster_announce_hostname),
        "Name told to others."),
    accepted("cluster-announce-human-nodename", Text, "", Live, "Name told to others."),
    used("cluster-announce-port", PORT, "0", Live, field!(cluster_announce_port),
        "Port told to others."),
    accepted("cluster-announce-tls-port", PORT, "0", Live, "Port told to others."),
    used("cluster-announce-bus-port", PORT, "0", Live, field!(cluster_announce_bus_port),
        "Port told to others."),
    used("cluster-preferred-endpoint-type", Choice(EndpointType::NAMES), "ip", Live,
        field!(cluster_preferred_endpoint_type), "What clients are sent to."),
    accepted("cluster-allow-reads-when-down", Bool, "no", Live, "How the cluster behaves."),
    accepted("cluster-allow-pubsubshard-when-down", Bool, "yes", Live, "How the cluster behaves."),
    accepted("cluster-allow-replica-migration", Bool, "yes", Live, "How the cluster behaves."),
    accepted("cluster-require-full-coverage", Bool, "yes", Live, "How the cluster behaves."),
    accepted("cluster-replica-no-failover", Bool, "no", Live,
        "Never promote this node.").alias("cluster-slave-no-failover"),
    accepted("cluster-replica-validity-factor", INT, "10", Live,
        "How old a promoted replica may be.").alias("cluster-slave-validity-factor"),
    accepted("cluster-migration-barrier", INT, "1", Live, "Replicas a node keeps."),
    accepted("cluster-link-sendbuf-limit", Memory(0, u64::MAX), "0", Live,
        "Bytes queued for another node."),

    // TLS
    unsupported("tls-port", PORT, "0", Live, "TLS port; 0 listens on none."),
    accepted("tls-cluster", Bool, "no", Live, "How TLS is used."),
    accepted("tls-replication", Bool, "no", Live, "How TLS is used."),
    accepted("tls-prefer-server-ciphers", Bool, "no", Live, "How TLS is used."),
    accepted("tls-auth-clients", Choice(TLS_AUTH), "yes", Live,
        "Whether clients need a certificate."),
    accepted("tls-cert-file", Text, "", Live, "What TLS is set up with."),
    accepted("tls-key-file", Text, "", Live, "What TLS is set up with."),
    accepted("tls-client-cert-file", Text, "", Live, "What TLS is set up with."),
    accepted("tls-client-key-file", Text, "", Live, "What TLS is set up with."),
    accepted("tls-dh-params-file", Text, "", Live, "What TLS is set up with."),
    accepted("tls-ca-cert-file", Text, "", Live, "What TLS is set up with."),
    accepted("tls-ca-cert-dir", Text, "", Live, "What TLS is set up with."),
    accepted("tls-protocols", Text, "", Live, "What TLS is set up with."),
    accepted("tls-ciphers", Text, "", Live, "What TLS is set up with."),
    accepted("tls-ciphersuites", Text, "", Live, "What TLS is set up with."),
    accepted("tls-key-file-pass", Text, "", Live, "Password of a key.").secret(),
    accepted("tls-client-key-file-pass", Text, "", Live, "Password of a key.").secret(),
    accepted("tls-session-caching", Bool, "yes", Live, "Let clients resume."),
    accepted("tls-session-cache-size", INT, "20480", Live, "Sessions kept."),
    accepted("tls-session-cache-timeout", INT, "300", Live, "Seconds a session is kept."),
];

/// Directives of other versions of Redis and of Valkey: read, and never heard of again.
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

/// What the names of the options of Redis 8's modules start with.
pub const FOREIGN_PREFIXES: &[&str] = &["bf-", "cf-", "search-", "ts-"];

/// Directives that never were options, and that cannot be left aside without harm.
pub const FORBIDDEN: &[&str] = &["loadmodule", "rename-command", "user"];

/// A field that can be written as one [`Value`].
trait Field {
    fn to_value(&self) -> Value;

    /// The value was read by the kind of the field's row, which must fit the field.
    fn assign(&mut self, value: Value);
}

/// A row whose kind does not fit its field is a mistake in the table.
fn misfit(value: &Value) -> ! {
    unreachable!("the kind of the row does not fit its field: {value:?}")
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
                *self = number.unwrap_or_else(|| misfit(&value));
            }
        }
    )*};
}

number_fields! {
    u16 => Int,
    u32 => Int,
    i32 => Int,
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
                *self = found.unwrap_or_else(|| misfit(&value));
            }
        }
    )*};
}

choice_fields!(CompatVersion, EndpointType, MaxmemoryPolicy, Permission);

macro_rules! plain_fields {
    ($($field:ty => $value:ident,)*) => {$(
        impl Field for $field {
            fn to_value(&self) -> Value {
                Value::$value(self.clone())
            }

            fn assign(&mut self, value: Value) {
                match value {
                    Value::$value(inner) => *self = inner,
                    other => misfit(&other),
                }
            }
        }
    )*};
}

plain_fields! {
    bool => Bool,
    String => Text,
    Vec<String> => Words,
    notify::Events => Events,
}

/// An empty text is none.
impl Field for Option<String> {
    fn to_value(&self) -> Value {
        Value::Text(self.clone().unwrap_or_default())
    }

    fn assign(&mut self, value: Value) {
        match value {
            Value::Text(text) => *self = Some(text).filter(|text| !text.is_empty()),
            other => misfit(&other),
        }
    }
}

/// An empty password is none.
impl Field for Option<Secret> {
    fn to_value(&self) -> Value {
        Value::Text(self.as_ref().map(|secret| secret.expose().into()).unwrap_or_default())
    }

    fn assign(&mut self, value: Value) {
        match value {
            Value::Text(text) => *self = (!text.is_empty()).then(|| Secret::new(text)),
            other => misfit(&other),
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
                MemoryShare::Percent(percent(text).unwrap_or_else(|| misfit(&value)))
            }
            _ => misfit(&value),
        };
    }
}

/// Assigning leaves the classes that are not named as they are.
impl Field for ClientOutputBufferLimits {
    fn to_value(&self) -> Value {
        Value::BufferLimits(ClientClass::ALL.map(|class| (class, self.of(class))).to_vec())
    }

    fn assign(&mut self, value: Value) {
        match value {
            Value::BufferLimits(limits) => {
                limits.into_iter().for_each(|(class, limit)| self.set(class, limit));
            }
            other => misfit(&other),
        }
    }
}

fn hz(settings: &Settings) -> Value {
    settings.hz.to_value()
}

/// Redis takes any rate and keeps to these.
fn set_hz(settings: &mut Settings, value: Value) {
    settings.hz.assign(value);
    settings.hz = settings.hz.clamp(1, 500);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_agree_with_the_defaults() {
        let settings = Settings::default();
        for directive in DIRECTIVES {
            assert_eq!(directive.value(&settings).to_string(), directive.default, "{directive:?}");
        }
    }

    /// A default that its own kind refuses, or prints otherwise, would come back changed.
    #[test]
    fn defaults_are_read_as_they_are_printed() {
        for directive in DIRECTIVES {
            let read = directive.kind.read(&[directive.default]);
            let printed = read.map(|value| value.to_string());
            assert_eq!(printed.as_deref(), Ok(directive.default), "{directive:?}");
        }
    }

    #[test]
    fn fields_hold_what_their_kinds_let_through() {
        for directive in DIRECTIVES {
            let texts: Vec<String> = match directive.kind {
                Kind::Int(min, max) => vec![min.to_string(), max.to_string()],
                Kind::Memory(min, max) => vec![min.to_string(), max.to_string()],
                Kind::Octal(max) => vec!["0".into(), format!("{max:o}")],
                Kind::Choice(names) => names.iter().map(|name| name.to_string()).collect(),
                Kind::Bool => vec!["yes".into(), "no".into()],
                Kind::Text => vec![String::new(), "text".into()],
                _ => continue,
            };
            // The rate is kept in bounds; the rest is not supported but for the default.
            let default_only = matches!(directive.role, Role::Unsupported | Role::Durability);
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
            assert!(!seen.contains(&name), "{name} is there twice");
            seen.push(name);
        }
    }
}
