//! The directives with an effect, a row each: the constant with its type, the field if the engine
//! uses it, and name, kind of value, default, changeability and documentation. To add a directive
//! of our own, add a row here.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use super::field::Field;
use super::row::{Access, Directive, INT, INT_MAX, LONG, Mutability, PERMISSION, Row, Usage, row};
use super::row::{SIZE, SIZE_MAX};
use super::sentinel::Sentinel;
use super::types::{
    Allocator, ChannelDefault, ClientOutputBufferLimits, EndpointType, FlushPolicy, LogFormat,
    LogLevel, MaxmemoryPolicy, MemoryShare, Permission, SavePoint, Secret, Supervised,
    TlsAuthClients,
};
use super::value::ValueKind::{
    Addresses, Bool, BufferLimits, Choice, Events, FileName, Frequency, Int, Memory,
    MemoryOrPercent, Milliseconds, Octal, Percentiles, SavePoints, Seconds, Span, Text, Words,
};
use super::{CompatVersion, Value, ValueKind};
use crate::acl::ConfiguredUser;
use crate::limits::{DATABASES_MAX, JOURNAL_ENTRIES_MAX};
use crate::store::events;
use crate::timing::time::Millis;

/// Makes a constant of each row, the table of all, and the fields of [`Settings`] with their
/// defaults.
macro_rules! directives {
    ($(
        $NAME:ident $(in $field:ident)?: $type:ty =
            ($name:literal, $kind:expr, $default:expr, $mutability:ident, $doc:literal)
            $(.$property:ident($($argument:literal)?))*;
    )*) => {
        $(
            #[doc = $doc]
            pub const $NAME: Directive<$type> = Directive {
                row: &row($name, $kind, $default, Mutability::$mutability, Usage::Process, $doc)
                    $(.used(Access {
                        get: |settings| settings.$field.to_value(),
                        set: |settings, value| settings.$field.assign(value),
                    }))?
                    $(.$property($($argument)?))*,
                value: PhantomData,
            };
        )*

        /// The rows of all directives with an effect.
        pub(super) static WITH_EFFECT: &[&Row] = &[$($NAME.row),*];

        /// The values of all directives. Those that the engine uses are fields; the others are
        /// read with [`Settings::get`].
        #[derive(Clone, Debug, PartialEq)]
        pub struct Settings {
            $($(#[doc = $doc] pub $field: $type,)?)*
            /// The users in the configuration file.
            pub users: Vec<ConfiguredUser>,
            /// Clients for which the process has file descriptors: no more can be set as
            /// `maxclients`.
            pub clients_possible: u32,
            /// Most TLS connections whose handshake is not complete; `None` for the default.
            pub tls_handshakes_max: Option<usize>,
            /// Whether the restart guard is on although no directive says so.
            pub guards_by_default: bool,
            /// The configuration of a sentinel; `None` for other servers.
            pub sentinel: Option<Box<Sentinel>>,
            /// The configuration file, if one was named.
            pub config_file: Option<String>,
            /// The allocator in `INFO`; set by the program.
            pub allocator: Allocator,
            /// The directives that are no fields, by name, with the values that were set.
            pub(super) kept: BTreeMap<&'static str, Value>,
        }

        impl Default for Settings {
            fn default() -> Settings {
                Settings {
                    $($($field: $NAME.default_value(),)?)*
                    users: Vec::new(),
                    clients_possible: u32::MAX,
                    tls_handshakes_max: None,
                    guards_by_default: false,
                    sentinel: None,
                    config_file: None,
                    allocator: Allocator { name: "libc", usage: || None },
                    kept: BTreeMap::new(),
                }
            }
        }

        /// The names of the constants, in the order of their rows.
        #[cfg(test)]
        const CONSTANTS: &[&str] = &[$(stringify!($NAME)),*];

        /// Reads all directives; panics if a kind does not match its type.
        #[cfg(test)]
        fn read_all(settings: &Settings) {
            $(let _: $type = settings.get($NAME);)*
        }
    };
}

/// The smallest C `int`.
const INT_MIN: i64 = i32::MIN as i64;
/// One mebibyte: a lower limit would refuse ordinary requests.
const MIB: u64 = 1 << 20;
/// The value of `clock-start` for the current time.
const CURRENT_TIME: i64 = -1;
const PORT_NUMBER: ValueKind = Int(0, 65535);
const BUFFERS: &str = "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60";

directives! {
    // Network
    PORT in port: u16 = ("port", PORT_NUMBER, "6379", Fixed,
        "TCP port to listen on; 0 disables TCP.");
    BIND: Vec<String> = ("bind", Addresses, "127.0.0.1 -::1", Fixed,
        "Addresses to listen on. The prefix `-` marks an address that may be unavailable.");
    PROTECTED_MODE in protected_mode: bool = ("protected-mode", Bool, "yes", Live,
        "Refuse connections from other hosts while no password is set.");
    TCP_BACKLOG: u32 = ("tcp-backlog", INT, "511", Fixed,
        "Maximum length of the kernel's queue of pending connections.");
    UNIXSOCKET: Option<String> = ("unixsocket", Text, "", Fixed,
        "Path of a Unix socket to listen on; empty disables it.");
    UNIXSOCKETPERM: u32 = ("unixsocketperm", Octal(0o777), "0", Fixed,
        "Permission bits of the Unix socket in octal; 0 keeps those of the umask.");
    TIMEOUT in timeout_seconds: u32 = ("timeout", INT, "0", Live,
        "Seconds after which an idle client is disconnected; 0 disables the timeout.");
    TCP_KEEPALIVE in tcp_keepalive_seconds: u32 = ("tcp-keepalive", INT, "300", Live,
        "Seconds after which an idle connection is probed; it is closed after twice as long \
         without an answer, and on Linux also if the client acknowledges no data for as long. 0 \
         disables both.");
    MAXCLIENTS in maxclients: u32 = ("maxclients", Int(1, u32::MAX as i64), "10000", Live,
        "Maximum number of connected clients.");
    IO_THREADS: u32 = ("io-threads", Int(1, 128), "1", Fixed,
        "Number of threads that serve connections.");
    ADMIN_PORT: u16 = ("admin-port", Int(0, u16::MAX as i64), "0", Fixed,
        "Port for monitoring over HTTP; 0 disables it.").own();
    ADMIN_BIND: Vec<String> = ("admin-bind", Addresses, "127.0.0.1 -::1", Fixed,
        "Addresses of the port for monitoring. Others than loopback addresses need \
         `admin-tls yes`.").own();
    ADMIN_HOSTS: Vec<String> = ("admin-hosts", Words, "", Fixed,
        "Names by which browsers and programs reach the port for monitoring, other than \
         `localhost` and its addresses.").own();
    ADMIN_TLS: bool = ("admin-tls", Bool, "no", Fixed,
        "Whether the port for monitoring uses TLS, with the certificate of `tls-cert-file`.").own();
    RAFT_PORT: u16 = ("raft-port", PORT_NUMBER, "0", Fixed,
        "Port for the other nodes of a cluster that replicates its log; 0 if the server is no \
         node. See docs/replication.md.").own();
    RAFT_ANNOUNCE_IP: Option<String> = ("raft-announce-ip", Text, "", Fixed,
        "Address by which other nodes and clients reach this one; empty takes the first of `bind`. \
         For clients, `replica-announce-ip` overrides it.").own();
    RAFT_ANNOUNCE_PORT: u16 = ("raft-announce-port", PORT_NUMBER, "0", Fixed,
        "Port by which other nodes reach this one; 0 takes `raft-port`.").own();
    RAFT_ELECTION_TIMEOUT: Duration =
        ("raft-election-timeout", Milliseconds(100, 60_000), "1000", Fixed,
        "Milliseconds without a message of the leader after which the other nodes may elect \
         another one. The same on all nodes.").own();
    RAFT_REQUEST_MAX in raft_request_max_bytes: u64 =
        ("raft-request-max", Memory(MIB, SIZE_MAX), "16777216", Live,
        "Maximum bytes of the arguments of one request to a node of a cluster: other clients wait \
         until a majority has its effects.").own();
    RAFT_MASTER_NAME: String = ("raft-master-name", Text, "mymaster", Fixed,
        "Name of the master for clients that ask a node of a cluster as a sentinel.").own();

    // Process and log
    DAEMONIZE: bool = ("daemonize", Bool, "no", Fixed, "Run in the background.");
    SUPERVISED: Supervised = ("supervised", Choice(Supervised::NAMES), "no", Fixed,
        "Supervisor to notify when the server is ready.");
    END_WITH_STDIN: bool = ("end-with-stdin", Bool, "no", Fixed,
        "Shut down when standard input is closed, for example because the parent process has \
         ended.").own();
    PIDFILE: Option<String> = ("pidfile", Text, "", Fixed,
        "File for the process id; empty writes none.");
    DIR: String = ("dir", Text, ".", Protected, "Working directory: the base of relative paths.");
    LOGLEVEL: LogLevel = ("loglevel", Choice(LogLevel::NAMES), "notice", Live,
        "Minimum level of the messages that are logged.");
    LOG_FORMAT: LogFormat = ("log-format", Choice(LogFormat::NAMES), "legacy", Fixed,
        "Format of the log: as Redis writes it, pairs of name and value, or JSON objects.").own();
    LOGFILE: Option<String> = ("logfile", Text, "", Fixed,
        "Log file; empty logs to standard output.");
    SHUTDOWN_TIMEOUT in shutdown_timeout_seconds: u32 = ("shutdown-timeout", INT, "10", Live,
        "Maximum seconds that a shutdown waits for replicas.");
    COMPAT_VERSION in compat_version: CompatVersion =
        ("compat-version", Choice(CompatVersion::NAMES), "7.2", Fixed,
        "Version of Redis or Valkey that is announced; it determines the available commands.")
        .own();

    // Access
    REQUIREPASS in requirepass: Option<Secret> = ("requirepass", Text, "", Live,
        "Password of the default user; empty requires none.").secret();
    ENABLE_DEBUG_COMMAND in enable_debug_command: Permission =
        ("enable-debug-command", PERMISSION, "no", Fixed,
        "Which clients may use DEBUG.");
    ENABLE_TEST_COMMANDS in enable_test_commands: Permission =
        ("enable-test-commands", PERMISSION, "no", Fixed,
        "Which clients may use the test commands: LOCKWHEEL, which controls the clock, injects \
         faults and reads the journal.").own();
    CLOCK_FROZEN: bool = ("clock-frozen", Bool, "no", Fixed,
        "For tests: the clock is stopped at the start.").own();
    CLOCK_START: Option<Millis> = ("clock-start", Int(CURRENT_TIME, i64::MAX), "-1", Fixed,
        "For tests: the time that the clock shows at the start, in milliseconds since 1970; -1 is \
         the current time.").own();
    LOCK_VIEW in lock_view: bool = ("lock-view", Bool, "yes", Live,
        "Keeps which client made a lock, its renewals and the last events of locks: for LOCKWHEEL \
         LOCKS and the page of admin-port. 32 bytes for each lock, and at most 3 MB.").own();
    // A test that takes a thousand locks with scripts writes about as many entries: some MiB.
    JOURNAL_MAX_ENTRIES in journal_max_entries: u32 =
        ("journal-max-entries", Int(1, JOURNAL_ENTRIES_MAX as i64), "16384", Fixed,
        "For tests: entries that the journal keeps; a new one replaces the oldest.").own();
    LOCK_KEYS in lock_keys: Option<String> = ("lock-keys", Text, "", Fixed,
        "Patterns of keys that are locks, however they are made, separated by blanks: for the lock \
         view and the journal.").own();
    IGNORED_LOCK_KEYS in ignored_lock_keys: Option<String> = ("ignored-lock-keys", Text, "", Fixed,
        "Patterns of keys that are no locks, separated by blanks: for the lock view and the \
         journal.").own();
    VERIFY_EFFECTS in verify_effects: bool = ("verify-effects", Bool, "no", Fixed,
        "For tests: applies the effects of every command to a second engine, and ends the server \
         if the states differ. Slow.").own();
    ENABLE_PROTECTED_CONFIGS in enable_protected_configs: Permission =
        ("enable-protected-configs", PERMISSION, "no", Fixed,
        "Which clients may change protected directives.");
    ACLFILE: Option<String> = ("aclfile", Text, "", Fixed, "File with the ACL users.");
    ACLLOG_MAX_LEN in acllog_max_len: u64 = ("acllog-max-len", LONG, "128", Live,
        "Maximum number of entries in the ACL log.");
    ACL_PUBSUB_DEFAULT in acl_pubsub_default: ChannelDefault =
        ("acl-pubsub-default", Choice(ChannelDefault::NAMES), "resetchannels", Live,
        "Channel permissions of new users.");

    // Limits and memory
    DATABASES in databases: u32 = ("databases", Int(1, DATABASES_MAX as i64), "16", Fixed,
        "Number of databases.");
    MAXMEMORY in maxmemory_bytes: u64 = ("maxmemory", Memory(0, u64::MAX), "0", Live,
        "Maximum bytes of memory; writes beyond it are refused. 0 means no limit.");
    MAXMEMORY_POLICY in maxmemory_policy: MaxmemoryPolicy =
        ("maxmemory-policy", Choice(MaxmemoryPolicy::NAMES), "noeviction", Live,
        "Eviction policy that clients are shown. Keys are never evicted. Under an LFU policy \
         OBJECT FREQ is counted, otherwise OBJECT IDLETIME.");
    MAXMEMORY_CLIENTS in maxmemory_clients: MemoryShare =
        ("maxmemory-clients", MemoryOrPercent, "0", Live,
        "Maximum memory of all clients, in bytes or percent of `maxmemory`; beyond it, the \
         clients with most memory are disconnected. 0 means no limit.");
    PROTO_MAX_BULK_LEN in proto_max_bulk_len_bytes: u64 =
        ("proto-max-bulk-len", Memory(MIB, SIZE_MAX), "536870912", Live,
        "Maximum bytes of one argument.");
    CLIENT_QUERY_BUFFER_LIMIT in client_query_buffer_limit_bytes: u64 =
        ("client-query-buffer-limit", Memory(MIB, SIZE_MAX), "1073741824", Live,
        "Maximum bytes of one request.");
    CLIENT_OUTPUT_BUFFER_LIMIT in client_output_buffer_limits: ClientOutputBufferLimits =
        ("client-output-buffer-limit", BufferLimits, BUFFERS, Live,
        "Output limits for each class of client: hard limit in bytes, soft limit in bytes, and \
         seconds above the soft limit. A client beyond its limit is disconnected. 0 means no \
         limit.");
    TRACKING_TABLE_MAX_KEYS in tracking_table_max_keys: u64 =
        ("tracking-table-max-keys", LONG, "1000000", Live,
        "Maximum number of keys tracked for client side caching; 0 means no limit.");
    LFU_LOG_FACTOR in lfu_log_factor: u32 = ("lfu-log-factor", INT, "10", Live,
        "Growth of the counter that OBJECT FREQ shows: a greater factor counts more slowly.");
    LFU_DECAY_TIME in lfu_decay_minutes: u32 = ("lfu-decay-time", INT, "1", Live,
        "Minutes after which the counter that OBJECT FREQ shows is decremented; 0 for never.");

    // Time, scripts and events
    HZ in hz: u32 = ("hz", Frequency, "10", Live,
        "Frequency of background tasks that clients are shown, per second.");
    BUSY_REPLY_THRESHOLD in busy_reply_threshold_ms: u64 =
        ("busy-reply-threshold", LONG, "5000", Live,
        "Milliseconds of a running script after which other clients get BUSY errors; 0 disables \
         them.").alias("lua-time-limit");
    SCRIPT_PLANS in script_plans: bool = ("script-plans", Bool, "yes", Live,
        "Run scripts of a supported subset of Lua as plans, without the Lua interpreter.").own();
    NOTIFY_KEYSPACE_EVENTS in notify_keyspace_events: events::Events =
        ("notify-keyspace-events", Events, "", Live,
        "Classes of keyspace events that are published; empty publishes none.");
    SLOWLOG_LOG_SLOWER_THAN in slowlog_log_slower_than_us: i64 =
        ("slowlog-log-slower-than", Int(-1, i64::MAX), "10000", Live,
        "Minimum microseconds of a command in the slow log; -1 disables the log.");
    SLOWLOG_MAX_LEN in slowlog_max_len: u64 = ("slowlog-max-len", LONG, "128", Live,
        "Maximum number of entries in the slow log.");
    LATENCY_MONITOR_THRESHOLD in latency_monitor_threshold_ms: u64 =
        ("latency-monitor-threshold", LONG, "0", Live,
        "Minimum milliseconds of a latency event; 0 disables the latency monitor.");
    LATENCY_TRACKING in latency_tracking: bool = ("latency-tracking", Bool, "yes", Live,
        "Record the latencies of every command.");
    LATENCY_TRACKING_INFO_PERCENTILES in latency_percentiles: Vec<String> =
        ("latency-tracking-info-percentiles", Percentiles, "50 99 99.9", Live,
        "Percentiles of latency in INFO.");

    // Encodings
    HASH_MAX_LISTPACK_ENTRIES in hash_max_listpack_entries: u64 =
        ("hash-max-listpack-entries", LONG, "512", Live,
        "Maximum number of fields of a hash that is reported as a listpack.")
        .alias("hash-max-ziplist-entries");
    HASH_MAX_LISTPACK_VALUE in hash_max_listpack_value_bytes: u64 =
        ("hash-max-listpack-value", SIZE, "64", Live,
        "Maximum bytes of a field or value in a hash that is reported as a listpack.")
        .alias("hash-max-ziplist-value");
    LIST_MAX_LISTPACK_SIZE in list_max_listpack_size: i32 =
        ("list-max-listpack-size", Int(INT_MIN, INT_MAX), "-2", Live,
        "Maximum size of a list that is reported as a listpack: a number of elements, or from -1 \
         to -5 a limit from 4 to 64 KiB.").alias("list-max-ziplist-size");
    SET_MAX_INTSET_ENTRIES in set_max_intset_entries: u64 =
        ("set-max-intset-entries", LONG, "512", Live,
        "Maximum number of members of a set of integers that is reported as an intset.");
    SET_MAX_LISTPACK_ENTRIES in set_max_listpack_entries: u64 =
        ("set-max-listpack-entries", LONG, "128", Live,
        "Maximum number of members of a set that is reported as a listpack.");
    SET_MAX_LISTPACK_VALUE in set_max_listpack_value_bytes: u64 =
        ("set-max-listpack-value", LONG, "64", Live,
        "Maximum bytes of a member in a set that is reported as a listpack.");
    ZSET_MAX_LISTPACK_ENTRIES in zset_max_listpack_entries: u64 =
        ("zset-max-listpack-entries", LONG, "128", Live,
        "Maximum number of members of a sorted set that is reported as a listpack.")
        .alias("zset-max-ziplist-entries");
    ZSET_MAX_LISTPACK_VALUE in zset_max_listpack_value_bytes: u64 =
        ("zset-max-listpack-value", SIZE, "64", Live,
        "Maximum bytes of a member in a sorted set that is reported as a listpack.")
        .alias("zset-max-ziplist-value");
    STREAM_NODE_MAX_BYTES in stream_node_max_bytes: u64 =
        ("stream-node-max-bytes", SIZE, "4096", Live,
        "Maximum bytes of stream entries that are trimmed together; 0 means no limit.");
    STREAM_NODE_MAX_ENTRIES in stream_node_max_entries: u64 =
        ("stream-node-max-entries", LONG, "100", Live,
        "Maximum number of stream entries that are trimmed together; 0 means no limit.");

    // Persistence
    SAVE: Vec<SavePoint> = ("save", SavePoints, "", Live,
        "Seconds and changes after which a snapshot is written; empty writes none.").needs_log();
    APPENDONLY: bool = ("appendonly", Bool, "no", AtStart,
        "Log every change to files, from which the next start restores the keys.");
    RESTART_GUARD: bool = ("restart-guard", Bool, "no", AtStart,
        "After a restart that may have lost locks, refuse commands until all of them are over. On \
         by default if `dir` is given, the log is on or the server is a node, and it is not \
         started for tests.").own();
    RESTART_GUARD_MINIMUM: Millis = ("restart-guard-minimum", Span, "0ms", AtStart,
        "How long commands are refused if nothing is recorded of an earlier run: the longest lease \
         that another server may have granted before.").own();
    RESTART_GUARD_EXEMPT: String = ("restart-guard-exempt", Text, "", AtStart,
        "Patterns of keys that are no locks, separated by blanks: nothing waits for their end.")
        .own();
    RESTART_GUARD_WARN: Millis = ("restart-guard-warn", Span, "3600000ms", AtStart,
        "A restart guard that lasts longer is explained in the log and by `LOCKWHEEL GUARD`: by \
         the groups of keys that make it long.").own();
    TRUST_WALL_CLOCK: bool = ("trust-wall-clock", Bool, "no", AtStart,
        "After the machine was restarted, count the time that has passed on the wall clock. \
         Otherwise leases last longer by that time.").own();
    APPENDDIRNAME: String =
        ("appenddirname", FileName("appenddirname can't be a path, just a dirname"),
        "appendonlydir", Fixed, "Directory of the log, within `dir`.");
    APPENDFSYNC in appendfsync: FlushPolicy =
        ("appendfsync", Choice(FlushPolicy::NAMES), "always", Live,
        "When the log is flushed to disk: before each reply, once a second, or when the system \
         does it.");
    AUTO_AOF_REWRITE_PERCENTAGE in auto_aof_rewrite_percentage: u32 =
        ("auto-aof-rewrite-percentage", INT, "100", Live,
        "Growth of the log since the last snapshot that begins another one, in percent; 0 disables \
         these.");
    AUTO_AOF_REWRITE_MIN_SIZE in auto_aof_rewrite_min_size_bytes: u64 =
        ("auto-aof-rewrite-min-size", SIZE, "67108864", Live,
        "Minimum bytes of the log for a snapshot that begins because of its growth.");

    // Replication
    REPLICA_ANNOUNCE_IP: Option<String> = ("replica-announce-ip", Text, "", Fixed,
        "Address that a node of a cluster announces to clients; empty announces that for other \
         nodes.").alias("slave-announce-ip");
    REPLICA_ANNOUNCE_PORT: u16 = ("replica-announce-port", PORT_NUMBER, "0", Fixed,
        "Port that a node of a cluster announces to clients; 0 announces `port`, or `tls-port` if \
         that is 0.").alias("slave-announce-port");

    // Cluster
    CLUSTER_ENABLED in cluster_enabled: bool = ("cluster-enabled", Bool, "no", Fixed,
        "Run as the only node of a cluster.");
    CLUSTER_PORT in cluster_port: u16 = ("cluster-port", PORT_NUMBER, "0", Fixed,
        "Port of the cluster bus that is announced; the server does not listen on it. 0 means \
         `port` + 10000.");
    CLUSTER_ANNOUNCE_IP in cluster_announce_ip: Option<String> =
        ("cluster-announce-ip", Text, "", Live,
        "Address that the node announces; empty announces the one that the client is connected \
         to.");
    CLUSTER_ANNOUNCE_HOSTNAME in cluster_announce_hostname: Option<String> =
        ("cluster-announce-hostname", Text, "", Live,
        "Host name that the node announces; empty announces none.");
    CLUSTER_ANNOUNCE_PORT in cluster_announce_port: u16 =
        ("cluster-announce-port", PORT_NUMBER, "0", Live,
        "Port that the node announces; 0 announces `port`.");
    CLUSTER_ANNOUNCE_TLS_PORT: u16 = ("cluster-announce-tls-port", PORT_NUMBER, "0", Live,
        "TLS port that the node announces; 0 announces `tls-port`.");
    CLUSTER_ANNOUNCE_BUS_PORT in cluster_announce_bus_port: u16 =
        ("cluster-announce-bus-port", PORT_NUMBER, "0", Live,
        "Port of the cluster bus that the node announces; 0 announces `cluster-port`.");
    CLUSTER_PREFERRED_ENDPOINT_TYPE in cluster_preferred_endpoint_type: EndpointType =
        ("cluster-preferred-endpoint-type", Choice(EndpointType::NAMES), "ip", Live,
        "Kind of endpoint in redirections and in CLUSTER SLOTS.");

    // TLS
    TLS_PORT: u16 = ("tls-port", PORT_NUMBER, "0", AtStart,
        "TLS port to listen on; 0 disables TLS.");
    TLS_HANDSHAKE_TIMEOUT: Duration = ("tls-handshake-timeout", Seconds(1, 3600), "10", Live,
        "Seconds after which a connection without a complete TLS handshake is closed.").own();
    TLS_PREFER_SERVER_CIPHERS: bool = ("tls-prefer-server-ciphers", Bool, "no", Live,
        "Prefer the order of ciphers of the server.");
    TLS_AUTH_CLIENTS: TlsAuthClients =
        ("tls-auth-clients", Choice(TlsAuthClients::NAMES), "yes", Live,
        "Whether clients have to present a certificate.");
    TLS_CERT_FILE: Option<String> = ("tls-cert-file", Text, "", Live,
        "File with the server's certificate.");
    TLS_KEY_FILE: Option<String> = ("tls-key-file", Text, "", Live,
        "File with the server's private key.");
    TLS_CA_CERT_FILE: String = ("tls-ca-cert-file", Text, "", Live,
        "File with the certificates of trusted authorities.");
    TLS_CA_CERT_DIR: String = ("tls-ca-cert-dir", Text, "", Live,
        "Directory with the certificates of trusted authorities.");
    TLS_PROTOCOLS: String = ("tls-protocols", Text, "", Live,
        "Versions of TLS to allow; empty uses the defaults of the library.");
    TLS_CIPHERS: String = ("tls-ciphers", Text, "", Live,
        "Ciphers up to TLS 1.2; empty uses the defaults of the library.");
    TLS_CIPHERSUITES: String = ("tls-ciphersuites", Text, "", Live,
        "Cipher suites of TLS 1.3; empty uses the defaults of the library.");
    TLS_SESSION_CACHING: bool = ("tls-session-caching", Bool, "yes", Live,
        "Let clients resume TLS sessions.");
    TLS_SESSION_CACHE_SIZE: u32 = ("tls-session-cache-size", INT, "20480", Live,
        "Maximum number of cached TLS sessions.");
    TLS_SESSION_CACHE_TIMEOUT: Duration =
        ("tls-session-cache-timeout", Seconds(0, INT_MAX), "300", Live,
        "Seconds for which a TLS session is cached.");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{FORBIDDEN, FOREIGN, names, rows};

    #[test]
    fn constants_have_the_names_of_their_rows() {
        let names: Vec<String> =
            WITH_EFFECT.iter().map(|row| row.name.to_ascii_uppercase().replace('-', "_")).collect();
        assert_eq!(names, CONSTANTS);
    }

    /// Otherwise a default would change when it is written and read again.
    #[test]
    fn defaults_are_unchanged_by_reading_and_printing() {
        let settings = Settings::default();
        read_all(&settings);
        for row in rows() {
            let read = row.kind.read(&[row.default]).map(|value| value.to_string());
            assert_eq!(read.as_deref(), Ok(row.default), "{row:?}");
            assert_eq!(row.value(&settings).to_string(), row.default, "{row:?}");
        }
    }

    #[test]
    fn types_hold_every_value_of_their_kinds() {
        for row in rows() {
            let texts: Vec<String> = match row.kind {
                ValueKind::Int(min, max) | Seconds(min, max) | Milliseconds(min, max) => {
                    vec![min.to_string(), max.to_string()]
                }
                ValueKind::Memory(min, max) => vec![min.to_string(), max.to_string()],
                ValueKind::Octal(max) => vec!["0".into(), format!("{max:o}")],
                ValueKind::Choice(names) => names.iter().map(|name| name.to_string()).collect(),
                ValueKind::Bool => vec!["yes".into(), "no".into()],
                ValueKind::Text => vec![String::new(), "text".into()],
                ValueKind::MemoryOrPercent => vec!["1".into(), "50%".into()],
                ValueKind::SavePoints => vec!["900 1 60 5".into()],
                _ => continue,
            };
            if matches!(row.usage, Usage::Unsupported) {
                continue;
            }
            for text in texts {
                let mut settings = Settings::default();
                assert_eq!(settings.assign(row, &[&text]), Ok(()), "{row:?}");
                assert_eq!(row.value(&settings).to_string(), text, "{row:?}");
                read_all(&settings);
            }
        }
    }

    #[test]
    fn times_have_the_units_of_their_kinds() {
        let mut settings = Settings::default();
        assert_eq!(settings.get(RAFT_ELECTION_TIMEOUT), Duration::from_millis(1000));
        assert_eq!(settings.get(TLS_HANDSHAKE_TIMEOUT), Duration::from_secs(10));
        assert_eq!(settings.get(CLOCK_START), None);
        settings.put(CLOCK_START, &Some(Millis(0)));
        assert_eq!(settings.get(CLOCK_START), Some(Millis(0)));
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
