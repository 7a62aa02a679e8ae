//! Control of the server's faults and gates by a test.

use std::sync::Arc;
use std::time::Duration;

use lockwheel_resp::Reply;

use crate::error::{Error, ErrorKind};
use crate::host::Host;
use crate::in_process::Client;
use crate::instruments::clock::millis;
use lockwheel_engine::instruments::faults::rule::{FaultAction, Rule, RuleConditions};
use lockwheel_engine::timing::time::Millis;

/// A fault that happens to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The request is run after this time on the server's [`Clock`](crate::Clock).
    Delay(Duration),
    /// The request is not run and gets no reply.
    Drop,
    /// The request is not run, and its connection is closed.
    Close,
    /// The request is run and gets no reply.
    Lose,
    /// The request is run, and its connection is closed instead of a reply.
    LoseAndClose,
    /// The request is run, this many bytes of the reply are sent, and the connection is closed.
    Cut(usize),
    /// The server reads no further from its client until the rule is cleared.
    Stall,
    /// The request is not run, and gets this error reply: `LOADING Redis is loading ...`.
    Error(String),
    /// All scripts are removed before the request is run, as after a restart.
    FlushScripts,
    /// The clock jumps forward after the request, and leases follow.
    JumpForward(Duration),
    /// The clock jumps back after the request, and leases follow.
    JumpBack(Duration),
    /// After the reply, this many of the last writes are undone, including the request's own. The
    /// server must have been started [for tests](crate::Builder::for_tests).
    LoseWrites(usize),
    /// A new connection is closed at once, before any request.
    Refuse,
}

/// Selects the requests of a rule: a request must match all conditions. Patterns are those of
/// `KEYS`.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Requests(RuleConditions);

impl Requests {
    /// All requests.
    pub fn any() -> Requests {
        Requests::default()
    }

    /// Requests with a command that matches a pattern: `set`, `client|id`, `eval*`.
    pub fn command(mut self, pattern: &str) -> Requests {
        self.0.command = Some(pattern.to_ascii_lowercase());
        self
    }

    /// Requests of clients with a name (`CLIENT SETNAME`) that matches a pattern.
    pub fn client(mut self, pattern: &str) -> Requests {
        self.0.client = Some(pattern.to_owned());
        self
    }

    /// Requests of the client with this `CLIENT ID`.
    pub fn client_id(mut self, id: u64) -> Requests {
        self.0.client_id = Some(id);
        self
    }

    /// Requests with a key that matches a pattern.
    pub fn key(mut self, pattern: &str) -> Requests {
        self.0.key = Some(pattern.to_owned());
        self
    }

    /// Only the `n`th of the matching requests, counted from 1.
    pub fn nth(mut self, n: u64) -> Requests {
        self.0.nth = Some(n);
        self
    }

    /// No more than `n` of the matching requests.
    pub fn times(mut self, n: u64) -> Requests {
        self.0.times = Some(n);
        self
    }

    /// Each matching request with a probability from 0 to 1. The same seed selects the same
    /// requests.
    pub fn probability(mut self, probability: f64, seed: u64) -> Requests {
        self.0.set_probability(probability, seed);
        self
    }
}

/// The faults of a server: rules and gates. The first matching rule applies. No rule applies to the
/// commands of `LOCKWHEEL`.
///
/// A server that returns `LOADING` when the second of two locks is taken:
///
/// ```
/// use lockwheel::{Fault, Reply, Requests, Server};
///
/// let server = Server::start()?;
/// let second_lock = Requests::any().command("set").key("lock:*").nth(2);
/// let loading = server.faults().add(Fault::Error("LOADING not yet".to_owned()), second_lock)?;
/// assert_eq!(server.call(&["SET", "lock:a", "token", "NX"])?, Reply::OK);
/// let refused = server.call_raw(&["SET", "lock:b", "token", "NX"])?;
/// assert_eq!(refused, Reply::error("LOADING not yet"));
/// assert_eq!(server.call(&["SET", "lock:b", "token", "NX"])?, Reply::OK);
/// assert_eq!(loading.fired()?, 1);
/// # Ok::<(), lockwheel::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Faults<'a> {
    pub(crate) host: &'a Arc<Host>,
}

/// A rule that has been added to a server.
#[derive(Clone, Copy)]
pub struct FaultRule<'a> {
    host: &'a Arc<Host>,
    id: u64,
}

/// A rule that holds clients before their requests are run, until it is opened.
///
/// ```
/// use lockwheel::{Reply, Requests, Server};
///
/// let server = Server::start()?;
/// let gate = server.faults().gate(Requests::any().command("del").client("slow"))?;
/// let mut slow = server.client()?;
/// slow.call(&["CLIENT", "SETNAME", "slow"])?;
/// server.call(&["SET", "lock", "slow's"])?;
/// std::thread::scope(|scope| {
///     let deletes = scope.spawn(move || slow.call(&["DEL", "lock"]));
///     gate.wait()?;
///     // The slow client is about to delete a lock that it believes its own.
///     server.call(&["SET", "lock", "another's"])?;
///     gate.open()?;
///     assert_eq!(deletes.join().expect("a thread")?, Reply::Integer(1));
///     Ok::<(), lockwheel::Error>(())
/// })?;
/// assert_eq!(server.call(&["GET", "lock"])?, Reply::Null);
/// # Ok::<(), lockwheel::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Gate<'a> {
    host: &'a Arc<Host>,
    id: u64,
}

impl<'a> Faults<'a> {
    /// Adds a rule after the others.
    ///
    /// # Errors
    /// If the fault is impossible for such requests, or the server has ended.
    pub fn add(&self, fault: Fault, requests: Requests) -> Result<FaultRule<'a>, Error> {
        let usage = |text: &str| Err(Error::new(ErrorKind::Usage, text));
        if fault == Fault::Refuse && requests.0.has_request_conditions() {
            return usage("a connection has no name, no command and no key yet");
        }
        let keeps = self.host.with(|engine| engine.keeps_writes())?;
        if matches!(fault, Fault::LoseWrites(_)) && !keeps {
            return usage("no writes are kept; see Builder::for_tests");
        }
        if let Fault::Error(line) = &fault
            && (line.is_empty() || line.contains(['\r', '\n']))
        {
            return usage("an error is one line");
        }
        let id = self.host.with(|engine| engine.add_fault(fault.into(), requests.0))?;
        Ok(FaultRule { host: self.host, id })
    }

    /// Adds a gate.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn gate(&self, requests: Requests) -> Result<Gate<'a>, Error> {
        let id = self.host.with(|engine| engine.add_fault(FaultAction::Gate, requests.0))?;
        Ok(Gate { host: self.host, id })
    }

    /// Removes all rules and opens all gates.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn clear(&self) -> Result<(), Error> {
        self.host.with(|engine| engine.clear_faults(|_| true))?;
        Ok(())
    }

    /// The rules and gates as JSON, with how often they matched and fired.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn list(&self) -> Result<String, Error> {
        Ok(self.host.with(|engine| engine.show_faults(|_| true))?)
    }

    /// Simulates a failover to a replica that has not received the last `lost` writes: these writes
    /// are undone, scripts are removed and all clients are disconnected. Returns how many writes
    /// were undone.
    ///
    /// # Errors
    /// If writes are to be lost and the server was not started
    /// [for tests](crate::Builder::for_tests), or it has ended.
    pub fn failover(&self, lost: usize) -> Result<usize, Error> {
        let lost = lost.to_string();
        let mut client = Client::connect(self.host)?;
        let undone = client.call(&["LOCKWHEEL", "FAILOVER", "LOSE", &lost])?;
        let Reply::Integer(undone) = undone else { return Ok(0) };
        Ok(usize::try_from(undone).unwrap_or(0))
    }
}

impl FaultRule<'_> {
    /// How many requests matched the rule's conditions.
    ///
    /// # Errors
    /// If the rule has been cleared, or the server has ended.
    pub fn matched(&self) -> Result<u64, Error> {
        count(self.host, self.id, |rule| rule.matched)
    }

    /// How many requests the fault happened to.
    ///
    /// # Errors
    /// If the rule has been cleared, or the server has ended.
    pub fn fired(&self) -> Result<u64, Error> {
        count(self.host, self.id, |rule| rule.fired)
    }

    /// Removes the rule and releases the clients it holds.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn clear(self) -> Result<(), Error> {
        self.host.with(|engine| engine.clear_faults(|rule| rule.id == self.id))?;
        Ok(())
    }
}

impl Gate<'_> {
    /// Waits until a client is held, and returns its `CLIENT ID`.
    ///
    /// # Errors
    /// If the gate is opened meanwhile, or the server ends.
    pub fn wait(&self) -> Result<u64, Error> {
        let id = self.id.to_string();
        match Client::connect(self.host)?.call(&["LOCKWHEEL", "GATE", "AWAIT", &id])? {
            Reply::Integer(client) => Ok(u64::try_from(client).unwrap_or(0)),
            _ => Err(Error::new(ErrorKind::Usage, "the gate has been opened")),
        }
    }

    /// How many clients have reached the gate.
    ///
    /// # Errors
    /// If the gate has been opened, or the server has ended.
    pub fn fired(&self) -> Result<u64, Error> {
        count(self.host, self.id, |rule| rule.fired)
    }

    /// Removes the gate and releases the clients it holds; returns how many.
    ///
    /// # Errors
    /// If the server has ended.
    pub fn open(self) -> Result<usize, Error> {
        let (_, clients) = self.host.with(|engine| engine.clear_faults(|r| r.id == self.id))?;
        Ok(clients)
    }
}

impl From<Fault> for FaultAction {
    fn from(fault: Fault) -> FaultAction {
        match fault {
            Fault::Delay(span) => FaultAction::Delay { span: millis(span) },
            Fault::Drop => FaultAction::Drop,
            Fault::Close => FaultAction::Close,
            Fault::Lose => FaultAction::Lose,
            Fault::LoseAndClose => FaultAction::LoseAndClose,
            Fault::Cut(bytes) => FaultAction::Cut { bytes },
            Fault::Stall => FaultAction::Stall,
            Fault::Error(line) => FaultAction::Error { line },
            Fault::FlushScripts => FaultAction::FlushScripts,
            Fault::JumpForward(span) => FaultAction::Jump { span: millis(span) },
            Fault::JumpBack(span) => FaultAction::Jump { span: Millis(-millis(span).0) },
            Fault::LoseWrites(writes) => FaultAction::LoseWrites { writes },
            Fault::Refuse => FaultAction::Refuse,
        }
    }
}

fn count(host: &Host, id: u64, counter: impl FnOnce(&Rule) -> u64) -> Result<u64, Error> {
    let count = host.with(|engine| engine.fault(id).map(counter))?;
    count.ok_or_else(|| Error::new(ErrorKind::Usage, "the rule has been cleared"))
}

/// Implements `Debug` for handles, which have no state of their own.
macro_rules! impl_debug {
    ($($kind:ident),*) => {$(
        impl std::fmt::Debug for $kind<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($kind)).finish_non_exhaustive()
            }
        }
    )*};
}
impl_debug!(Faults, FaultRule, Gate);
