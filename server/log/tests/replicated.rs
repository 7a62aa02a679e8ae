//! Logs whose end is cut off and that go on after snapshots of others, on a simulated disk that
//! crashes: what was flushed and not cut off is read again, and units can be read at any time.

use std::sync::Arc;

use lockwheel_log::Position;
use lockwheel_log::files::{Batch, Clocks, Files};
use lockwheel_log::recovery::{Effects, Recovered, RecoveryError};
use lockwheel_simulated_disk::{DiskFault, Random, SimulatedDisk};

/// A log and what it must contain: the values of its units.
struct Log {
    files: Files,
    values: Vec<u64>,
    /// The position of the last unit that may have been removed at the beginning.
    begin: Position,
}

/// The values that a crash may leave: the first of `values`, or those of a snapshot.
struct Kept {
    values: Vec<u64>,
    /// The least number of values that are left.
    least: usize,
    /// The values of a snapshot that was being installed.
    installed: Option<Vec<u64>>,
}

impl Kept {
    fn allows(&self, found: &[u64]) -> bool {
        let is_beginning = self.values.starts_with(found) && found.len() >= self.least;
        is_beginning || self.installed.as_deref() == Some(found)
    }
}

fn open(disk: &SimulatedDisk) -> Result<(Files, Recovered, Vec<u64>), RecoveryError> {
    let mut values = Vec::new();
    let apply = |effects: Effects<'_>| {
        values.extend(effects.bytes.chunks(8).map(value));
        Ok(())
    };
    let opened = Files::open(Arc::new(disk.clone()), [1; 16], apply, |_| Ok(Clocks::default()));
    let (mut files, recovered) = opened?;
    files.set_segment_bytes_max(600);
    Ok((files, recovered, values))
}

fn value(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"))
}

impl Log {
    fn written(&self) -> u64 {
        self.values.len() as u64
    }

    /// Returns the values that a crash may leave if nothing is being done.
    fn kept(&self) -> Kept {
        let least = self.files.flushed() as usize;
        Kept { values: self.values.clone(), least, installed: None }
    }

    fn write(&mut self, random: &mut Random) -> (std::io::Result<()>, Kept) {
        let mut batch = Batch::default();
        let value = random.below(u64::MAX);
        let position = self.written() + 1;
        batch.push(position, position, &value.to_le_bytes(), Clocks::default());
        self.values.push(value);
        let kept = self.kept();
        (self.files.write(&mut batch), kept)
    }

    fn cut(&mut self, random: &mut Random) -> (std::io::Result<()>, Kept) {
        let least = self.begin.max(self.files.snapshot().unwrap_or(0));
        let position = least + random.below(self.written() - least + 1);
        let mut kept = self.kept();
        kept.least = kept.least.min(position as usize);
        self.values.truncate(position as usize);
        (self.files.cut_after(position), kept)
    }

    /// A snapshot of this log at an earlier position, or of a longer one.
    fn snapshot(&mut self, random: &mut Random) -> (std::io::Result<()>, Kept) {
        let is_of_other = random.below(3) == 0;
        let mut state = self.values.clone();
        if is_of_other {
            state.truncate(self.files.snapshot().unwrap_or(0) as usize);
            let missing = self.values.len() - state.len() + 1 + random.below(9) as usize;
            state.extend((0..missing).map(|_| random.below(u64::MAX)));
        }
        let mut kept = self.kept();
        if is_of_other {
            kept.installed = Some(state.clone());
        }
        let files = &mut self.files;
        let mut act = || {
            let position = state.len() as u64;
            let mut snapshot = files.begin_snapshot_at(position, Clocks::default())?;
            let bytes: Vec<u8> = state.iter().flat_map(|value| value.to_le_bytes()).collect();
            bytes.chunks(80).try_for_each(|part| snapshot.write(part))?;
            snapshot.finish()?;
            if is_of_other {
                return files.go_on_after(position, Clocks::default())?.remove();
            }
            files.use_snapshot(position)?.remove()
        };
        let done = act();
        if is_of_other && done.is_ok() {
            (self.begin, self.values) = (state.len() as u64, state);
        }
        (done, kept)
    }

    fn drop_units(&mut self, random: &mut Random) -> (std::io::Result<()>, Kept) {
        let position = random.below(self.files.snapshot().unwrap_or(0) + 1);
        self.begin = self.begin.max(position);
        (self.files.drop_units(position).remove(), self.kept())
    }

    /// Reads units from a random position on.
    fn read(&mut self, random: &mut Random) -> (std::io::Result<()>, Kept) {
        let kept = self.kept();
        let (first, last) = (self.begin + 1, self.written());
        if first > last {
            return (Ok(()), kept);
        }
        let begin = first + random.below(last - first + 1);
        let mut read = Vec::new();
        let mut act = || {
            let mut cursor = self.files.read_from(begin)?;
            // In two parts.
            for end in [begin + random.below(last - begin + 1), last + 1] {
                cursor.read(begin..end, |position, bytes| {
                    read.push((position, value(bytes)));
                    true
                })?;
            }
            Ok(())
        };
        let done = act();
        if done.is_ok() {
            let values = self.values[begin as usize - 1..].iter().copied();
            assert_eq!(read, (begin..).zip(values).collect::<Vec<_>>());
        }
        (done, kept)
    }
}

#[test]
fn flushed_units_that_were_not_cut_off_survive_every_crash() {
    for seed in 1..=1500 {
        let mut random = Random::new(seed);
        let disk = SimulatedDisk::new();
        let mut kept = Kept { values: Vec::new(), least: 0, installed: None };
        for _ in 0..6 {
            let crash = disk.operations() + 1 + random.below(120);
            disk.add_fault(crash, DiskFault::Crash);
            let opened = open(&disk);
            assert!(opened.is_ok() || disk.has_crashed(), "seed {seed}: {opened:?}");
            if let Ok((files, recovered, values)) = opened {
                assert!(kept.allows(&values), "seed {seed}: {:?} {values:?}", kept.values);
                let begin = recovered.snapshot.unwrap_or(0);
                let mut log = Log { files, values, begin };
                kept = loop {
                    let (done, kept) = match random.below(40) {
                        0..2 => log.cut(&mut random),
                        2..4 => log.snapshot(&mut random),
                        4 => log.drop_units(&mut random),
                        5..8 => log.read(&mut random),
                        8..16 => {
                            let kept = log.kept();
                            (log.files.sync(), kept)
                        }
                        _ => log.write(&mut random),
                    };
                    if done.is_err() {
                        assert!(disk.has_crashed(), "seed {seed}: {done:?}");
                        break kept;
                    }
                };
            }
            disk.crash(&mut |bound| random.below(bound));
        }
        let (_, _, values) = open(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(kept.allows(&values), "seed {seed}");
    }
}
