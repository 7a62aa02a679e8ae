//! The class of a failure: why a lock was granted twice or lost.

use std::collections::BTreeMap;
use std::fmt;

use lockwheel_compat::judge::history::Action;
use serde::Serialize;

use crate::record::{Change, Observation, Record, ServerProcess};

/// The move of a wall clock from which the end of a lease comes visibly early, in microseconds.
const CLOCK_MOVE_MIN_US: i64 = 10_000;

/// Longest time from a change until it is seen.
const SEEN_LATER_US: i64 = 1_000_000;

/// A class of failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A replica was promoted that lacked a write of the former primary.
    PromotedReplica,
    /// A former primary granted the lock while another server was the primary.
    OldPrimary,
    /// A server was started again without the lock.
    RestartLostData,
    /// The clock of a server was moved.
    ClockMoved,
    /// No other one was seen: the replies come from one process whose clock and role did not
    /// change, from two servers of which none was seen to be promoted, or from several independent
    /// servers; or the servers, or the request that the last one contradicts, are not known.
    Unknown,
}

impl Cause {
    /// Its heading in `docs/prove.md`.
    pub fn anchor(self) -> &'static str {
        match self {
            Cause::PromotedReplica => "a-promoted-replica-lacked-the-write",
            Cause::OldPrimary => "a-former-primary-still-answered",
            Cause::RestartLostData => "a-restart-lost-the-lock",
            Cause::ClockMoved => "the-clock-of-a-server-was-moved",
            Cause::Unknown => "unknown-causes",
        }
    }

    /// The cause of two answers that contradict each other: that to `first`, the earlier request,
    /// and that to `second`.
    pub(crate) fn of(first: &Record, second: &Record, observations: &[Observation]) -> Cause {
        let until_us = second.returned_us() + SEEN_LATER_US;
        let between = |at_us: i64| first.event.invoked_us <= at_us && at_us <= until_us;
        if moved_us(first, second, observations, &between) >= remaining_us(first, second) {
            return Cause::ClockMoved;
        }
        let mut common = first.servers.iter().flat_map(|process| {
            let same = |other: &&ServerProcess| process.address == other.address;
            second.servers.iter().filter(same).map(move |other| (process, other))
        });
        if let Some((process, _)) = common.find(|(one, other)| one.run_id != other.run_id) {
            // Another server was the primary in between, and had the lock to keep.
            let has_moved = observations.iter().any(|it| {
                it.change.is_promotion() && it.server != process.address && between(it.at_us)
            });
            return match has_moved && first.servers.len() == 1 {
                true => Cause::PromotedReplica,
                false => Cause::RestartLostData,
            };
        }
        let ([one], [other]) = (&first.servers[..], &second.servers[..]) else {
            return Cause::Unknown;
        };
        if one == other {
            // What it granted as a former primary was lost when it became a replica.
            let has_changed = |it: &Observation| {
                let is_role = matches!(it.change, Change::BecameReplica | Change::BecamePrimary);
                is_role && it.server == one.address && between(it.at_us)
            };
            let is_old = observations.iter().any(has_changed);
            return if is_old { Cause::OldPrimary } else { Cause::Unknown };
        }
        let promoted_us = |address: &str| {
            let is_meant = |it: &&Observation| {
                it.server == address && it.change.is_promotion() && it.at_us <= until_us
            };
            observations.iter().rev().find(is_meant).map_or(i64::MIN, |it| it.at_us)
        };
        let (one_us, other_us) = (promoted_us(&one.address), promoted_us(&other.address));
        if one_us == other_us {
            // No promotion was seen.
            return Cause::Unknown;
        }
        // A promotion is seen some time after it, so a grant by the new primary can come earlier.
        if other_us < one_us || first.returned_us() > other_us && other_us != i64::MIN {
            return Cause::OldPrimary;
        }
        Cause::PromotedReplica
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cause::PromotedReplica => "a promoted replica lacked the write",
            Cause::OldPrimary => "a former primary still answered",
            Cause::RestartLostData => "a restart lost the lock",
            Cause::ClockMoved => "the clock of a server was moved",
            Cause::Unknown => "unknown",
        })
    }
}

/// By how much the clock of a server that gave both answers was moved forward in between, in
/// microseconds.
fn moved_us(
    first: &Record,
    second: &Record,
    observations: &[Observation],
    between: &dyn Fn(i64) -> bool,
) -> i64 {
    let mut moved: BTreeMap<&str, i64> = BTreeMap::new();
    for Observation { at_us, server, change } in observations {
        if let Change::ClockMoved(by_ms @ 1..) = change
            && between(*at_us)
            && names(first, server)
            && names(second, server)
        {
            *moved.entry(server).or_default() += by_ms.saturating_mul(1000);
        }
    }
    moved.into_values().max().unwrap_or(0)
}

/// The rest of the first lease when the second answer came: a clock must be moved so far to end it.
fn remaining_us(first: &Record, second: &Record) -> i64 {
    let ttl_us = match first.event.action {
        Action::Acquire { ttl_us, .. } | Action::Renew { ttl_us } => ttl_us,
        Action::Release { ttl_us } => ttl_us.unwrap_or_default(),
    };
    let left_us = first.event.invoked_us.saturating_add(ttl_us) - second.returned_us();
    left_us.max(CLOCK_MOVE_MIN_US)
}

fn names(record: &Record, address: &str) -> bool {
    record.servers.iter().any(|process| process.address == address)
}
