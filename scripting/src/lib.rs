//! Runs Lua 5.1 scripts as Redis does.
//!
//! Architecture invariant: this crate depends on the wire format's [`Reply`] and on nothing of the
//! server. Scripts reach the server only through [`Host`].
//!
//! All `unsafe` code is in `bridge`, the only module that accesses a Lua state.

#![deny(unsafe_code)]

mod bridge;
mod convert;
mod functions;
mod libs;
mod limits;
mod lru;
mod lua_number;
mod math_random;
mod pattern_matching;
mod plan;
mod sandbox;
mod script;
mod value;

#[cfg(test)]
#[path = "../tests/host/limits.rs"]
mod test_limits;

use std::collections::HashSet;
use std::fmt;
use std::hash::BuildHasherDefault;

use bytes::Bytes;
use indexmap::{IndexMap, map};
use lockwheel_resp::{Protocol, Reply};

use crate::bridge::{Compiled, Machine, StateKind};
pub use crate::functions::{Function, Functions, Library, Policy};
pub use crate::limits::Limits;
use crate::lru::LruOrder;
pub use crate::math_random::MathRandom;
pub use crate::plan::Outside;
use crate::plan::{Mismatch, Plan, Scratch};
use crate::script::{Digits, ShaHasher};
pub use crate::script::{Script, Sha};

/// The server as a script sees it: its commands, its log and its interrupt.
pub trait Host {
    /// Runs one command (`argv[0]` is its name) for the script and returns its reply, in the
    /// protocol chosen by [`Host::set_protocol`]. A failure is a [`Reply::Error`], never a panic.
    fn call(&mut self, argv: &[&[u8]]) -> Reply;

    /// Looks up a command once, for callers that call it often with the same number of arguments,
    /// its name included. `None` means that there is nothing to gain, that there is no such
    /// command, or that it takes another number of arguments; [`Host::call`] then returns the
    /// error.
    fn command(&mut self, name: &[u8], arguments: usize) -> Option<CommandId> {
        let _ = (name, arguments);
        None
    }

    /// Does the same as [`Host::call`] for a command that [`Host::command`] has looked up by its
    /// name, `argv[0]`, and its number of arguments. `place` is null, and receives a reply that
    /// does not fit into a [`ShortReply`].
    fn call_command(
        &mut self,
        command: CommandId,
        argv: &[&[u8]],
        place: &mut Reply,
    ) -> ShortReply {
        let _ = command;
        ShortReply::of(self.call(argv), place)
    }

    /// `redis.acl_check_cmd(...)`: whether the caller may run a command; `None` if there is no such
    /// command. A host without permissions answers with `COMMAND INFO`.
    fn is_permitted(&mut self, argv: &[&[u8]]) -> Option<bool> {
        let reply = self.call(&[b"COMMAND", b"INFO", argv.first()?]);
        let Reply::Array(found) = reply else { return None };
        matches!(found.first(), Some(Reply::Array(_))).then_some(true)
    }

    /// `redis.setresp(2|3)`: the protocol of the replies of later calls. Every script starts in
    /// RESP2.
    fn set_protocol(&mut self, protocol: Protocol);

    /// `redis.log(level, message)`.
    fn log(&mut self, level: LogLevel, message: &[u8]);

    /// The host's clock in microseconds, for `os.clock`. It is constant while a script runs.
    fn clock_us(&self) -> u64 {
        0
    }

    /// Called while Lua runs, at least every few thousand instructions. Returns whether to go on.
    fn interrupt(&mut self) -> Interrupt;
}

/// The handle [`Host::command`] gives to a command. Only the host that made it can use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandId(pub u32);

/// The reply to a command, for which two registers suffice: nearly all commands of lock scripts
/// reply with an integer or null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShortReply {
    /// [`Reply::Integer`]
    Integer(i64),
    /// [`Reply::Null`]
    Null,
    /// Another reply, which is in the place given for it.
    InPlace,
}

impl ShortReply {
    /// Shortens a reply, or moves it to `place`.
    #[inline]
    pub fn of(reply: Reply, place: &mut Reply) -> ShortReply {
        match reply {
            Reply::Integer(number) => ShortReply::Integer(number),
            Reply::Null => ShortReply::Null,
            other => {
                *place = other;
                ShortReply::InPlace
            }
        }
    }
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
    /// End the script now, even if the script catches errors.
    Kill,
}

/// There is not enough memory for a Lua state.
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
/// A script loaded with `SCRIPT LOAD` is kept as text until the cache is flushed. A script that
/// came with `EVAL` is evicted when enough others have been used since. Lua functions and plans are
/// made from the texts and kept for the scripts that were used last. Each of the three has a memory
/// limit of its own, and loaded scripts do not take memory from the running script.
///
/// Garbage and flushed scripts are freed in small steps: after each script that Lua runs or
/// compiles, and by [`Interpreter::tidy`].
pub struct Interpreter {
    machine: Machine,
    scripts: Scripts,
    /// The digests of the cached bodies; a look-up here costs less than SHA-1. The map keeps the
    /// hashes of its keys, so that it grows without hashing all bodies again.
    shas_by_body: IndexMap<Bytes, Sha>,
    /// The scripts that came with `EVAL`, with the sizes of their texts, functions and plans.
    evaluated: LruOrder,
    /// The functions and plans of loaded scripts.
    compiled: LruOrder,
    /// The size of the texts of loaded scripts.
    loaded_bytes: usize,
    /// The sizes of the texts and the plans of all scripts.
    text_bytes: usize,
    plan_bytes: usize,
    /// Flushed scripts that are not freed yet.
    flushed: Vec<Flushed>,
    /// The number of runs. It orders scripts by their last use.
    runs: u64,
    limits: Limits,
    has_plans: bool,
    /// Scripts with a plan that disagreed with Lua. They stay here when they leave the cache.
    distrusted: HashSet<Sha>,
    scratch: Scratch,
    tiers: Tiers,
}

/// Scripts that were flushed together.
struct Flushed {
    scripts: map::IntoIter<Sha, CachedScript>,
    shas_by_body: map::IntoIter<Bytes, Sha>,
    bytes: usize,
}

/// The number of script runs by each tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tiers {
    /// Runs that a plan finished.
    pub planned: u64,
    /// Runs that a plan started and Lua finished.
    pub left: u64,
    /// Runs by Lua alone.
    pub lua: u64,
    /// Runs that a plan started, and in which Lua went on or checked it and did something else: a
    /// defect of the plans.
    pub disagreed: u64,
}

/// A cached script that was looked up. Valid until a script is added to the cache or removed from
/// it.
#[derive(Clone, Copy, Debug)]
pub struct FoundScript {
    /// The declarations of its first line.
    pub script: Script,
    at: usize,
}

struct CachedScript {
    script: Script,
    body: Bytes,
    /// Whether it was loaded with `SCRIPT LOAD`.
    loaded: bool,
    /// The number of the run that used it last.
    used: u64,
    /// Its place in `evaluated` or `compiled`, if it is in one of them.
    placed: Option<u64>,
    compiled: Option<Box<Compiled>>,
    plan: PlanState,
    /// The sizes that were counted for both, and whether they are still right.
    compiled_bytes: usize,
    plan_bytes: usize,
    is_counted: bool,
    /// The number of runs that the plan finished, and that it left to Lua.
    planned: u64,
    left: u64,
}

/// The state of a script in the fast tier.
enum PlanState {
    /// The script has not been parsed for a plan yet.
    NotParsed,
    /// The script is not in the subset that plans support.
    Unsupported,
    Ready(Box<Plan>),
}

/// Memory of a cached script outside Lua besides its text: its entries in the two maps, with their
/// share of free slots.
const SCRIPT_BYTES: usize =
    2 * (size_of::<(usize, Sha, CachedScript)>() + size_of::<(usize, Bytes, Sha)>());
/// Memory of a plan per byte of its text.
const PLAN_BYTES_PER_BYTE: usize = 10;
/// The number of flushed scripts freed in one step: some 20 microseconds.
const FREED_PER_STEP: usize = 64;

/// A plan that leaves more than one run in four to Lua costs more than it saves. This many runs are
/// allowed before that rule applies.
const LEFT_ALLOWANCE: u64 = 16;

/// Number of the first runs finished by a plan, all of which are compared with Lua.
const CHECKED_FIRST: u64 = 4;
/// Number of later runs of which one is compared: less than a hundredth of their cost.
const CHECKED_EVERY: u64 = 1024;

/// Whether a run of a script is compared with Lua, by the number of its runs that the plan has
/// finished.
fn is_checked(planned: u64) -> bool {
    planned <= CHECKED_FIRST || planned.is_multiple_of(CHECKED_EVERY)
}

/// Most distrusted scripts with which plans are still used: if there are more, there is more than
/// one defect in them.
const DISTRUSTED_MAX: usize = 100;

fn read_plan(code: &[u8], limits: &Limits, host: &mut dyn Host) -> PlanState {
    Plan::read(code, limits, &mut |name, arguments| host.command(name, arguments))
        .map_or(PlanState::Unsupported, |plan| PlanState::Ready(Box::new(plan)))
}

impl CachedScript {
    /// Returns the plan, if the script has one that saves time. The script is parsed at its first
    /// run.
    fn plan(
        &mut self,
        sha: &Sha,
        distrusted: &HashSet<Sha>,
        limits: &Limits,
        host: &mut dyn Host,
    ) -> Option<&Plan> {
        if matches!(self.plan, PlanState::NotParsed) {
            self.plan = match script::parse_shebang(&self.body).map(|(_, code)| code) {
                Ok(code) if !distrusted.contains(sha) => read_plan(code, limits, host),
                _ => PlanState::Unsupported,
            };
            self.is_counted = false;
        }
        match &self.plan {
            PlanState::Ready(plan) if self.left <= self.planned / 4 + LEFT_ALLOWANCE => Some(plan),
            _ => None,
        }
    }

    /// Runs the script in Lua, and compiles it first if necessary.
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

    /// The sizes that were counted for the function and the plan.
    fn ready_bytes(&self) -> usize {
        self.compiled_bytes + self.plan_bytes
    }
}

/// Compiles a script. Returns its declarations and its function, or the error line for the client.
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
    /// Creates an interpreter. `version` is the value of `redis.REDIS_VERSION`; `random` is the
    /// generator of `math.random`.
    pub fn new(limits: Limits, version: &str, random: MathRandom) -> Result<Interpreter, Error> {
        let machine = Machine::new(limits, version, random, StateKind::Scripts)?;
        Ok(Interpreter {
            machine,
            scripts: IndexMap::default(),
            shas_by_body: IndexMap::new(),
            evaluated: LruOrder::default(),
            compiled: LruOrder::default(),
            loaded_bytes: 0,
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

    /// Caches a script until the cache is flushed (`SCRIPT LOAD`) and returns its digest. A script
    /// that is not cached yet is compiled, so that an invalid one is refused. The error is the line
    /// for the client.
    pub fn load(&mut self, body: &[u8]) -> Result<Sha, Reply> {
        let known = self.shas_by_body.get(body).copied();
        if let Some(sha) = known
            && self.scripts.get(&sha).is_some_and(|cached| cached.loaded)
        {
            return Ok(sha);
        }
        let bytes = SCRIPT_BYTES + body.len();
        if self.loaded_bytes.saturating_add(bytes) > self.limits.loaded_bytes_max {
            return Err(Reply::error(format!(
                "ERR Too many scripts loaded (the limit is {} bytes). SCRIPT FLUSH removes them.",
                self.limits.loaded_bytes_max
            )));
        }
        let sha = match known {
            Some(sha) => sha,
            None => self.add(body)?,
        };
        if let Some(at) = self.scripts.get_index_of(&sha) {
            self.uncount(at);
            self.scripts[at].loaded = true;
            self.count(at);
        }
        self.make_room_for_evaluated();
        Ok(sha)
    }

    /// Caches a script that came with `EVAL`. Unlike with [`Interpreter::load`], the script is
    /// evicted when as many others as the limits allow have been used since, as in Redis 7.4. A
    /// client that writes its arguments into the script makes a new script at every call.
    pub fn load_evaluated(&mut self, body: &[u8]) -> Result<Sha, Reply> {
        if let Some(sha) = self.shas_by_body.get(body) {
            self.runs += 1;
            if let Some(cached) = self.scripts.get_mut(sha) {
                cached.used = self.runs;
            }
            return Ok(*sha);
        }
        let sha = self.add(body)?;
        self.make_room_for_evaluated();
        Ok(sha)
    }

    /// Adds a script that is not cached.
    fn add(&mut self, body: &[u8]) -> Result<Sha, Reply> {
        if body.len() > self.limits.script_bytes_max {
            return Err(Reply::error("ERR Error compiling script (new function): too long"));
        }
        self.tidy();
        let (script, compiled) = compile(&mut self.machine, body)?;
        let (sha, body) = (Sha::of(body), Bytes::copy_from_slice(body));
        self.runs += 1;
        let cached = CachedScript {
            script,
            body: body.clone(),
            loaded: false,
            used: self.runs,
            placed: None,
            compiled: Some(compiled),
            plan: PlanState::NotParsed,
            compiled_bytes: 0,
            plan_bytes: 0,
            is_counted: false,
            planned: 0,
            left: 0,
        };
        self.shas_by_body.insert(body, sha);
        let (at, _) = self.scripts.insert_full(sha, cached);
        self.count(at);
        Ok(sha)
    }

    /// Looks up a cached script. `sha` is forty hexadecimal digits in upper or lower case.
    pub fn find(&self, sha: &[u8]) -> Option<FoundScript> {
        let (at, _, cached) = self.scripts.get_full(&Digits::read(sha)?)?;
        Some(FoundScript { script: cached.script, at })
    }

    /// The text of a cached script. `sha` is as in [`Interpreter::find`].
    pub fn text(&self, sha: &[u8]) -> Option<&[u8]> {
        let (_, _, cached) = self.scripts.get_full(&Digits::read(sha)?)?;
        Some(&cached.body)
    }

    /// Removes every script. Their memory is freed in steps.
    pub fn flush(&mut self) {
        let bytes = self.text_bytes + self.plan_bytes;
        let scripts = std::mem::take(&mut self.scripts).into_iter();
        let shas_by_body = std::mem::take(&mut self.shas_by_body).into_iter();
        self.flushed.push(Flushed { scripts, shas_by_body, bytes });
        (self.evaluated, self.compiled) = (LruOrder::default(), LruOrder::default());
        (self.loaded_bytes, self.text_bytes, self.plan_bytes) = (0, 0, 0);
    }

    /// Frees some of the flushed scripts and of Lua's garbage. Returns whether there is more.
    pub fn tidy(&mut self) -> bool {
        let Some(flushed) = self.flushed.last_mut() else { return self.machine.tidy() };
        for _ in 0..FREED_PER_STEP {
            flushed.shas_by_body.next();
            if let Some((_, cached)) = flushed.scripts.next() {
                flushed.bytes -= cached.text_bytes() + cached.plan_bytes;
                cached.compiled.iter().for_each(|it| self.machine.forget_compiled(it));
            }
        }
        if flushed.scripts.len() == 0 && flushed.shas_by_body.len() == 0 {
            self.flushed.pop();
        }
        true
    }

    /// The number of cached scripts.
    pub fn len(&self) -> usize {
        self.scripts.len()
    }

    /// Whether no script is cached.
    pub fn is_empty(&self) -> bool {
        self.scripts.is_empty()
    }

    /// Runs a cached script. Returns the reply for the client, or Redis's error line.
    pub fn run(
        &mut self,
        sha: &[u8],
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &mut dyn Host,
    ) -> Reply {
        match self.find(sha) {
            Some(found) => self.run_found(found, keys, args, host),
            None => no_script(),
        }
    }

    /// Runs a script that was just found. See [`Interpreter::run`].
    pub fn run_found(
        &mut self,
        found: FoundScript,
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &mut dyn Host,
    ) -> Reply {
        let Some((sha, cached)) = self.scripts.get_index_mut(found.at) else { return no_script() };
        // Without the checks for an overflow: 64 bits last for centuries.
        self.runs = self.runs.wrapping_add(1);
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
            let planned = cached.planned.wrapping_add(1);
            cached.planned = planned;
            self.tiers.planned = self.tiers.planned.wrapping_add(1);
            if !cached.is_counted {
                self.settle(found.at);
            }
            if is_checked(planned) {
                self.check(found.at, &reply, keys, args, host);
            }
            return reply;
        }
        // Lua runs the script from the start.
        let must_end = self.scratch.must_end();
        let mut replay = self.scratch.replay(plan, &self.limits, keys, args, host);
        cached.left += 1;
        self.tiers.left += 1;
        self.machine.poll_every_instruction(must_end);
        let reply = cached.run_in_lua(&mut self.machine, sha, keys, args, &mut replay);
        let mismatch = replay.finish();
        self.machine.poll_every_instruction(false);
        let sha = *sha;
        self.settle(found.at);
        match mismatch {
            None => reply,
            Some(mismatch) => {
                self.distrust(sha, &mismatch, host);
                Reply::error(plan::DISAGREEMENT)
            }
        }
    }

    /// Runs a script in Lua that its plan has just run to the end, with the recorded replies of its
    /// commands, and compares calls and replies. The plan's reply and its effects stay.
    #[cold]
    fn check(
        &mut self,
        at: usize,
        reply: &Reply,
        keys: &[&[u8]],
        args: &[&[u8]],
        host: &mut dyn Host,
    ) {
        let Some((sha, cached)) = self.scripts.get_index_mut(at) else { return };
        let PlanState::Ready(plan) = &cached.plan else { return };
        let mut replay = self.scratch.check(plan, &self.limits, keys, args, host);
        let found = cached.run_in_lua(&mut self.machine, sha, keys, args, &mut replay);
        let mismatch = replay.finish_check(reply, &found);
        let sha = *sha;
        self.settle(at);
        if let Some(mismatch) = mismatch {
            self.distrust(sha, &mismatch, host);
        }
    }

    /// Stops using the plan of a script, because Lua disagreed with it.
    #[cold]
    fn distrust(&mut self, sha: Sha, mismatch: &Mismatch, host: &mut dyn Host) {
        self.tiers.disagreed += 1;
        self.distrusted.insert(sha);
        if let Some(cached) = self.scripts.get_mut(&sha) {
            cached.plan = PlanState::Unsupported;
            cached.is_counted = false;
        }
        let line = format!(
            "The fast path and Lua disagree on script {}: {mismatch}. Lua runs this script from \
             now on. Please report this defect.",
            sha.as_str(),
        );
        host.log(LogLevel::Warning, line.as_bytes());
    }

    /// Sets whether plans may be used. By default they are.
    pub fn set_plans(&mut self, has_plans: bool) {
        self.has_plans = has_plans;
    }

    /// Gives a cached script the plan of another text. Tests use this to simulate a defect of the
    /// plans.
    #[doc(hidden)]
    pub fn replace_plan(&mut self, sha: &Sha, code: &[u8], host: &mut dyn Host) {
        if let Some(cached) = self.scripts.get_mut(sha) {
            cached.plan = read_plan(code, &self.limits, host);
        }
    }

    /// The number of script runs by each tier.
    pub fn tiers(&self) -> Tiers {
        self.tiers
    }

    /// Whether [`Interpreter::tidy`] has anything to free.
    pub fn has_garbage(&self) -> bool {
        !self.flushed.is_empty() || self.machine.has_garbage()
    }

    /// The memory of scripts: their texts and plans, and the Lua state with its garbage.
    pub fn memory_bytes(&self) -> usize {
        let flushed: usize = self.flushed.iter().map(|flushed| flushed.bytes).sum();
        self.text_bytes + self.plan_bytes + flushed + self.machine.memory_bytes()
    }

    /// The memory of the Lua state alone.
    pub fn lua_bytes(&self) -> usize {
        self.machine.memory_bytes()
    }

    /// Counts the function and the plan that a run has made, and frees some memory.
    fn settle(&mut self, at: usize) {
        if !self.scripts[at].is_counted {
            self.uncount(at);
            self.count(at);
            self.make_room_for_compiled();
        }
        if self.has_garbage() {
            self.tidy();
        }
    }

    /// Counts the memory of a script and adds it to `evaluated` or `compiled`.
    fn count(&mut self, at: usize) {
        let Some((sha, cached)) = self.scripts.get_index_mut(at) else { return };
        let text_bytes = cached.text_bytes();
        cached.compiled_bytes = cached.compiled.as_ref().map_or(0, |it| it.bytes());
        cached.plan_bytes = match cached.plan {
            PlanState::Ready(_) => cached.body.len() * PLAN_BYTES_PER_BYTE,
            _ => 0,
        };
        cached.is_counted = true;
        self.text_bytes += text_bytes;
        self.plan_bytes += cached.plan_bytes;
        let ready_bytes = cached.ready_bytes();
        if !cached.loaded {
            self.evaluated.add(cached.used, *sha, text_bytes + ready_bytes);
            cached.placed = Some(cached.used);
        } else {
            self.loaded_bytes += text_bytes;
            if ready_bytes > 0 {
                self.compiled.add(cached.used, *sha, ready_bytes);
                cached.placed = Some(cached.used);
            }
        }
    }

    /// Reverts [`Interpreter::count`].
    fn uncount(&mut self, at: usize) {
        let cached = &mut self.scripts[at];
        let (text_bytes, ready_bytes) = (cached.text_bytes(), cached.ready_bytes());
        self.text_bytes -= text_bytes;
        self.plan_bytes -= cached.plan_bytes;
        let placed = cached.placed.take();
        if !cached.loaded {
            placed.into_iter().for_each(|at| self.evaluated.remove(at, text_bytes + ready_bytes));
        } else {
            self.loaded_bytes -= text_bytes;
            placed.into_iter().for_each(|at| self.compiled.remove(at, ready_bytes));
        }
    }

    /// Evicts the least recently used scripts that came with `EVAL` until the rest is within the
    /// limits.
    fn make_room_for_evaluated(&mut self) {
        let limits = self.limits;
        while self.evaluated.len() > 1
            && (self.evaluated.len() > limits.eval_scripts_max
                || self.evaluated.bytes() > limits.eval_bytes_max)
        {
            let Some(sha) = self.evaluated.least(place(&mut self.scripts)) else { break };
            self.forget(&sha);
        }
        self.make_room_for_compiled();
    }

    /// Discards the functions and plans of the least recently used loaded scripts until the rest is
    /// within the limit.
    fn make_room_for_compiled(&mut self) {
        while self.compiled.len() > 1 && self.compiled.bytes() > self.limits.compiled_bytes_max {
            let Some(sha) = self.compiled.least(place(&mut self.scripts)) else { break };
            let Some(at) = self.scripts.get_index_of(&sha) else { break };
            self.uncount(at);
            let cached = &mut self.scripts[at];
            cached.plan = PlanState::NotParsed;
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
            self.shas_by_body.swap_remove(&cached.body);
            cached.compiled.iter().for_each(|it| self.machine.forget_compiled(it));
        }
    }
}

type Scripts = IndexMap<Sha, CachedScript, BuildHasherDefault<ShaHasher>>;

/// Returns a function that moves a script to its last use, which the function returns.
fn place(scripts: &mut Scripts) -> impl FnMut(&Sha) -> u64 + '_ {
    |sha| {
        scripts.get_mut(sha).map_or(0, |cached| {
            cached.placed = Some(cached.used);
            cached.used
        })
    }
}

fn no_script() -> Reply {
    Reply::error("NOSCRIPT No matching script. Please use EVAL.")
}

/// Returns the first construct in a script that prevents a plan; `None` if the script has a plan.
pub fn outside_of_plans(body: &[u8], limits: &Limits) -> Option<Outside> {
    let code = script::parse_shebang(body).map_or(body, |(_, code)| code);
    Plan::read(code, limits, &mut |_, _| None).err()
}

impl fmt::Debug for Interpreter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interpreter")
            .field("scripts", &self.scripts.len())
            .field("memory_bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}
