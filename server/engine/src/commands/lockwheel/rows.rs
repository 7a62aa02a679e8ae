//! `LOCKWHEEL`: the commands with which a test controls and observes its server. Refused unless the
//! server was started for tests (`enable-test-commands`), except for `LOCKWHEEL GUARD`, `LOCKS` and
//! `RELEASE`.

use lockwheel_resp::Reply;
use serde::Serialize;

use super::{journal, locks};
use crate::Flow;
use crate::command::argument::{self as arg, Argument};
use crate::command::syntax_error;
use crate::command::{Arity, Command, Flags, Group, KeySpec, LockMeaning, integer, is};
use crate::commands;
use crate::durability::readiness::WAYS_OUT;
use crate::error::Error;
use crate::glob;
use crate::instruments::faults::rule::{self, FaultAction, Rule, RuleConditions, span};
use crate::run::context::Context;
use crate::timing::time::{self, ClockOrder, Millis, Rate};

const LOCKWHEEL: Command = Command {
    group: Group::Server,
    flags: Flags::FOR_TESTS
        .union(Flags::ADMIN)
        .union(Flags::NOSCRIPT)
        .union(Flags::NO_MULTI)
        .union(Flags::LOADING)
        .union(Flags::STALE),
    ..Command::BASE
};

/// The actions of a fault.
const ACTION: Argument = arg::one_of(
    "action",
    &[
        arg::string("span").token("DELAY"),
        arg::word("DROP"),
        arg::word("CLOSE"),
        arg::word("LOSE"),
        arg::word("LOSE-AND-CLOSE"),
        arg::integer("bytes").token("CUT"),
        arg::word("STALL"),
        arg::string("line").token("ERROR"),
        arg::word("FLUSH-SCRIPTS"),
        arg::string("span").token("JUMP"),
        arg::integer("count").token("LOSE-WRITES"),
        arg::word("REFUSE"),
    ],
);

/// The conditions of a fault or a gate.
const CONDITION: Argument = arg::one_of(
    "condition",
    &[
        arg::pattern("name").token("CLIENT"),
        arg::integer("client-id").token("ID"),
        arg::pattern("command").token("COMMAND"),
        arg::pattern("key").token("KEY"),
        arg::integer("n").token("NTH"),
        arg::integer("n").token("TIMES"),
        arg::double("probability").token("PROBABILITY"),
        arg::integer("seed").token("SEED"),
    ],
);

/// The family's rows.
pub const COMMANDS: &[Command] = &[Command {
    name: "lockwheel",
    arity: Arity::AtLeast(2),
    complexity: "that of the subcommand",
    doc: "A container for commands with which a test controls its server.",
    subcommands: SUBCOMMANDS,
    ..LOCKWHEEL
}];

const SUBCOMMANDS: &[Command] = &[
    Command {
        name: "check",
        arity: Arity::AtLeast(2),
        flags: LOCKWHEEL.flags.union(Flags::ALLOW_BUSY),
        complexity: "O(N) in the number of locks and of journal entries",
        doc: "Checks the safety rules of all locks.",
        arguments: &[
            arg::string("name").optional(),
            arg::pattern("key").token("KEY").optional(),
            arg::string("client").token("CLIENT").optional(),
            arg::integer("sequence").token("SINCE").optional(),
            arg::word("STORY").optional(),
        ],
        lock: LockMeaning::Inspect,
        example: "SET lock token NX PX 9; LOCKWHEEL CHECK released-only-by-owner => OK",
        run: journal::check,
        ..LOCKWHEEL
    },
    Command {
        name: "clock",
        arity: Arity::AtLeast(2),
        flags: LOCKWHEEL.flags.union(Flags::ALLOW_BUSY),
        complexity: "O(N) in the number of leases that end on the way",
        doc: "Shows the clock; stops, advances, scales and steps it.",
        arguments: &[arg::one_of(
            "order",
            &[
                arg::word("FREEZE"),
                arg::block("run", &[arg::double("rate").optional()]).token("RUN"),
                arg::string("span").token("ADVANCE"),
                arg::unix_time("milliseconds").token("SET"),
                arg::string("span").token("JUMP"),
                arg::string("span").token("STEP"),
            ],
        )
        .optional()],
        example: "LOCKWHEEL CLOCK ADVANCE 30s => OK",
        run: clock,
        ..LOCKWHEEL
    },
    Command {
        name: "failover",
        arity: Arity::AtLeast(2),
        complexity: "O(N) in the number of clients and writes lost",
        doc: "Simulates a failover: undoes writes, removes scripts, disconnects all other clients.",
        arguments: &[arg::integer("writes").token("LOSE").optional()],
        lock: LockMeaning::Release,
        example: "LOCKWHEEL FAILOVER LOSE 1 => 0",
        run: failover,
        ..LOCKWHEEL
    },
    Command {
        name: "fault",
        arity: Arity::AtLeast(3),
        complexity: "O(N) in the number of rules",
        doc: "Adds, lists and removes rules that inject faults.",
        arguments: &[arg::one_of(
            "operation",
            &[
                arg::block("add", &[ACTION, CONDITION.optional().multiple()]).token("ADD"),
                arg::block("clear", &[arg::integer("number").optional()]).token("CLEAR"),
                arg::word("LIST"),
            ],
        )],
        example: "LOCKWHEEL FAULT ADD ERROR \"LOADING not yet\" COMMAND get NTH 2 => 1",
        run: fault,
        ..LOCKWHEEL
    },
    Command {
        name: "gate",
        arity: Arity::AtLeast(3),
        flags: LOCKWHEEL.flags.union(Flags::BLOCKING),
        complexity: "O(N) in the number of rules",
        doc: "Holds clients before their requests until the gate is opened.",
        arguments: &[arg::one_of(
            "operation",
            &[
                arg::block("add", &[CONDITION.optional().multiple()]).token("ADD"),
                arg::integer("number").token("AWAIT"),
                arg::word("LIST"),
                arg::integer("number").token("OPEN"),
            ],
        )],
        example: "LOCKWHEEL GATE ADD CLIENT b COMMAND get => 1",
        run: gate,
        ..LOCKWHEEL
    },
    Command {
        name: "guard",
        arity: Arity::AtLeast(2),
        flags: LOCKWHEEL.flags.difference(Flags::FOR_TESTS),
        doc: "Shows the restart guard, or ends it: then locks from before the restart can be \
              granted again although they may still be held.",
        arguments: &[arg::word("END").optional()],
        example: "LOCKWHEEL GUARD END => !ERR the restart guard is not on",
        run: guard,
        ..LOCKWHEEL
    },
    Command {
        name: "help",
        arity: Arity::Exactly(2),
        doc: "Lists the subcommands.",
        lock: LockMeaning::Inspect,
        example: "LOCKWHEEL HELP => [LOCKWHEEL <subcommand> ...]",
        run: |_, _| Ok(commands::help_of("LOCKWHEEL", HELP)),
        ..LOCKWHEEL
    },
    Command {
        name: "journal",
        arity: Arity::AtLeast(2),
        flags: LOCKWHEEL.flags.union(Flags::ALLOW_BUSY),
        complexity: "O(N) in the number of entries",
        doc: "Returns the operations of clients and the events of locks, in time order.",
        arguments: &[arg::one_of(
            "operation",
            &[
                arg::word("CLEAR"),
                arg::word("HOLDERS"),
                arg::word("KNOWN"),
                arg::pattern("locks").token("DECLARE"),
                arg::pattern("others").token("IGNORE"),
                arg::block(
                    "selection",
                    &[
                        arg::pattern("key").token("KEY").optional(),
                        arg::string("client").token("CLIENT").optional(),
                        arg::integer("sequence").token("SINCE").optional(),
                        arg::integer("count").token("COUNT").optional(),
                        arg::word("TEXT").optional(),
                    ],
                ),
            ],
        )
        .optional()],
        lock: LockMeaning::Inspect,
        example: "SET lock token NX PX 9; LOCKWHEEL JOURNAL CLEAR; LOCKWHEEL JOURNAL => \"[]\"",
        run: journal::journal,
        ..LOCKWHEEL
    },
    Command {
        name: "lint",
        arity: Arity::AtLeast(2),
        flags: LOCKWHEEL.flags.union(Flags::ALLOW_BUSY),
        complexity: "O(N) in the number of mistakes and of journal entries",
        doc: "Returns the common mistakes of lock recipes that were detected.",
        arguments: &[
            arg::pattern("key").token("KEY").optional(),
            arg::string("client").token("CLIENT").optional(),
            arg::integer("sequence").token("SINCE").optional(),
        ],
        lock: LockMeaning::Inspect,
        example: "SET lock token NX PX 9; LOCKWHEEL LINT => \"[]\"",
        run: journal::lint,
        ..LOCKWHEEL
    },
    Command {
        name: "locks",
        arity: Arity::AtLeast(2),
        flags: Flags::READONLY.union(Flags::NOSCRIPT).union(Flags::NO_MULTI),
        complexity: "O(N) in the number of keys that are examined",
        doc: "Returns which client holds which lock and which clients wait for it: all locks, the \
              lock at a key with its history, or what has changed.",
        arguments: &[arg::one_of(
            "selection",
            &[
                arg::block(
                    "all",
                    &[
                        arg::pattern("pattern").token("MATCH").optional(),
                        arg::integer("cursor").token("CURSOR").optional(),
                        arg::integer("count").token("COUNT").optional(),
                    ],
                ),
                arg::block(
                    "one",
                    &[
                        arg::string("key").token("KEY"),
                        arg::integer("database").token("DATABASE").optional(),
                    ],
                ),
                arg::integer("sequence").token("SINCE"),
            ],
        )
        .optional()],
        lock: LockMeaning::Inspect,
        example: "LOCKWHEEL LOCKS KEY lock => ...:null...",
        run: locks::locks,
        ..LOCKWHEEL
    },
    Command {
        name: "release",
        arity: Arity::AtLeast(3),
        flags: LOCKWHEEL
            .flags
            .difference(Flags::FOR_TESTS.union(Flags::LOADING).union(Flags::STALE))
            .union(Flags::WRITE),
        complexity: "O(N) in the number of owners and of clients that wait",
        doc: "Removes a lock although its holder may still rely on it, and wakes the clients that \
              wait for it.",
        keys: &[KeySpec::at(2, &["RW", "delete"])],
        arguments: &[arg::key("key"), arg::integer("database").token("DATABASE").optional()],
        lock: LockMeaning::Release,
        example: "SET lock token NX PX 9; LOCKWHEEL RELEASE lock => 1",
        run: locks::release,
        ..LOCKWHEEL
    },
    Command {
        name: "reset",
        arity: Arity::Exactly(2),
        complexity: "O(N) in the number of keys and clients",
        doc: "Restores the state after the start, except connections and the time.",
        lock: LockMeaning::Inspect,
        example: "SET lock token NX PX 9; LOCKWHEEL RESET; GET lock => nil",
        run: reset,
        ..LOCKWHEEL
    },
];

const HELP: &[&str] = &[
    "CHECK [<name>] [KEY <pattern>] [CLIENT <id or name>] [SINCE <sequence>]",
    "    Returns OK if a rule has been kept, or an error that names the violation. By default:",
    "    no-lock-held, never-two-holders, every-lock-has-a-lease, released-only-by-owner,",
    "    refused-by-own-token. Others: no-waiter-lost, renewed-before-expiry.",
    "CHECK <name> [...] STORY",
    "    Returns whether it holds and the history of that lock, as JSON with a field text.",
    "CLOCK",
    "    Returns the state of the clock, as JSON: now_ms (leases), wall_ms (TIME), rate.",
    "CLOCK FREEZE",
    "    Stops the clock.",
    "CLOCK RUN [<rate>]",
    "    Starts it again, at this multiple of real time (default: 1).",
    "CLOCK ADVANCE <span>",
    "    Advances it. Everything due on the way happens in order, each event at its own time.",
    "CLOCK SET <milliseconds since 1970>",
    "    Advances it to a time, as ADVANCE does. A time in the past is an error.",
    "CLOCK JUMP <span>",
    "    Steps it as Redis's clock can be stepped: forward ends leases early, back extends them.",
    "CLOCK STEP <span>",
    "    Steps the wall clock alone, which TIME and EXPIREAT use. Leases are not affected.",
    "    A span is a number with a unit: 250ms, 30s, 1.5h, 1h30m, 1d.",
    "FAILOVER [LOSE <writes>]",
    "    Undoes the last writes, removes all scripts, disconnects all other clients.",
    "FAULT ADD <action> [<condition> <value> ...]",
    "    Returns the number of a rule for requests. The first matching rule applies.",
    "    DELAY <span>         the request is run after this time",
    "    DROP                 the request is neither run nor replied to",
    "    CLOSE                the request is not run, and the connection is closed",
    "    LOSE                 the request is run, and the reply is lost",
    "    LOSE-AND-CLOSE       the request is run, and the connection is closed without a reply",
    "    CUT <bytes>          the request is run, and the connection closed within the reply",
    "    STALL                the server stops reading until the rule is removed",
    "    ERROR <line>         the request is not run, and the reply is this error",
    "    FLUSH-SCRIPTS        all scripts are removed before the request is run",
    "    JUMP <span>          the clock jumps after the request; see CLOCK JUMP",
    "    LOSE-WRITES <count>  the last writes are undone after the reply",
    "    REFUSE               new connections are closed at once",
    "    Conditions: CLIENT <pattern> (its name), ID <client id>, COMMAND <pattern>,",
    "    KEY <pattern>, NTH <n> (only the n-th), TIMES <n> (at most n),",
    "    PROBABILITY <0..1> [SEED <n>].",
    "FAULT CLEAR [<number>]",
    "    Removes a rule, or all except gates.",
    "FAULT LIST",
    "    Returns all rules except gates, and how often they matched and fired, as JSON.",
    "GATE ADD [<condition> <value> ...]",
    "    Returns the number of a gate, which holds clients before such requests.",
    "GATE AWAIT <number>",
    "    Waits until a client is held, and returns its id.",
    "GATE LIST",
    "    Returns all gates and the clients they hold, as JSON.",
    "GATE OPEN <number>",
    "    Removes a gate and releases the clients it holds; returns how many.",
    "GUARD",
    "    Returns the state of the restart guard, as JSON: left_ms, reason; of a long one also the",
    "    groups of keys that make it long, and ways_out.",
    "GUARD END",
    "    Ends it, although locks from before the restart may still be held.",
    "HELP",
    "    Lists the subcommands.",
    "JOURNAL [KEY <pattern>] [CLIENT <id or name>] [SINCE <sequence>] [COUNT <n>] [TEXT]",
    "    Returns the events, as JSON: those about such keys, of that client, after that number,",
    "    the last n of them. With TEXT, one readable line for each.",
    "JOURNAL HOLDERS",
    "    Returns the locks that are held with their owners, and how sure it is that they are",
    "    locks, as JSON.",
    "JOURNAL KNOWN",
    "    Returns the keys that are or were locks, as JSON.",
    "JOURNAL DECLARE <pattern>",
    "    Keys that match are locks, however they are made.",
    "JOURNAL IGNORE <pattern>",
    "    Keys that match are no locks, also if they match another pattern.",
    "JOURNAL CLEAR",
    "    Removes all events, and the findings of CHECK and LINT. Held locks remain known.",
    "LINT [KEY <pattern>] [CLIENT <id or name>] [SINCE <sequence>]",
    "    Returns the detected mistakes, as JSON.",
    "LOCKS [MATCH <pattern>] [CURSOR <cursor>] [COUNT <n>]",
    "    Returns the locks with their holders and waiting clients, as JSON. Without a cursor or",
    "    count all of them; else as SCAN, from cursor 0 until the reply has cursor 0.",
    "LOCKS KEY <key> [DATABASE <n>]",
    "    Returns one lock and the last events of its key, as JSON.",
    "LOCKS SINCE <sequence>",
    "    Returns the events after that number and the present state of their locks, as JSON.",
    "RELEASE <key> [DATABASE <n>]",
    "    Removes a lock, although its holder may still rely on it; returns whether there was one.",
    "RESET",
    "    Restores the state after the start, except connections and the time.",
];

/// `LOCKWHEEL CLOCK`: replies with the state of the clock, or with OK after a change.
fn clock(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let order = match &argv[2..] {
        [] => return Ok(clock_reply(context)),
        [word] if is(word, "freeze") => ClockOrder::Run(Rate::STOPPED),
        [word] if is(word, "run") => ClockOrder::Run(Rate::REAL),
        [word, times] if is(word, "run") => ClockOrder::Run(rate(times)?),
        [word, by] if is(word, "advance") => ClockOrder::Advance(non_negative_span(by)?),
        [word, moment] if is(word, "set") => ClockOrder::AdvanceTo(future_time(context, moment)?),
        [word, by] if is(word, "jump") => ClockOrder::Jump(span(by)?),
        [word, by] if is(word, "step") => ClockOrder::StepWall(span(by)?),
        _ => return Err(context.syntax_error(argv)),
    };
    let steps = matches!(order, ClockOrder::Jump(_) | ClockOrder::StepWall(_));
    if steps && context.engine().script.is_some() {
        return Err(context.engine().busy_error());
    }
    context.end_with(Flow::Clock(order));
    Ok(Reply::OK)
}

#[derive(Serialize)]
struct ClockState {
    now_ms: i64,
    wall_ms: i64,
    rate: f64,
}

fn clock_reply(context: &Context<'_>) -> Reply {
    let time = context.time;
    let rate = context.engine().clock_rate.times();
    commands::json(&ClockState { now_ms: time.now.0, wall_ms: time.wall().0, rate })
}

#[derive(Serialize)]
struct GuardState<'a> {
    left_ms: i64,
    reason: &'a str,
    groups: Vec<String>,
    ways_out: &'a [&'a str],
}

/// `LOCKWHEEL GUARD`: replies with the state of the restart guard, or with OK after its end.
fn guard(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    match &argv[2..] {
        [] => {}
        [word] if is(word, "end") => {
            let was_on = context.end_guard();
            return if was_on { Ok(Reply::OK) } else { Err(NOT_GUARDED) };
        }
        _ => return Err(context.syntax_error(argv)),
    }
    let state = match context.engine().guard() {
        Some(guard) => GuardState {
            left_ms: context.time.remaining(guard.until).0,
            reason: &guard.reason,
            groups: guard.groups.names(),
            ways_out: if guard.is_long { &WAYS_OUT } else { &[] },
        },
        None => GuardState { left_ms: 0, reason: "", groups: Vec::new(), ways_out: &[] },
    };
    Ok(commands::json(&state))
}

const NOT_GUARDED: Error = Error::line("ERR the restart guard is not on");

fn rate(times: &[u8]) -> Result<Rate, Error> {
    let text = std::str::from_utf8(times).unwrap_or_default();
    text.parse().map_err(|()| Error::line("ERR rate is not a number from 0 to 1000000"))
}

/// Parses a span that must not be negative.
fn non_negative_span(text: &[u8]) -> Result<Millis, Error> {
    let span = span(text)?;
    if span.0 < 0 {
        Err(Error::line("ERR the clock never goes back, but see JUMP"))
    } else {
        Ok(span)
    }
}

/// Parses a time of the lease clock that must not be in the past.
fn future_time(context: &Context<'_>, text: &[u8]) -> Result<Millis, Error> {
    let moment = Millis(integer(text)?);
    let now = context.time.now;
    if moment < now {
        Err(Error::text(format!("ERR {}", time::never_back(now))))
    } else {
        Ok(moment)
    }
}

// --- faults ---

/// `LOCKWHEEL FAULT`: replies with the number of the new rule, the rules, or how many were removed.
fn fault(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    match &argv[2..] {
        [word, rule @ ..] if is(word, "add") => {
            let (action, conditions) =
                FaultAction::parse(rule).map_err(|error| explained(context, argv, error))?;
            add_rule(context, action, conditions, argv)
        }
        [word] if is(word, "list") => {
            Ok(Reply::bulk(context.engine().show_faults(|rule| rule.action != FaultAction::Gate)))
        }
        [word] if is(word, "clear") => {
            let (rules, _) = context.clear_faults(|rule| rule.action != FaultAction::Gate);
            Ok(Reply::from(rules))
        }
        [word, id] if is(word, "clear") => {
            let id = parse_rule_id(context, id, false)?;
            context.clear_faults(|rule| rule.id == id);
            Ok(Reply::from(1_usize))
        }
        _ => Err(context.syntax_error(argv)),
    }
}

/// `LOCKWHEEL GATE`: replies with the number of the new gate, the gates, a client id, or a count.
fn gate(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    match &argv[2..] {
        [word, conditions @ ..] if is(word, "add") => {
            add_rule(context, FaultAction::Gate, conditions, argv)
        }
        [word, id] if is(word, "await") => {
            let id = parse_rule_id(context, id, true)?;
            Ok(context.await_held(id))
        }
        [word, id] if is(word, "open") => {
            let id = parse_rule_id(context, id, true)?;
            let (_, clients) = context.clear_faults(|rule| rule.id == id);
            Ok(Reply::from(clients))
        }
        [word] if is(word, "list") => {
            Ok(Reply::bulk(context.engine().show_faults(|rule| rule.action == FaultAction::Gate)))
        }
        _ => Err(context.syntax_error(argv)),
    }
}

fn add_rule(
    context: &mut Context<'_>,
    action: FaultAction,
    conditions: &[&[u8]],
    argv: &[&[u8]],
) -> Result<Reply, Error> {
    let seed = context.random().bits() >> 1;
    let conditions = RuleConditions::parse(conditions, seed);
    let conditions = conditions.map_err(|error| explained(context, argv, error))?;
    if let Some(pattern) = &conditions.command {
        check_command(context, pattern)?;
    }
    if action == FaultAction::Refuse && conditions.has_request_conditions() {
        return Err(Error::line("ERR a connection has no name, no command and no key yet"));
    }
    if matches!(action, FaultAction::LoseWrites { .. }) && !context.engine().keeps_writes() {
        return Err(NOTHING_KEPT);
    }
    Ok(commands::number(context.add_fault(action, conditions)))
}

/// Replaces a syntax error by one that names the argument at fault.
fn explained(context: &Context<'_>, argv: &[&[u8]], error: Error) -> Error {
    if error == Error::Syntax { context.syntax_error(argv) } else { error }
}

/// Refuses a pattern that no command matches: the rule would never apply.
fn check_command(context: &Context<'_>, pattern: &str) -> Result<(), Error> {
    let entries = context.commands().entries();
    let names = || entries.iter().map(|entry| &*entry.full_name);
    if names().any(|name| glob::matches(pattern.as_bytes(), name.as_bytes())) {
        return Ok(());
    }
    Err(syntax_error::unknown("command", pattern.as_bytes(), &names().collect::<Vec<_>>()))
}

/// Parses the number of a gate, or of a rule that is not a gate.
fn parse_rule_id(context: &Context<'_>, id: &[u8], is_gate: bool) -> Result<u64, Error> {
    let id = u64::try_from(integer(id)?).unwrap_or(0);
    match context.engine().fault(id).map(Rule::is_gate) {
        Some(is_found_gate) if is_found_gate == is_gate => Ok(id),
        _ => Err(Error::line("ERR no rule or gate has this number")),
    }
}

/// `LOCKWHEEL FAILOVER`: replies with the number of writes that were undone.
fn failover(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let lost = match &argv[2..] {
        [] => 0,
        [word, writes] if is(word, "lose") => rule::count(writes)?,
        _ => return Err(context.syntax_error(argv)),
    };
    if lost > 0 && !context.engine().keeps_writes() {
        return Err(NOTHING_KEPT);
    }
    let lost = context.lose_writes(lost);
    context.flush_scripts();
    let caller = context.client;
    context.close_clients(|client| client.id != caller);
    Ok(Reply::from(lost))
}

/// `LOCKWHEEL RESET`: replies with OK.
fn reset(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    let rate = context.reset_server()?;
    context.end_with(Flow::Clock(ClockOrder::Restart(rate)));
    Ok(Reply::OK)
}

const NOTHING_KEPT: Error =
    Error::line("ERR no writes are kept: the server was started without enable-test-commands");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Permission, Settings};
    use crate::testing::{Stage, check, words};

    fn stage() -> Stage {
        let mut settings = Settings::default();
        settings.enable_test_commands = Permission::Yes;
        Stage::new(settings)
    }

    #[test]
    fn commands_require_a_server_started_for_tests() {
        let refused = "!ERR LOCKWHEEL command not allowed. ...";
        check(&format!("LOCKWHEEL CLOCK => {refused}; LOCKWHEEL HELP => {refused}"));
        check("LOCKWHEEL => !ERR wrong number ...; LOCKWHEEL X => !ERR unknown subcommand 'X'...");
        stage().check("MULTI; LOCKWHEEL CLOCK => !ERR Command not allowed inside a transaction");
        stage()
            .check("EVAL \"return redis.call('lockwheel', 'clock')\" 0 => !ERR ...not allowed...");
    }

    #[test]
    fn failover_undoes_changes_of_consumer_groups() {
        stage().check(
            "XADD s 1-1 f v; XGROUP CREATE s g 0; XREADGROUP GROUP g c STREAMS s >; \
             XACK s g 1-1 => 1; LOCKWHEEL FAILOVER LOSE 1 => 1; XPENDING s g => [1, ...; \
             LOCKWHEEL FAILOVER LOSE 1 => 1; XPENDING s g => [0, ...; \
             LOCKWHEEL FAILOVER LOSE 2 => 2; EXISTS s => 0",
        );
    }

    /// Checks the error of a subcommand; `...` at the end means any text.
    fn check_error(arguments: &str, expected: &str) {
        let reply = stage().step(&format!("LOCKWHEEL {arguments}"));
        match format!("!ERR {expected}").strip_suffix("...") {
            Some(beginning) => assert!(reply.starts_with(beginning), "{arguments}: {reply}"),
            None => assert_eq!(reply, format!("!ERR {expected}"), "{arguments}"),
        }
    }

    #[test]
    fn invalid_faults_are_explained() {
        for (arguments, error) in [
            (
                "FAULT ADD LOOSE",
                "unknown action 'LOOSE'; did you mean LOSE? Known: DELAY, DROP, ...",
            ),
            ("FAULT ADD DELAY", "span is missing after 'DELAY'"),
            ("FAULT ADD DROP COMAND get", "unknown condition 'COMAND'; did you mean COMMAND? ..."),
            ("FAULT ADD DROP COMMAND gte", "unknown command 'gte'; did you mean get?"),
            ("FAULT ADD DROP COMMAND client|idd", "unknown command 'client|idd'; did you mean ..."),
            ("GATE ADD COMMAND nothing*", "unknown command 'nothing*'"),
            ("FAULT ADD DROP KEY a KEY b", "KEY is given twice"),
            ("FAULT ADD DROP SEED 5", "SEED needs PROBABILITY"),
            ("FAULT REMOVE 1", "unknown operation 'REMOVE'. Known: ADD, CLEAR, LIST"),
            ("GATE OPEN", "number is missing after 'OPEN'"),
            ("FAILOVER LOOSE 1", "unknown option 'LOOSE'; did you mean LOSE? Known: LOSE"),
            ("JOURNAL KEYS k", "unknown operation 'KEYS'; did you mean KEY? Known: ..."),
            (
                "CHECK no-locks-held",
                "unknown check 'no-locks-held'; did you mean no-lock-held? ...",
            ),
        ] {
            check_error(arguments, error);
        }
        stage().check("LOCKWHEEL FAULT ADD DROP COMMAND client|* => 1");
    }

    #[test]
    fn clock_commands_are_passed_on() {
        let rate = |text: &str| ClockOrder::Run(text.parse().expect("a rate"));
        for (arguments, order) in [
            ("FREEZE", rate("0")),
            ("run", rate("1")),
            ("RUN 0.5", rate("0.5")),
            ("ADVANCE 1500ms", ClockOrder::Advance(Millis(1_500))),
            ("ADVANCE 30s", ClockOrder::Advance(Millis(30_000))),
            ("SET 1700000000000", ClockOrder::AdvanceTo(Millis(1_700_000_000_000))),
            ("JUMP -2H", ClockOrder::Jump(Millis(-7_200_000))),
            ("STEP 1d", ClockOrder::StepWall(Millis(86_400_000))),
        ] {
            let mut stage = stage();
            let client = stage.client("a");
            let done = stage.run(client, &words(&format!("LOCKWHEEL CLOCK {arguments}")));
            assert_eq!(done, ("OK".to_owned(), Flow::Clock(order)), "{arguments}");
        }
    }

    #[test]
    fn invalid_subcommands_are_refused() {
        for (arguments, error) in [
            (
                "STOP",
                "unknown order 'STOP'; did you mean STEP? Known: FREEZE, RUN, ADVANCE, SET, JUMP, \
                 STEP",
            ),
            ("ADVANCE", "span is missing after 'ADVANCE'"),
            ("FREEZE now", "unexpected word 'now'"),
            ("ADVANCE -1ms", "the clock never goes back, but see JUMP"),
            (
                "ADVANCE 1500",
                "span is not whole milliseconds with a unit, such as 250ms, 30s, 1.5h or 1h30m \
                 (ms, s, m, h, d)",
            ),
            ("JUMP 1.5ms", "span is not whole milliseconds ..."),
            ("STEP x", "span is not whole milliseconds ..."),
            ("SET 30s", "value is not an integer or out of range"),
            (
                "SET 1699999999999",
                "the clock shows 1700000000000, in milliseconds since 1970, and never goes back",
            ),
            ("RUN -1", "rate is not a number from 0 to 1000000"),
        ] {
            check_error(&format!("CLOCK {arguments}"), error);
        }
        stage().check(
            "LOCKWHEEL CLOCK => \"{\\\"now_ms\\\":1700000000000,\\\"wall_ms\\\":1700000000000,\
             \\\"rate\\\":1.0}\"",
        );
    }
}
