//! Reports for the tests of the formats.

use super::results::{Case, HoldSpan, Report, StoryLine, Totals};
use crate::cause::Cause;
use crate::record::{Change, Fault, Observation};

const SECOND_US: i64 = 1_000_000;
const OLD: &str = "127.0.0.1:7001";
const NEW: &str = "127.0.0.1:7002";

/// A report of a failover that granted locks twice.
pub(super) fn report() -> Report {
    let set_nx = Totals {
        requests: 9_000,
        granted: 3_000,
        granted_twice: 15,
        lost_early: 3,
        unanswered: 40,
        ..Totals::default()
    };
    let redisson = Totals {
        requests: 3_345,
        granted: 1_120,
        granted_twice: 2,
        unanswered: 1,
        ..Totals::default()
    };
    let totals = Totals {
        requests: 12_345,
        granted: 4_120,
        granted_twice: 17,
        lost_early: 3,
        unanswered: 41,
        ..Totals::default()
    };
    let mut lost = case();
    lost.problem = "a holder is refused before its lease has ended".to_owned();
    lost.rank = 2;
    lost.lock = "lockwheel-prove:7f3a:set-nx:1".to_owned();
    lost.overlap_us = 0;
    lost.cause = Cause::Unknown;
    Report {
        target: "redis://127.0.0.1:26379 (sentinel, primary mymaster)".to_owned(),
        servers: [OLD, NEW].map(|address| format!("redis 8.0.2 at {address}")).to_vec(),
        totals,
        kinds: vec![("set-nx".to_owned(), set_nx), ("redisson".to_owned(), redisson)],
        longest_without_grant_us: 11_840_000,
        cases: vec![case(), case(), lost],
        faults: faults(),
        observations: observations(),
        warnings: vec!["12 requests got the error CLUSTERDOWN.".to_owned()],
        ..green()
    }
}

/// A report without a finding and without a fault.
pub(super) fn green() -> Report {
    let totals = Totals { requests: 12_345, granted: 4_120, unanswered: 1, ..Totals::default() };
    Report {
        target: "redis://127.0.0.1:6379".to_owned(),
        servers: vec!["redis 8.0.2 at 127.0.0.1:6379".to_owned()],
        run: "7f3a".to_owned(),
        seed: 42,
        started_us: 500 * SECOND_US,
        // 2026-11-30 12:00:00 UTC.
        started_wall_us: 1_796_040_000 * SECOND_US,
        seconds: 60.04,
        clients: 8,
        rate: 200,
        lease_ms: 10_000,
        interrupted: false,
        totals,
        kinds: vec![("set-nx".to_owned(), totals)],
        longest_without_grant_us: 340_000,
        cases: Vec::new(),
        faults: Vec::new(),
        observations: Vec::new(),
        not_exercised: vec!["No server was suspended.".to_owned()],
        warnings: Vec::new(),
    }
}

fn case() -> Case {
    let line = |at_ms, actor: &str, text: &str, server: &str, is_proof| StoryLine {
        at_us: at(at_ms),
        actor: actor.to_owned(),
        text: text.to_owned(),
        server: server.to_owned(),
        is_proof,
    };
    let lock = "lockwheel-prove:7f3a:set-nx:3";
    let set = |token: &str| format!("SET {lock} {token} NX PX 10000 -> OK");
    Case {
        problem: "the lock is held twice at once".to_owned(),
        rank: 0,
        kind: "set-nx".to_owned(),
        lock: lock.to_owned(),
        at_us: at(26_900),
        overlap_us: 4_250_000,
        cause: Cause::PromotedReplica,
        story: vec![
            line(
                20_500,
                "client-2",
                &format!("EVAL \"compare, del\" 1 {lock} 2-80 -> 1"),
                OLD,
                false,
            ),
            line(21_150, "client-1", &set("1-81"), OLD, true),
            line(21_400, "fault", "SIGKILL to process 4711", "", false),
            line(21_430, "observed", "does not answer: connection refused", OLD, false),
            line(26_600, "observed", "became the primary", NEW, false),
            line(26_900, "client-5", &set("5-17"), NEW, true),
        ],
        holds: [
            ("client-2", 18_000, 20_490),
            ("client-1", 21_150, 31_150),
            ("client-5", 26_900, 36_880),
        ]
        .map(|(client, from_ms, until_ms)| HoldSpan {
            client: client.to_owned(),
            from_us: at(from_ms),
            until_us: at(until_ms),
        })
        .to_vec(),
    }
}

fn faults() -> Vec<Fault> {
    let fault = |name: &str, begin_ms, end_ms, effects: &[&str]| Fault {
        name: name.to_owned(),
        begin_us: at(begin_ms),
        end_us: at(end_ms),
        effects: effects.iter().map(|effect| (*effect).to_owned()).collect(),
    };
    vec![
        fault(
            "SIGKILL to process 4711",
            21_400,
            30_000,
            &["8 connections ended", "127.0.0.1:7002 became the primary"],
        ),
        fault("reported by the user", 50_000, 50_000, &[]),
    ]
}

fn observations() -> Vec<Observation> {
    let observation = |at_ms, server: &str, change| Observation {
        at_us: at(at_ms),
        server: server.to_owned(),
        change,
    };
    vec![
        observation(21_430, OLD, Change::Unreachable("connection refused".to_owned())),
        observation(26_600, NEW, Change::BecamePrimary),
        observation(30_200, OLD, Change::Restarted),
        observation(30_300, OLD, Change::Reachable),
        observation(31_000, OLD, Change::BecameReplica),
    ]
}

/// That many milliseconds after the start of the run.
fn at(ms: i64) -> i64 {
    500 * SECOND_US + ms * 1000
}
