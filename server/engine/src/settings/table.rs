//! The table of directives with an effect, one row each: name, kind of value, default and
//! documentation. To add a directive of our own, add a field to `Settings` and a row here.

use super::field::Field;
use super::row::{
    Access, Directive, INT, INT_MAX, LONG, Mutability, PERMISSION, PORT, SIZE, SIZE_MAX, needs_log,
    process, used,
};
use super::types::{
    ChannelDefault, EndpointType, FlushPolicy, LogLevel, MaxmemoryPolicy, Supervised,
};
use super::value::ValueKind::{
    Addresses, Bool, BufferLimits, Choice, Events, FileName, Int, Memory, MemoryOrPercent, Octal,
    Percentiles, SavePoints, Span, Text, Words,
};
use super::{CompatVersion, Settings, Value};
use crate::limits::{DATABASES_MAX, JOURNAL_ENTRIES_MAX};
use Mutability::{AtStart, Fixed, Live, Protected};

/// The access to a field that can be converted to one [`Value`].
macro_rules! field {
    ($field:ident) => {
        Access {
            get: |settings| settings.$field.to_value(),
            set: |settings, value| settings.$field.assign(value),
        }
    };
}

/// The smallest C `int`.
const INT_MIN: i64 = i32::MIN as i64;
/// One mebibyte: a lower limit would refuse ordinary requests.
const MIB: u64 = 1 << 20;
/// The value of `clock-start` for the current time.
const CURRENT_TIME: i64 = -1;

const BUFFERS: &str = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";
const TLS_AUTH: &[&str] = &["no", "yes", "optional"];

/// The rows of the directives with an effect.
#[rustfmt::skip]
pub(super) static WITH_EFFECT: &[Directive] = &[
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
    used("lfu-log-factor", INT, "10", Live, field!(lfu_log_factor),
        "Growth of the counter that OBJECT FREQ shows: a greater factor counts more slowly."),
    used("lfu-decay-time", INT, "1", Live, field!(lfu_decay_minutes),
        "Minutes after which the counter that OBJECT FREQ shows is decremented; 0 for never."),

    // Time, scripts and events
    used("hz", INT, "10", Live, Access { get: hz, set: set_hz },
        "Frequency of background tasks that clients are shown, per second."),
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

    // Persistence
    needs_log("save", SavePoints, "",
        "Seconds and changes after which a snapshot is written; empty writes none."),
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
    process("appenddirname", FileName("appenddirname can't be a path, just a dirname"),
        "appendonlydir", Fixed,
        "Directory of the log, within `dir`."),
    used("appendfsync", Choice(FlushPolicy::NAMES), "always", Live, field!(appendfsync),
        "When the log is flushed to disk: before each reply, once a second, or when the system \
         does it."),
    used("auto-aof-rewrite-percentage", INT, "100", Live, field!(auto_aof_rewrite_percentage),
        "Growth of the log since the last snapshot that begins another one, in percent; 0 disables \
         these."),
    used("auto-aof-rewrite-min-size", SIZE, "67108864", Live,
        field!(auto_aof_rewrite_min_size_bytes),
        "Minimum bytes of the log for a snapshot that begins because of its growth."),

    // Replication
    process("replica-announce-ip", Text, "", Fixed,
        "Address that a node of a cluster announces to clients; empty announces that for other \
         nodes.").alias("slave-announce-ip"),
    process("replica-announce-port", PORT, "0", Fixed,
        "Port that a node of a cluster announces to clients; 0 announces `port`, or `tls-port` if \
         that is 0.").alias("slave-announce-port"),

    // Cluster
    used("cluster-enabled", Bool, "no", Fixed, field!(cluster_enabled),
        "Run as the only node of a cluster."),
    used("cluster-port", PORT, "0", Fixed, field!(cluster_port),
        "Port of the cluster bus that is announced; the server does not listen on it. 0 means \
         `port` + 10000."),
    used("cluster-announce-ip", Text, "", Live, field!(cluster_announce_ip),
        "Address that the node announces; empty announces the one that the client is connected \
         to."),
    used("cluster-announce-hostname", Text, "", Live, field!(cluster_announce_hostname),
        "Host name that the node announces; empty announces none."),
    used("cluster-announce-port", PORT, "0", Live, field!(cluster_announce_port),
        "Port that the node announces; 0 announces `port`."),
    process("cluster-announce-tls-port", PORT, "0", Live,
        "TLS port that the node announces; 0 announces `tls-port`."),
    used("cluster-announce-bus-port", PORT, "0", Live, field!(cluster_announce_bus_port),
        "Port of the cluster bus that the node announces; 0 announces `cluster-port`."),
    used("cluster-preferred-endpoint-type", Choice(EndpointType::NAMES), "ip", Live,
        field!(cluster_preferred_endpoint_type),
        "Kind of endpoint in redirections and in CLUSTER SLOTS."),

    // TLS
    process("tls-port", PORT, "0", AtStart, "TLS port to listen on; 0 disables TLS."),
    process("tls-handshake-timeout", Int(1, 3600), "10", Live,
        "Seconds after which a connection without a complete TLS handshake is closed.").own(),
    process("tls-prefer-server-ciphers", Bool, "no", Live,
        "Prefer the order of ciphers of the server."),
    process("tls-auth-clients", Choice(TLS_AUTH), "yes", Live,
        "Whether clients have to present a certificate."),
    process("tls-cert-file", Text, "", Live, "File with the server's certificate."),
    process("tls-key-file", Text, "", Live, "File with the server's private key."),
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
    process("tls-session-caching", Bool, "yes", Live, "Let clients resume TLS sessions."),
    process("tls-session-cache-size", INT, "20480", Live,
        "Maximum number of cached TLS sessions."),
    process("tls-session-cache-timeout", INT, "300", Live,
        "Seconds for which a TLS session is cached."),
];

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
    use crate::settings::{FORBIDDEN, FOREIGN, Role, ValueKind, names, rows};

    #[test]
    fn defaults_of_rows_match_the_default_settings() {
        let settings = Settings::default();
        for directive in rows() {
            assert_eq!(directive.value(&settings).to_string(), directive.default, "{directive:?}");
        }
    }

    /// Otherwise a default would change when it is written and read again.
    #[test]
    fn defaults_are_unchanged_by_reading_and_printing() {
        for directive in rows() {
            let read = directive.kind.read(&[directive.default]);
            let printed = read.map(|value| value.to_string());
            assert_eq!(printed.as_deref(), Ok(directive.default), "{directive:?}");
        }
    }

    #[test]
    fn fields_hold_every_value_of_their_kinds() {
        for directive in rows() {
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
