//! Reads and changes the values of directives.

use std::fmt;

use super::compat_version::CompatVersion;
use super::directive::{self, Settings};
use super::field::{Field, Setting, typed};
use super::row::{self, Directive, Mutability, Row, Usage};
use super::types::{Mode, Permission};
use super::value::{REDACTED, Value};
use crate::acl::ConfiguredUser;

/// The version of Redis that defines the behaviour.
pub const REDIS_VERSION: &str = CompatVersion::Redis72.redis_version();

/// The version of this server.
pub const LOCKWHEEL_VERSION: &str = env!("CARGO_PKG_VERSION");

/// A directive with a value that `CONFIG SET` has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The directive.
    pub directive: &'static Row,
    /// The new value as it is printed. May be secret: see [`Row::is_sensitive`].
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
    /// What reads the files of the settings `next`, to which `CONFIG SET` is about to change;
    /// `None` if it concerns none. `names` are the directives of the command, also those that keep
    /// their values.
    fn reader(&self, next: &Settings, names: &[&'static str]) -> Option<SettingsReader>;
}

/// Reads the files that directives name. It may take long, and is called without the engine.
pub type SettingsReader = Box<dyn FnOnce() -> Adoption + Send>;

/// What puts in use what was read. The error is for a directive that cannot be used: the settings
/// then stay as they are.
pub type Adoption = Result<Box<dyn FnOnce() + Send>, ConfigError>;

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
        self.get(directive::RAFT_PORT) != 0
    }

    /// The value of a directive.
    pub fn get<T: Setting>(&self, directive: Directive<T>) -> T {
        typed(&directive.row.value(self))
    }

    /// Sets a directive to a value that its kind accepts.
    pub fn put<T: Field>(&mut self, directive: Directive<T>, value: &T) {
        self.store(directive.row, value.to_value());
    }

    /// Names and values of the directives that match one of the patterns, each once. The result for
    /// a pattern without wildcards has the pattern's spelling, as in Redis.
    pub fn matching(
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

    /// Sets all named directives, or none. Returns those with a changed value.
    pub fn set(&mut self, pairs: &[(&[u8], &[u8])]) -> Result<Vec<Change>, ConfigError> {
        let mut targets: Vec<(&'static str, &'static Row)> = Vec::new();
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
        let differs = |directive: &&'static Row| directive.value(self) != directive.value(&next);
        let mut changed: Vec<&'static Row> = Vec::new();
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
        let change = |directive: &'static Row| Change {
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

    fn settable(&self, name: &[u8]) -> Result<(&'static str, &'static Row), ConfigError> {
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
    fn change(&mut self, directive: &'static Row, words: &[&str]) -> Result<(), String> {
        let needs_log = matches!(directive.usage, Usage::NeedsLog) && !self.has_snapshots();
        if needs_log && directive.kind.read(words)?.to_string() != directive.default {
            return Err(NO_LOG.into());
        }
        self.assign(directive, words)
    }

    /// As [`Settings::apply`], while the command line is read: a directive that needs the log is
    /// kept until [`Settings::drop_without_log`].
    ///
    /// # Errors
    /// Why the value is refused, in Redis's words.
    pub fn assign(&mut self, directive: &'static Row, words: &[&str]) -> Result<(), String> {
        let value = directive.kind.read(words)?;
        match directive.usage {
            Usage::Unsupported if value.to_string() == directive.default => Ok(()),
            Usage::Unsupported => Err("not supported by this server".into()),
            _ => {
                self.store(directive, value);
                Ok(())
            }
        }
    }

    fn store(&mut self, row: &'static Row, value: Value) {
        match row.usage {
            Usage::Used(access) => (access.set)(self, &value),
            _ => {
                self.kept.insert(row.name, value);
            }
        }
    }

    /// Whether a directive that is no field was set.
    fn has<T>(&self, directive: Directive<T>) -> bool {
        self.kept.contains_key(directive.row.name)
    }

    /// Whether the units of the engine are logged.
    pub fn has_log(&self) -> bool {
        self.get(directive::APPENDONLY)
    }

    /// Whether snapshots replace the beginning of a log, of this server or of a cluster.
    fn has_snapshots(&self) -> bool {
        self.has_log() || self.is_node()
    }

    /// Decides whether there is a restart guard, unless a directive has: if the directory is given
    /// or there is a log, and the server is not started for tests. Must be called before the
    /// program sets `dir` itself.
    pub fn choose_restart_guard(&mut self) {
        if self.has(directive::RESTART_GUARD) {
            return;
        }
        let is_for_tests = self.enable_test_commands != Permission::No;
        let is_lasting = self.has_snapshots() || self.has(directive::DIR);
        let choice = is_lasting && !is_for_tests && self.sentinel.is_none();
        self.put(directive::RESTART_GUARD, &choice);
        self.guards_by_default = choice;
    }

    /// Gives up a restart guard that is on by default, as `CONFIG GET` shows.
    pub fn give_up_restart_guard(&mut self) {
        self.put(directive::RESTART_GUARD, &false);
        self.guards_by_default = false;
    }

    /// Ends the reading of a command line: without a log, resets the directives that need one to
    /// their defaults. Returns the names of those that had other values.
    pub fn drop_without_log(&mut self) -> Vec<&'static str> {
        if self.has_snapshots() {
            return Vec::new();
        }
        let rows = row::rows().filter(|row| matches!(row.usage, Usage::NeedsLog));
        let asked = rows.filter(|row| {
            let value = self.kept.remove(row.name);
            value.is_some_and(|value| value.to_string() != row.default)
        });
        asked.map(|row| row.name).collect()
    }
}

/// The error for directives that have no effect without a log.
const NO_LOG: &str = "snapshots belong to the log: start the server with 'appendonly yes'";

/// The error for a value that is no text: Redis's tools write text only.
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
        let found = settings.matching(&patterns, prefix_match);
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
        let all = settings.matching(&[b"*"], prefix_match);
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
