//! Repairs and restorations of logs on a simulated disk: what is left can be read, nothing is
//! removed without a marker, and a crash at any moment changes neither.

use std::sync::Arc;

use lockwheel_log::ceiling::CeilingRecord;
use lockwheel_log::files::{Batch, Clocks, Files, Obsolete};
use lockwheel_log::recovery::{RecoveryError, recover};
use lockwheel_log::repair::{Lost, Repair};
use lockwheel_log::restore::{RestoreError, restore};
use lockwheel_log::{Disk, Position, marker};
use lockwheel_simulated_disk::{DiskFault, SimulatedDisk};

const SECONDS: u64 = 1_000;

fn open(disk: &SimulatedDisk) -> Files {
    let opened =
        Files::open(Arc::new(disk.clone()), [1; 16], |_| Ok(()), |_| Ok(Clocks::default()));
    opened.expect("a log").0
}

/// Writes and flushes units up to this position, each in a frame of its own.
fn write(files: &mut Files, last: Position) {
    let mut batch = Batch::default();
    for unit in files.written() + 1..=last {
        batch.push(unit, unit, &[unit as u8; 40], Clocks::default());
        files.write(&mut batch).expect("a frame");
        files.sync().expect("a flush");
    }
}

/// A log with a snapshot of unit 4 and three segments, which begin with units 5, 8 and 11; the last
/// unit is 14.
fn log() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    let mut files = open(&disk);
    write(&mut files, 4);
    let mut snapshot = files.begin_snapshot().expect("a snapshot");
    snapshot.write(&[4; 100]).expect("a part");
    snapshot.finish().expect("an end");
    files.replace_before(4).and_then(Obsolete::remove).expect("no error");
    write(&mut files, 7);
    files.end_segment().expect("a segment");
    write(&mut files, 10);
    files.end_segment().expect("a segment");
    write(&mut files, 14);
    drop(files);
    disk.end_process();
    disk
}

fn name(position: Position, kind: &str) -> String {
    format!("{position:020}.{kind}")
}

/// Changes a bit of a file; the place is counted from its end if it is negative.
fn damage(disk: &SimulatedDisk, name: &str, place: isize) {
    let mut bytes = disk.contents(name).expect("a file");
    let at = if place < 0 { bytes.len() - place.unsigned_abs() } else { place.unsigned_abs() };
    bytes[at] ^= 4;
    disk.set_contents(name, &bytes);
}

fn plan(disk: &SimulatedDisk) -> Result<Repair, RecoveryError> {
    Repair::plan(Arc::new(disk.clone()), &mut |_| {})
}

/// Repairs a log and checks what is left of it and what is lost.
#[track_caller]
fn check(disk: &SimulatedDisk, left: Position, lost_last: Position, kept: &[String]) -> Lost {
    let planned = plan(disk).expect("a log that can be repaired");
    assert!(!planned.is_needless());
    let lost = planned.lost();
    assert_eq!((planned.left().last, lost.last), (left, Some(lost_last)));
    assert!(lost.bytes > 0);
    let names = planned.carry_out(SECONDS).expect("a repair");
    assert_eq!(names, kept);
    for name in kept {
        assert!(disk.contents(name).is_some_and(|bytes| !bytes.is_empty()), "{name}");
    }
    let found = recover(disk, |_| Ok(())).expect("a log");
    assert_eq!((found.last, found.torn), (left, None));
    let marker = found.marker.expect("a marker");
    assert!(marker.reason.ends_with("are lost"), "{}", marker.reason);
    assert!(found.epoch == marker.epoch && found.epoch >= SECONDS << 32);
    assert!(plan(disk).expect("a log").is_needless());
    let mut files = open(disk);
    assert!(files.epoch() > marker.epoch);
    write(&mut files, left + 3);
    marker::remove(disk).expect("a marker");
    drop(files);
    disk.end_process();
    let found = recover(disk, |_| Ok(())).expect("a log");
    assert_eq!((found.last, found.marker), (left + 3, None));
    assert!(found.epoch > SECONDS << 32);
    lost
}

#[test]
fn log_is_cut_off_where_damage_begins() {
    let disk = log();
    damage(&disk, &name(8, "log"), -60);
    let kept = [name(11, "log.damaged"), name(8, "log.damaged")];
    assert!(check(&disk, 9, 14, &kept).was_flushed);
}

#[test]
fn segment_whose_beginning_is_damaged_is_renamed() {
    let disk = log();
    damage(&disk, &name(8, "log"), 20);
    let kept = [name(11, "log.damaged"), name(8, "log.damaged")];
    assert!(check(&disk, 7, 14, &kept).was_flushed);
}

#[test]
fn segments_after_a_missing_one_are_renamed() {
    let disk = log();
    disk.remove(&name(8, "log")).expect("a file");
    assert!(check(&disk, 7, 14, &[name(11, "log.damaged")]).was_flushed);
}

#[test]
fn nothing_is_left_without_the_snapshot() {
    let disk = log();
    damage(&disk, &name(4, "snapshot"), 150);
    let kept = [11, 8, 5].map(|first| name(first, "log.damaged"));
    let kept = [&kept[..], &[name(4, "snapshot.damaged")]].concat();
    assert!(check(&disk, 0, 14, &kept).was_flushed);
}

#[test]
fn second_repair_keeps_what_the_first_one_kept() {
    let disk = log();
    damage(&disk, &name(11, "log"), -150);
    check(&disk, 12, 14, &[name(11, "log.damaged")]);
    damage(&disk, &name(11, "log"), 250);
    check(&disk, 11, 15, &[name(13, "log.damaged"), name(11, "log.damaged-2")]);
}

/// Shows G39.
#[test]
fn torn_tail_is_no_loss_of_what_was_flushed() {
    let disk = log();
    damage(&disk, &name(11, "log"), -10);
    let planned = plan(&disk).expect("a log");
    assert!(planned.damages().is_empty() && !planned.is_needless());
    assert!(!planned.lost().was_flushed);
    assert_eq!(planned.carry_out(SECONDS).expect("a repair"), [name(11, "log.damaged")]);
    let found = recover(&disk, |_| Ok(())).expect("a log");
    assert!(found.last == 13 && found.torn.is_none() && found.marker.is_some());
}

#[test]
fn damaged_marker_is_replaced() {
    let disk = log();
    disk.set_contents("guard", b"lockwheel guard");
    assert!(recover(&disk, |_| Ok(())).is_err());
    plan(&disk).expect("a log").carry_out(SECONDS).expect("a repair");
    let found = recover(&disk, |_| Ok(())).expect("a log");
    assert!(found.last == 14 && found.epoch == SECONDS << 32);
}

#[test]
fn log_in_use_is_not_repaired() {
    let disk = log();
    let _files = open(&disk);
    assert!(matches!(plan(&disk), Err(RecoveryError::InUse)));
}

#[test]
fn crash_during_a_repair_loses_nothing_without_a_marker() {
    for crash in 1.. {
        for keep in 0..3 {
            let disk = log();
            damage(&disk, &name(8, "log"), -60);
            let planned = plan(&disk).expect("a log");
            disk.add_fault(disk.operations() + crash, DiskFault::Crash);
            if planned.carry_out(SECONDS).is_ok() {
                return;
            }
            disk.crash(&mut |bound| keep.min(bound - 1));
            if let Ok(found) = recover(&disk, |_| Ok(())) {
                assert!(found.marker.is_some() && found.last >= 8, "{crash} {keep}");
            }
            plan(&disk).expect("a log").carry_out(SECONDS).expect("a repair");
            let found = recover(&disk, |_| Ok(())).expect("a log");
            assert!(found.last == 9 && found.marker.is_some(), "{crash} {keep}");
        }
    }
}

/// Shows L8.
#[test]
fn backup_is_restored_with_a_greater_epoch() {
    let (backup, disk) = (log(), SimulatedDisk::new());
    let epoch = recover(&backup, |_| Ok(())).expect("a log").epoch;
    let mut copied = 0;
    let restored = restore(&backup, &disk, SECONDS, &mut |bytes| copied += bytes).expect("a log");
    assert!(restored.last == 14 && restored.epoch > epoch + 1_000 && copied > 500);
    assert!(restored.marker.is_some());
    let again = restore(&backup, &disk, SECONDS, &mut |_| {});
    assert!(matches!(again, Err(RestoreError::NotEmpty(_))));
    assert!(open(&disk).epoch() > restored.epoch);
    let nothing = restore(&SimulatedDisk::new(), &SimulatedDisk::new(), SECONDS, &mut |_| {});
    assert!(matches!(nothing, Err(RestoreError::NoLog)));
}

/// Shows L8.
#[test]
fn longer_ceiling_and_greater_token_are_kept() {
    let record = |(left_ms, token): (i64, u64)| CeilingRecord {
        deadline_ms: 10_000 + left_ms,
        lease_ms: 10_000,
        token,
        ..CeilingRecord::default()
    };
    let of_backup = Some((7, 50));
    for (of_backup, present, kept) in [
        (of_backup, None, of_backup),
        (of_backup, Some((9, 40)), Some((9, 50))),
        (of_backup, Some((9, 60)), Some((9, 60))),
        (of_backup, Some((5, 40)), Some((7, 50))),
        (of_backup, Some((5, 60)), Some((7, 60))),
        (None, Some((5, 60)), Some((5, 60))),
        (None, None, None),
    ] {
        let (backup, disk) = (log(), SimulatedDisk::new());
        for (disk, parts) in [(&backup, of_backup), (&disk, present)] {
            parts.map(|parts| record(parts).write(disk)).transpose().expect("a record");
        }
        restore(&backup, &disk, SECONDS, &mut |_| {}).expect("a log");
        let found = CeilingRecord::read(&disk).expect("no error");
        assert_eq!(found, kept.map(record), "{of_backup:?} {present:?}");
    }
}

#[test]
fn damaged_backup_is_not_restored() {
    let (backup, disk) = (log(), SimulatedDisk::new());
    damage(&backup, &name(8, "log"), -60);
    assert!(matches!(
        restore(&backup, &disk, SECONDS, &mut |_| {}),
        Err(RestoreError::Backup(RecoveryError::Damaged { .. }))
    ));
    assert_eq!(disk.names().expect("names"), Vec::<String>::new());
}

#[test]
fn part_of_a_restored_log_is_refused() {
    let backup = log();
    for crash in 1.. {
        for keep in 0..3 {
            let disk = SimulatedDisk::new();
            disk.add_fault(crash, DiskFault::Crash);
            if restore(&backup, &disk, SECONDS, &mut |_| {}).is_ok() {
                return;
            }
            disk.crash(&mut |bound| keep.min(bound - 1));
            match recover(&disk, |_| Ok(())) {
                Ok(found) if found.last == 14 => assert!(found.marker.is_some()),
                // Nothing was written.
                Ok(found) => {
                    assert!(found.last == 0 && disk.contents("guard").is_none(), "{crash} {keep}");
                }
                Err(error) => assert!(matches!(error, RecoveryError::Unfinished), "{error}"),
            }
        }
    }
}
