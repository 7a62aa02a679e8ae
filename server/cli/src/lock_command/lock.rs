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
    /// Whether the server may have granted the lock in a reply that was lost.
    may_be_granted: bool,
}

/// A request to a lock that was not carried out.
#[derive(Debug)]
pub(super) enum Problem {
    /// The server cannot be reached, or does not serve requests now.
    Temporary(String),
    /// The server refuses such requests.
    Lasting(String),
}

/// What an attempt to acquire the lock has achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Granted(Grant),
    /// Others hold the lock.
    Refused,
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    /// The fencing token of a native lock.
    pub(super) token: Option<i64>,
    /// When the lease ends at the earliest: see [`now`].
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
        let (is_native, connection, may_be_granted) = (None, None, false);
        Ok(Lock { server, name, mode, lease, owner, is_native, connection, may_be_granted })
    }

    /// Tries to acquire the lock. A native lock waits in the server for `wait` at most.
    pub(super) fn acquire(&mut self, wait: Duration) -> Result<Attempt, Problem> {
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
        let sent = now();
        let words =
            ["SET", &self.name, &self.owner, "NX", "PX", &self.lease_ms()].map(str::to_owned);
        let reply = self.request(&words, Duration::ZERO);
        self.may_be_granted |= matches!(reply, Err(Problem::Temporary(_)));
        let until = self.until(sent);
        match reply? {
            Reply::Null | Reply::NullArray if self.may_be_granted => {
                let renewed = self.renew()?;
                Ok(renewed.map_or(Attempt::Refused, Attempt::Granted))
            }
            Reply::Null | Reply::NullArray => Ok(Attempt::Refused),
            _ => Ok(Attempt::Granted(Grant { token: None, until })),
        }
    }

    fn acquire_native(&mut self, wait: Duration) -> Result<Attempt, Problem> {
        let sent = now();
        let mut line = vec!["LOCK.ACQUIRE".to_owned(), self.name.clone(), self.owner.clone()];
        // Not `BOUND`: if the connection fails, the lease counts.
        line.extend(["TTL".to_owned(), self.lease_ms()]);
        match self.mode {
            Mode::Exclusive => {}
            Mode::Shared => line.push("SHARED".to_owned()),
            Mode::Permits(taken, all) => {
                line.extend(
                    ["PERMITS", &taken.to_string(), "OF", &all.to_string()].map(str::to_owned),
                );
            }
        }
        if !wait.is_zero() {
            line.extend(["WAIT".to_owned(), wait.as_millis().to_string()]);
        }
        let reply = self.request(&line, wait)?;
        self.is_native = Some(true);
        if field(&reply, "status") != Some(&Reply::bulk("acquired")) {
            return Ok(Attempt::Refused);
        }
        let token = match field(&reply, "token") {
            Some(Reply::Integer(token)) => Some(*token),
            _ => None,
        };
        if now() - sent < self.lease / 10 {
            return Ok(Attempt::Granted(Grant { token, until: self.until(sent) }));
        }
        // The lease began somewhere in the wait.
        let renewed = self.renew()?;
        Ok(renewed.map_or(Attempt::Refused, |grant| Attempt::Granted(Grant { token, ..grant })))
    }

    /// Starts the lease again. `None` if the owner does not hold the lock any more.
    pub(super) fn renew(&mut self) -> Result<Option<Grant>, Problem> {
        let sent = now();
        let lease_ms = self.lease_ms();
        let words = match self.is_native {
            Some(true) => vec!["LOCK.RENEW", &self.name, &self.owner, "TTL", &lease_ms],
            _ => vec!["EVAL", RENEW, "1", &self.name, &self.owner, &lease_ms],
        };
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        let is_held = self.request(&words, Duration::ZERO)? == Reply::Integer(1);
        Ok(is_held.then(|| Grant { token: None, until: self.until(sent) }))
    }

    /// Releases the lock. Without an error also if it is not held.
    pub(super) fn release(&mut self) -> Result<(), Problem> {
        let words = match self.is_native {
            Some(true) => vec!["LOCK.RELEASE", &self.name, &self.owner, "ALL"],
            _ => vec!["EVAL", RELEASE, "1", &self.name, &self.owner],
        };
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        self.request(&words, Duration::ZERO).map(drop)
    }

    /// When a lease ends at the earliest that was asked for at this time: the clock of the server
    /// may be faster than that of this machine by a twentieth.
    fn until(&self, sent: Duration) -> Duration {
        sent + self.lease - self.lease / 20
    }

    fn lease_ms(&self) -> String {
        self.lease.as_millis().to_string()
    }

    /// Sends a request, and waits for its reply for a time in addition to the usual one.
    fn request(&mut self, words: &[String], wait: Duration) -> Result<Reply, Problem> {
        let address = self.server.address();
        let failed =
            |error: io::Error| Problem::Temporary(format!("{address}: {}", error_text(&error)));
        let reply = self.exchange(words, wait);
        if reply.is_err() {
            self.connection = None;
        }
        match reply.map_err(failed)?? {
            Reply::Error(line) => Err(problem(&String::from_utf8_lossy(&line))),
            reply => Ok(reply),
        }
    }

    fn exchange(&mut self, words: &[String], wait: Duration) -> io::Result<Result<Reply, Problem>> {
        // A reply that does not come in time must leave some for another attempt.
        let limit = LOCK_REPLY_TIMEOUT.min(self.lease / 6);
        let connection = match &mut self.connection {
            Some(connection) => connection,
            connection => {
                let mut opened = self.server.connect(Some(limit))?;
                if let Err(error) = opened.log_in(&self.server.login(Protocol::Resp2))? {
                    return Ok(Err(Problem::Lasting(error)));
                }
                connection.insert(opened)
            }
        };
        connection.set_timeout(Some(limit + wait))?;
        connection.send(words)?;
        connection.read().map(Ok)
    }
}

/// What an error reply means.
fn problem(line: &str) -> Problem {
    const TEMPORARY: [&str; 8] = [
        "LOADING",
        "MASTERDOWN",
        "READONLY",
        "BUSY ",
        "TRYAGAIN",
        "CLUSTERDOWN",
        "NOREPLICAS",
        "OOM",
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
