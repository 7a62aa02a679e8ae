//! Lua 5.1 scripts as Redis runs them.
//!
//! Architecture invariant: this crate knows the wire format's [`Reply`] and nothing of the server;
//! a script sees the world through [`Host`].
//!
//! All `unsafe` is in `bridge`, which alone touches a Lua state.

#![deny(unsafe_code)]

mod bridge;
mod budget;
mod convert;
mod functions;
mod libs;
mod number;
mod sandbox;
mod script;
mod strings;
mod value;

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasherDefault;

use bytes::Bytes;
use leasehold_resp::{Protocol, Reply};

use crate::bridge::{Chunk, Machine, World};
pub use crate::budget::Limits;
pub use crate::functions::{Function, Functions, Library, Policy};
use crate::script::ShaHasher;
pub use crate::script::{Script, Sha};

/// What a script can reach: the commands of the server that runs it.
pub trait Host {
    /// Runs one command (`argv[0]` is its name) for the script and returns its reply, in the
    /// protocol chosen by [`Host::set_protocol`]. A failure is a [`Reply::Error`], never a panic.
    fn call(&mut self, argv: &[&[u8]]) -> Reply;

    /// Looks a command's name up once and for all, for callers that call it often. `None` means
    /// that there is nothing to gain, or no such command: [`Host::call`] will say.
    fn command(&mut self, name: &[u8]) -> Option<CommandId> {
        let _ = name;
        None
    }

    /// As [`Host::call`], and nothing else, for a command whose name, `argv[0]`, [`Host::command`]
    /// has looked up.
    fn call_command(&mut self, command: CommandId, argv: &[&[u8]]) -> Reply {
        let _ = command;
        self.call(argv)
    }

    /// `redis.setresp(2|3)`: the protocol whose types later calls answer with. Every script starts
    /// in RESP2.
    fn set_protocol(&mut self, protocol: Protocol);

    /// `redis.log(level, message)`.
    fn log(&mut self, level: LogLevel, message: &[u8]);

    /// Asked while Lua runs, at least every few thousand instructions; says whether to go on.
    fn interrupt(&mut self) -> Interrupt;
}

/// What [`Host::command`] calls a command: meaningful to the host that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandId(pub u32);

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

/// The memory for a Lua state could not be had.
#[derive(Debug)]
pub struct Error;

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the memory limit of scripts is too small for Lua itself")
    }
}

impl std::error::Error for Error {}

/// A Lua state with its cache of compiled scripts.
///
/// The cache leaves half of the memory to the script that runs: when scripts fill more, those that
/// came with `EVAL` are forgotten.
pub struct Interpreter {
    machine: Machine,
    scripts: HashMap<Sha, Cached, BuildHasherDefault<ShaHasher>>,
    /// The digests of the cached bodies: finding one here costs less than SHA-1.
    digests: HashMap<Bytes, Sha>,
    /// How many of them nobody asked to be kept.
    passing: usize,
    /// Counts runs, so that the scripts used last are known.
    runs: u64,
    limits: Limits,
}

struct Cached {
    script: Script,
    chunk: Chunk,
    body: Bytes,
    /// Whether somebody asked for it to be kept; else the run that used it last.
    kept: bool,
    used: u64,
}

impl Interpreter {
    /// A fresh state. `version` is what `redis.REDIS_VERSION` says; `seed` is where
    /// `math.random` starts in every script.
    pub fn new(limits: Limits, version: &str, seed: u64) -> Result<Interpreter, Error> {
        let machine = Machine::new(limits, version, seed, World::Scripts)?;
        let (scripts, digests) = (HashMap::default(), HashMap::new());
        Ok(Interpreter { machine, scripts, digests, passing: 0, runs: 0, limits })
    }

    /// Caches a script until the cache is flushed (`SCRIPT LOAD`), compiling it unless it is
    /// known, and returns its name. The error is the line the client is sent.
    pub fn load(&mut self, body: &[u8]) -> Result<Sha, Reply> {
        let sha = self.load_passing(body)?;
        if let Some(cached) = self.scripts.get_mut(&sha)
            && !cached.kept
        {
            cached.kept = true;
            self.passing -= 1;
        }
        Ok(sha)
    }

    /// As [`Interpreter::load`], for a script that came with `EVAL`: it is forgotten when as many
    /// others as the limits say have been used since, as in Redis 7.4. A client that writes its
    /// arguments into the script makes a new one at every call.
    pub fn load_passing(&mut self, body: &[u8]) -> Result<Sha, Reply> {
        self.runs += 1;
        if let Some(sha) = self.digests.get(body) {
            if let Some(cached) = self.scripts.get_mut(sha) {
                cached.used = self.runs;
            }
            return Ok(*sha);
        }
        if body.len() > self.limits.script_bytes_max {
            return Err(Reply::error("ERR Error compiling script (new function): too long"));
        }
        let (script, code) = script::parse_shebang(body)?;
        self.make_room();
        let chunk = self.machine.compile(code).map_err(|message| {
            let line = [b"ERR Error compiling script (new function): ", &message[..]].concat();
            Reply::Error(convert::one_line(line))
        })?;
        let (sha, body) = (Sha::of(body), Bytes::copy_from_slice(body));
        self.digests.insert(body.clone(), sha);
        self.passing += 1;
        let used = self.runs;
        self.scripts.insert(sha, Cached { script, chunk, body, kept: false, used });
        Ok(sha)
    }

    /// What a cached script declares. `sha` is forty digits in any case.
    pub fn get(&self, sha: &[u8]) -> Option<Script> {
        self.scripts.get(&Sha::parse(sha)?).map(|cached| cached.script)
    }

    /// Forgets every script.
    pub fn flush(&mut self) {
        let known: Vec<Sha> = self.scripts.keys().copied().collect();
        for sha in known {
            self.forget(&sha);
        }
        self.machine.collect();
    }

    /// How many scripts are cached.
    pub fn len(&self) -> usize {
        self.scripts.len()
    }

    /// Whether no script is cached.
    pub fn is_empty(&self) -> bool {
        self.scripts.is_empty()
    }

    /// Runs a cached script: the reply to its client, or the error line Redis answers with.
    pub fn run(
        &mut self,
        sha: &[u8],
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &mut dyn Host,
    ) -> Reply {
        let known = Sha::parse(sha).and_then(|sha| Some((sha, self.scripts.get_mut(&sha)?)));
        let Some((sha, cached)) = known else {
            return Reply::error("NOSCRIPT No matching script. Please use EVAL.");
        };
        self.runs += 1;
        cached.used = self.runs;
        let chunk = cached.chunk;
        self.machine.run(chunk, sha.as_str(), keys, args, host)
    }

    /// Memory of the Lua state: cached scripts and what is not collected yet.
    pub fn memory_bytes(&self) -> usize {
        self.machine.memory_bytes()
    }

    /// Makes room for one more script that nobody asked to be kept.
    fn make_room(&mut self) {
        if self.passing >= self.limits.passing_scripts_max {
            let passing = self.scripts.iter().filter(|(_, cached)| !cached.kept);
            let least = passing.min_by_key(|(_, cached)| cached.used).map(|(sha, _)| *sha);
            if let Some(sha) = least {
                self.forget(&sha);
            }
        }
        let half = self.limits.memory_bytes_max / 2;
        if self.passing == 0 || self.memory_bytes() <= half {
            return;
        }
        self.machine.collect();
        if self.memory_bytes() > half {
            let passing = self.scripts.iter().filter(|(_, cached)| !cached.kept);
            let passing: Vec<Sha> = passing.map(|(sha, _)| *sha).collect();
            for sha in passing {
                self.forget(&sha);
            }
            self.machine.collect();
        }
    }

    fn forget(&mut self, sha: &Sha) {
        if let Some(cached) = self.scripts.remove(sha) {
            self.digests.remove(&cached.body);
            self.machine.forget(cached.chunk);
            self.passing -= usize::from(!cached.kept);
        }
    }
}

impl fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interpreter")
            .field("scripts", &self.scripts.len())
            .field("memory_bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}
