//! Lua 5.1 scripts as Redis runs them.
//!
//! Architecture invariant: this crate knows the wire format's [`Reply`] and nothing of the server;
//! a script sees the world through [`Host`].

use leasehold_resp::{Protocol, Reply};

/// What a script can reach: the commands of the server that runs it.
pub trait Host {
    /// Runs one command (`argv[0]` is its name) for the script and returns its reply, in the
    /// protocol chosen by [`Host::set_protocol`]. A failure is a [`Reply::Error`], never a panic.
    fn call(&mut self, argv: &[&[u8]]) -> Reply;

    /// `redis.setresp(2|3)`: the protocol whose types later calls answer with. Every script starts
    /// in RESP2.
    fn set_protocol(&mut self, protocol: Protocol);

    /// `redis.log(level, message)`.
    fn log(&mut self, level: LogLevel, message: &[u8]);

    /// Asked while Lua runs, at least every few thousand instructions; says whether to go on.
    fn interrupt(&mut self) -> Interrupt;
}

/// The levels of `redis.log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// `redis.LOG_DEBUG`
    Debug,
    /// `redis.LOG_VERBOSE`
    Verbose,
    /// `redis.LOG_NOTICE`
    Notice,
    /// `redis.LOG_WARNING`
    Warning,
}

/// The host's answer to [`Host::interrupt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// Go on.
    Continue,
    /// End the script now, whatever it does about it.
    Kill,
}
/// The Lua state. Replaced by the real one.
pub struct Interpreter;
/// Bounds.
#[derive(Default)]
pub struct Limits;
/// A digest.
pub struct Sha([u8; 40]);
/// A cached script.
pub struct Script;

impl Sha {
    /// The digits.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Script {
    /// Declared so.
    pub fn no_writes(&self) -> bool {
        false
    }
}

#[expect(missing_docs, clippy::result_unit_err, reason = "placeholder")]
impl Interpreter {
    pub fn new(_: Limits, _: &str, _: u64) -> Result<Self, ()> {
        Ok(Interpreter)
    }
    pub fn load(&mut self, _: &[u8]) -> Result<Sha, Reply> {
        Err(Reply::Null)
    }
    pub fn get(&self, _: &[u8]) -> Option<Script> {
        None
    }
    pub fn flush(&mut self) {}
    pub fn run(&mut self, _: &[u8], _: &[&[u8]], _: &[&[u8]], _: &mut dyn Host) -> Reply {
        Reply::Null
    }
}
