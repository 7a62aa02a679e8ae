//! The small files beside a log, on a simulated disk: the record of the ceiling and the marker of a
//! repair.

use lockwheel_log::ceiling::{CeilingRecord, Kept, KeyGroup};
use lockwheel_log::marker::{self, Marker};
use lockwheel_simulated_disk::{DiskFault, SimulatedDisk};

fn record(number: i64) -> CeilingRecord {
    CeilingRecord {
        deadline_ms: number,
        lease_ms: -number,
        boot_ms: i64::MAX,
        wall_ms: 3,
        boot_id: [7; 16],
        token: number.unsigned_abs() << 40,
        has_lasting_keys: number % 2 == 0,
        kept: [Kept::Nothing, Kept::Written, Kept::Durable][number as usize % 3],
        segment: number.unsigned_abs() << 50,
        groups: vec![KeyGroup { prefix: b"session:".to_vec(), deadline_ms: number }],
    }
}

#[test]
fn record_is_read_back() {
    let disk = SimulatedDisk::new();
    assert_eq!(CeilingRecord::read(&disk).expect("no error"), None);
    for number in 1..4 {
        record(number).write(&disk).expect("a disk without faults");
        assert_eq!(CeilingRecord::read(&disk).expect("no error"), Some(record(number)));
    }
}

#[test]
fn full_disk_has_space_for_the_next_record() {
    let disk = SimulatedDisk::new();
    record(1).write(&disk).expect("a disk with space");
    disk.set_space(Some(0));
    for number in 2..9 {
        record(number).write(&disk).expect("the space of the record before");
        assert_eq!(CeilingRecord::read(&disk).expect("no error"), Some(record(number)));
    }
}

#[test]
fn crash_leaves_the_old_record_or_the_new_one() {
    for seed in 0..200_u64 {
        for crash in 1..=10 {
            let disk = SimulatedDisk::new();
            record(1).write(&disk).expect("a disk without faults");
            disk.add_fault(disk.operations() + crash, DiskFault::Crash);
            let is_written = record(2).write(&disk).is_ok();
            let mut random = seed;
            disk.crash(&mut |bound| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 33) % bound
            });
            let read = CeilingRecord::read(&disk).expect("a whole record");
            let expected = if is_written { vec![record(2)] } else { vec![record(1), record(2)] };
            assert!(read.as_ref().is_some_and(|read| expected.contains(read)), "{read:?}");
        }
    }
}

#[test]
fn marker_is_read_back_until_it_is_removed() {
    let disk = SimulatedDisk::new();
    assert_eq!(marker::read(&disk).expect("no error"), None);
    let marker = |epoch| Marker { epoch, reason: "repaired: units 3 to 5 are lost".into() };
    for epoch in [7, 8] {
        marker::write(&disk, &marker(epoch)).expect("a marker");
        assert_eq!(marker::read(&disk).expect("a marker"), Some(marker(epoch)));
    }
    marker::remove(&disk).expect("a marker");
    assert_eq!(marker::read(&disk).expect("no error"), None);
}
