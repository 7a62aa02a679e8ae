//! The gates: the checks that a command passes before it runs, as one table in Redis's order, which
//! decides which of several errors the client gets.
//!
//! Requests, queued commands of `EXEC`, calls of scripts and commands of blocked clients are all
//! checked with this table. The commands that skip the checks (see `GateMask`) follow from it.

use std::num::NonZeroU64;

use bitflags::bitflags;
use lockwheel_resp::Protocol;

use crate::Engine;
use crate::acl::Denial;
use crate::command::slots;
use crate::command::{Entry, Flags};
use crate::error::Error;
use crate::replication::held::Need;
use crate::run::growth::{check_growth, check_queue};
use crate::sessions::{ClientId, Session};
use crate::settings::Permission;
use crate::timing::time::Time;

bitflags! {
    /// The ways in which a command is called.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Paths: u8 {
        /// A request of a client; a command in a transaction when it is queued.
        const REQUEST = 1;
        /// A queued command that `EXEC` runs. If a gate refuses a queued command, it refuses the
        /// `EXEC`.
        const QUEUED = 1 << 1;
        /// A call by a script or a function.
        const SCRIPT = 1 << 2;
        /// The command of a blocked client that is run again, since a key that it waits for has
        /// changed.
        const WAITER = 1 << 3;
    }
}

bitflags! {
    /// The states of the engine and of a session in which gates can be closed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Conditions: u16 {
        /// `maxmemory` is set, or the disk is full.
        const GROWTH_LIMIT = 1;
        /// The server is a node of a cluster.
        const CLUSTER = 1 << 1;
        /// `CLIENT PAUSE` delays all commands.
        const PAUSE = 1 << 2;
        /// `CLIENT PAUSE` delays commands that write.
        const PAUSE_OF_WRITES = 1 << 3;
        /// A script runs longer than `busy-reply-threshold`.
        const BUSY = 1 << 4;
        /// The client has to authenticate.
        const UNAUTHENTICATED = 1 << 5;
        /// The client is between `MULTI` and `EXEC`.
        const TRANSACTION = 1 << 6;
        /// The client has subscriptions and uses RESP2.
        const SUBSCRIBED = 1 << 7;
        /// The calling script must not write.
        const READ_ONLY_SCRIPT = 1 << 8;
        /// The log is being loaded, or the restart guard is on.
        const NOT_READY = 1 << 9;
        /// The client receives all requests (`MONITOR`).
        const MONITOR = 1 << 10;
        /// The client's user may not run all commands with any arguments.
        const RESTRICTED = 1 << 11;
        /// The server does not lead, or not for certain.
        const FOLLOWING = 1 << 12;
    }
}

/// The conditions that depend on the session.
const OF_SESSION: Conditions = Conditions::UNAUTHENTICATED
    .union(Conditions::TRANSACTION)
    .union(Conditions::SUBSCRIBED)
    .union(Conditions::MONITOR)
    .union(Conditions::RESTRICTED);

/// The commands that a gate concerns.
#[derive(Clone, Copy, Debug)]
pub enum Commands {
    /// All commands.
    All,
    /// Those with any of these flags.
    With(Flags),
    /// Those without this flag.
    Without(Flags),
}

/// An entry of the table.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// Its name in the documentation.
    pub name: &'static str,
    /// The calls that have to pass it.
    pub paths: Paths,
    /// Conditions under which the gate can be closed: it is open unless all are met.
    pub when: Conditions,
    /// Commands that the gate concerns: it is open for all others.
    pub commands: Commands,
    /// Checks a command that the gate concerns.
    pub check: fn(&mut Engine, &Invocation<'_>) -> Result<(), Closed>,
}

/// A command that is about to run or to be queued.
#[derive(Clone, Copy, Debug)]
pub struct Invocation<'a> {
    /// The client that sent the request, transaction or script.
    pub client: ClientId,
    /// The command.
    pub entry: &'static Entry,
    /// Its arguments with its name.
    pub argv: &'a [&'a [u8]],
    /// Its flags: those of the row or of the script that it runs.
    pub flags: Flags,
    /// How it is called.
    pub path: Paths,
    /// The selected database.
    pub database: usize,
    /// The time.
    pub time: Time,
}

/// The result of a gate that does not let a command pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The client gets this error.
    Refused(Error),
    /// The client's user may not run the command.
    Denied(Denial),
    /// The command is run again when the pause ends.
    Paused,
    /// The command is run again when the server may serve it.
    Held(Need),
    /// The command is run again when its files are read.
    Reading,
}

impl From<Error> for Closed {
    fn from(error: Error) -> Closed {
        Closed::Refused(error)
    }
}

/// All gates, in the order in which they are checked.
pub const GATES: &[Gate] = &[
    Gate {
        name: "not in scripts",
        paths: Paths::SCRIPT,
        when: Conditions::empty(),
        commands: Commands::With(Flags::NOSCRIPT),
        check: |_, _| Err(Error::line(NOT_FROM_SCRIPT).into()),
    },
    Gate {
        name: "enable-debug-command",
        paths: Paths::all(),
        when: Conditions::empty(),
        commands: Commands::With(Flags::PROTECTED),
        check: |engine, call| {
            permit(engine.settings.enable_debug_command, engine, call, DEBUG_NOT_ALLOWED)
        },
    },
    Gate {
        name: "enable-test-commands",
        paths: Paths::all(),
        when: Conditions::empty(),
        commands: Commands::With(Flags::FOR_TESTS),
        check: |engine, call| {
            permit(engine.settings.enable_test_commands, engine, call, TESTS_NOT_ALLOWED)
        },
    },
    Gate {
        name: "authentication",
        paths: Paths::REQUEST.union(Paths::WAITER),
        when: Conditions::UNAUTHENTICATED,
        commands: Commands::Without(Flags::NO_AUTH),
        check: |_, _| Err(Error::NoAuth.into()),
    },
    Gate {
        name: "not in transactions",
        paths: Paths::REQUEST,
        when: Conditions::TRANSACTION,
        commands: Commands::With(Flags::NO_MULTI),
        check: |_, _| Err(Error::NotInTransaction.into()),
    },
    // `EXEC` checks each queued command itself: a command that is not permitted any more gets an
    // error, and the others run.
    Gate {
        name: "permissions",
        paths: Paths::REQUEST.union(Paths::SCRIPT).union(Paths::WAITER),
        when: Conditions::RESTRICTED,
        commands: Commands::Without(Flags::NO_AUTH),
        check: |engine, call| {
            let permitted = engine.check_permission(call.client, call.entry, call.argv);
            permitted.map_err(Closed::Denied)
        },
    },
    Gate {
        name: "slot",
        paths: Paths::REQUEST.union(Paths::QUEUED).union(Paths::WAITER),
        when: Conditions::CLUSTER,
        commands: Commands::All,
        check: check_slot,
    },
    Gate {
        name: "read-only script",
        paths: Paths::SCRIPT,
        when: Conditions::READ_ONLY_SCRIPT,
        commands: Commands::With(WRITES),
        check: |_, _| Err(Error::ReadOnlyScript.into()),
    },
    Gate {
        name: "full memory or disk",
        paths: Paths::all(),
        when: Conditions::GROWTH_LIMIT,
        commands: Commands::With(Flags::DENYOOM),
        check: check_growth,
    },
    // Every queued command uses memory.
    Gate {
        name: "full memory for the queue",
        paths: Paths::REQUEST,
        when: Conditions::GROWTH_LIMIT.union(Conditions::TRANSACTION),
        commands: Commands::Without(Flags::NOT_QUEUED),
        check: check_queue,
    },
    // As in Redis, this gate comes after that of full memory.
    Gate {
        name: "slot in a script",
        paths: Paths::SCRIPT,
        when: Conditions::CLUSTER,
        commands: Commands::All,
        check: check_slot_of_script,
    },
    Gate {
        name: "subscribed",
        paths: Paths::REQUEST.union(Paths::WAITER),
        when: Conditions::SUBSCRIBED,
        commands: Commands::Without(Flags::FOR_SUBSCRIBERS),
        check: |_, call| Err(Error::SubscribedContext(call.entry.full_name.clone()).into()),
    },
    Gate {
        name: "not ready",
        paths: Paths::REQUEST,
        when: Conditions::NOT_READY,
        commands: Commands::Without(Flags::LOADING),
        check: |engine, call| {
            engine.check_guard_end(call)?;
            Ok(engine.check_ready(call.time)?)
        },
    },
    // Clients that wait until the data is loaded ask again after a second.
    Gate {
        name: "about to be ready",
        paths: Paths::REQUEST,
        when: Conditions::NOT_READY,
        commands: Commands::With(Flags::SHOWS_LOADING),
        check: |engine, call| engine.check_guard_end(call),
    },
    Gate {
        name: "not leading",
        paths: Paths::REQUEST.union(Paths::QUEUED),
        when: Conditions::FOLLOWING,
        commands: Commands::All,
        check: Engine::check_leadership,
    },
    Gate {
        name: "busy script",
        paths: Paths::REQUEST.union(Paths::WAITER),
        when: Conditions::BUSY,
        commands: Commands::Without(Flags::ALLOW_BUSY),
        check: |engine, _| Err(engine.busy_error().into()),
    },
    Gate {
        name: "monitoring",
        paths: Paths::REQUEST,
        when: Conditions::MONITOR,
        commands: Commands::With(WRITES.union(Flags::READONLY)),
        check: |_, _| Err(Error::line("ERR Replica can't interact with the keyspace").into()),
    },
    Gate {
        name: "pause",
        paths: Paths::REQUEST.union(Paths::WAITER),
        when: Conditions::PAUSE,
        commands: Commands::All,
        check: check_pause,
    },
    Gate {
        name: "pause of writes",
        paths: Paths::REQUEST.union(Paths::QUEUED).union(Paths::WAITER),
        when: Conditions::PAUSE_OF_WRITES,
        commands: Commands::With(WRITES),
        check: check_pause,
    },
    // The last one, since files are read only for what may run.
    Gate {
        name: "files",
        paths: Paths::REQUEST,
        when: Conditions::empty(),
        commands: Commands::With(Flags::ADMIN),
        check: Engine::check_files,
    },
];

/// The flags that a script can declare in place of those of the row that runs it.
pub(crate) const DECLARED: Flags = Flags::MAY_REPLICATE.union(Flags::DENYOOM);

const WRITES: Flags = Flags::WRITE.union(Flags::MAY_REPLICATE);

const NOT_FROM_SCRIPT: &str = "ERR This Redis command is not allowed from script";

const TESTS_NOT_ALLOWED: &str = "ERR LOCKWHEEL command not allowed. The server must be started \
    with the enable-test-commands option set to \"yes\", or to \"local\" for local connections.";

const DEBUG_NOT_ALLOWED: &str = "ERR DEBUG command not allowed. If the enable-debug-command option \
    is set to \"local\", you can run it from a local connection, otherwise you need to set this \
    option in the configuration file, and then restart the server.";

/// The flags by which some gates concern a command. Other commands skip the checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GateMask {
    /// The flags that decide.
    deciding: Flags,
    /// Deciding flags that a command without checks has.
    required: Flags,
}

impl GateMask {
    /// The mask of gates that concern these commands.
    fn new(commands: impl Iterator<Item = Commands>) -> GateMask {
        let (mut with, mut without) = (Flags::empty(), Flags::empty());
        for commands in commands {
            match commands {
                Commands::All => (with, without) = (Flags::all(), Flags::all()),
                Commands::With(flags) => with |= flags,
                Commands::Without(flag) => without |= flag,
            }
        }
        // No command has all flags: if a flag is both required and refused, every command is
        // checked.
        let required = if with.intersects(without) { Flags::all() } else { without };
        GateMask { deciding: with | without, required }
    }

    /// Whether all gates are open to commands with these flags.
    #[inline(always)]
    pub(crate) fn is_open(self, flags: Flags) -> bool {
        flags & self.deciding == self.required
    }

    /// Whether some of these flags decide which gates concern a command.
    pub(crate) fn depends_on(self, flags: Flags) -> bool {
        flags.intersects(self.deciding)
    }
}

/// The gates of an engine.
#[derive(Debug)]
pub(crate) struct Gates {
    table: &'static [Gate],
    /// The mask of requests while no condition is met.
    pub(crate) requests: GateMask,
    /// The mask of scripts while no condition is met.
    scripts: GateMask,
    /// Whether a session can meet a condition that a gate of scripts depends on.
    scripts_depend_on_session: bool,
}

impl Gates {
    /// The gates of a table. `has_restricted_users` tells whether a session can be restricted.
    pub(crate) fn new(table: &'static [Gate], has_restricted_users: bool) -> Gates {
        let mask = |path| mask(table, path, Conditions::empty());
        let mut possible = OF_SESSION;
        possible.set(Conditions::RESTRICTED, has_restricted_users);
        let depends =
            |gate: &Gate| gate.paths.contains(Paths::SCRIPT) && gate.when.intersects(possible);
        Gates {
            table,
            requests: mask(Paths::REQUEST),
            scripts: mask(Paths::SCRIPT),
            scripts_depend_on_session: table.iter().any(depends),
        }
    }

    /// The mask of calls on a path while these conditions are met.
    #[inline(never)]
    pub(crate) fn mask(&self, path: Paths, conditions: Conditions) -> GateMask {
        mask(self.table, path, conditions)
    }
}

fn mask(table: &[Gate], path: Paths, conditions: Conditions) -> GateMask {
    let gates = table.iter().filter(|gate| gate.can_be_closed(path, conditions));
    GateMask::new(gates.map(|gate| gate.commands))
}

impl Gate {
    fn can_be_closed(&self, path: Paths, conditions: Conditions) -> bool {
        self.paths.contains(path) && conditions.contains(self.when)
    }

    fn concerns(&self, flags: Flags) -> bool {
        match self.commands {
            Commands::All => true,
            Commands::With(concerned) => flags.intersects(concerned),
            Commands::Without(excepted) => !flags.contains(excepted),
        }
    }
}

impl Session {
    /// The conditions that this session meets: none for almost all requests.
    #[inline(always)]
    pub(crate) fn conditions(&self) -> Conditions {
        let mut conditions = self.identity.conditions();
        conditions.set(Conditions::TRANSACTION, self.transaction.is_some());
        conditions.set(Conditions::MONITOR, self.is_monitor);
        if self.protocol == Protocol::Resp2 && self.is_subscriber() {
            conditions |= Conditions::SUBSCRIBED;
        }
        conditions
    }
}

impl Engine {
    /// Replaces the table of gates. For tests, which add gates to [`GATES`].
    pub fn set_gates(&mut self, table: &'static [Gate]) {
        self.gates = Gates::new(table, self.access.users.has_restricted());
    }

    /// Determines which sessions can be restricted. Must be called when users have changed.
    pub(crate) fn update_gates(&mut self) {
        self.set_gates(self.gates.table);
    }

    /// Determines the conditions that the engine meets. Must be called whenever one of their causes
    /// changes, except for [`Conditions::BUSY`], which has no other cause.
    pub(crate) fn update_conditions(&mut self) {
        let mut conditions = self.conditions & Conditions::BUSY;
        let has_limit = self.settings.maxmemory_bytes > 0 || self.growth.disk_is_full;
        conditions.set(Conditions::GROWTH_LIMIT, has_limit);
        self.note_space();
        conditions.set(Conditions::CLUSTER, self.settings.cluster_enabled);
        let (writes, all) = (Conditions::PAUSE_OF_WRITES, Conditions::PAUSE);
        conditions.set(writes, self.sessions.pause.is_some_and(|pause| pause.writes_only));
        conditions.set(all, self.sessions.pause.is_some_and(|pause| !pause.writes_only));
        conditions.set(Conditions::NOT_READY, !self.is_ready() && !self.is_following());
        conditions.set(Conditions::FOLLOWING, self.is_following());
        self.conditions = conditions;
        let bytes_max = NonZeroU64::new(self.settings.raft_request_max_bytes);
        self.request_bytes_max = bytes_max.filter(|_| self.settings.is_node());
    }

    /// Refuses a request that the other nodes would be sent for too long.
    #[cold]
    pub(crate) fn check_request_size(argv: &[&[u8]], bytes_max: NonZeroU64) -> Result<(), Error> {
        let bytes: u64 = argv.iter().map(|argument| argument.len() as u64).sum();
        if bytes <= bytes_max.get() {
            return Ok(());
        }
        Err(Error::text(format!(
            "ERR the arguments of the request have {bytes} bytes, more than raft-request-max \
             ({bytes_max})"
        )))
    }

    /// The error for a command that a gate has refused and that cannot wait.
    pub(crate) fn refusal(&mut self, call: &Invocation<'_>, closed: Closed) -> Error {
        match closed {
            Closed::Refused(error) => error,
            Closed::Denied(denial) => self.deny(call, denial),
            Closed::Paused | Closed::Held(_) | Closed::Reading => {
                Error::line("ERR Clients are paused")
            }
        }
    }

    /// The conditions that the engine and a session meet.
    pub(crate) fn conditions_for(&self, client: ClientId) -> Conditions {
        let session = self.sessions.get(client).map(Session::conditions);
        self.conditions | session.unwrap_or(Conditions::empty())
    }

    /// The mask for the commands of a script that is about to run. The conditions that matter do
    /// not change while it runs.
    #[inline(always)]
    pub(crate) fn mask_for_script(&self, client: ClientId, read_only: bool) -> GateMask {
        let session_matters = || {
            self.gates.scripts_depend_on_session
                && !self.sessions.get(client).is_some_and(|it| it.conditions().is_empty())
        };
        if !read_only && self.conditions.is_empty() && !session_matters() {
            return self.gates.scripts;
        }
        self.gates.mask(Paths::SCRIPT, self.conditions_with(client, read_only))
    }

    /// As [`Engine::conditions_for`], for a call of a script that may be read-only.
    #[inline(never)]
    fn conditions_with(&self, client: ClientId, read_only: bool) -> Conditions {
        let mut conditions = self.conditions_for(client);
        conditions.set(Conditions::READ_ONLY_SCRIPT, read_only);
        conditions
    }

    /// Passes a command through the gates.
    ///
    /// # Errors
    /// With the result of the first gate that is closed.
    pub(crate) fn pass_gates(&mut self, call: &Invocation<'_>) -> Result<(), Closed> {
        let script = self.script.as_ref().filter(|_| call.path == Paths::SCRIPT);
        let read_only = script.is_some_and(|script| script.read_only);
        let conditions = self.conditions_with(call.client, read_only);
        let runs_queue = call.flags.contains(Flags::RUNS_QUEUE);
        for gate in self.gates.table {
            if gate.can_be_closed(call.path, conditions) && gate.concerns(call.flags) {
                (gate.check)(self, call)?;
            }
            if runs_queue && gate.can_be_closed(Paths::QUEUED, conditions) {
                self.pass_queue(gate, call)?;
            }
        }
        Ok(())
    }

    /// Passes the queued commands of an `EXEC` through a gate.
    fn pass_queue(&mut self, gate: &Gate, exec: &Invocation<'_>) -> Result<(), Closed> {
        // The queue is moved out meanwhile, since checks may change the session.
        let queue = self.sessions.exchange_queue(exec.client, Vec::new());
        let result = queue.iter().try_for_each(|queued| {
            let entry = self.commands.entry(queued.command);
            let mut flags = entry.command.flags;
            let can_depend = gate.concerns(DECLARED) && entry.command.script.is_some();
            if !can_depend && !gate.concerns(flags) {
                return Ok(());
            }
            let argv: Vec<&[u8]> = queued.argv.iter().map(|argument| &**argument).collect();
            if can_depend {
                flags = self.flags_of_request(exec.client, entry.command, &argv);
                if !gate.concerns(flags) {
                    return Ok(());
                }
            }
            let path = Paths::QUEUED;
            (gate.check)(self, &Invocation { entry, argv: &argv, flags, path, ..*exec })
        });
        self.sessions.exchange_queue(exec.client, queue);
        result
    }
}

/// Refuses a client that a permission does not cover. The embedding program is always permitted.
fn permit(
    permission: Permission,
    engine: &Engine,
    call: &Invocation<'_>,
    refusal: &'static str,
) -> Result<(), Closed> {
    let Some(session) = engine.sessions.get(call.client) else { return Ok(()) };
    let is_permitted = match permission {
        Permission::Yes => true,
        Permission::Local => session.origin.local,
        Permission::No => session.origin.in_process,
    };
    if is_permitted { Ok(()) } else { Err(Error::line(refusal).into()) }
}

/// In a cluster, the keys of a request must share one slot; for `EXEC`, those of all queued
/// commands.
fn check_slot(engine: &mut Engine, call: &Invocation<'_>) -> Result<(), Closed> {
    let Some(session) = engine.sessions.get_mut(call.client) else { return Ok(()) };
    let before = session.slot.take().filter(|_| call.path == Paths::QUEUED);
    let slot = slots::slot_of_request(call.entry.command, call.argv)?;
    session.slot = slots::join(before, slot)?;
    Ok(())
}

/// In a cluster, the keys of a command must share one slot. So must the keys of all commands of a
/// script, unless it has no `#!` line or declares `allow-cross-slot-keys`.
fn check_slot_of_script(engine: &mut Engine, call: &Invocation<'_>) -> Result<(), Closed> {
    let slot = slots::slot_of_request(call.entry.command, call.argv).map_err(|_| {
        Error::text(format!(
            "ERR Command '{}' in script attempted to access keys that don't hash to the same slot",
            call.entry.full_name
        ))
    })?;
    let Some(script) = engine.script.as_mut().filter(|script| !script.crosses_slots()) else {
        return Ok(());
    };
    script.slot = slots::join(script.slot, slot).map_err(|_| {
        Error::line("ERR Script attempted to access keys that do not hash to the same slot")
    })?;
    Ok(())
}

fn check_pause(engine: &mut Engine, call: &Invocation<'_>) -> Result<(), Closed> {
    let is_over = engine.sessions.pause.is_none_or(|pause| call.time.reached(pause.until));
    if is_over { Ok(()) } else { Err(Closed::Paused) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::CommandTable;
    use crate::settings::{CompatVersion, Mode, Settings};
    use crate::testing::Stage;

    /// The table with one more gate at its end.
    fn with(gate: Gate) -> &'static [Gate] {
        Box::leak(GATES.iter().copied().chain([gate]).collect())
    }

    #[test]
    fn mask_is_open_to_exactly_the_commands_that_no_gate_concerns() {
        let entries = CommandTable::of(Mode::Standalone, CompatVersion::default()).entries();
        let mut all_flags: Vec<Flags> = entries.iter().map(|entry| entry.command.flags).collect();
        all_flags.sort_unstable_by_key(|flags| flags.bits());
        all_flags.dedup();
        for bits in 0..=Conditions::all().bits() {
            let conditions = Conditions::from_bits_truncate(bits);
            for path in Paths::all() {
                let mask = Gates::new(GATES, true).mask(path, conditions);
                for &flags in &all_flags {
                    let mut gates = GATES.iter().filter(|g| g.can_be_closed(path, conditions));
                    let concerned = gates.any(|gate| gate.concerns(flags));
                    assert_eq!(mask.is_open(flags), !concerned, "{flags:?} {conditions:?}");
                }
            }
        }
    }

    #[test]
    fn queued_commands_pass_the_gates_of_the_queue_when_exec_runs() {
        fn refuse_key(_: &mut Engine, call: &Invocation<'_>) -> Result<(), Closed> {
            let is_refused = call.argv.get(1) == Some(&&b"refused"[..]);
            if is_refused { Err(Error::line("GATE closed").into()) } else { Ok(()) }
        }
        let (paths, when) = (Paths::QUEUED, Conditions::empty());
        let commands = Commands::With(Flags::WRITE);
        let gate = Gate { name: "test", paths, when, commands, check: refuse_key };
        let mut stage = Stage::new(Settings::default());
        stage.engine.set_gates(with(gate));
        stage.check("MULTI; SET k v; GET refused; EXEC => [OK, nil]; SET refused v => OK");
        stage.check(
            "MULTI; GET k; DEL k; DEL refused => QUEUED; \
             EXEC => !EXECABORT Transaction discarded because of: GATE closed; \
             EXISTS k refused => 2; EXEC => !ERR EXEC without MULTI",
        );
    }

    #[test]
    fn command_of_a_script_is_refused_where_a_request_would_wait() {
        let (paths, when) = (Paths::all(), Conditions::empty());
        let commands = Commands::With(Flags::WRITE);
        let gate = Gate { name: "test", paths, when, commands, check: |_, _| Err(Closed::Paused) };
        let mut stage = Stage::new(Settings::default());
        stage.engine.set_gates(with(gate));
        stage.check(
            "EVAL \"return redis.call('set', KEYS[1], 'v')\" 1 k => !ERR Clients are paused...; \
             EXISTS k => 0",
        );
    }
}
