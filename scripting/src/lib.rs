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
mod plan;
mod sandbox;
mod script;
mod strings;
mod value;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::BuildHasherDefault;

use bytes::Bytes;
use indexmap::IndexMap;
use leasehold_resp::{Protocol, Reply};

use crate::bridge::{Compiled, Machine, World};
pub use crate::budget::Limits;
pub use crate::functions::{Function, Functions, Library, Policy};
pub use crate::plan::Outside;
use crate::plan::{Mismatch, Plan, Scratch};
use crate::script::{Digits, ShaHasher};
pub use crate::script::{Script, Sha};

/// What a script can reach: the commands of the server that runs it.
pub trait Host {
    /// Runs one command (`argv[0]` is its name) for the script and returns its reply, in the
    /// protocol chosen by [`Host::set_protocol`]. A failure is a [`Reply::Error`], never a panic.
    fn call(&mut self, argv: &[&[u8]]) -> Reply;

    /// Looks a command up once and for all, for callers that call it often with so many arguments,
    /// its name among them. `None` means that there is nothing to gain, or no such command, or that
    /// it takes another number of arguments: [`Host::call`] will say.
    fn command(&mut self, name: &[u8], arguments: usize) -> Option<CommandId> {
        let _ = (name, arguments);
        None
    }

    /// As [`Host::call`], and nothing else, for a command whose name, `argv[0]`, and number of
    /// arguments [`Host::command`] has looked up.
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
    scripts: IndexMap<Sha, Cached, BuildHasherDefault<ShaHasher>>,
    /// The digests of the cached bodies: finding one here costs less than SHA-1.
    digests: HashMap<Bytes, Sha>,
    /// The bytes of the cached bodies.
    text_bytes: usize,
    /// How many of them nobody asked to be kept.
    passing: usize,
    /// Counts runs, so that the scripts used last are known.
    runs: u64,
    limits: Limits,
    has_plans: bool,
    /// Scripts whose plan Lua has not agreed with. They stay here when they leave the cache.
    distrusted: HashSet<Sha>,
    scratch: Scratch,
    tiers: Tiers,
}

/// How often scripts have been run, and by what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tiers {
    /// By a plan, from beginning to end.
    pub planned: u64,
    /// By a plan first, and then by Lua.
    pub left: u64,
    /// By Lua alone.
    pub lua: u64,
    /// By a plan first, and then by Lua, which did something else: a defect of the plans.
    pub disagreed: u64,
}

/// A cached script that has been looked up. Good until another one is cached or any is forgotten.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// What it declares.
    pub script: Script,
    at: usize,
}

struct Cached {
    script: Script,
    compiled: Compiled,
    body: Bytes,
    /// Whether somebody asked for it to be kept; else the run that used it last.
    kept: bool,
    used: u64,
    plan: Planned,
    /// Runs of the plan to its end, and runs that it has left.
    planned: u64,
    left: u64,
}

/// A script in the fast tier.
enum Planned {
    /// Nobody has looked yet.
    Unread,
    /// It is not of the subset.
    Outside,
    As(Box<Plan>),
}

/// What a cached script costs outside Lua besides its text: its entries in the two maps, with the
/// share of them that is free.
const SCRIPT_BYTES: usize =
    2 * (size_of::<(usize, Sha, Cached)>() + size_of::<(Bytes, Sha)>() + size_of::<usize>());

/// A plan that is left oftener than every fourth time costs more than it saves; what is forgiven
/// first.
const LEFT_FORGIVEN: u64 = 16;

/// Scripts that may be distrusted before no script is run by a plan any more: more than one defect
/// of the plans is at work then.
const DISTRUSTED_MAX: usize = 100;

fn read_plan(code: &[u8], limits: &Limits, host: &mut dyn Host) -> Planned {
    Plan::read(code, limits, &mut |name, arguments| host.command(name, arguments))
        .map_or(Planned::Outside, |plan| Planned::As(Box::new(plan)))
}

impl Cached {
    /// The plan, if the script has one that is worth its while. Read at the first run.
    fn plan(
        &mut self,
        sha: &Sha,
        distrusted: &HashSet<Sha>,
        limits: &Limits,
        host: &mut dyn Host,
    ) -> Option<&Plan> {
        if matches!(self.plan, Planned::Unread) {
            self.plan = match script::parse_shebang(&self.body).map(|(_, code)| code) {
                Ok(code) if !distrusted.contains(sha) => read_plan(code, limits, host),
                _ => Planned::Outside,
            };
        }
        match &self.plan {
            Planned::As(plan) if self.left <= self.planned / 4 + LEFT_FORGIVEN => Some(plan),
            _ => None,
        }
    }
}

impl Interpreter {
    /// A fresh state. `version` is what `redis.REDIS_VERSION` says; `seed` is where
    /// `math.random` starts in every script.
    pub fn new(limits: Limits, version: &str, seed: u64) -> Result<Interpreter, Error> {
        let machine = Machine::new(limits, version, seed, World::Scripts)?;
        let (scripts, digests) = (IndexMap::default(), HashMap::new());
        Ok(Interpreter {
            machine,
            scripts,
            digests,
            text_bytes: 0,
            passing: 0,
            runs: 0,
            limits,
            has_plans: true,
            distrusted: HashSet::new(),
            scratch: Scratch::default(),
            tiers: Tiers::default(),
        })
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
        let compiled = self.machine.compile(code).map_err(|message| {
            let line = [b"ERR Error compiling script (new function): ", &message[..]].concat();
            Reply::Error(convert::one_line(line))
        })?;
        let (sha, body) = (Sha::of(body), Bytes::copy_from_slice(body));
        self.digests.insert(body.clone(), sha);
        self.text_bytes += body.len();
        self.passing += 1;
        let used = self.runs;
        let plan = Planned::Unread;
        let cached =
            Cached { script, compiled, body, kept: false, used, plan, planned: 0, left: 0 };
        self.scripts.insert(sha, cached);
        Ok(sha)
    }

    /// Looks a cached script up. `sha` is forty digits in any case.
    pub fn find(&self, sha: &[u8]) -> Option<Found> {
        let (at, _, cached) = self.scripts.get_full(&Digits::read(sha)?)?;
        Some(Found { script: cached.script, at })
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
        match self.find(sha) {
            Some(found) => self.run_found(found, keys, args, host),
            None => unknown(),
        }
    }

    /// As [`Interpreter::run`], for a script that has just been found.
    pub fn run_found(
        &mut self,
        found: Found,
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &mut dyn Host,
    ) -> Reply {
        let Some((sha, cached)) = self.scripts.get_index_mut(found.at) else { return unknown() };
        self.runs += 1;
        cached.used = self.runs;
        let has_room = self.machine.memory_bytes() <= self.limits.memory_bytes_max / 2;
        let has_plans = self.has_plans && has_room && self.distrusted.len() < DISTRUSTED_MAX;
        let plan =
            if has_plans { cached.plan(sha, &self.distrusted, &self.limits, host) } else { None };
        let Some(plan) = plan else {
            self.tiers.lua += 1;
            self.machine.give_parameters(&mut cached.compiled, &cached.body);
            return self.machine.run(&mut cached.compiled, sha, keys, args, host);
        };
        if let Some(reply) = plan::run(plan, &mut self.scratch, &self.limits, keys, args, host) {
            cached.planned += 1;
            self.tiers.planned += 1;
            return reply;
        }
        // Lua runs the script from its beginning.
        let must_end = self.scratch.must_end();
        let mut replay = self.scratch.replay(plan, &self.limits, keys, args, host);
        cached.left += 1;
        self.tiers.left += 1;
        self.machine.give_parameters(&mut cached.compiled, &cached.body);
        self.machine.ask_at_once(must_end);
        let reply = self.machine.run(&mut cached.compiled, sha, keys, args, &mut replay);
        let mismatch = replay.finish();
        self.machine.ask_at_once(false);
        match mismatch {
            None => reply,
            Some(mismatch) => {
                let sha = *sha;
                self.distrust(sha, &mismatch, host)
            }
        }
    }

    /// Keeps a script from being run by its plan, which Lua has not agreed with. The reply to its
    /// client.
    #[cold]
    fn distrust(&mut self, sha: Sha, mismatch: &Mismatch, host: &mut dyn Host) -> Reply {
        self.tiers.disagreed += 1;
        self.distrusted.insert(sha);
        if let Some(cached) = self.scripts.get_mut(&sha) {
            cached.plan = Planned::Outside;
        }
        let name = |command: &Option<Bytes>| match command {
            Some(name) => format!("'{}'", name.escape_ascii()),
            None => "nothing".to_owned(),
        };
        let line = format!(
            "The fast path and Lua disagree on script {}: after {} equal calls the fast path called \
             {}, Lua {}. Lua runs this script from now on. Please report this defect.",
            sha.as_str(),
            mismatch.agreed,
            name(&mismatch.planned),
            name(&mismatch.called),
        );
        host.log(LogLevel::Warning, line.as_bytes());
        Reply::error(plan::DISAGREEMENT)
    }

    /// Whether scripts may be run by plans. They are unless this says otherwise.
    pub fn set_plans(&mut self, has_plans: bool) {
        self.has_plans = has_plans;
    }

    /// Gives a cached script the plan of another text: a defect of the plans, for tests of what
    /// happens then.
    #[doc(hidden)]
    pub fn misread_plan(&mut self, sha: &Sha, code: &[u8], host: &mut dyn Host) {
        if let Some(cached) = self.scripts.get_mut(sha) {
            cached.plan = read_plan(code, &self.limits, host);
        }
    }

    /// How often scripts have been run by which tier.
    pub fn tiers(&self) -> Tiers {
        self.tiers
    }

    /// Memory that scripts take: their texts, and the Lua state with what is not collected yet.
    pub fn memory_bytes(&self) -> usize {
        self.text_bytes + self.scripts.len() * SCRIPT_BYTES + self.machine.memory_bytes()
    }

    /// Memory of the Lua state alone.
    pub fn lua_bytes(&self) -> usize {
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
        if self.passing == 0 || self.machine.memory_bytes() <= half {
            return;
        }
        self.machine.collect();
        if self.machine.memory_bytes() > half {
            let passing = self.scripts.iter().filter(|(_, cached)| !cached.kept);
            let passing: Vec<Sha> = passing.map(|(sha, _)| *sha).collect();
            for sha in passing {
                self.forget(&sha);
            }
            self.machine.collect();
        }
    }

    fn forget(&mut self, sha: &Sha) {
        if let Some(cached) = self.scripts.swap_remove(sha) {
            self.digests.remove(&cached.body);
            self.text_bytes -= cached.body.len();
            self.machine.forget_compiled(&cached.compiled);
            self.passing -= usize::from(!cached.kept);
        }
    }
}

fn unknown() -> Reply {
    Reply::error("NOSCRIPT No matching script. Please use EVAL.")
}

/// The first thing in a script that keeps it from having a plan; `None` if it has one.
pub fn outside_of_plans(body: &[u8]) -> Option<Outside> {
    let code = script::parse_shebang(body).map_or(body, |(_, code)| code);
    Plan::read(code, &Limits::default(), &mut |_, _| None).err()
}

impl fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interpreter")
            .field("scripts", &self.scripts.len())
            .field("memory_bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}
