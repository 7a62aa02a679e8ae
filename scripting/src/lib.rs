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
mod recent;
mod sandbox;
mod script;
mod strings;
mod value;

use std::collections::HashSet;
use std::fmt;
use std::hash::BuildHasherDefault;

use bytes::Bytes;
use indexmap::{IndexMap, map};
use lockwheel_resp::{Protocol, Reply};

use crate::bridge::{Compiled, Machine, World};
pub use crate::budget::Limits;
pub use crate::functions::{Function, Functions, Library, Policy};
pub use crate::plan::Outside;
use crate::plan::{Mismatch, Plan, Scratch};
use crate::recent::Recent;
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

/// A Lua state with its cache of scripts.
///
/// A script that was loaded is kept as text until the cache is flushed. A script that came with
/// `EVAL` is forgotten when enough others have been used since. Lua functions and plans are made
/// from the texts and kept for the scripts that were used last. So each of the three has a budget
/// of its own, and what is loaded does not take memory from the script that runs.
///
/// Garbage and flushed scripts are freed in small steps: after each script that Lua runs or
/// compiles, and by [`Interpreter::tidy`].
pub struct Interpreter {
    machine: Machine,
    scripts: Scripts,
    /// The digests of the cached bodies: finding one here costs less than SHA-1. It keeps the
    /// hashes of its keys, so that it grows without hashing all bodies again.
    digests: IndexMap<Bytes, Sha>,
    /// The scripts that came with `EVAL`, with all that they take.
    passing: Recent,
    /// The functions and plans of those that are kept.
    ready: Recent,
    /// The texts of those that are kept.
    kept_bytes: usize,
    /// The texts and the plans of all.
    text_bytes: usize,
    plan_bytes: usize,
    /// What was flushed and is not freed yet.
    flushed: Vec<Flushed>,
    /// Counts runs, so that the scripts used last are known.
    runs: u64,
    limits: Limits,
    has_plans: bool,
    /// Scripts whose plan Lua has not agreed with. They stay here when they leave the cache.
    distrusted: HashSet<Sha>,
    scratch: Scratch,
    tiers: Tiers,
}

/// Scripts that were flushed together.
struct Flushed {
    scripts: map::IntoIter<Sha, Cached>,
    digests: map::IntoIter<Bytes, Sha>,
    bytes: usize,
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
    body: Bytes,
    /// Whether `SCRIPT LOAD` asked for it to be kept.
    kept: bool,
    /// The run that used it last.
    used: u64,
    /// Where it stands among those of its kind by that, if it does.
    placed: Option<u64>,
    compiled: Option<Box<Compiled>>,
    plan: Planned,
    /// What both have been counted as, and whether that still holds.
    compiled_bytes: usize,
    plan_bytes: usize,
    is_counted: bool,
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
    2 * (size_of::<(usize, Sha, Cached)>() + size_of::<(usize, Bytes, Sha)>());
/// What a plan costs for each byte of its text.
const PLAN_BYTES_PER_BYTE: usize = 10;
/// Flushed scripts that are freed together: some 20 microseconds.
const FREED_TOGETHER: usize = 64;

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
            self.is_counted = false;
        }
        match &self.plan {
            Planned::As(plan) if self.left <= self.planned / 4 + LEFT_FORGIVEN => Some(plan),
            _ => None,
        }
    }

    /// Runs it in Lua, which compiles it if it has to.
    fn run_in_lua(
        &mut self,
        machine: &mut Machine,
        sha: &Sha,
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &mut dyn Host,
    ) -> Reply {
        let compiled = match &mut self.compiled {
            Some(compiled) => compiled,
            empty => match compile(machine, &self.body) {
                Ok((_, compiled)) => {
                    self.is_counted = false;
                    empty.insert(compiled)
                }
                Err(refusal) => return refusal,
            },
        };
        if machine.give_parameters(compiled, &self.body) {
            self.is_counted = false;
        }
        machine.run(compiled, sha, keys, args, host)
    }

    fn text_bytes(&self) -> usize {
        SCRIPT_BYTES + self.body.len()
    }

    /// What the function and the plan have been counted as.
    fn ready_bytes(&self) -> usize {
        self.compiled_bytes + self.plan_bytes
    }
}

/// What a script declares, and the function it is. The error is the line the client is sent.
fn compile(machine: &mut Machine, body: &[u8]) -> Result<(Script, Box<Compiled>), Reply> {
    let (script, code) = script::parse_shebang(body)?;
    match machine.compile(code) {
        Ok(compiled) => Ok((script, Box::new(compiled))),
        Err(message) => {
            let line = [b"ERR Error compiling script (new function): ", &message[..]].concat();
            Err(Reply::Error(convert::one_line(line)))
        }
    }
}

impl Interpreter {
    /// A fresh state. `version` is what `redis.REDIS_VERSION` says; `seed` is where
    /// `math.random` starts in every script.
    pub fn new(limits: Limits, version: &str, seed: u64) -> Result<Interpreter, Error> {
        let machine = Machine::new(limits, version, seed, World::Scripts)?;
        Ok(Interpreter {
            machine,
            scripts: IndexMap::default(),
            digests: IndexMap::new(),
            passing: Recent::default(),
            ready: Recent::default(),
            kept_bytes: 0,
            text_bytes: 0,
            plan_bytes: 0,
            flushed: Vec::new(),
            runs: 0,
            limits,
            has_plans: true,
            distrusted: HashSet::new(),
            scratch: Scratch::default(),
            tiers: Tiers::default(),
        })
    }

    /// Caches a script until the cache is flushed (`SCRIPT LOAD`) and returns its name. It is
    /// compiled unless it is known, so that a wrong one is refused. The error is the line the
    /// client is sent.
    pub fn load(&mut self, body: &[u8]) -> Result<Sha, Reply> {
        let known = self.digests.get(body).copied();
        if let Some(sha) = known
            && self.scripts.get(&sha).is_some_and(|cached| cached.kept)
        {
            return Ok(sha);
        }
        let bytes = SCRIPT_BYTES + body.len();
        if self.kept_bytes.saturating_add(bytes) > self.limits.kept_bytes_max {
            return Err(Reply::error(format!(
                "ERR Too many scripts loaded (the limit is {} bytes). SCRIPT FLUSH removes them.",
                self.limits.kept_bytes_max
            )));
        }
        let sha = match known {
            Some(sha) => sha,
            None => self.add(body)?,
        };
        if let Some(at) = self.scripts.get_index_of(&sha) {
            self.uncount(at);
            self.scripts[at].kept = true;
            self.count(at);
        }
        self.make_room();
        Ok(sha)
    }

    /// As [`Interpreter::load`], for a script that came with `EVAL`: it is forgotten when as many
    /// others as the limits say have been used since, as in Redis 7.4. A client that writes its
    /// arguments into the script makes a new one at every call.
    pub fn load_passing(&mut self, body: &[u8]) -> Result<Sha, Reply> {
        if let Some(sha) = self.digests.get(body) {
            self.runs += 1;
            if let Some(cached) = self.scripts.get_mut(sha) {
                cached.used = self.runs;
            }
            return Ok(*sha);
        }
        let sha = self.add(body)?;
        self.make_room();
        Ok(sha)
    }

    /// Adds a script that is not known.
    fn add(&mut self, body: &[u8]) -> Result<Sha, Reply> {
        if body.len() > self.limits.script_bytes_max {
            return Err(Reply::error("ERR Error compiling script (new function): too long"));
        }
        self.tidy();
        let (script, compiled) = compile(&mut self.machine, body)?;
        let (sha, body) = (Sha::of(body), Bytes::copy_from_slice(body));
        self.runs += 1;
        let cached = Cached {
            script,
            body: body.clone(),
            kept: false,
            used: self.runs,
            placed: None,
            compiled: Some(compiled),
            plan: Planned::Unread,
            compiled_bytes: 0,
            plan_bytes: 0,
            is_counted: false,
            planned: 0,
            left: 0,
        };
        self.digests.insert(body, sha);
        let (at, _) = self.scripts.insert_full(sha, cached);
        self.count(at);
        Ok(sha)
    }

    /// Looks a cached script up. `sha` is forty digits in any case.
    pub fn find(&self, sha: &[u8]) -> Option<Found> {
        let (at, _, cached) = self.scripts.get_full(&Digits::read(sha)?)?;
        Some(Found { script: cached.script, at })
    }

    /// Forgets every script. Their memory is freed in steps.
    pub fn flush(&mut self) {
        let bytes = self.text_bytes + self.plan_bytes;
        let scripts = std::mem::take(&mut self.scripts).into_iter();
        let digests = std::mem::take(&mut self.digests).into_iter();
        self.flushed.push(Flushed { scripts, digests, bytes });
        (self.passing, self.ready) = (Recent::default(), Recent::default());
        (self.kept_bytes, self.text_bytes, self.plan_bytes) = (0, 0, 0);
    }

    /// Frees a little of what was flushed and of Lua's garbage. Whether there is more.
    pub fn tidy(&mut self) -> bool {
        let Some(flushed) = self.flushed.last_mut() else { return self.machine.tidy() };
        for _ in 0..FREED_TOGETHER {
            flushed.digests.next();
            if let Some((_, cached)) = flushed.scripts.next() {
                flushed.bytes -= cached.text_bytes() + cached.plan_bytes;
                cached.compiled.iter().for_each(|it| self.machine.forget_compiled(it));
            }
        }
        if flushed.scripts.len() == 0 && flushed.digests.len() == 0 {
            self.flushed.pop();
        }
        true
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
        let has_plans = self.has_plans && self.distrusted.len() < DISTRUSTED_MAX;
        let plan =
            if has_plans { cached.plan(sha, &self.distrusted, &self.limits, host) } else { None };
        let Some(plan) = plan else {
            self.tiers.lua += 1;
            let reply = cached.run_in_lua(&mut self.machine, sha, keys, args, host);
            self.settle(found.at);
            return reply;
        };
        if let Some(reply) = plan::run(plan, &mut self.scratch, &self.limits, keys, args, host) {
            cached.planned += 1;
            self.tiers.planned += 1;
            if !cached.is_counted {
                self.settle(found.at);
            }
            return reply;
        }
        // Lua runs the script from its beginning.
        let must_end = self.scratch.must_end();
        let mut replay = self.scratch.replay(plan, &self.limits, keys, args, host);
        cached.left += 1;
        self.tiers.left += 1;
        self.machine.ask_at_once(must_end);
        let reply = cached.run_in_lua(&mut self.machine, sha, keys, args, &mut replay);
        let mismatch = replay.finish();
        self.machine.ask_at_once(false);
        let sha = *sha;
        self.settle(found.at);
        match mismatch {
            None => reply,
            Some(mismatch) => self.distrust(sha, &mismatch, host),
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
            cached.is_counted = false;
        }
        let name = |command: &Option<Bytes>| match command {
            Some(name) => format!("'{}'", name.escape_ascii()),
            None => "nothing".to_owned(),
        };
        let line = format!(
            "The fast path and Lua disagree on script {}: after {} equal calls the fast path \
             called {}, Lua {}. Lua runs this script from now on. Please report this defect.",
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

    /// Whether [`Interpreter::tidy`] has something to free.
    pub fn has_garbage(&self) -> bool {
        !self.flushed.is_empty() || self.machine.has_garbage()
    }

    /// Memory that scripts take: their texts and plans, and the Lua state with what is not
    /// collected yet.
    pub fn memory_bytes(&self) -> usize {
        let flushed: usize = self.flushed.iter().map(|flushed| flushed.bytes).sum();
        self.text_bytes + self.plan_bytes + flushed + self.machine.memory_bytes()
    }

    /// Memory of the Lua state alone.
    pub fn lua_bytes(&self) -> usize {
        self.machine.memory_bytes()
    }

    /// After a run: counts what it has made ready, and frees a little.
    fn settle(&mut self, at: usize) {
        if !self.scripts[at].is_counted {
            self.uncount(at);
            self.count(at);
            self.make_room_for_ready();
        }
        if self.has_garbage() {
            self.tidy();
        }
    }

    /// Counts what a script takes, and places it among its kind.
    fn count(&mut self, at: usize) {
        let Some((sha, cached)) = self.scripts.get_index_mut(at) else { return };
        let text_bytes = cached.text_bytes();
        cached.compiled_bytes = cached.compiled.as_ref().map_or(0, |it| it.bytes());
        cached.plan_bytes = match cached.plan {
            Planned::As(_) => cached.body.len() * PLAN_BYTES_PER_BYTE,
            _ => 0,
        };
        cached.is_counted = true;
        self.text_bytes += text_bytes;
        self.plan_bytes += cached.plan_bytes;
        let ready_bytes = cached.ready_bytes();
        if !cached.kept {
            self.passing.add(cached.used, *sha, text_bytes + ready_bytes);
            cached.placed = Some(cached.used);
        } else {
            self.kept_bytes += text_bytes;
            if ready_bytes > 0 {
                self.ready.add(cached.used, *sha, ready_bytes);
                cached.placed = Some(cached.used);
            }
        }
    }

    /// Undoes what [`Interpreter::count`] has done.
    fn uncount(&mut self, at: usize) {
        let cached = &mut self.scripts[at];
        let (text_bytes, ready_bytes) = (cached.text_bytes(), cached.ready_bytes());
        self.text_bytes -= text_bytes;
        self.plan_bytes -= cached.plan_bytes;
        let placed = cached.placed.take();
        if !cached.kept {
            placed.into_iter().for_each(|at| self.passing.remove(at, text_bytes + ready_bytes));
        } else {
            self.kept_bytes -= text_bytes;
            placed.into_iter().for_each(|at| self.ready.remove(at, ready_bytes));
        }
    }

    /// Forgets those that came with `EVAL` and were used least recently, until the others are
    /// within their limits.
    fn make_room(&mut self) {
        let limits = self.limits;
        while self.passing.len() > 1
            && (self.passing.len() > limits.passing_scripts_max
                || self.passing.bytes() > limits.passing_bytes_max)
        {
            let Some(sha) = self.passing.least(place(&mut self.scripts)) else { break };
            self.forget(&sha);
        }
        self.make_room_for_ready();
    }

    /// As [`Interpreter::make_room`], for the functions and plans of those that are kept.
    fn make_room_for_ready(&mut self) {
        while self.ready.len() > 1 && self.ready.bytes() > self.limits.ready_bytes_max {
            let Some(sha) = self.ready.least(place(&mut self.scripts)) else { break };
            let Some(at) = self.scripts.get_index_of(&sha) else { break };
            self.uncount(at);
            let cached = &mut self.scripts[at];
            cached.plan = Planned::Unread;
            if let Some(compiled) = cached.compiled.take() {
                self.machine.forget_compiled(&compiled);
            }
            self.count(at);
        }
    }

    fn forget(&mut self, sha: &Sha) {
        let Some(at) = self.scripts.get_index_of(sha) else { return };
        self.uncount(at);
        if let Some((_, cached)) = self.scripts.swap_remove_index(at) {
            self.digests.swap_remove(&cached.body);
            cached.compiled.iter().for_each(|it| self.machine.forget_compiled(it));
        }
    }
}

type Scripts = IndexMap<Sha, Cached, BuildHasherDefault<ShaHasher>>;

/// Places a script by its last use, which it returns.
fn place(scripts: &mut Scripts) -> impl FnMut(&Sha) -> u64 + '_ {
    |sha| {
        scripts.get_mut(sha).map_or(0, |cached| {
            cached.placed = Some(cached.used);
            cached.used
        })
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
