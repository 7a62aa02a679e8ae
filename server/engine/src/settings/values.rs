//! The values of the directives that the engine uses. Layers above have types of their own for the
//! directives they use.

use std::collections::BTreeMap;
use std::fmt;

use super::compat_version::CompatVersion;
use super::row::{self, Directive, Mutability, Role};
use super::sentinel::Sentinel;
use super::types::{
    ChannelDefault, ClientOutputBufferLimits, EndpointType, FlushPolicy, MaxmemoryPolicy,
    MemoryShare, Mode, Permission, Secret,
};
use super::value::REDACTED;
use super::value::Value;
use crate::acl::ConfiguredUser;
use crate::limits::JOURNAL_ENTRIES_DEFAULT;
use crate::store::events::Events;
use crate::timing::time::Millis;

/// The version of Redis that defines the behaviour.
pub const REDIS_VERSION: &str = CompatVersion::Redis72.redis_version();

/// The version of this server.
pub const LOCKWHEEL_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The allocator of the program, for `INFO`.
#[derive(Clone, Copy, Debug)]
pub struct Allocator {
    /// Its name and version, in the form that Redis uses.
    pub name: &'static str,
    /// Returns its statistics, if it has any. Called only by commands that show them.
    pub usage: fn() -> Option<AllocatorUsage>,
}

impl PartialEq for Allocator {
    fn eq(&self, other: &Allocator) -> bool {
        self.name == other.name
    }
}

/// The statistics of an allocator, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllocatorUsage {
    /// Given to the program.
    pub allocated: u64,
    /// In pages of which the program has any part.
    pub active: u64,
    /// In memory that is mapped by the allocator.
    pub resident: u64,
}

/// The value of every directive that the engine uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// TCP port; 0 disables TCP.
    pub port: u16,
    /// Refuse other hosts while no password is set.
    pub protected_mode: bool,
    /// The password of the default user.
    pub requirepass: Option<Secret>,
    /// The permission of new users to use channels.
    pub acl_pubsub_default: ChannelDefault,
    /// Entries that the ACL log keeps.
    pub acllog_max_len: u64,
    /// The users in the configuration file. Not a directive.
    pub users: Vec<ConfiguredUser>,
    /// Number of databases.
    pub databases: u32,
    /// Maximum number of connected clients.
    pub maxclients: u32,
    /// Seconds after which an idle client is disconnected; 0 disables the timeout.
    pub timeout_seconds: u32,
    /// Seconds after which an idle connection is probed; 0 disables this.
    pub tcp_keepalive_seconds: u32,
    /// Keyspace events that are published.
    pub notify_keyspace_events: Events,
    /// Milliseconds of a running script after which other clients get `BUSY` errors; 0 is no limit.
    pub busy_reply_threshold_ms: u64,
    /// Microseconds of a command from which on the slow log keeps it; negative for none.
    pub slowlog_log_slower_than_us: i64,
    /// Entries that the slow log keeps.
    pub slowlog_max_len: u64,
    /// Milliseconds of an event that the latency monitor keeps; 0 for none.
    pub latency_monitor_threshold_ms: u64,
    /// Whether the distribution of the times of commands is recorded.
    pub latency_tracking: bool,
    /// The percentiles of these times in `INFO`.
    pub latency_percentiles: Vec<String>,
    /// Whether scripts of the supported subset of Lua are run as plans.
    pub script_plans: bool,
    /// Output limits of each class of client.
    pub client_output_buffer_limits: ClientOutputBufferLimits,
    /// Maximum bytes of one request, complete or not.
    pub client_query_buffer_limit_bytes: u64,
    /// Maximum bytes of one argument.
    pub proto_max_bulk_len_bytes: u64,
    /// Maximum bytes of the arguments of one request to a node of a cluster.
    pub raft_request_max_bytes: u64,
    /// Which clients may use `DEBUG`.
    pub enable_debug_command: Permission,
    /// Which clients may use `LOCKWHEEL`. Only servers for tests should permit all clients.
    pub enable_test_commands: Permission,
    /// Entries of the journal of a server for tests.
    pub journal_max_entries: u32,
    /// Whether there is a lock view.
    pub lock_view: bool,
    /// Patterns of keys that are locks, separated by blanks; see [`locks`](crate::locks).
    pub lock_keys: Option<String>,
    /// Patterns of keys that are no locks, separated by blanks.
    pub ignored_lock_keys: Option<String>,
    /// Whether a second engine verifies the effects; see [`shadow`](crate::instruments::shadow).
    pub verify_effects: bool,
    /// Which clients may change protected directives.
    pub enable_protected_configs: Permission,
    /// Bytes of memory beyond which writes are refused; 0 is no limit.
    pub maxmemory_bytes: u64,
    /// Memory of all clients beyond which the largest are disconnected.
    pub maxmemory_clients: MemoryShare,
    /// The eviction policy that clients are shown. Keys are never evicted.
    pub maxmemory_policy: MaxmemoryPolicy,
    /// How slowly the access counter grows under an LFU policy.
    pub lfu_log_factor: u32,
    /// Minutes after which the access counter is decremented; 0 for never.
    pub lfu_decay_minutes: u32,
    /// Fields up to which a hash is reported as a listpack.
    pub hash_max_listpack_entries: u64,
    /// Bytes of a field or value up to which a hash is reported as a listpack.
    pub hash_max_listpack_value_bytes: u64,
    /// Size up to which a list is reported as a listpack: elements or, if negative, a class of
    /// bytes.
    pub list_max_listpack_size: i32,
    /// Members up to which a set of integers is reported as an intset.
    pub set_max_intset_entries: u64,
    /// Members up to which a set is reported as a listpack.
    pub set_max_listpack_entries: u64,
    /// Bytes of a member up to which a set is reported as a listpack.
    pub set_max_listpack_value_bytes: u64,
    /// Members up to which a sorted set is reported as a listpack.
    pub zset_max_listpack_entries: u64,
    /// Bytes of a member up to which a sorted set is reported as a listpack.
    pub zset_max_listpack_value_bytes: u64,
    /// Entries of a stream that are trimmed together; 0 is no limit.
    pub stream_node_max_entries: u64,
    /// Bytes of a stream's entries that are trimmed together; 0 is no limit.
    pub stream_node_max_bytes: u64,
    /// Keys that are tracked for client side caching; 0 is no limit.
    pub tracking_table_max_keys: u64,
    /// Seconds that a shutdown may wait for replicas.
    pub shutdown_timeout_seconds: u32,
    /// Clients for which the process has file descriptors: no more can be set as `maxclients`.
    pub clients_possible: u32,
    /// TLS connections whose handshake is not complete, at most; `None` for the default.
    pub tls_handshakes_max: Option<usize>,
    /// When the log is flushed.
    pub appendfsync: FlushPolicy,
    /// The restart guard is on although no directive says so.
    pub guards_by_default: bool,
    /// Percent by which the log must grow after a snapshot before the next one begins; 0 for never.
    pub auto_aof_rewrite_percentage: u32,
    /// Bytes that the log must have before a snapshot begins because of its growth.
    pub auto_aof_rewrite_min_size_bytes: u64,
    /// Frequency of background tasks that clients are shown, per second.
    pub hz: u32,
    /// The announced server and version.
    pub compat_version: CompatVersion,
    /// Run as the only node of a cluster.
    pub cluster_enabled: bool,
    /// Announced port of the cluster bus, on which the server does not listen; 0 derives it from
    /// `port`.
    pub cluster_port: u16,
    /// Address that the node announces, if it is not the one that the client is connected to.
    pub cluster_announce_ip: Option<String>,
    /// Host name that the node announces.
    pub cluster_announce_hostname: Option<String>,
    /// Port that the node announces; 0 announces `port`.
    pub cluster_announce_port: u16,
    /// Port of the cluster bus that the node announces; 0 announces `cluster-port`.
    pub cluster_announce_bus_port: u16,
    /// Kind of endpoint that clients are redirected to.
    pub cluster_preferred_endpoint_type: EndpointType,
    /// Run as a sentinel with these masters. Not a directive.
    pub sentinel: Option<Box<Sentinel>>,
    /// The configuration file, if one was named. Not a directive.
    pub config_file: Option<String>,
    /// The allocator in `INFO`; set by the program. Not a directive.
    pub allocator: Allocator,
    /// Values of the directives that the engine does not use.
    pub(super) kept: BTreeMap<&'static str, Value>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            port: 6379,
            protected_mode: true,
            requirepass: None,
            acl_pubsub_default: ChannelDefault::default(),
            acllog_max_len: 128,
            users: Vec::new(),
            databases: 16,
            maxclients: 10_000,
            timeout_seconds: 0,
            tcp_keepalive_seconds: 300,
            notify_keyspace_events: Events::empty(),
            busy_reply_threshold_ms: 5_000,
            slowlog_log_slower_than_us: 10_000,
            slowlog_max_len: 128,
            latency_monitor_threshold_ms: 0,
            latency_tracking: true,
            latency_percentiles: ["50", "99", "99.9"].map(String::from).to_vec(),
            script_plans: true,
            client_output_buffer_limits: ClientOutputBufferLimits::default(),
            client_query_buffer_limit_bytes: 1 << 30,
            proto_max_bulk_len_bytes: 512 << 20,
            raft_request_max_bytes: 16 << 20,
            enable_debug_command: Permission::No,
            enable_test_commands: Permission::No,
            journal_max_entries: JOURNAL_ENTRIES_DEFAULT,
            lock_view: true,
            lock_keys: None,
            ignored_lock_keys: None,
            verify_effects: false,
            enable_protected_configs: Permission::No,
            maxmemory_bytes: 0,
            maxmemory_clients: MemoryShare::NONE,
            maxmemory_policy: MaxmemoryPolicy::Noeviction,
            lfu_log_factor: 10,
            lfu_decay_minutes: 1,
            hash_max_listpack_entries: 512,
            hash_max_listpack_value_bytes: 64,
            list_max_listpack_size: -2,
            set_max_intset_entries: 512,
            set_max_listpack_entries: 128,
            set_max_listpack_value_bytes: 64,
            zset_max_listpack_entries: 128,
            zset_max_listpack_value_bytes: 64,
            stream_node_max_entries: 100,
            stream_node_max_bytes: 4096,
            tracking_table_max_keys: 1_000_000,
            shutdown_timeout_seconds: 10,
            clients_possible: u32::MAX,
            tls_handshakes_max: None,
            appendfsync: FlushPolicy::Always,
            guards_by_default: false,
            auto_aof_rewrite_percentage: 100,
            auto_aof_rewrite_min_size_bytes: 64 << 20,
            hz: 10,
            compat_version: CompatVersion::default(),
            cluster_enabled: false,
            cluster_port: 0,
            cluster_announce_ip: None,
            cluster_announce_hostname: None,
            cluster_announce_port: 0,
            cluster_announce_bus_port: 0,
            cluster_preferred_endpoint_type: EndpointType::Ip,
            sentinel: None,
            config_file: None,
            allocator: Allocator { name: "libc", usage: || None },
            kept: BTreeMap::new(),
        }
    }
}

/// A directive with a value that `CONFIG SET` has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The directive.
    pub directive: &'static Directive,
    /// The new value as it is printed. May be secret: see [`Directive::is_sensitive`].
    pub value: String,
}

/// Why `CONFIG SET` changed nothing. `Display` writes the error line for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// There is no directive of this name.
    UnknownOption(String),
    /// The directive does not accept this value, or cannot be changed now.
    Refused {
        /// The name of the directive in the request.
        name: &'static str,
        /// The reason.
        reason: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::UnknownOption(name) => {
                write!(f, "ERR Unknown option or number of arguments for CONFIG SET - '{name}'")
            }
            ConfigError::Refused { name, reason } => {
                write!(
                    f,
                    "ERR CONFIG SET failed (possibly related to argument '{name}') - {reason}"
                )
            }
        }
    }
}

impl std::error::Error for ConfigError {}

/// A layer above the engine that uses directives in a way that can fail, such as reading the files
/// they name.
pub trait SettingsUser: Send {
    /// `CONFIG SET` is about to change the settings to `next`; `names` are the directives of the
    /// command, also those that keep their values. Afterwards all of them are in use, or none.
    ///
    /// # Errors
    /// If one of them cannot be used. The settings then stay as they are.
    fn adopt(&mut self, next: &Settings, names: &[&'static str]) -> Result<(), ConfigError>;
}

impl Settings {
    /// The mode of the server.
    pub fn mode(&self) -> Mode {
        match () {
            () if self.sentinel.is_some() => Mode::Sentinel,
            () if self.cluster_enabled => Mode::Cluster,
            () => Mode::Standalone,
        }
    }

    /// Whether the server is a node of a cluster that replicates its log.
    pub fn is_node(&self) -> bool {
        self.text("raft-port") != "0"
    }

    /// Names and values of the directives that match one of the patterns, each once. The result for
    /// a pattern without wildcards has the pattern's spelling, as in Redis.
    pub fn get(
        &self,
        patterns: &[&[u8]],
        matches: fn(&[u8], &[u8]) -> bool,
    ) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = Vec::new();
        for pattern in patterns {
            let lower = pattern.to_ascii_lowercase();
            let is_glob = pattern.iter().any(|byte| b"*?[".contains(byte));
            for (name, directive) in row::names() {
                let hit = match is_glob {
                    true => matches(&lower, name.as_bytes()),
                    false => lower == name.as_bytes(),
                };
                if hit && !found.iter().any(|(earlier, _)| earlier.eq_ignore_ascii_case(name)) {
                    let spelling = if is_glob { name.as_bytes() } else { pattern };
                    let spelling = String::from_utf8_lossy(spelling).into_owned();
                    let mut value = directive.value(self).to_string();
                    if directive.is_sensitive && !value.is_empty() {
                        value = String::from_utf8_lossy(REDACTED).into_owned();
                    }
                    found.push((spelling, value));
                }
            }
        }
        found
    }

    /// The value of one directive as it is printed; empty if there is no such directive.
    pub fn text(&self, name: &str) -> String {
        self.value(name).map(|value| value.to_string()).unwrap_or_default()
    }

    /// The value of one directive, by any of its names.
    pub fn value(&self, name: &str) -> Option<Value> {
        row::find(name).map(|(_, directive)| directive.value(self))
    }

    /// Sets all named directives, or none. Returns those with a changed value.
    pub fn set(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<Vec<Change>, ConfigError> {
        let mut targets: Vec<(&'static str, &'static Directive)> = Vec::new();
        for (name, _) in pairs {
            let target = self.settable(name)?;
            if targets.contains(&target) {
                return Err(refused(target.0, "duplicate parameter"));
            }
            targets.push(target);
        }
        let mut next = self.clone();
        for (&(name, directive), (_, text)) in targets.iter().zip(pairs) {
            let text = std::str::from_utf8(text).map_err(|_| refused(name, NOT_UTF8))?;
            next.change(directive, &[text]).map_err(|reason| refused(name, reason))?;
        }
        let differs =
            |directive: &&'static Directive| directive.value(self) != directive.value(&next);
        let mut changed: Vec<&'static Directive> = Vec::new();
        for directive in targets.into_iter().map(|(_, directive)| directive).filter(differs) {
            if directive.mutability == Mutability::AtStart {
                return Err(refused(directive.name, "can be set only when the server starts"));
            }
            if !changed.contains(&directive) {
                changed.push(directive);
            }
        }
        if next.maxclients > self.clients_possible {
            let problem =
                "The operating system is not able to handle the specified number of clients";
            let reason = format!("{problem}, try with {}", self.clients_possible);
            return Err(refused("maxclients", reason));
        }
        *self = next;
        let change = |directive: &'static Directive| Change {
            directive,
            value: directive.value(self).to_string(),
        };
        Ok(changed.into_iter().map(change).collect())
    }

    /// Adds a user from the words after `user` in a configuration file.
    ///
    /// # Errors
    /// If a rule is wrong, or the user exists.
    pub fn add_user(&mut self, words: &[&str]) -> Result<(), String> {
        let user = ConfiguredUser::parse(words)?;
        if self.users.iter().any(|known| known.name() == user.name()) {
            return Err(format!(
                "Error in user declaration '{}': Duplicate user found. A user can only be defined \
                 once in config files",
                user.name()
            ));
        }
        self.users.push(user);
        Ok(())
    }

    /// Sets a directive before the server starts, even if it cannot be changed later. A directive
    /// that needs the log is refused unless `appendonly` was set before. `user` adds a user.
    pub fn apply(&mut self, name: &str, value: &str) -> Result<(), ConfigError> {
        if name.eq_ignore_ascii_case("user") {
            let words: Vec<&str> = value.split_whitespace().collect();
            return self.add_user(&words).map_err(|reason| refused("user", reason));
        }
        let unknown = || ConfigError::UnknownOption(name.to_owned());
        let (name, directive) = row::find(name).ok_or_else(unknown)?;
        let words: Vec<&str> = if directive.kind.takes_words() {
            value.split_whitespace().collect()
        } else {
            vec![value]
        };
        self.change(directive, &words).map_err(|reason| refused(name, reason))
    }

    fn settable(&self, name: &[u8]) -> Result<(&'static str, &'static Directive), ConfigError> {
        let name = String::from_utf8_lossy(name);
        let unknown = || ConfigError::UnknownOption(name.clone().into_owned());
        let (name, directive) = row::find(&name).ok_or_else(unknown)?;
        match directive.mutability {
            Mutability::Fixed => Err(refused(name, "can't set immutable config")),
            Mutability::Protected if self.enable_protected_configs == Permission::No => {
                Err(refused(name, "can't set protected config"))
            }
            _ => Ok((name, directive)),
        }
    }

    /// Sets one directive, with effect from now on.
    fn change(&mut self, directive: &'static Directive, words: &[&str]) -> Result<(), String> {
        let value = directive.kind.read(words)?;
        match directive.role {
            Role::NeedsLog if !self.has_log() && value.to_string() != directive.default => {
                Err(NO_LOG.into())
            }
            _ => self.assign(directive, words),
        }
    }

    /// As [`Settings::apply`], while the command line is read: a directive that needs the log is
    /// kept until [`Settings::drop_without_log`].
    ///
    /// # Errors
    /// Why the value is refused, in Redis's words.
    pub fn assign(&mut self, directive: &'static Directive, words: &[&str]) -> Result<(), String> {
        let value = directive.kind.read(words)?;
        match directive.role {
            Role::Used(access) => (access.set)(self, value),
            Role::Process | Role::Accepted | Role::NeedsLog => {
                self.kept.insert(directive.name, value);
            }
            Role::Unsupported if value.to_string() == directive.default => {}
            Role::Unsupported => return Err("not supported by this server".into()),
        }
        Ok(())
    }

    /// Whether the clock is stopped at the start.
    pub fn clock_is_frozen(&self) -> bool {
        self.text("clock-frozen") == "yes"
    }

    /// The time that the clock shows at the start, if one was chosen.
    pub fn clock_start(&self) -> Option<Millis> {
        self.text("clock-start").parse().ok().filter(|&start_ms| start_ms >= 0).map(Millis)
    }

    /// The span of time of a directive of that kind.
    pub fn span(&self, name: &str) -> Millis {
        match self.value(name) {
            Some(Value::Span(span)) => span,
            _ => Millis(0),
        }
    }

    /// Whether the units of the engine are logged.
    pub fn has_log(&self) -> bool {
        self.text("appendonly") == "yes"
    }

    /// Decides whether there is a restart guard, unless a directive has: if the directory is given
    /// or there is a log, and the server is not started for tests. Must be called before the
    /// program sets `dir` itself.
    pub fn choose_restart_guard(&mut self) {
        if self.kept.contains_key("restart-guard") {
            return;
        }
        let is_for_tests = self.enable_test_commands != Permission::No;
        let is_lasting = self.has_log() || self.is_node() || self.kept.contains_key("dir");
        let choice = is_lasting && !is_for_tests && self.sentinel.is_none();
        self.kept.insert("restart-guard", Value::Bool(choice));
        self.guards_by_default = choice;
    }

    /// Gives up a restart guard that is on by default, as `CONFIG GET` shows.
    pub fn give_up_restart_guard(&mut self) {
        self.kept.insert("restart-guard", Value::Bool(false));
        self.guards_by_default = false;
    }

    /// The times and numbers of changes after which a snapshot begins (`save`): seconds since the
    /// last one, and changes since then. All are positive numbers.
    pub fn save_points(&self) -> Vec<(i64, u64)> {
        let text = self.text("save");
        let mut numbers = text.split_whitespace().map_while(|word| word.parse::<i64>().ok());
        let mut points = Vec::new();
        while let (Some(seconds), Some(changes)) = (numbers.next(), numbers.next()) {
            points.push((seconds, u64::try_from(changes).unwrap_or(0)));
        }
        points
    }

    /// Ends the reading of a command line: without a log, resets the directives that need one to
    /// their defaults. Returns the names of those that had other values.
    pub fn drop_without_log(&mut self) -> Vec<&'static str> {
        if self.has_log() {
            return Vec::new();
        }
        let rows = row::rows().filter(|row| matches!(row.role, Role::NeedsLog));
        let asked = rows.filter(|row| {
            let value = self.kept.remove(row.name);
            value.is_some_and(|value| value.to_string() != row.default)
        });
        asked.map(|row| row.name).collect()
    }
}

/// The error for directives that have no effect without a log.
const NO_LOG: &str = "snapshots belong to the log: start the server with 'appendonly yes'";

/// Values are kept as text; Redis's tools write nothing else.
pub const NOT_UTF8: &str = "argument must be valid UTF-8";

fn refused(name: &'static str, reason: impl Into<String>) -> ConfigError {
    ConfigError::Refused { name, reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Supports `*` at the end only, which is enough for these tests.
    fn prefix_match(pattern: &[u8], text: &[u8]) -> bool {
        pattern.strip_suffix(b"*").is_some_and(|prefix| text.starts_with(prefix))
    }

    fn set(settings: &mut Settings, pairs: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let pairs: Vec<_> = pairs.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())).collect();
        let changes = settings.set(&pairs).map_err(|error| error.to_string())?;
        Ok(changes.iter().map(|c| format!("{} {}", c.directive.name, c.value)).collect())
    }

    fn get(settings: &Settings, patterns: &[&str]) -> String {
        let patterns: Vec<_> = patterns.iter().map(|pattern| pattern.as_bytes()).collect();
        let found = settings.get(&patterns, prefix_match);
        found.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn get_returns_each_directive_once() {
        let settings = Settings::default();
        assert_eq!(
            get(&settings, &["slave-pri*", "replica-priority"]),
            "slave-priority=100 replica-priority=100"
        );
        assert_eq!(get(&settings, &["REPLICA-priority", "REPLICA-prio*"]), "REPLICA-priority=100");
        assert_eq!(get(&settings, &["nothere", "user", "bind"]), "bind=127.0.0.1 -::1");
        let all = settings.get(&[b"*"], prefix_match);
        assert_eq!(all.len(), super::row::names().count());
    }

    #[test]
    fn set_errors_are_those_of_redis() {
        let failed = |name, why| {
            format!("ERR CONFIG SET failed (possibly related to argument '{name}') - {why}")
        };
        let unknown =
            |name| format!("ERR Unknown option or number of arguments for CONFIG SET - '{name}'");
        let mut settings = Settings::default();
        let integer = "argument couldn't be parsed into an integer";
        for (pairs, expected) in [
            (vec![("foo", "bar")], unknown("foo")),
            (vec![("port", "x"), ("foo", "x")], failed("port", "can't set immutable config")),
            (vec![("maxclients", "x"), ("foo", "x")], unknown("foo")),
            (vec![(" timeout", "1")], unknown(" timeout")),
            (vec![("include", "x")], unknown("include")),
            (vec![("databases", "3")], failed("databases", "can't set immutable config")),
            (vec![("dir", "/")], failed("dir", "can't set protected config")),
            (vec![("timeout", "1"), ("timeout", "2")], failed("timeout", "duplicate parameter")),
            (vec![("SLAVE-priority", "x")], failed("slave-priority", integer)),
            (vec![("maxclients", "z"), ("timeout", "z")], failed("maxclients", integer)),
            (
                vec![("notify-keyspace-events", "KEZ")],
                failed(
                    "notify-keyspace-events",
                    "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.",
                ),
            ),
            (
                vec![("tls-key-file-pass", "x")],
                failed("tls-key-file-pass", "not supported by this server"),
            ),
            (
                vec![("timeout", "5"), ("appendonly", "yes")],
                failed("appendonly", "can be set only when the server starts"),
            ),
            (vec![("save", "60 1")], failed("save", NO_LOG)),
            (vec![("save", "60")], failed("save", "Invalid save parameters")),
        ] {
            assert_eq!(set(&mut settings, &pairs), Err(expected), "{pairs:?}");
        }
        assert_eq!(settings, Settings::default());
        let not_text = settings.set(&[(b"requirepass", b"\xff")]).unwrap_err().to_string();
        assert_eq!(not_text, failed("requirepass", NOT_UTF8));
    }

    #[test]
    fn set_is_all_or_nothing() {
        let mut settings = Settings::default();
        assert!(set(&mut settings, &[("timeout", "5"), ("maxclients", "0")]).is_err());
        assert_eq!(settings, Settings::default());
        let changed = set(&mut settings, &[("timeout", "5"), ("maxclients", "10000")]);
        assert_eq!(changed, Ok(vec!["timeout 5".into()]), "an equal value is no change");
    }

    #[test]
    fn set_accepts_old_names() {
        let mut settings = Settings::default();
        let pairs = [("lua-time-limit", "3"), ("busy-reply-threshold", "4")];
        assert_eq!(set(&mut settings, &pairs), Ok(vec!["busy-reply-threshold 4".into()]));
        assert_eq!(settings.busy_reply_threshold_ms, 4);
        assert_eq!(get(&settings, &["lua-time-limit"]), "lua-time-limit=4");
    }

    #[test]
    fn get_returns_the_value_that_was_set() {
        for (name, given, expected) in [
            ("hz", "1000", "500"),
            ("requirepass", "s p", "(redacted)"),
            ("requirepass", "", ""),
            ("notify-keyspace-events", "KEA", "AKE"),
            ("maxmemory", "1kb", "1024"),
            ("appendonly", "NO", "no"),
            ("save", "", ""),
            ("appendfsync", "Always", "always"),
            (
                "client-output-buffer-limit",
                "replica 100mb 0 0",
                "normal 0 0 0 slave 104857600 0 0 pubsub 33554432 8388608 60",
            ),
            ("notify-keyspace-events", "Knd", "dnK"),
        ] {
            let mut settings = Settings::default();
            set(&mut settings, &[(name, given)]).unwrap();
            assert_eq!(get(&settings, &[name]), format!("{name}={expected}"));
        }
    }
}
