//! The lease ceiling: the latest deadline of all leases that were granted since the start. The
//! caller records it before a longer lease becomes visible, so that after a restart that has lost
//! leases it is known when all of them are over. The same for fencing tokens: those of a later run
//! are greater than any that was given out.
//!
//! All keys count that may be locks: not plain keys ([`Records`](crate::store::records::Records)),
//! and not those that a setting exempts.
//!
//! What is recorded lies ahead of the deadline by the length of the lease, within bounds: a lease
//! that is renewed over and over needs a record now and then only.

use crate::durability::key_groups::KeyGroups;
use crate::settings::{Settings, directive};
use crate::store::effects::{Effect, Effects, Place};
use crate::timing::time::{Millis, Time};
use crate::{Engine, glob, limits};
use lockwheel_defects::defect;

/// The least and the most by which a record lies ahead, in milliseconds: short leases need a record
/// once a second at most, long ones once a minute, and a restart waits no longer for that than a
/// minute.
const AHEAD_MS: (i64, i64) = (1_000, 60_000);

/// Fencing tokens by which a record lies ahead: as many as the microseconds of a second, by
/// which the wall clock has advanced until the next start.
const AHEAD_TOKENS: u64 = 1_000_000;

/// What has to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// The latest end of a lease, on the lease clock.
    pub deadline: Millis,
    /// Whether there were keys without a deadline that may be locks, which no guard can wait for.
    pub has_lasting_keys: bool,
    /// The greatest fencing token that was given out.
    pub token: u64,
    /// The groups of keys whose leases would make a restart guard long (`restart-guard-warn`).
    pub groups: KeyGroups,
}

impl Ceiling {
    /// No leases and no tokens.
    pub const NONE: Ceiling =
        Ceiling { deadline: Millis(0), has_lasting_keys: false, token: 0, groups: KeyGroups::NONE };

    /// Raises the ceiling by a key that may be a lock, with this deadline. `key` is called if that
    /// is after `long`, which makes a guard long.
    fn raise<'k>(
        &mut self,
        deadline: Option<Millis>,
        long: Millis,
        key: impl FnOnce() -> &'k [u8],
    ) {
        let Some(deadline) = deadline else {
            self.has_lasting_keys = true;
            return;
        };
        self.deadline = self.deadline.max(deadline);
        if deadline > long {
            self.groups.add(key(), deadline);
        }
    }
}

/// The ceiling that the caller has recorded, and the one that is to be recorded.
#[derive(Debug)]
pub(crate) struct LeaseCeiling {
    /// What the caller has recorded, ahead of `required` by `AHEAD_MS` and `AHEAD_TOKENS`.
    recorded: Ceiling,
    /// The leases that were granted.
    required: Ceiling,
    /// Patterns of keys that are no locks.
    exempt: Vec<Vec<u8>>,
    /// A lease that is longer makes a guard long, in milliseconds.
    long_ms: i64,
}

impl LeaseCeiling {
    fn new(settings: &Settings, recorded: Ceiling, exempt: Vec<Vec<u8>>) -> LeaseCeiling {
        // A guard lasts as long as a lease and what lies ahead.
        let long_ms = settings.get(directive::RESTART_GUARD_WARN).0 - AHEAD_MS.1;
        let required = recorded.clone();
        LeaseCeiling { recorded, required, exempt, long_ms: long_ms.max(0) }
    }

    fn is_exempt(&self, key: &[u8]) -> bool {
        self.exempt.iter().any(|pattern| glob::matches(pattern, key))
    }

    /// The moment after which the leases that begin at `now` make a guard long.
    fn long_after(&self, now: Millis) -> Millis {
        Millis(now.0.saturating_add(self.long_ms))
    }

    fn exceeds_recorded(&self) -> bool {
        self.required.deadline > self.recorded.deadline
            || self.exceeds_recorded_tokens()
            || self.required.has_lasting_keys && !self.recorded.has_lasting_keys
            || self.required.groups.len() > self.recorded.groups.len()
    }

    fn exceeds_recorded_tokens(&self) -> bool {
        self.required.token > self.recorded.token && !defect!(TokenNotReserved)
    }
}

/// Returns a bound below the fencing tokens of a run: the wall clock at the start, in microseconds.
/// So they are greater than those of an earlier run, unless the clock was set back. A clock that is
/// far ahead does not use them up.
pub(crate) fn token_floor_at_start(time: Time) -> u64 {
    if defect!(TokenFloorIgnored) {
        return 0;
    }
    u64::try_from(time.wall_us).unwrap_or(0).min(limits::FENCING_TOKEN_FLOOR_MAX)
}

impl Engine {
    /// Begins to determine the lease ceiling. `recorded` is what is recorded already; keys that
    /// match a pattern of `exempt` do not count. Fencing tokens are greater than the recorded one.
    pub fn track_ceiling(&mut self, recorded: Ceiling, exempt: Vec<Vec<u8>>) {
        self.token_floor = self.token_floor.max(recorded.token);
        self.lease_ceiling = Some(Box::new(LeaseCeiling::new(&self.settings, recorded, exempt)));
        self.update_consumers();
    }

    /// Makes the fencing tokens that follow greater than `floor`, as the next snapshot says: the
    /// effects of units do not.
    pub fn raise_tokens(&mut self, floor: u64) {
        self.writer.raise_tokens(floor);
    }

    /// What has to be recorded before the output of the units so far is sent, if anything.
    #[inline]
    pub fn take_ceiling(&mut self, now: Millis) -> Option<Ceiling> {
        let ceiling = self.lease_ceiling.as_mut()?;
        if !ceiling.exceeds_recorded() {
            return None;
        }
        let exceeds_tokens = ceiling.exceeds_recorded_tokens();
        let LeaseCeiling { recorded, required, .. } = &mut **ceiling;
        recorded.has_lasting_keys |= required.has_lasting_keys;
        if required.deadline > recorded.deadline {
            let lease_ms = required.deadline.0.saturating_sub(now.0);
            let ahead_ms = lease_ms.clamp(AHEAD_MS.0, AHEAD_MS.1);
            recorded.deadline = Millis(required.deadline.0.saturating_add(ahead_ms));
        }
        if exceeds_tokens {
            recorded.token = required.token.saturating_add(AHEAD_TOKENS);
        }
        required.groups.remove_ended(now);
        recorded.groups.clone_from(&required.groups);
        Some(ceiling.recorded.clone())
    }

    /// The ceiling of the leases that still run: of the keys that exist, and of those that the
    /// restart guard waits for.
    pub fn ceiling_of_keys(&self) -> Option<Ceiling> {
        let ceiling = self.lease_ceiling.as_ref()?;
        Some(self.exact_ceiling(ceiling, self.writer.keyspace().now()))
    }

    /// The groups of the keys that exist whose leases make a guard long that begins at `now`, also
    /// if no lease ceiling is recorded. Keys that match a pattern of `exempt` do not count.
    pub fn groups_of_keys(&self, now: Millis, exempt: Vec<Vec<u8>>) -> KeyGroups {
        let ceiling = LeaseCeiling::new(&self.settings, Ceiling::NONE, exempt);
        self.exact_ceiling(&ceiling, now).groups
    }

    fn exact_ceiling(&self, ceiling: &LeaseCeiling, now: Millis) -> Ceiling {
        let token = self.writer.last_token().max(self.token_floor);
        let mut exact = Ceiling { token, ..Ceiling::NONE };
        if let Some(guard) = self.guard() {
            exact.deadline = guard.until;
            exact.groups.merge(&guard.groups, Millis(0));
        }
        let keyspace = self.writer.keyspace();
        let long = ceiling.long_after(now);
        for database in (0..keyspace.count()).map(|number| keyspace.database(number)) {
            let records = database.records();
            let (slots, _) = records.scan(0, usize::MAX);
            for slot in slots.filter(|&slot| !records.is_plain(slot)) {
                // Keys are elsewhere in memory: to read them takes longer than all the rest.
                if !ceiling.exempt.is_empty() && ceiling.is_exempt(records.key(slot)) {
                    continue;
                }
                exact.raise(records.deadline(slot), long, || records.key(slot));
            }
        }
        exact
    }

    /// Lowers the ceiling to that of the leases that still run, since a command has ended the
    /// restart guard. Returns it, to be recorded.
    pub fn lower_ceiling(&mut self) -> Option<Ceiling> {
        let exact = self.ceiling_of_keys()?;
        let ceiling = self.lease_ceiling.as_mut()?;
        (ceiling.recorded, ceiling.required) = (exact.clone(), exact.clone());
        Some(exact)
    }

    /// Raises the ceiling by the leases of a unit; returns whether that has to be recorded.
    pub(crate) fn raise_ceiling(&mut self, effects: &Effects, now: Millis) -> bool {
        let Some(mut ceiling) = self.lease_ceiling.take() else { return false };
        let long = ceiling.long_after(now);
        for (place, effect) in effects.iter() {
            match effect {
                Effect::HoldGranted { hold } => {
                    ceiling.required.token = ceiling.required.token.max(hold.token);
                }
                Effect::Deadline { deadline: Some(deadline) }
                    if deadline > ceiling.required.deadline.min(long)
                        && !self.writer.keyspace().is_plain(place.database, place.key)
                        && !ceiling.is_exempt(place.key) =>
                {
                    ceiling.required.raise(Some(deadline), long, || place.key);
                }
                Effect::Plain { is_plain: true } => {}
                Effect::Plain { is_plain: false } => self.raise_by_key(&mut ceiling, place, long),
                Effect::Moved { database, key } | Effect::Copied { database, key } => {
                    self.raise_by_key(&mut ceiling, Place { database, key }, long);
                }
                Effect::Postponed { span } => {
                    let deadline = ceiling.required.deadline.0.saturating_add(span.0.max(0));
                    ceiling.required.deadline = Millis(deadline);
                    ceiling.required.groups.postpone(Millis(span.0.max(0)));
                }
                Effect::Swapped { .. } | Effect::Flushed {} | Effect::Published { .. } => {}
                _ if !ceiling.required.has_lasting_keys => {
                    self.raise_by_key(&mut ceiling, place, long);
                }
                _ => {}
            }
        }
        let exceeds = ceiling.exceeds_recorded();
        self.lease_ceiling = Some(ceiling);
        exceeds
    }

    /// Raises the ceiling by the key, if it exists and may be a lock.
    fn raise_by_key(&self, ceiling: &mut LeaseCeiling, place: Place<'_>, long: Millis) {
        let keyspace = self.writer.keyspace();
        let Some(slot) = keyspace.find(place.database, place.key) else { return };
        let record = keyspace.database(place.database).record(slot);
        if !record.is_plain() && !ceiling.is_exempt(place.key) {
            ceiling.required.raise(record.deadline(), long, || place.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Stage;

    /// Runs steps; after each, checks how far the record lies ahead of the time, and whether there
    /// are lasting keys.
    fn check(exempt: &[&str], steps: &[(&str, Option<(i64, bool)>)]) {
        let mut stage = Stage::new(Default::default());
        let exempt = exempt.iter().map(|pattern| pattern.as_bytes().to_vec()).collect();
        stage.engine.track_ceiling(Ceiling::NONE, exempt);
        for (step, expected) in steps {
            stage.check(step);
            let now = stage.time().now;
            let recorded = stage.engine.take_ceiling(now);
            let recorded = recorded.map(|it| (it.deadline.0 - now.0, it.has_lasting_keys));
            assert_eq!(recorded, *expected, "{step}");
        }
    }

    /// Shows S9, S10.
    #[test]
    fn longer_lease_raises_the_ceiling_and_renewals_seldom_do() {
        check(
            &[],
            &[
                ("GET k", None),
                ("SET k v NX PX 30000", Some((60_000, false))),
                ("SET l v NX PX 20000", None),
                ("+10000ms; PEXPIRE k 30000", None),
                ("+10000ms; PEXPIRE k 30000", None),
                ("+11000ms; PEXPIRE k 30000", Some((60_000, false))),
                ("DEL k", None),
                ("SET k v NX PX 100000000", Some((100_060_000, false))),
            ],
        );
    }

    /// Shows S10.
    #[test]
    fn short_lease_is_recorded_a_second_ahead() {
        check(
            &[],
            &[("SET k v NX PX 10", Some((1_010, false))), ("+1000ms; SET k v NX PX 10", None)],
        );
    }

    /// Shows S12.
    #[test]
    fn exempt_keys_do_not_count_until_they_are_renamed() {
        check(
            &["cache:*", "s?"],
            &[
                ("SET cache:1 v NX PX 90000; SET cache:2 v NX; SETNX s1 v", None),
                ("RENAME cache:1 lock", Some((150_000, false))),
                ("COPY cache:2 lasting", Some((150_000, true))),
            ],
        );
    }

    /// Shows S11, S21, S22, S23, S25, S26, S28.
    #[test]
    fn plain_keys_do_not_count_until_they_may_be_locks() {
        let plain = [
            "SET k v PX 90000",
            "SETEX k 90 v",
            "PSETEX k 90000 v",
            "MSET k v l v",
            "SET k v; EXPIRE k 90",
            "SET k v PX 10; SET k v PX 90000; SET k w KEEPTTL; GETEX k PX 95000",
        ];
        for step in plain {
            check(&[], &[(step, None)]);
        }
        let recorded = Some((150_000, false));
        for step in [
            "SET k v NX PX 90000",
            "SET k v PX 10; SET k v XX PX 90000",
            "SET k v GET PX 90000",
            "SET k v NX PX 80000; SET k w PX 90000",
            "MULTI; SET k v PX 90000; EXEC",
            "EVAL \"return redis.call('set', 'k', 'v', 'px', 90000)\" 0",
            "SET k 0 PX 90000; INCR k",
            "SET k 0 PX 90000; APPEND k 0",
            "SET k 0 PX 90000; SETRANGE k 0 1",
            "SET k 0 PX 90000; SETBIT k 0 1",
            "SET k 0 PX 90000; SET k 1 XX KEEPTTL",
            "SET k v PX 90000; RENAME k l",
            "SET k v PX 90000; COPY k l",
            "SET k v PX 90000; MOVE k 1",
            "SET k v; PEXPIRE k 90000 NX",
            "SET k v PX 10; PEXPIRE k 90000 XX",
        ] {
            check(&[], &[(step, recorded)]);
        }
        let short = Some((1_010, false));
        check(&[], &[("SET k v NX PX 10; DEL k; SET k v PX 90000", short)]);
        let lasting = Some((-1_700_000_000_000, true));
        check(&[], &[("SET k v PX 10; PERSIST k", lasting)]);
        check(&[], &[("SETNX k v", lasting)]);
        for change in ["INCR k", "APPEND k 0", "SETBIT k 0 1"] {
            let step = format!("SETNX lasting v; SET k 0 PX 90000; {change}");
            check(&[], &[(&step, Some((150_000, true)))]);
        }
    }

    #[test]
    fn groups_of_keys_with_long_leases_are_recorded() {
        let mut stage = Stage::new(Default::default());
        stage.engine.track_ceiling(Ceiling::NONE, vec![b"exempt:*".to_vec()]);
        let mut names = |step: &str| {
            stage.check(step);
            let recorded = stage.engine.take_ceiling(stage.time().now);
            recorded.map(|recorded| recorded.groups.names().join(" "))
        };
        let recorded = |text: &str| Some(text.to_owned());
        assert_eq!(names("SET lock v NX EX 60"), recorded(""));
        assert_eq!(names("SET a:1:x v NX EX 9000"), recorded("a:"));
        assert_eq!(names("SET a:2 v NX EX 8000"), None);
        assert_eq!(names("SET plain:1 v EX 8000; SET exempt:1 v NX EX 8000"), None);
        assert_eq!(names("SET b:1 v NX EX 8000"), recorded("a: b:"));
        assert_eq!(names("SET c:1 v; COPY c:1 d; PEXPIRE d 8500000"), recorded("a: d b:"));
        assert_eq!(names("+8600000ms; SET e:1 v NX EX 9000"), recorded("e: a:"));
        let keys = stage.engine.ceiling_of_keys().expect("a ceiling");
        assert_eq!(keys.groups.names(), ["e:"], "a lease that is nearly over is not long");
        let now = stage.time().now;
        assert_eq!(stage.engine.groups_of_keys(now, Vec::new()).names(), ["e:"]);
        assert!(stage.engine.groups_of_keys(now, vec![b"e:*".to_vec()]).is_empty());
    }

    /// Shows L4.
    #[test]
    fn tokens_are_recorded_in_blocks() {
        let mut stage = Stage::new(Default::default());
        stage.engine.track_ceiling(Ceiling::NONE, Vec::new());
        let mut grant = |command: &str| {
            stage.check(command);
            let now = stage.time().now;
            stage.engine.take_ceiling(now).map(|recorded| recorded.token)
        };
        let wall_us = 1_700_000_000_000_000;
        assert_eq!(grant("LOCK.ACQUIRE k a TTL 9"), Some(wall_us + 1 + AHEAD_TOKENS));
        assert_eq!(grant("LOCK.ACQUIRE l a TTL 9"), None);
        let recorded = Ceiling { token: wall_us + 10 * AHEAD_TOKENS, ..Ceiling::NONE };
        stage.engine.track_ceiling(recorded, Vec::new());
        stage.check(&format!(
            "LOCK.ACQUIRE m a TTL 9 => ...\"token\", {}, ...",
            wall_us + 10 * AHEAD_TOKENS + 1
        ));
    }

    /// Shows S16.
    #[test]
    fn keys_without_deadline_are_recorded_once() {
        check(&[], &[("HSET h f v", Some((-1_700_000_000_000, true))), ("SET k v", None)]);
    }
}
