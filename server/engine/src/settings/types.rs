//! The types of settings that are more than a number or a text.
//! Knows how each is written; knows no directive by name.

use std::fmt;

use super::value::memory;

/// Declares an enum whose variants have the names Redis writes in its configuration.
macro_rules! choice {
    ($(#[$doc:meta])* $name:ident {
        $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Every one, in that order.
            pub const ALL: &[$name] = &[$($name::$variant),*];

            /// Every name, in the order Redis lists them.
            pub const NAMES: &[&str] = &[$($text),*];

            /// The name Redis writes.
            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// The variant of this name, written in lower case.
            pub fn from_name(name: &str) -> Option<$name> {
                match name { $($text => Some($name::$variant),)* _ => None }
            }
        }
    };
}

pub(super) use choice;

choice! {
    /// How much is logged.
    LogLevel {
        /// Everything.
        Debug = "debug",
        /// Much, but not a flood.
        Verbose = "verbose",
        /// What an operator wants to see.
        #[default]
        Notice = "notice",
        /// Only what needs care.
        Warning = "warning",
        /// Nothing at all.
        Nothing = "nothing",
    }
}

choice! {
    /// What would be evicted when memory is full. A lock is never evicted, whatever this says:
    /// the policy is kept for the clients that ask.
    MaxmemoryPolicy {
        /// The least recently used of the keys with a deadline.
        VolatileLru = "volatile-lru",
        /// The least frequently used of the keys with a deadline.
        VolatileLfu = "volatile-lfu",
        /// Any of the keys with a deadline.
        VolatileRandom = "volatile-random",
        /// The keys next to expire.
        VolatileTtl = "volatile-ttl",
        /// The least recently used key.
        AllkeysLru = "allkeys-lru",
        /// The least frequently used key.
        AllkeysLfu = "allkeys-lfu",
        /// Any key.
        AllkeysRandom = "allkeys-random",
        /// None: a write that needs memory is refused.
        #[default]
        Noeviction = "noeviction",
    }
}

choice! {
    /// Who may use something dangerous.
    Permission {
        /// Nobody.
        #[default]
        No = "no",
        /// Everybody.
        Yes = "yes",
        /// Those who connect from this host.
        Local = "local",
    }
}

choice! {
    /// Who started the server, and wants to hear that it is ready.
    Supervised {
        /// Upstart: stop once with SIGSTOP.
        Upstart = "upstart",
        /// systemd: a message to `NOTIFY_SOCKET`.
        Systemd = "systemd",
        /// Whichever of the two the environment shows.
        Auto = "auto",
        /// Nobody.
        #[default]
        No = "no",
    }
}

choice! {
    /// What kind of server this is. The names are those that `INFO` and `HELLO` tell.
    Mode {
        /// By itself.
        #[default]
        Standalone = "standalone",
        /// The only node of a cluster.
        Cluster = "cluster",
        /// One that tells where masters are, and holds no keys.
        Sentinel = "sentinel",
    }
}

choice! {
    /// What a cluster's clients are sent to.
    EndpointType {
        /// An address.
        #[default]
        Ip = "ip",
        /// A name.
        Hostname = "hostname",
        /// Where they are already.
        UnknownEndpoint = "unknown-endpoint",
    }
}

/// A text that `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The text, for the one place that compares it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A bound on memory (`maxmemory-clients`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryShare {
    /// So many bytes; zero is no bound.
    Bytes(u64),
    /// So many hundredths of `maxmemory`.
    Percent(u64),
}

impl MemoryShare {
    /// No bound.
    pub const NONE: MemoryShare = MemoryShare::Bytes(0);

    /// The bound in bytes, if there is one. A share of a `maxmemory` without a bound has none.
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

/// When a client that does not read its replies is closed. Zero is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputBufferLimit {
    /// At once beyond these bytes.
    pub hard_bytes: u64,
    /// Beyond these bytes for `soft_seconds`.
    pub soft_bytes: u64,
    /// How long the soft limit may be passed.
    pub soft_seconds: u64,
}

/// The classes of client that have limits of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientClass {
    /// Sessions that send commands.
    Normal,
    /// Replicas.
    Replica,
    /// Sessions with a subscription.
    Pubsub,
}

/// The limits of every class of client (`client-output-buffer-limit`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientOutputBufferLimits {
    /// Sessions that send commands.
    pub normal: OutputBufferLimit,
    /// Replicas.
    pub replica: OutputBufferLimit,
    /// Sessions with a subscription.
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

impl Default for ClientOutputBufferLimits {
    fn default() -> ClientOutputBufferLimits {
        let limit = |hard_bytes, soft_bytes, soft_seconds| OutputBufferLimit {
            hard_bytes,
            soft_bytes,
            soft_seconds,
        };
        ClientOutputBufferLimits {
            normal: OutputBufferLimit::default(),
            replica: limit(256 << 20, 64 << 20, 60),
            pubsub: limit(32 << 20, 8 << 20, 60),
        }
    }
}

impl ClientClass {
    /// Every class, in the order Redis prints them.
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

/// Reads groups of class, hard limit, soft limit and seconds; says why not in Redis's words.
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
            // Redis never stopped printing the old name here.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_stay_out_of_logs() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "***");
    }
}
