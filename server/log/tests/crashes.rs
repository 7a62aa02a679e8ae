//! Logs on a simulated disk that crashes: what was flushed is read again, in order, and nothing
//! else is ever read.

use std::sync::Arc;

use lockwheel_log::files::{Batch, Clocks, Files, Obsolete};
use lockwheel_log::recovery::{Recovered, RecoveryError, recover};
use lockwheel_log::{Disk, Position};
use lockwheel_simulated_disk::{DiskFault, Random, SimulatedDisk};

/// The effects of a unit: its number, and some more bytes.
fn unit(position: Position) -> Vec<u8> {
    let mut bytes = position.to_le_bytes().to_vec();
    bytes.resize(8 + (position * 7 % 1500) as usize, position as u8);
    bytes
}

/// The state that a log gives: the units in their order.
#[derive(Default)]
struct Model(Vec<u8>);

impl Model {
    fn until(position: Position) -> Vec<u8> {
        (1..=position).flat_map(unit).collect()
    }
}

fn open(disk: &SimulatedDisk) -> Result<(Files, Recovered, Vec<u8>), RecoveryError> {
    let mut model = Model::default();
    let apply = |effects: lockwheel_log::recovery::Effects<'_>| {
        model.0.extend_from_slice(effects.bytes);
        Ok(())
    };
    let (files, recovered) =
        Files::open(Arc::new(disk.clone()), [1; 16], apply, |_| Ok(Clocks::default()))?;
    Ok((files, recovered, model.0))
}

fn push(batch: &mut Batch, position: Position) {
    let clocks = Clocks { lease_ms: position as i64, boot_ms: 2 * position as i64, wall_ms: 0 };
    batch.push(position, position, &unit(position), clocks);
}

/// Writes at random until the disk fails. Returns the last unit that was flushed.
fn write_until_crash(
    files: &mut Files,
    mut flushed: Position,
    random: &mut Random,
) -> (Position, Position) {
    let mut batch = Batch::default();
    let mut snapshot = None;
    loop {
        let result = match random.below(20) {
            0 => files.end_segment(),
            1 if files.written() > 0 => files.begin_snapshot().and_then(|mut begun| {
                let state = Model::until(begun.position());
                state.chunks(700).try_for_each(|part| begun.write(part))?;
                snapshot = Some(begun);
                Ok(())
            }),
            2 => match snapshot.take() {
                Some(begun) => {
                    let position = begun.position();
                    begun
                        .finish()
                        .and_then(|()| files.replace_before(position))
                        .and_then(Obsolete::remove)
                }
                None => Ok(()),
            },
            3..10 => files.sync(),
            _ => {
                for _ in 0..=random.below(3) {
                    let next = if batch.is_empty() { files.written() } else { batch.last() } + 1;
                    push(&mut batch, next);
                }
                files.write(&mut batch)
            }
        };
        flushed = flushed.max(files.flushed());
        if result.is_err() {
            return (flushed, files.written());
        }
    }
}

/// Shows G34.
#[test]
fn flushed_units_survive_every_crash() {
    for seed in 1..=2000 {
        let mut random = Random::new(seed);
        let disk = SimulatedDisk::new();
        let (mut flushed, mut readable) = (0, 0);
        for _ in 0..6 {
            let crash = disk.operations() + 1 + random.below(80);
            disk.add_fault(crash, DiskFault::Crash);
            let mut written = readable;
            match open(&disk) {
                Ok((mut files, recovered, state)) => {
                    assert!(recovered.last >= flushed, "seed {seed}: units are missing");
                    assert!(state == Model::until(recovered.last), "seed {seed}: other units");
                    (flushed, written) = write_until_crash(&mut files, recovered.last, &mut random);
                }
                Err(error) => assert!(disk.has_crashed(), "seed {seed}: {error}"),
            }
            assert!(disk.has_crashed(), "seed {seed}: an error without a crash");
            if random.below(4) == 0 {
                disk.end_process();
            } else {
                disk.crash(&mut |bound| random.below(bound));
            }
            let recovered = recover(&disk, |_| Ok(())).unwrap_or_else(|error| {
                panic!("seed {seed}: after a crash the log is not readable: {error}")
            });
            assert!(recovered.last >= flushed, "seed {seed}: units are missing");
            assert!(recovered.last <= written, "seed {seed}: units that were never written");
            readable = recovered.last;
        }
    }
}

/// Shows G35.
#[test]
fn units_left_in_memory_by_a_failed_flush_are_durable_after_a_start() {
    let disk = SimulatedDisk::new();
    let (mut files, ..) = open(&disk).expect("an empty log");
    let mut batch = Batch::default();
    for position in 1..=3 {
        push(&mut batch, position);
        files.write(&mut batch).expect("it is written");
        if position < 3 {
            files.sync().expect("it is flushed");
        }
    }
    disk.add_fault(disk.operations() + 1, DiskFault::Fails);
    files.sync().expect_err("the flush fails");
    drop(files);
    disk.end_process();
    let (files, recovered, _) = open(&disk).expect("the process starts again");
    assert_eq!(recovered.last, 3, "the system still has the unit in memory");
    drop(files);
    disk.crash(&mut |_| 0);
    let (_, recovered, state) = open(&disk).expect("the machine starts again");
    assert_eq!((recovered.last, state), (3, Model::until(3)));
}

#[test]
fn snapshot_that_is_given_up_leaves_no_file() {
    let disk = SimulatedDisk::new();
    let (mut files, ..) = open(&disk).expect("an empty log");
    let before = disk.names().expect("its files");
    let mut snapshot = files.begin_snapshot().expect("a snapshot");
    snapshot.write(b"effects").expect("it is written");
    assert_ne!(disk.names().expect("its files"), before);
    snapshot.give_up().expect("it is removed");
    assert_eq!(disk.names().expect("its files"), before);
}
