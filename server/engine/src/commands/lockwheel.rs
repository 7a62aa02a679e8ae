//! `LOCKWHEEL`: what a test may ask of its server and do to it. Refused unless the server was
//! started for tests (`enable-test-commands`).

use lockwheel_resp::Reply;
use serde::Serialize;

use crate::Flow;
use crate::command::{Arity, Command, Flags, Group};
use crate::context::{Context, integer, is};
use crate::error::Error;
use crate::faults::rule::{self, FaultAction, NO_SPAN, RuleConditions};
use crate::journal::handlers;
use crate::time::{self, ClockOrder, Millis, Rate};

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

/// The family's rows.
pub const COMMANDS: &[Command] = &[Command {
    name: "lockwheel",
    arity: Arity::AtLeast(2),
    complexity: "that of the subcommand",
    doc: "A container for what tests may do to their server.",
    subcommands: SUBCOMMANDS,
    ..LOCKWHEEL
}];

const SUBCOMMANDS: &[Command] = &[
    Command {
        name: "check",
        arity: Arity::AtLeast(2),
        flags: LOCKWHEEL.flags.union(Flags::ALLOW_BUSY),
        complexity: "O(N) in the number of locks and of journal entries",
        doc: "Says whether the rules that must hold of all locks have been kept.",
        example: "SET lock token NX PX 9; LOCKWHEEL CHECK released-only-by-owner => OK",
        run: handlers::check,
        ..LOCKWHEEL
    },
    Command {
        name: "clock",
        arity: Arity::AtLeast(2),
        flags: LOCKWHEEL.flags.union(Flags::ALLOW_BUSY),
        complexity: "O(N) in the number of leases that end on the way",
        doc: "Tells what the clock shows; stops, moves, scales and steps it.",
        example: "LOCKWHEEL CLOCK ADVANCE 30s => OK",
        run: clock,
        ..LOCKWHEEL
    },
    Command {
        name: "failover",
        arity: Arity::AtLeast(2),
        complexity: "O(N) in the number of clients and writes lost",
        doc: "Does what a failover does: forgets writes and scripts, disconnects everybody else.",
        example: "LOCKWHEEL FAILOVER LOSE 1 => 0",
        run: failover,
        ..LOCKWHEEL
    },
    Command {
        name: "fault",
        arity: Arity::AtLeast(3),
        complexity: "O(N) in the number of rules",
        doc: "Adds, lists and clears rules for what goes wrong.",
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
        example: "LOCKWHEEL GATE ADD CLIENT b COMMAND get => 1",
        run: gate,
        ..LOCKWHEEL
    },
    Command {
        name: "help",
        arity: Arity::Exactly(2),
        doc: "Lists the subcommands.",
        example: "LOCKWHEEL HELP => [LOCKWHEEL <subcommand> ...]",
        run: |_, _| Ok(super::help("LOCKWHEEL", HELP)),
        ..LOCKWHEEL
    },
    Command {
        name: "journal",
        arity: Arity::AtLeast(2),
        flags: LOCKWHEEL.flags.union(Flags::ALLOW_BUSY),
        complexity: "O(N) in the number of entries",
        doc: "Tells what clients did and what became of locks, in time order.",
        example: "SET lock token NX PX 9; LOCKWHEEL JOURNAL CLEAR; LOCKWHEEL JOURNAL => \"[]\"",
        run: handlers::journal,
        ..LOCKWHEEL
    },
    Command {
        name: "lint",
        arity: Arity::Exactly(2),
        flags: LOCKWHEEL.flags.union(Flags::ALLOW_BUSY),
        complexity: "O(N) in the number of mistakes and of journal entries",
        doc: "Names the usual mistakes of lock recipes that have been made.",
        example: "SET lock token NX PX 9; LOCKWHEEL LINT => \"[]\"",
        run: handlers::lint,
        ..LOCKWHEEL
    },
    Command {
        name: "locks",
        arity: Arity::Exactly(2),
        flags: LOCKWHEEL.flags.union(Flags::ALLOW_BUSY),
        complexity: "O(N) in the number of locks",
        doc: "Tells which locks are held, by whom, since when and for how long.",
        example: "SET lock token NX PX 9; DEL lock; LOCKWHEEL LOCKS => \"[]\"",
        run: handlers::locks,
        ..LOCKWHEEL
    },
];

const HELP: &[&str] = &[
    "CHECK [<name>]",
    "    Returns OK if these rules have been kept, or an error that says what broke one:",
    "    no-lock-held, never-two-holders, every-lock-has-a-lease, released-only-by-owner.",
    "CHECK <name> STORY",
    "    Returns whether it holds and what happened to that lock, as JSON; as text, for people.",
    "CLOCK",
    "    Returns what the clock shows, as JSON: now_ms (leases), wall_ms (TIME), rate.",
    "CLOCK FREEZE",
    "    Stops the clock.",
    "CLOCK RUN [<rate>]",
    "    Lets it run again, so many times as fast as real time (1).",
    "CLOCK ADVANCE <span>",
    "    Moves it on. What is due on the way happens in order, each thing at its own moment.",
    "CLOCK SET <milliseconds since 1970>",
    "    Moves it on to a moment, as ADVANCE does. It never goes back.",
    "CLOCK JUMP <span>",
    "    Steps it as Redis's clock may be stepped: forward ends leases early, back prolongs them.",
    "CLOCK STEP <span>",
    "    Steps the wall clock alone, that of TIME and EXPIREAT. No lease follows.",
    "    A span is a number of milliseconds, or one with a unit: 1500, 30s, 5m, 2h, 1d.",
    "FAILOVER [LOSE <writes>]",
    "    Undoes the last writes, forgets all scripts, disconnects everybody else.",
    "FAULT ADD <action> [<condition> <value> ...]",
    "    Returns the number of a rule for requests. The first that is for a request decides.",
    "    DELAY <span>         it is held for so long, and then run",
    "    DROP                 it is neither run nor answered",
    "    CLOSE                it is not run, and its connection is closed",
    "    LOSE                 it is run and not answered",
    "    LOSE-AND-CLOSE       it is run, and its connection is closed instead of an answer",
    "    CUT <bytes>          it is run, its answer ends after so many bytes, then is closed",
    "    STALL                the server reads no further, until the rule is cleared",
    "    ERROR <line>         it is not run, and answered with this error",
    "    FLUSH-SCRIPTS        scripts are forgotten before it is run",
    "    JUMP <span>          the clock jumps when it has been run; see CLOCK JUMP",
    "    LOSE-WRITES <count>  the last writes are undone when it has been answered",
    "    REFUSE               connections are closed as soon as they are there",
    "    Conditions: CLIENT <pattern> (its name), ID <client id>, COMMAND <pattern>,",
    "    KEY <pattern>, NTH <n> (only the n-th), TIMES <n> (no more than n),",
    "    PROBABILITY <0..1> [SEED <n>].",
    "FAULT CLEAR [<number>]",
    "    Removes a rule, or all but gates.",
    "FAULT LIST",
    "    Returns all rules but gates with how often they matched and fired, as JSON.",
    "GATE ADD [<condition> <value> ...]",
    "    Returns the number of a gate, at which clients are held before such requests.",
    "GATE AWAIT <number>",
    "    Waits until somebody is held, and returns their client id.",
    "GATE LIST",
    "    Returns all gates and whom they hold, as JSON.",
    "GATE OPEN <number>",
    "    Removes a gate and lets go whom it holds; returns how many.",
    "JOURNAL [SINCE <seq>] [KEY <pattern>] [COUNT <n>] [TEXT]",
    "    Returns what has happened, as JSON: the entries after that number, about such keys, the",
    "    last n of them. With TEXT, a line for each, for people.",
    "JOURNAL CLEAR",
    "    Forgets what has happened, and what CHECK and LINT know of it. Held locks stay known.",
    "LINT",
    "    Returns the mistakes that were made with locks, as JSON.",
    "LOCKS",
    "    Returns the locks that are held, as JSON.",
];

fn clock(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let order = match &argv[2..] {
        [] => return Ok(show_clock(context)),
        [word] if is(word, "freeze") => ClockOrder::Run(Rate::STOPPED),
        [word] if is(word, "run") => ClockOrder::Run(Rate::REAL),
        [word, times] if is(word, "run") => ClockOrder::Run(rate(times)?),
        [word, by] if is(word, "advance") => ClockOrder::Advance(forward(by)?),
        [word, moment] if is(word, "set") => ClockOrder::AdvanceTo(forward(moment)?),
        [word, by] if is(word, "jump") => ClockOrder::Jump(span(by)?),
        [word, by] if is(word, "step") => ClockOrder::StepWall(span(by)?),
        _ => return Err(Error::Syntax),
    };
    let steps = matches!(order, ClockOrder::Jump(_) | ClockOrder::StepWall(_));
    if steps && context.engine.script.is_some() {
        return Err(context.engine.busy_error());
    }
    context.engine.flow = Some(Flow::Clock(order));
    Ok(Reply::OK)
}

#[derive(Serialize)]
struct ShownClock {
    now_ms: i64,
    wall_ms: i64,
    rate: f64,
}

fn show_clock(context: &Context<'_>) -> Reply {
    let time = context.time;
    let rate = context.engine.clock_rate.times();
    super::json(&ShownClock { now_ms: time.now.0, wall_ms: time.wall().0, rate })
}

fn rate(times: &[u8]) -> Result<Rate, Error> {
    let text = std::str::from_utf8(times).unwrap_or_default();
    text.parse().map_err(|()| Error::line("ERR rate is not a number from 0 to 1000000"))
}

/// A span that cannot be negative.
fn forward(text: &[u8]) -> Result<Millis, Error> {
    let span = span(text)?;
    if span.0 < 0 {
        Err(Error::line("ERR the clock never goes back, but see JUMP"))
    } else {
        Ok(span)
    }
}

fn span(text: &[u8]) -> Result<Millis, Error> {
    time::span(text).ok_or(NO_SPAN)
}

// --- faults ---

fn fault(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    match &argv[2..] {
        [word, rule @ ..] if is(word, "add") => {
            let (action, when) = FaultAction::parse(rule)?;
            add_rule(context, action, when)
        }
        [word] if is(word, "list") => {
            Ok(Reply::bulk(context.engine.show_faults(|rule| rule.action != FaultAction::Gate)))
        }
        [word] if is(word, "clear") => {
            let (rules, _) = context.engine.clear_faults(|rule| rule.action != FaultAction::Gate);
            Ok(Reply::from(rules))
        }
        [word, id] if is(word, "clear") => {
            let id = rule_of(context, id, false)?;
            context.engine.clear_faults(|rule| rule.id == id);
            Ok(Reply::from(1_usize))
        }
        _ => Err(Error::Syntax),
    }
}

fn gate(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    match &argv[2..] {
        [word, when @ ..] if is(word, "add") => add_rule(context, FaultAction::Gate, when),
        [word, id] if is(word, "await") => {
            let id = rule_of(context, id, true)?;
            Ok(context.engine.await_held(context.client, id))
        }
        [word, id] if is(word, "open") => {
            let id = rule_of(context, id, true)?;
            let (_, clients) = context.engine.clear_faults(|rule| rule.id == id);
            Ok(Reply::from(clients))
        }
        [word] if is(word, "list") => {
            Ok(Reply::bulk(context.engine.show_faults(|rule| rule.action == FaultAction::Gate)))
        }
        _ => Err(Error::Syntax),
    }
}

fn add_rule(
    context: &mut Context<'_>,
    action: FaultAction,
    when: &[&[u8]],
) -> Result<Reply, Error> {
    let engine = &mut *context.engine;
    let when = RuleConditions::parse(when, engine.random.bits() >> 1)?;
    if action == FaultAction::Refuse && when.has_request_conditions() {
        return Err(Error::line("ERR a connection has no name, no command and no key yet"));
    }
    if matches!(action, FaultAction::LoseWrites { .. }) && !engine.faults.keep_writes() {
        return Err(NOTHING_KEPT);
    }
    Ok(super::number(engine.faults.add(action, when)))
}

/// The number of a rule, which must be a gate, or none.
fn rule_of(context: &Context<'_>, id: &[u8], gate: bool) -> Result<u64, Error> {
    let id = u64::try_from(integer(id)?).unwrap_or(0);
    match context.engine.faults.is_gate(id) {
        Some(is_gate) if is_gate == gate => Ok(id),
        _ => Err(Error::line("ERR no rule or gate has this number")),
    }
}

fn failover(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let lost = match &argv[2..] {
        [] => 0,
        [word, writes] if is(word, "lose") => rule::count(writes)?,
        _ => return Err(Error::Syntax),
    };
    if lost > 0 && !context.engine.faults.keep_writes() {
        return Err(NOTHING_KEPT);
    }
    let lost = context.lose_writes(lost);
    context.engine.flush_scripts();
    for client in context.engine.sessions.in_order() {
        if client != context.client {
            context.engine.kill(client);
        }
    }
    Ok(Reply::from(lost))
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
    fn it_is_for_servers_started_for_tests() {
        let refused = "!ERR LOCKWHEEL command not allowed. ...";
        check(&format!("LOCKWHEEL CLOCK => {refused}; LOCKWHEEL HELP => {refused}"));
        check("LOCKWHEEL => !ERR wrong number ...; LOCKWHEEL X => !ERR unknown subcommand 'X'...");
        stage().check("MULTI; LOCKWHEEL CLOCK => !ERR Command not allowed inside a transaction");
        stage()
            .check("EVAL \"return redis.call('lockwheel', 'clock')\" 0 => !ERR ...not allowed...");
    }

    #[test]
    fn orders_of_the_clock_are_passed_on() {
        let rate = |text: &str| ClockOrder::Run(text.parse().expect("a rate"));
        for (words_of_it, order) in [
            ("FREEZE", rate("0")),
            ("run", rate("1")),
            ("RUN 0.5", rate("0.5")),
            ("ADVANCE 1500", ClockOrder::Advance(Millis(1_500))),
            ("ADVANCE 30s", ClockOrder::Advance(Millis(30_000))),
            ("SET 1700000000000", ClockOrder::AdvanceTo(Millis(1_700_000_000_000))),
            ("JUMP -2H", ClockOrder::Jump(Millis(-7_200_000))),
            ("STEP 1d", ClockOrder::StepWall(Millis(86_400_000))),
        ] {
            let mut stage = stage();
            let client = stage.client("a");
            let done = stage.run(client, &words(&format!("LOCKWHEEL CLOCK {words_of_it}")));
            assert_eq!(done, ("OK".to_owned(), Flow::Clock(order)), "{words_of_it}");
        }
    }

    #[test]
    fn what_is_no_order_is_refused() {
        for (words_of_it, error) in [
            ("STOP", "syntax error"),
            ("ADVANCE", "syntax error"),
            ("ADVANCE -1", "the clock never goes back, but see JUMP"),
            ("ADVANCE x", "span is not a number of milliseconds, or of ms, s, m, h or d"),
            ("ADVANCE 9223372036854775807s", "span is not a number of milliseconds, ..."),
            ("RUN -1", "rate is not a number from 0 to 1000000"),
        ] {
            stage().check(&format!("LOCKWHEEL CLOCK {words_of_it} => !ERR {error}"));
        }
        stage().check(
            "LOCKWHEEL CLOCK => \"{\\\"now_ms\\\":1700000000000,\\\"wall_ms\\\":1700000000000,\
             \\\"rate\\\":1.0}\"",
        );
    }
}
