//! The restart guard: after a start, how long leases that were granted before may still be held,
//! although the server has no record of them.

use lockwheel_defects::defect;
use lockwheel_engine::durability::key_groups::KeyGroups;
use lockwheel_engine::settings::{Settings, directive};
use lockwheel_engine::timing::time::Millis;
use lockwheel_log::ceiling::{CeilingRecord, Kept};
use lockwheel_log::recovery::{LastTime, TornTail};

use crate::clock::MachineTime;
use crate::durability::ceiling_file::groups_left;

/// The settings of the guard, read once at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GuardSettings {
    /// Whether there is a guard.
    pub(crate) is_on: bool,
    /// Shortest guard if nothing is known of an earlier run, in milliseconds.
    pub(crate) minimum_ms: i64,
    /// Patterns of keys that are no locks.
    pub(crate) exempt: Vec<Vec<u8>>,
    /// Whether the wall clock shows how much time has passed since the machine was stopped.
    pub(crate) trusts_wall_clock: bool,
}

impl GuardSettings {
    /// Reads the directives.
    pub(crate) fn of(settings: &Settings) -> GuardSettings {
        let patterns = settings.get(directive::RESTART_GUARD_EXEMPT);
        GuardSettings {
            is_on: settings.get(directive::RESTART_GUARD),
            minimum_ms: settings.get(directive::RESTART_GUARD_MINIMUM).0,
            exempt: patterns.split_whitespace().map(|pattern| pattern.into()).collect(),
            trusts_wall_clock: settings.get(directive::TRUST_WALL_CLOCK),
        }
    }
}

/// What a start has found.
#[derive(Clone, Debug)]
pub(crate) struct FoundAtStart<'a> {
    /// The record of the earlier run.
    pub(crate) record: Option<CeilingRecord>,
    /// The time of the last frame of the log; `None` if the log is off.
    pub(crate) log_time: Option<LastTime>,
    /// The end of the log that was cut off.
    pub(crate) torn: Option<TornTail>,
    /// The reason why the log is incomplete, if it was repaired or restored from a backup.
    pub(crate) marker: Option<&'a str>,
    /// Longest remaining lease of the keys that were loaded, in milliseconds.
    pub(crate) keys_left_ms: i64,
    /// The clocks of the machine.
    pub(crate) now: MachineTime,
}

/// A guard that is necessary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Necessary {
    /// Its remaining time, in milliseconds.
    pub(crate) left_ms: i64,
    /// Its reason.
    pub(crate) reason: String,
    /// Whether keys without a deadline may be missing, for which no guard can wait.
    pub(crate) had_lasting_keys: bool,
    /// The groups of keys with long leases, with the time that is left of them.
    pub(crate) groups: KeyGroups,
}

/// Decides whether a guard is necessary, and for how long.
pub(crate) fn decide(found: &FoundAtStart<'_>, settings: &GuardSettings) -> Option<Necessary> {
    if defect!(GuardSkippedWithoutLog) && found.log_time.is_none()
        || defect!(GuardSkippedWithLog) && found.log_time.is_some()
    {
        return None;
    }
    let Some(record) = &found.record else {
        let nothing = "nothing is recorded of an earlier run";
        let reason = found.marker.unwrap_or(nothing).to_owned();
        let left_ms = match found.marker {
            // The best guess: a lease that is missing was no longer than those that are there.
            Some(_) => settings.minimum_ms.max(found.keys_left_ms),
            None => settings.minimum_ms,
        };
        let (had_lasting_keys, groups) = (false, KeyGroups::NONE);
        return (left_ms > 0).then_some(Necessary { left_ms, reason, had_lasting_keys, groups });
    };
    let is_same_boot = found.now.boot_id == Some(record.boot_id);
    let is_complete = found.marker.is_none()
        && found.log_time.is_some()
        && match record.kept {
            Kept::Nothing => false,
            // What was written stays in the memory of the system. Damage at the end says that it
            // has not.
            Kept::Written => is_same_boot && found.torn.is_none(),
            Kept::Durable => true,
        };
    if is_complete {
        return None;
    }
    let elapsed_ms = match found.marker {
        // The record may be as old as a backup.
        Some(_) => 0,
        None => elapsed_ms(record, found, is_same_boot, settings.trusts_wall_clock),
    };
    let mut left_ms = record.deadline_ms.saturating_sub(record.lease_ms).saturating_sub(elapsed_ms);
    if found.marker.is_some() {
        left_ms = left_ms.max(settings.minimum_ms).max(found.keys_left_ms);
    }
    let reason = match (found.marker, record.kept) {
        (Some(marker), _) => marker.to_owned(),
        (None, _) if found.log_time.is_none() => "there is no log".to_owned(),
        (None, Kept::Nothing) => "an earlier run may have lost leases".to_owned(),
        (None, _) => "the end of the log may be missing".to_owned(),
    };
    let had_lasting_keys = record.has_lasting_keys;
    let mut groups = groups_left(record);
    groups.postpone(Millis(-elapsed_ms));
    groups.remove_ended(Millis(0));
    let necessary = Necessary { left_ms, reason, had_lasting_keys, groups };
    (left_ms > 0 || had_lasting_keys).then_some(necessary)
}

/// The time that has passed since the record was written, as far as it is certain.
fn elapsed_ms(
    record: &CeilingRecord,
    found: &FoundAtStart<'_>,
    is_same_boot: bool,
    trusts_wall_clock: bool,
) -> i64 {
    let since_record = if defect!(CeilingByWallClock) {
        found.now.wall_ms.saturating_sub(record.wall_ms)
    } else if is_same_boot || defect!(BootIdIgnoredByGuard) {
        found.now.boot_ms.saturating_sub(record.boot_ms)
    } else if trusts_wall_clock {
        found.now.wall_ms.saturating_sub(record.wall_ms)
    } else {
        0
    };
    // The log goes on after the record.
    let in_log = match found.log_time {
        Some(time) if record.kept != Kept::Nothing => time.lease_ms.saturating_sub(record.lease_ms),
        _ => 0,
    };
    // The first of two readings in whole milliseconds may be short of almost one.
    since_record.max(in_log).saturating_sub(1).max(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockwheel_log::ceiling::KeyGroup;
    use lockwheel_log::names::Name;

    const BOOT: [u8; 16] = [1; 16];
    const OTHER_BOOT: [u8; 16] = [2; 16];

    /// A record written when the lease clock was at 1,000 and the machine ran for 500; the last
    /// lease ends 60,000 later.
    fn record(kept: Kept) -> CeilingRecord {
        CeilingRecord {
            deadline_ms: 61_000,
            lease_ms: 1_000,
            boot_ms: 500,
            wall_ms: 9_000,
            boot_id: BOOT,
            has_lasting_keys: false,
            token: 0,
            kept,
            segment: 0,
            groups: vec![
                KeyGroup { prefix: b"session:".to_vec(), deadline_ms: 61_000 },
                KeyGroup { prefix: b"job:".to_vec(), deadline_ms: 11_000 },
            ],
        }
    }

    fn settings() -> GuardSettings {
        let exempt = Vec::new();
        GuardSettings { is_on: true, minimum_ms: 7, exempt, trusts_wall_clock: false }
    }

    fn found(kept: Kept) -> FoundAtStart<'static> {
        FoundAtStart {
            record: Some(record(kept)),
            log_time: None,
            torn: None,
            marker: None,
            keys_left_ms: 0,
            now: MachineTime { boot_id: Some(OTHER_BOOT), boot_ms: 20, wall_ms: 19_000 },
        }
    }

    fn log_time(lease_ms: i64) -> Option<LastTime> {
        Some(LastTime { lease_ms, boot_ms: 500, wall_ms: 9_000, boot_id: BOOT })
    }

    fn left_ms(found: &FoundAtStart<'_>) -> i64 {
        decide(found, &settings()).map_or(0, |guard| guard.left_ms)
    }

    /// Shows G25.
    #[test]
    fn without_log_guard_waits_for_the_ceiling() {
        let mut found = found(Kept::Nothing);
        assert_eq!(left_ms(&found), 60_000);
        found.now = MachineTime { boot_id: Some(BOOT), boot_ms: 20_500, wall_ms: 0 };
        assert_eq!(left_ms(&found), 40_001);
        found.now.boot_ms = 70_000;
        assert_eq!(left_ms(&found), 0);
    }

    #[test]
    fn guard_names_the_groups_whose_leases_are_not_over() {
        let mut found = found(Kept::Nothing);
        let names =
            |found: &FoundAtStart<'_>| decide(found, &settings()).map(|it| it.groups.names());
        assert_eq!(names(&found), Some(vec!["session:".to_owned(), "job:".to_owned()]));
        found.now = MachineTime { boot_id: Some(BOOT), boot_ms: 20_500, wall_ms: 0 };
        assert_eq!(names(&found), Some(vec!["session:".to_owned()]));
    }

    /// Shows G26, S15.
    #[test]
    fn wall_clock_counts_only_if_it_is_trusted() {
        let trusting = GuardSettings { trusts_wall_clock: true, ..settings() };
        let mut found = found(Kept::Nothing);
        let left_ms =
            |found: &FoundAtStart<'_>| decide(found, &trusting).map(|guard| guard.left_ms);
        assert_eq!(left_ms(&found), Some(50_001));
        found.now.wall_ms = 0;
        assert_eq!(left_ms(&found), Some(60_000));
    }

    #[test]
    fn complete_log_needs_no_guard() {
        let mut found = FoundAtStart { log_time: log_time(2_000), ..found(Kept::Durable) };
        assert_eq!(left_ms(&found), 0);
        found.marker = Some("the log was repaired");
        assert_eq!(left_ms(&found), 60_000);
        // The files of the log have been removed.
        found = FoundAtStart { log_time: None, marker: None, ..found };
        assert_eq!(left_ms(&found), 60_000);
    }

    /// Shows S14.
    #[test]
    fn guard_of_an_incomplete_log_lasts_as_long_as_the_longest_of_all() {
        // The record says 60,000.
        for (minimum_ms, keys_left_ms, expected_ms) in
            [(7, 8, 60_000), (70_000, 8, 70_000), (7, 80_000, 80_000), (90_000, 80_000, 90_000)]
        {
            let settings = GuardSettings { minimum_ms, ..settings() };
            let found = FoundAtStart { keys_left_ms, ..found(Kept::Durable) };
            let left_ms = |found| decide(&found, &settings).map(|guard| guard.left_ms);
            // Only the record counts, if a server has used the directory.
            assert_eq!(left_ms(found.clone()), Some(60_000));
            assert_eq!(
                left_ms(FoundAtStart { marker: Some("repaired"), ..found }),
                Some(expected_ms)
            );
        }
    }

    /// Shows G30.
    #[test]
    fn log_that_was_only_written_needs_guard_after_a_crash_of_the_machine() {
        let mut found = FoundAtStart { log_time: log_time(21_000), ..found(Kept::Written) };
        assert_eq!(left_ms(&found), 40_001);
        found.now = MachineTime { boot_id: Some(BOOT), boot_ms: 600, wall_ms: 0 };
        assert_eq!(left_ms(&found), 0);
        found.torn = Some(TornTail { segment: Name::Segment(1), offset: 0, bytes: 9 });
        assert_eq!(left_ms(&found), 40_001);
    }

    #[test]
    fn empty_directory_needs_the_minimum() {
        let nothing = FoundAtStart { record: None, keys_left_ms: 50, ..found(Kept::Nothing) };
        assert_eq!(left_ms(&nothing), 7);
        assert_eq!(left_ms(&FoundAtStart { marker: Some("restored"), ..nothing }), 50);
    }
}
