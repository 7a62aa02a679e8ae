//! The errors of locks.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use redis::RedisError;

/// Why a lock is not held, or not known to be.
#[derive(Debug)]
#[non_exhaustive]
pub enum LockError {
    /// Another owner holds the lock, or the time to wait is over.
    #[non_exhaustive]
    NotAcquired {
        /// The key of the lock.
        key: String,
        /// `refused`, or `timeout` after a wait.
        status: String,
        /// How many owners hold the lock.
        holders: u64,
        /// The time until the last lease ends.
        ttl: Duration,
        /// How many clients wait for the lock.
        queue: u64,
    },
    /// The lock was lost before it was released. Another owner may have held it since.
    #[non_exhaustive]
    Lost {
        /// The key of the lock.
        key: String,
        /// The token of the grant.
        token: u64,
    },
    /// This object holds the lock already.
    HeldAlready,
    /// The guard has been released already.
    Released,
    /// The server does not know `LOCK.*`.
    NoNativeLocks,
    /// The server did not reply in time. The command may have been executed.
    NoReply(Duration),
    /// An error of the server or of the connection.
    Redis(RedisError),
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockError::NotAcquired { key, status, holders, ttl, queue } => write!(
                f,
                "the lock '{key}' was not acquired ({status}): owners {holders}, lease {} ms, \
                 queue {queue}",
                ttl.as_millis()
            ),
            LockError::Lost { key, token } => {
                write!(f, "the lock '{key}' with the token {token} was lost")
            }
            LockError::HeldAlready => f.write_str("this object holds the lock already"),
            LockError::Released => f.write_str("the lock has been released"),
            LockError::NoNativeLocks => {
                f.write_str("this server has no native locks: it must be Lockwheel 0.1 or later")
            }
            LockError::NoReply(limit) => write!(f, "no reply within {} ms", limit.as_millis()),
            LockError::Redis(error) => error.fmt(f),
        }
    }
}

impl Error for LockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            LockError::Redis(error) => Some(error),
            _ => None,
        }
    }
}

impl From<RedisError> for LockError {
    fn from(error: RedisError) -> Self {
        let is_unknown = error.to_string().to_lowercase().contains("unknown command");
        if is_unknown { LockError::NoNativeLocks } else { LockError::Redis(error) }
    }
}
