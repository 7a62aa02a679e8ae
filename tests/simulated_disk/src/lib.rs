//! A disk in memory that crashes and fails on command, for tests and simulations.
//!
//! It keeps apart what a process sees and what is durable. A crash keeps any part of what was not
//! flushed: of the writes to a file, any sectors or a part up to a byte; of the changes of names,
//! those up to one of them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockwheel_log::disk::{Disk, DiskFile, DiskLock};

/// What a disk writes at once, or not at all.
const SECTOR_BYTES: usize = 512;

/// A small generator of random numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that gives the same numbers for the same seed, which must not be 0.
    pub fn new(seed: u64) -> Random {
        // Seeds are small, and their first numbers must not be.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A number that is less than `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

/// A source of random numbers: returns one that is less than its argument.
pub type Choose<'a> = &'a mut dyn FnMut(u64) -> u64;

/// See the documentation of the crate. Clones share the disk.
#[derive(Clone, Debug, Default)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

/// What happens to one operation on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// It fails and does nothing. If it is a flush, nothing that was written since the last one
    /// will become durable, although later flushes succeed.
    Fails,
    /// It fails for lack of space. A write leaves half of its bytes.
    IsFull,
    /// It returns a wrong bit, if it is a read.
    ReadsWrongBit,
    /// The machine crashes before it.
    Crash,
}

#[derive(Debug, Default)]
struct State {
    files: Vec<FileState>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// The names after each change that is not flushed.
    unflushed_names: Vec<BTreeMap<String, usize>>,
    /// Changes with every crash: what was opened before is of no use any more.
    run: u64,
    has_crashed: bool,
    locks: BTreeSet<u64>,
    operations: u64,
    faults: BTreeMap<u64, DiskFault>,
    /// The bytes that fit, if that is limited.
    space_bytes: Option<u64>,
    /// Called in each flush of a file.
    on_flush: Option<fn()>,
}

#[derive(Debug, Default)]
struct FileState {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    unflushed: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Write { offset: usize, bytes: Vec<u8> },
    Cut { length: usize },
}

impl SimulatedDisk {
    /// An empty disk.
    pub fn new() -> SimulatedDisk {
        SimulatedDisk::default()
    }

    /// The number of operations so far. Every call of a method of [`Disk`] and [`DiskFile`] is one.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Adds a fault of the operation with this number.
    pub fn add_fault(&self, operation: u64, fault: DiskFault) {
        self.state().faults.insert(operation, fault);
    }

    /// Removes the faults that have not happened.
    pub fn clear_faults(&self) {
        self.state().faults.clear();
    }

    /// Whether the machine has crashed, by a fault. All operations fail then.
    pub fn has_crashed(&self) -> bool {
        self.state().has_crashed
    }

    /// Limits the bytes of all files.
    pub fn set_space(&self, bytes: Option<u64>) {
        self.state().space_bytes = bytes;
    }

    /// Sets an action that is called in each flush of a file. The flush takes as long as the
    /// action.
    pub fn set_on_flush(&self, action: fn()) {
        self.state().on_flush = Some(action);
    }

    /// Ends the process as `kill -9` does: what it has written remains.
    pub fn end_process(&self) {
        let mut state = self.state();
        (state.run, state.has_crashed) = (state.run + 1, false);
        state.locks.clear();
    }

    /// Crashes the machine and starts it again. `choose` determines what is left of the data that
    /// was not flushed.
    pub fn crash(&self, choose: Choose<'_>) {
        self.end_process();
        let mut state = self.state();
        let state = &mut *state;
        for file in &mut state.files {
            file.crash(choose);
        }
        let kept = choose(state.unflushed_names.len() as u64 + 1) as usize;
        if let Some(names) = kept.checked_sub(1).and_then(|at| state.unflushed_names.get(at)) {
            state.durable_names = names.clone();
        }
        state.names = state.durable_names.clone();
        state.unflushed_names.clear();
    }

    /// The contents of a file, as a process sees them.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        Some(state.files[*state.names.get(name)?].bytes.clone())
    }

    /// Replaces the contents of a file, durably. It is added if it does not exist.
    pub fn set_contents(&self, name: &str, bytes: &[u8]) {
        let mut state = self.state();
        let (bytes, durable) = (bytes.to_vec(), bytes.to_vec());
        state.files.push(FileState { bytes, durable, unflushed: Vec::new() });
        let at = state.files.len() - 1;
        let State { names, durable_names, unflushed_names, .. } = &mut *state;
        for names in [names, durable_names].into_iter().chain(unflushed_names) {
            names.insert(name.into(), at);
        }
    }

    /// Removes a file, durably.
    pub fn lose(&self, name: &str) {
        let mut state = self.state();
        let State { names, durable_names, unflushed_names, .. } = &mut *state;
        for names in [names, durable_names].into_iter().chain(unflushed_names) {
            names.remove(name);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an operation of the run with this number; returns what else happens to it.
    fn begin(&self, run: Option<u64>) -> io::Result<(MutexGuard<'_, State>, Option<DiskFault>)> {
        let mut state = self.state();
        if state.has_crashed || run.is_some_and(|run| run != state.run) {
            return Err(io::Error::other("the machine has crashed"));
        }
        state.operations += 1;
        let operation = state.operations;
        match state.faults.remove(&operation) {
            Some(DiskFault::Crash) => {
                state.has_crashed = true;
                Err(io::Error::other("the machine has crashed"))
            }
            fault => Ok((state, fault)),
        }
    }

    /// As `begin`, for an operation that a fault only lets fail.
    fn begin_or_fail(&self, run: Option<u64>) -> io::Result<MutexGuard<'_, State>> {
        match self.begin(run)? {
            (_, Some(DiskFault::Fails)) => Err(io::Error::other("input/output error")),
            (_, Some(DiskFault::IsFull)) => Err(io::ErrorKind::StorageFull.into()),
            (state, _) => Ok(state),
        }
    }

    fn file(&self, at: usize, run: u64) -> Box<dyn DiskFile> {
        Box::new(SimulatedFile { disk: self.clone(), at, run })
    }
}

impl State {
    fn find(&self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn change_names(&mut self, change: impl FnOnce(&mut BTreeMap<String, usize>)) {
        change(&mut self.names);
        self.unflushed_names.push(self.names.clone());
    }

    fn free_bytes(&self) -> u64 {
        let files: BTreeSet<usize> = self.names.values().copied().collect();
        let used: usize = files.into_iter().map(|at| self.files[at].bytes.len()).sum();
        self.space_bytes.map_or(u64::MAX, |space| space.saturating_sub(used as u64))
    }
}

impl FileState {
    fn apply(bytes: &mut Vec<u8>, change: &Change) {
        match change {
            Change::Write { offset, bytes: written } => {
                let end = offset + written.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset..end].copy_from_slice(written);
            }
            Change::Cut { length } => bytes.truncate(*length),
        }
    }

    fn change(&mut self, change: Change) {
        FileState::apply(&mut self.bytes, &change);
        self.unflushed.push(change);
    }

    /// Keeps what is durable, and any part of the rest.
    fn crash(&mut self, choose: Choose<'_>) {
        let unflushed = std::mem::take(&mut self.unflushed);
        let manner = choose(4);
        let whole = choose(unflushed.len() as u64 + 1) as usize;
        for (at, change) in unflushed.iter().enumerate() {
            match (manner, change) {
                (0, _) => {}
                (1, _) => FileState::apply(&mut self.durable, change),
                (2, _) if at < whole => FileState::apply(&mut self.durable, change),
                (2, Change::Write { offset, bytes }) if at == whole => {
                    let length = choose(bytes.len() as u64 + 1) as usize;
                    let bytes = bytes[..length].to_vec();
                    FileState::apply(&mut self.durable, &Change::Write { offset: *offset, bytes });
                }
                (2, _) => {}
                (_, Change::Write { offset, bytes }) => self.keep_sectors(*offset, bytes, choose),
                (_, Change::Cut { .. }) if choose(2) == 0 => {}
                (_, change) => FileState::apply(&mut self.durable, change),
            }
        }
        self.bytes = self.durable.clone();
    }

    fn keep_sectors(&mut self, offset: usize, bytes: &[u8], choose: Choose<'_>) {
        let mut at = 0;
        while at < bytes.len() {
            let next = (at + SECTOR_BYTES - (offset + at) % SECTOR_BYTES).min(bytes.len());
            if choose(2) == 1 {
                let (offset, bytes) = (offset + at, bytes[at..next].to_vec());
                FileState::apply(&mut self.durable, &Change::Write { offset, bytes });
            }
            at = next;
        }
    }
}

impl Disk for SimulatedDisk {
    fn lock(&self) -> io::Result<Box<dyn DiskLock>> {
        let mut state = self.begin_or_fail(None)?;
        let run = state.run;
        if !state.locks.insert(run) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(Box::new(SimulatedLock { disk: self.clone(), run }))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.begin_or_fail(None)?.names.keys().cloned().collect())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.begin_or_fail(None)?;
        if state.names.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        state.files.push(FileState::default());
        let (at, run) = (state.files.len() - 1, state.run);
        state.change_names(|names| {
            names.insert(name.into(), at);
        });
        Ok(self.file(at, run))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let state = self.begin_or_fail(None)?;
        Ok(self.file(state.find(name)?, state.run))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.begin_or_fail(None)?;
        let at = state.find(from)?;
        state.change_names(|names| {
            names.remove(from);
            names.insert(to.into(), at);
        });
        Ok(())
    }

    fn link(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.begin_or_fail(None)?;
        let at = state.find(from)?;
        state.change_names(|names| {
            names.insert(to.into(), at);
        });
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.begin_or_fail(None)?;
        state.find(name)?;
        state.change_names(|names| {
            names.remove(name);
        });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.begin_or_fail(None)?;
        state.durable_names = state.names.clone();
        state.unflushed_names.clear();
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.begin_or_fail(None)?.free_bytes())
    }
}

#[derive(Debug)]
struct SimulatedLock {
    disk: SimulatedDisk,
    run: u64,
}

impl DiskLock for SimulatedLock {}

impl Drop for SimulatedLock {
    fn drop(&mut self) {
        self.disk.state().locks.remove(&self.run);
    }
}

#[derive(Debug)]
struct SimulatedFile {
    disk: SimulatedDisk,
    at: usize,
    /// Run in which the file was opened.
    run: u64,
}

impl DiskFile for SimulatedFile {
    fn length(&self) -> io::Result<u64> {
        let state = self.disk.begin_or_fail(Some(self.run))?;
        Ok(state.files[self.at].bytes.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let (state, fault) = self.disk.begin(Some(self.run))?;
        if fault == Some(DiskFault::Fails) {
            return Err(io::Error::other("input/output error"));
        }
        let bytes = &state.files[self.at].bytes;
        let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        if fault == Some(DiskFault::ReadsWrongBit) && length > 0 {
            buffer[length / 2] ^= 1;
        }
        Ok(length)
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (mut state, fault) = self.disk.begin(Some(self.run))?;
        let is_full = fault == Some(DiskFault::IsFull) || state.free_bytes() < bytes.len() as u64;
        let file = &mut state.files[self.at];
        if fault == Some(DiskFault::Fails) {
            return Err(io::Error::other("input/output error"));
        }
        let offset = file.bytes.len();
        let kept = if is_full { bytes.len() / 2 } else { bytes.len() };
        file.change(Change::Write { offset, bytes: bytes[..kept].to_vec() });
        if is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.begin_or_fail(Some(self.run))?;
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        state.files[self.at].change(Change::Write { offset, bytes: bytes.to_vec() });
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        let mut state = self.disk.begin_or_fail(Some(self.run))?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        state.files[self.at].change(Change::Cut { length });
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let (mut state, fault) = self.disk.begin(Some(self.run))?;
        if let Some(action) = state.on_flush {
            action();
        }
        let file = &mut state.files[self.at];
        let changes = std::mem::take(&mut file.unflushed);
        if matches!(fault, Some(DiskFault::Fails | DiskFault::IsFull)) {
            // As Linux does: the pages are clean now, whether they were written or not, and later
            // flushes leave them out.
            return Err(io::Error::other("input/output error"));
        }
        for change in &changes {
            FileState::apply(&mut file.durable, change);
        }
        Ok(())
    }
}
