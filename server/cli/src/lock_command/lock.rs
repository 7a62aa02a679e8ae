//! A lock on a server: the requests that acquire, renew and release it.
//!
//! On Lockwheel it is a native lock; on other servers the key is set with `NX` and `PX`, and
//! scripts renew and delete it if it still has the owner's value.

use std::io;
use std::time::Duration;

use lockwheel_resp::Reply;
use nix::time::{ClockId, clock_gettime};

use crate::limits::LOCK_REPLY_TIMEOUT;
use crate::redis_cli::connection::{Connection, Protocol, error_text};
use crate::redis_cli::server_options::ServerOptions;

const RENEW: &str = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('pexpire', KEYS[1], ARGV[2])";

const RELEASE: &str = "if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('del', KEYS[1])";

/// How the owner holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Exclusive,
    Shared,
    /// This number of the permits of a semaphore, which has the second number of them.
    Permits(u32, u32),
}

/// The lock of one owner.
pub(super) struct Lock {
    server: ServerOptions,
    name: String,
    mode: Mode,
    pub(super) lease: Duration,
    /// The owner, a name that no other has. It is all that is needed to release the lock.
    owner: String,
    /// Whether the server has native locks; `None` before the first request.
    is_native: Option<bool>,
    connection: Option<Connection>,
    /// When the last request was sent: see [`now`].
    sent: Duration,
    /// Whether the server may have granted the lock, also in a reply that was lost.
    may_be_granted: bool,
}

/// A request to a lock that was not carried out, as far as is known.
#[derive(Debug)]
pub(super) enum Problem {
    /// The server cannot be reached, or does not serve requests now.
    Temporary(String),
    /// The server refuses such requests.
    Lasting(String),
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    /// The fencing token of a native lock.
    pub(super) token: Option<i64>,
    /// When the request was sent that began the lease: see [`now`].
    pub(super) sent: Duration,
    /// When the lease ends at the earliest.
    pub(super) until: Duration,
}

/// The time since the machine was started, which goes on while it is suspended.
pub(super) fn now() -> Duration {
    #[cfg(target_os = "linux")]
    let clock = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(target_os = "linux"))]
    let clock = ClockId::CLOCK_MONOTONIC;
    clock_gettime(clock).map_or(Duration::ZERO, Duration::from)
}

impl Lock {
    pub(super) fn new(
        server: ServerOptions,
        name: String,
        mode: Mode,
        lease: Duration,
    ) -> Result<Lock, String> {
        let random = getrandom::u64().map_err(|error| format!("no randomness: {error}"))?;
        let host = nix::unistd::gethostname().unwrap_or_default();
        let owner = format!("{}:{}:{random:016x}", host.to_string_lossy(), std::process::id());
        Ok(Lock {
            server,
            name,
            mode,
            lease,
            owner,
            is_native: None,
            connection: None,
            sent: Duration::ZERO,
            may_be_granted: false,
        })
    }

    /// Tries to acquire the lock. A native lock waits in the server for `wait` at most. `None` if
    /// others hold the lock.
    pub(super) fn acquire(&mut self, wait: Duration) -> Result<Option<Grant>, Problem> {
        let before = self.sent;
        let granted = self.try_to_acquire(wait);
        self.may_be_granted |= self.sent != before && !matches!(granted, Ok(None));
        let Some(grant) = granted? else { return Ok(None) };
        if now().saturating_sub(grant.sent) < self.lease / 10 {
            return Ok(Some(grant));
        }
        // The lease began somewhere in the wait for the reply.
        let renewed = self.renew()?;
        Ok(renewed.map(|renewed| Grant { token: grant.token, ..renewed }))
    }

    fn try_to_acquire(&mut self, wait: Duration) -> Result<Option<Grant>, Problem> {
        if self.is_native != Some(false) {
            match self.acquire_native(wait) {
                Err(Problem::Lasting(error)) if error.starts_with("ERR unknown command") => {
                    self.is_native = Some(false);
                }
                result => return result,
            }
        }
        if self.mode != Mode::Exclusive {
            let reason = "--shared and --permits need Lockwheel, and the server is another one";
            return Err(Problem::Lasting(reason.to_owned()));
        }
        let words = owned(&["SET", &self.name, &self.owner, "NX", "PX", &self.lease_ms()]);
        match self.request(&words, Duration::ZERO)? {
            Reply::Null | Reply::NullArray if self.may_be_granted => self.renew(),
            Reply::Null | Reply::NullArray => Ok(None),
            _ => Ok(Some(self.grant(None))),
        }
    }

    fn acquire_native(&mut self, wait: Duration) -> Result<Option<Grant>, Problem> {
        // Not `BOUND`: if the connection fails, the lease counts.
        let mut words = owned(&["LOCK.ACQUIRE", &self.name, &self.owner, "TTL", &self.lease_ms()]);
        match self.mode {
            Mode::Exclusive => {}
            Mode::Shared => words.push("SHARED".to_owned()),
            Mode::Permits(taken, all) => {
                words.extend(owned(&["PERMITS", &taken.to_string(), "OF", &all.to_string()]));
            }
        }
        if !wait.is_zero() {
            words.extend(owned(&["WAIT", &wait.as_millis().to_string()]));
        }
        let reply = self.request(&words, wait)?;
        self.is_native = Some(true);
        if field(&reply, "status") != Some(&Reply::bulk("acquired")) {
            return Ok(None);
        }
        let token = match field(&reply, "token") {
            Some(Reply::Integer(token)) => Some(*token),
            _ => None,
        };
        Ok(Some(self.grant(token)))
    }

    /// Starts the lease again. `None` if the owner does not hold the lock any more.
    pub(super) fn renew(&mut self) -> Result<Option<Grant>, Problem> {
        let lease_ms = self.lease_ms();
        let words = match self.is_native {
            Some(true) => owned(&["LOCK.RENEW", &self.name, &self.owner, "TTL", &lease_ms]),
            _ => owned(&["EVAL", RENEW, "1", &self.name, &self.owner, &lease_ms]),
        };
        match self.request(&words, Duration::ZERO) {
            // Another client has a lock of another kind at this key.
            Err(Problem::Lasting(error)) if error.contains("WRONGTYPE") => Ok(None),
            Err(problem) => Err(problem),
            Ok(reply) => Ok((reply == Reply::Integer(1)).then(|| self.grant(None))),
        }
    }

    /// Releases the lock. Without an error also if it is not held.
    pub(super) fn release(&mut self) -> Result<(), Problem> {
        let words = match self.is_native {
            Some(false) => owned(&["EVAL", RELEASE, "1", &self.name, &self.owner]),
            // If that is not known, no other lock was asked for.
            _ => owned(&["LOCK.RELEASE", &self.name, &self.owner, "ALL"]),
        };
        match self.request(&words, Duration::ZERO) {
            // The server may have closed the connection since the last request.
            Err(Problem::Temporary(_)) => self.request(&words, Duration::ZERO).map(drop),
            released => released.map(drop),
        }
    }

    /// Releases the lock if the server may have granted it.
    pub(super) fn release_if_granted(&mut self) {
        if self.may_be_granted {
            // It ends with its lease otherwise.
            let _ = self.release();
        }
    }

    /// The lease of the last request. The clock of the server may be faster than that of this
    /// machine by a twentieth.
    fn grant(&self, token: Option<i64>) -> Grant {
        Grant { token, sent: self.sent, until: self.sent + self.lease - self.lease / 20 }
    }

    fn lease_ms(&self) -> String {
        self.lease.as_millis().to_string()
    }

    /// Sends a request, and waits for its reply for a time in addition to the usual one.
    fn request(&mut self, words: &[String], wait: Duration) -> Result<Reply, Problem> {
        let address = self.server.address();
        let failed =
            |error: io::Error| Problem::Temporary(format!("{address}: {}", error_text(&error)));
        let reply = self.exchange(words, wait).map_err(failed).and_then(|reply| match reply? {
            Reply::Error(line) => Err(problem(&String::from_utf8_lossy(&line))),
            reply => Ok(reply),
        });
        if matches!(reply, Err(Problem::Temporary(_))) {
            // The next one may be to another server, which leads now.
            self.connection = None;
        }
        reply
    }

    fn exchange(&mut self, words: &[String], wait: Duration) -> io::Result<Result<Reply, Problem>> {
        // A reply that does not come in time must leave some for another attempt.
        let limit = LOCK_REPLY_TIMEOUT.min(self.lease / 6);
        let connection = match &mut self.connection {
            Some(connection) => connection,
            connection => {
                let mut opened = self.server.connect(Some(limit))?;
                if let Err(error) = opened.log_in(&self.server.login(Protocol::Resp2))? {
                    let (_, line) = error.split_once(" failed: ").unwrap_or(("", &error));
                    return Ok(Err(problem(line)));
                }
                connection.insert(opened)
            }
        };
        connection.set_timeout(Some(limit + wait))?;
        self.sent = now();
        connection.send(words)?;
        connection.read().map(Ok)
    }
}

/// What an error reply means.
fn problem(line: &str) -> Problem {
    const TEMPORARY: [&str; 10] = [
        "LOADING",
        "MASTERDOWN",
        "READONLY",
        "BUSY ",
        "TRYAGAIN",
        "CLUSTERDOWN",
        "NOREPLICAS",
        "OOM",
        "MISCONF",
        "ERR max number of clients",
    ];
    let is_temporary = TEMPORARY.iter().any(|code| line.starts_with(code));
    let kind = if is_temporary { Problem::Temporary } else { Problem::Lasting };
    kind(line.to_owned())
}

/// A field of a map, which is an array of names and values in RESP2.
fn field<'r>(reply: &'r Reply, name: &str) -> Option<&'r Reply> {
    let Reply::Array(items) = reply else { return None };
    let at = items.iter().position(|item| *item == Reply::bulk(name))?;
    items.get(at + 1)
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
