//! `LATENCY`: how long commands take, and the events that took longer than
//! `latency-monitor-threshold`.

use lockwheel_resp::Reply;

use crate::command::argument as arg;
use crate::command::{Arity, Command, Entry, Flags, Group, is};
use crate::commands::help_row;
use crate::error::Error;
use crate::run::context::Context;
use crate::statistics::latency::Times;

const LATENCY: Command = Command {
    group: Group::Server,
    flags: Flags::ADMIN.union(Flags::NOSCRIPT).union(Flags::LOADING).union(Flags::STALE),
    since: "2.8.13",
    ..Command::BASE
};

/// The family's rows.
pub const COMMANDS: &[Command] = &[Command {
    name: "latency",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    complexity: "that of the subcommand",
    doc: "Shows how long commands take.",
    subcommands: SUBCOMMANDS,
    ..LATENCY
}];

const OF_ALL_NODES: &[&str] =
    &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];

const SUBCOMMANDS: &[Command] = &[
    help_row(LATENCY, "2.8.13", "LATENCY HELP => [LATENCY <subcommand> ...]"),
    Command {
        name: "histogram",
        arity: Arity::AtLeast(2),
        since: "7.0.0",
        complexity: "O(N) in the number of commands",
        doc: "Returns the distribution of the times of these commands, or of all that were called.",
        tips: OF_ALL_NODES,
        arguments: &[arg::string("command").optional().multiple()],
        example: "LATENCY HISTOGRAM nothing => []",
        run: histogram,
        ..LATENCY
    },
    Command {
        name: "history",
        arity: Arity::Exactly(3),
        doc: "Returns the last events of a kind (command, fast-command, expire-cycle, \
              aof-fsync-always): time in seconds and duration in milliseconds.",
        tips: OF_ALL_NODES,
        arguments: &[arg::string("event")],
        example: "LATENCY HISTORY command => []",
        run: history,
        ..LATENCY
    },
    Command {
        name: "latest",
        arity: Arity::Exactly(2),
        doc: "Returns the last event of each kind: time in seconds, its duration and the longest.",
        tips: OF_ALL_NODES,
        example: "LATENCY LATEST => []",
        run: latest,
        ..LATENCY
    },
    Command {
        name: "reset",
        arity: Arity::AtLeast(2),
        doc: "Removes the events of these kinds, or all; returns the number of kinds.",
        tips: &["request_policy:all_nodes", "response_policy:agg_sum"],
        arguments: &[arg::string("event").optional().multiple()],
        example: "LATENCY RESET => 0",
        run: reset,
        ..LATENCY
    },
];

/// `LATENCY HISTOGRAM`: replies with a map from commands to their times.
fn histogram(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let engine = context.engine();
    let parent = |name: &str| name.split('|').next().unwrap_or_default().to_owned();
    let is_asked = |entry: &Entry| {
        let names = &argv[2..];
        let name = entry.full_name.as_str();
        names.is_empty() || names.iter().any(|asked| is(asked, name) || is(asked, &parent(name)))
    };
    let commands = engine.commands.entries().iter().zip(&engine.command_stats);
    let shown = commands.filter(|(entry, _)| is_asked(entry)).filter_map(|(entry, stats)| {
        let distribution = distribution(&stats.times)?;
        let calls = Reply::Integer(stats.calls.cast_signed());
        let fields = vec![
            (Reply::bulk("calls"), calls),
            (Reply::bulk("histogram_usec"), Reply::Map(distribution)),
        ];
        Some((Reply::bulk(&entry.full_name), Reply::Map(fields)))
    });
    Ok(Reply::Map(shown.collect()))
}

/// The first limit of the distribution, in nanoseconds. Each further one is twice the last, as in
/// Redis.
const FIRST_LIMIT_NS: u64 = 1024;

/// How many calls took at most how many microseconds.
fn distribution(times: &Times) -> Option<Vec<(Reply, Reply)>> {
    let histogram = times.histogram()?;
    let mut lines = Vec::new();
    let mut limit_ns = FIRST_LIMIT_NS;
    let mut last = 0;
    loop {
        let count = histogram.count_between(0, limit_ns);
        if count > last {
            let limit_us = Reply::Integer((limit_ns / 1_000).cast_signed());
            lines.push((limit_us, Reply::Integer(count.cast_signed())));
            last = count;
        }
        if count >= histogram.len() {
            return Some(lines);
        }
        limit_ns *= 2;
    }
}

/// `LATENCY HISTORY`: replies with the last events of a kind.
fn history(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let events = &context.engine().latency.events;
    let found = events.iter().find(|(kind, _)| argv[2] == kind.as_bytes());
    let events = found.into_iter().flat_map(|(_, events)| &events.last);
    let pair =
        |at: i64, ms: u64| Reply::Array(vec![Reply::Integer(at), Reply::Integer(ms.cast_signed())]);
    Ok(Reply::Array(events.map(|event| pair(event.at_seconds, event.took_ms)).collect()))
}

/// `LATENCY LATEST`: replies with the last event of each kind.
fn latest(context: &mut Context<'_>, _: &[&[u8]]) -> Result<Reply, Error> {
    let events = context.engine().latency.events.iter();
    let lines = events.filter_map(|(kind, events)| {
        let last = events.last.back()?;
        Some(Reply::Array(vec![
            Reply::bulk(*kind),
            Reply::Integer(last.at_seconds),
            Reply::Integer(last.took_ms.cast_signed()),
            Reply::Integer(events.longest_ms.cast_signed()),
        ]))
    });
    Ok(Reply::Array(lines.collect()))
}

/// `LATENCY RESET`: replies with the number of kinds whose events were removed.
fn reset(context: &mut Context<'_>, argv: &[&[u8]]) -> Result<Reply, Error> {
    let events = &mut context.latency_mut().events;
    let before = events.len();
    if argv.len() == 2 {
        events.clear();
    }
    events.retain(|kind, _| !argv[2..].contains(&kind.as_bytes()));
    Ok(Reply::from(before - events.len()))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use crate::settings::Settings;
    use crate::testing::Stage;

    #[test]
    fn help_names_the_kinds_of_events() {
        let mut stage = Stage::new(Settings::default());
        stage.engine.process.clock_ns = || NOW_NS.fetch_add(2_000_000, Ordering::Relaxed);
        stage.check("CONFIG SET latency-monitor-threshold 1; SET k v PX 1; +1ms; GET k; KEYS *");
        let time = stage.time();
        stage.engine.note_flush(2_000_000, time);
        let help = stage.step("LATENCY HELP");
        let latest = stage.step("LATENCY LATEST");
        let kinds: Vec<&str> = latest.split('"').skip(1).step_by(2).collect();
        assert_eq!(kinds.len(), 4, "{latest}");
        for kind in kinds {
            let is_named = [",", ")"].iter().any(|end| help.contains(&format!("{kind}{end}")));
            assert!(is_named, "{kind}: {help}");
        }
    }

    static NOW_NS: AtomicU64 = AtomicU64::new(0);

    /// Each reading of the clock is 2 ms after the one before.
    #[test]
    fn expiry_and_flushes_are_events_from_the_threshold_on() {
        let mut stage = Stage::new(Settings::default());
        stage.engine.process.clock_ns = || NOW_NS.fetch_add(2_000_000, Ordering::Relaxed);
        for (threshold, events) in
            [("0", "[]"), ("3", "[]"), ("2", "[[1700000000, 2]]"), ("1", "[[1700000000, 2]]")]
        {
            stage.check(&format!("CONFIG SET latency-monitor-threshold {threshold}"));
            stage.check("SET k v PX 1; +1ms");
            let time = stage.time();
            stage.engine.note_flush(2_999_999, time);
            stage.check(&format!("LATENCY HISTORY expire-cycle => {events}"));
            stage.check(&format!("LATENCY HISTORY aof-fsync-always => {events}"));
        }
        let time = stage.time();
        stage.engine.note_flush(7_000_000, time);
        stage.check("LATENCY RESET expire-cycle => 1; LATENCY HISTORY expire-cycle => []");
        stage.check("LATENCY LATEST => [[\"aof-fsync-always\", 1700000000, 7, 7], ...");
    }
}
