//! Directives without an effect on a lock server, and names that are refused or skipped.

use super::ValueKind;
use super::row::{INT, INT_MAX, LONG, Mutability, PERMISSION, Row, SIZE, SIZE_MAX, Usage, row};
use super::value::ValueKind::{
    Bool, Choice, Choices, FileName, HostAndPort, Int, Memory, OomScores, Text,
};
use Mutability::{Fixed, Live, Protected};

const SHUTDOWN_FLAGS: &[&str] = &["default", "save", "nosave", "now", "force"];
const SYSLOG_FACILITIES: &[&str] =
    &["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"];
const OOM_MODES: &[&str] = &["no", "yes", "relative", "absolute"];
const SANITIZE: &[&str] = &["no", "yes", "clients"];
const DISKLESS_LOAD: &[&str] = &["disabled", "on-empty-db", "swapdb"];
const PROPAGATION: &[&str] = &["ignore", "panic", "panic-on-replicas"];

const fn accepted(
    name: &'static str,
    kind: ValueKind,
    default: &'static str,
    mutability: Mutability,
    doc: &'static str,
) -> Row {
    row(name, kind, default, mutability, Usage::Accepted, doc)
}

/// The rows of directives that are accepted so that programs can start the server.
#[rustfmt::skip]
pub(super) static WITHOUT_EFFECT: &[Row] = &[
    // Network
    accepted("io-threads-do-reads", Bool, "no", Fixed,
        "Whether I/O threads also read. They always do in this server."),
    accepted("bind-source-addr", Text, "", Live,
        "Source address of outgoing connections; empty lets the system choose."),
    accepted("socket-mark-id", Int(0, u32::MAX as i64), "0", Fixed,
        "Mark of the listening sockets, for packet filters; 0 sets none."),

    // Process and log
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

    // Access
    accepted("enable-module-command", PERMISSION, "no", Fixed, "Which clients may use MODULE."),

    // Limits and memory
    accepted("maxmemory-samples", Int(1, INT_MAX), "5", Live,
        "Number of keys compared for an eviction."),
    accepted("maxmemory-eviction-tenacity", Int(0, 100), "10", Live,
        "Effort of eviction, from 0 to 100."),
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

    // Time, scripts and events
    accepted("dynamic-hz", Bool, "yes", Live,
        "Increase the frequency of background tasks with the number of clients."),
    accepted("active-expire-effort", Int(1, 10), "1", Live,
        "Effort of expiration, from 1 to 10. Expiration is exact in this server."),

    // Encodings
    accepted("list-compress-depth", INT, "0", Live,
        "Number of nodes at each end of a list that are not compressed; 0 compresses none."),
    accepted("hll-sparse-max-bytes", SIZE, "3000", Live,
        "Maximum bytes of a HyperLogLog in its sparse encoding."),

    // Persistence
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
    accepted("appendfilename", FileName("appendfilename can't be a path, just a filename"),
        "appendonly.aof", Fixed,
        "Base name of the append-only files."),
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

    // Replication
    accepted("replicaof", HostAndPort, "", Fixed,
        "Host and port of the master to replicate; empty makes this server a master."
        ).alias("slaveof").unsupported(),
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
    accepted("cluster-config-file", Text, "nodes.conf", Fixed,
        "File with the state of the cluster."),
    accepted("cluster-node-timeout", LONG, "15000", Live,
        "Milliseconds after which an unreachable node is considered down."),
    accepted("cluster-announce-human-nodename", Text, "", Live,
        "Name of the node in log messages."),
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
    accepted("tls-cluster", Bool, "no", Live, "Use TLS on the cluster bus."),
    accepted("tls-replication", Bool, "no", Live, "Use TLS for replication."),
    accepted("tls-client-cert-file", Text, "", Live,
        "File with the certificate for outgoing connections."),
    accepted("tls-client-key-file", Text, "", Live,
        "File with the private key for outgoing connections."),
    accepted("tls-dh-params-file", Text, "", Live, "File with Diffie-Hellman parameters."),
    accepted("tls-key-file-pass", Text, "", Live,
        "Password of the server's private key.").secret().unsupported(),
    accepted("tls-client-key-file-pass", Text, "", Live,
        "Password of the private key for outgoing connections.").secret(),
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
