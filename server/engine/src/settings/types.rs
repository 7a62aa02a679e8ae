//! Types of settings that are more than a number or a text, with their notation. This module
//! contains no directive names.

use std::fmt;

use super::value::memory;

/// Declares an enum with the names of Redis's configuration for its variants.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// All variants in order.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// All names in Redis's order.
            pub const NAMES: &[&str] = &[$($text),*];

            /// The name in the configuration.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// The variant of this name, in lower case.
            pub fn from_name(name: &str) -> Option<$name> {
                match name { $($text => Some($name::$variant),)* _ => None }
            }
        }
    };
}

pub(super) use choice;

choice! {
    /// The minimum level of logged messages.
    LogLevel {
        /// Everything.
        Debug = "debug",
        /// Frequent events.
        Verbose = "verbose",
        /// Important events.
        Notice = "notice",
        /// Problems only.
        Warning = "warning",
        /// Nothing.
        Nothing = "nothing",
    }
}

choice! {
    /// The format of the log. Valkey has a directive of this name and these values, apart from
    /// `json`.
    LogFormat {
        /// Lines as Redis writes them.
        Legacy = "legacy",
        /// Pairs of name and value.
        Logfmt = "logfmt",
        /// A JSON object in each line.
        Json = "json",
    }
}

choice! {
    /// The eviction policy. Keys are never evicted; the policy decides what is counted of their
    /// uses.
    MaxmemoryPolicy {
        /// The least recently used keys with a deadline.
        VolatileLru = "volatile-lru",
        /// The least frequently used keys with a deadline.
        VolatileLfu = "volatile-lfu",
        /// Random keys with a deadline.
        VolatileRandom = "volatile-random",
        /// The keys that expire next.
        VolatileTtl = "volatile-ttl",
        /// The least recently used keys.
        AllkeysLru = "allkeys-lru",
        /// The least frequently used keys.
        AllkeysLfu = "allkeys-lfu",
        /// Random keys.
        AllkeysRandom = "allkeys-random",
        /// None: a write that needs memory is refused.
        Noeviction = "noeviction",
    }
}

impl MaxmemoryPolicy {
    /// Whether uses of keys are counted.
    pub fn is_lfu(self) -> bool {
        matches!(self, MaxmemoryPolicy::VolatileLfu | MaxmemoryPolicy::AllkeysLfu)
    }
}

choice! {
    /// Which clients may use a restricted command.
    Permission {
        /// None.
        No = "no",
        /// All.
        Yes = "yes",
        /// Clients on this host.
        Local = "local",
    }
}

choice! {
    /// The permission of new users to use channels.
    ChannelDefault {
        /// All channels.
        All = "allchannels",
        /// None.
        None = "resetchannels",
    }
}

impl ChannelDefault {
    /// Whether new users may use all channels.
    pub fn allows_all(self) -> bool {
        self == ChannelDefault::All
    }
}

choice! {
    /// When the log is flushed.
    FlushPolicy {
        /// Once a second. Output is sent when it is written.
        EverySecond = "everysec",
        /// Before any output that depends on it is sent.
        Always = "always",
        /// When the system does.
        Never = "no",
    }
}

choice! {
    /// The supervisor that is notified when the server is ready.
    Supervised {
        /// Upstart: the server stops itself once with SIGSTOP.
        Upstart = "upstart",
        /// systemd: a message to `NOTIFY_SOCKET`.
        Systemd = "systemd",
        /// Upstart or systemd, depending on the environment.
        Auto = "auto",
        /// None.
        No = "no",
    }
}

choice! {
    /// The mode of the server, with the names in `INFO` and `HELLO`.
    #[derive(Default)]
    Mode {
        /// A single server.
        #[default]
        Standalone = "standalone",
        /// The only node of a cluster.
        Cluster = "cluster",
        /// A sentinel: it answers queries for masters and holds no keys.
        Sentinel = "sentinel",
    }
}

choice! {
    /// Which clients have to present a certificate.
    TlsAuthClients {
        /// None.
        No = "no",
        /// All.
        Yes = "yes",
        /// None; the certificate of one that presents it must be valid.
        Optional = "optional",
    }
}

choice! {
    /// The kind of endpoint that clients of a cluster are redirected to.
    EndpointType {
        /// An address.
        Ip = "ip",
        /// A host name.
        Hostname = "hostname",
        /// The endpoint that the client is connected to.
        UnknownEndpoint = "unknown-endpoint",
    }
}

/// A text that `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text, for comparison.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A limit on memory (`maxmemory-clients`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryShare {
    /// In bytes; zero is no limit.
    Bytes(u64),
    /// In percent of `maxmemory`.
    Percent(u64),
}

impl MemoryShare {
    /// No limit.
    pub const NONE: MemoryShare = MemoryShare::Bytes(0);

    /// The limit in bytes, if there is one. A percentage of an unlimited `maxmemory` is no limit.
    pub fn bytes_of(self, maxmemory_bytes: u64) -> Option<u64> {
        let bytes = match self {
            MemoryShare::Bytes(bytes) => bytes,
            MemoryShare::Percent(percent) => {
                let bytes = u128::from(maxmemory_bytes) * u128::from(percent) / 100;
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        };
        (bytes > 0).then_some(bytes)
    }
}

/// When a snapshot begins (`save`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavePoint {
    /// Seconds after the last snapshot until it may begin.
    pub seconds: i64,
    /// Fewest changes since the last snapshot.
    pub changes: u64,
}

impl fmt::Display for SavePoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.seconds, self.changes)
    }
}

/// When a client that does not read its replies is disconnected. Zero is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputBufferLimit {
    /// Bytes beyond which it is disconnected at once.
    pub hard_bytes: u64,
    /// Bytes beyond which it is disconnected after `soft_seconds`.
    pub soft_bytes: u64,
    /// Seconds for which the soft limit may be exceeded.
    pub soft_seconds: u64,
}

/// The classes of clients with limits of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientClass {
    /// Clients that send commands.
    Normal,
    /// Replicas.
    Replica,
    /// Clients with a subscription.
    Pubsub,
}

/// The limits of all classes of clients (`client-output-buffer-limit`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientOutputBufferLimits {
    /// Clients that send commands.
    pub normal: OutputBufferLimit,
    /// Replicas.
    pub replica: OutputBufferLimit,
    /// Clients with a subscription.
    pub pubsub: OutputBufferLimit,
}

impl ClientOutputBufferLimits {
    /// The limits of one class.
    pub fn of(&self, class: ClientClass) -> OutputBufferLimit {
        match class {
            ClientClass::Normal => self.normal,
            ClientClass::Replica => self.replica,
            ClientClass::Pubsub => self.pubsub,
        }
    }

    pub(super) fn set(&mut self, class: ClientClass, limit: OutputBufferLimit) {
        match class {
            ClientClass::Normal => self.normal = limit,
            ClientClass::Replica => self.replica = limit,
            ClientClass::Pubsub => self.pubsub = limit,
        }
    }
}

impl ClientClass {
    /// All classes in Redis's order.
    pub const ALL: [ClientClass; 3] =
        [ClientClass::Normal, ClientClass::Replica, ClientClass::Pubsub];

    fn from_name(name: &str) -> Option<ClientClass> {
        match name.to_ascii_lowercase().as_str() {
            "normal" => Some(ClientClass::Normal),
            "slave" | "replica" => Some(ClientClass::Replica),
            "pubsub" => Some(ClientClass::Pubsub),
            _ => None,
        }
    }
}

/// Reads groups of class, hard limit, soft limit and seconds. Errors are in Redis's words.
pub(super) fn buffer_limits(
    words: &[&str],
) -> Result<Vec<(ClientClass, OutputBufferLimit)>, &'static str> {
    let (groups, rest) = words.as_chunks::<4>();
    if !rest.is_empty() {
        return Err("Wrong number of arguments in buffer limit configuration.");
    }
    let read = |&[class, hard, soft, seconds]: &[&str; 4]| {
        let class = ClientClass::from_name(class)
            .ok_or("Invalid client class specified in buffer limit configuration.")?;
        let limit = OutputBufferLimit::parse(hard, soft, seconds)
            .ok_or("Error in hard, soft or soft_seconds setting in buffer limit configuration.")?;
        Ok((class, limit))
    };
    groups.iter().map(read).collect()
}

impl OutputBufferLimit {
    fn parse(hard: &str, soft: &str, seconds: &str) -> Option<OutputBufferLimit> {
        Some(OutputBufferLimit {
            hard_bytes: memory(hard)?,
            soft_bytes: memory(soft)?,
            soft_seconds: seconds.parse().ok()?,
        })
    }
}

impl fmt::Display for ClientClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClientClass::Normal => "normal",
            // Redis still prints the old name here.
            ClientClass::Replica => "slave",
            ClientClass::Pubsub => "pubsub",
        })
    }
}

impl fmt::Display for OutputBufferLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.hard_bytes, self.soft_bytes, self.soft_seconds)
    }
}

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
    /// Bytes given to the program.
    pub allocated: u64,
    /// Bytes in pages of which the program has any part.
    pub active: u64,
    /// Bytes in memory that is mapped by the allocator.
    pub resident: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_stay_out_of_logs() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "***");
    }
}
