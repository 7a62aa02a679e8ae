//! Writes the units of the engine to files of this machine.
//!
//! Units collect in a batch while the batch before is written and flushed: a batch is as large as
//! the disk is slow. A thread of its own writes, unless a thread that has nothing else to do writes
//! its own units ([`FileLog::write_here`]).
//!
//! Clients that send their next requests when they get their replies would form two groups: one
//! waits for a flush while the other one works, and each request takes two flushes. So the thread
//! waits for the clients that it has just released, for a part of a flush at most ([`Pace`]).

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use lockwheel_defects::defect;
use lockwheel_engine::durability::lease_ceiling::Ceiling;
use lockwheel_engine::durability::unit_log::{Position, Units};
use lockwheel_engine::settings::FlushPolicy;
use lockwheel_log::ceiling::Kept;
use lockwheel_log::files::{Batch, Clocks, Files, Obsolete, Snapshot};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tracing::error;

use crate::clock::Stopwatch;
use crate::durability::ceiling_file::CeilingFile;
use crate::durability::commit_gate::CommitGate;
use crate::durability::restored::{OpenFiles, kept_by};
use crate::durability::{Log, LogOwner, LogSizes};
use crate::limits;

/// A log in files of this machine.
#[derive(Debug)]
pub(crate) struct FileLog {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    orders: Mutex<Orders>,
    /// Wakes the thread: there are orders, or the log ends.
    work: Condvar,
    /// The files; the thread that holds them carries out orders, in order.
    files: Mutex<OpenFiles>,
    gate: Arc<CommitGate>,
    /// The [`FlushPolicy`] that is followed, and the one that the settings say.
    policy: AtomicU8,
    wanted_policy: AtomicU8,
    owner: Weak<dyn LogOwner>,
    /// Whether there was an error: nothing is written any more.
    has_failed: AtomicBool,
    /// The bytes of the units that wait, and of those that are being written.
    unwritten_bytes: Arc<AtomicU64>,
    /// Whether flushes that replies wait for are timed.
    times_flushes: AtomicBool,
    /// The nanoseconds of the longest one that has not been taken; 0 for none.
    longest_flush_ns: AtomicU64,
}

/// What has to be done with the files, in order.
#[derive(Debug, Default)]
struct Orders {
    waiting: VecDeque<Order>,
    /// An empty batch, to be used again.
    spare: Option<Batch>,
    /// Number of waiting units until which the thread sleeps; 0 if it does not.
    awaited_units: u64,
    ends: bool,
}

impl Orders {
    /// The number of units that wait, if nothing else does.
    fn units_only(&self) -> Option<u64> {
        match (self.waiting.front(), self.waiting.len()) {
            (Some(Order::Write(batch)), 1) => Some(batch.units()),
            _ => None,
        }
    }
}

/// The pace of the thread: the units that the next batch should have, and the wait for them.
#[derive(Debug, Default)]
struct Pace {
    units: u64,
    wait: Duration,
}

impl Pace {
    /// Returns the pace after a flush that took `elapsed`: as many units as were under way during
    /// it are expected again.
    fn after_flush(flushed_units: u64, waiting_units: u64, elapsed: Duration) -> Pace {
        let wait = (elapsed / limits::FLUSH_PARTS_TO_WAIT).min(limits::FLUSH_WAIT_MAX);
        Pace { units: flushed_units + waiting_units, wait }
    }
}

#[derive(Debug)]
enum Order {
    /// Write these units.
    Write(Batch),
    /// Begin a snapshot of the state after the units before, and send the file.
    BeginSnapshot(SyncSender<Snapshot>),
    /// Record this lease ceiling.
    Record(Ceiling, Clocks),
    /// Follow this policy.
    Follow(FlushPolicy),
}

impl FileLog {
    /// A log that releases to `gate`; everything in `files` is released. Nothing is written before
    /// [`FileLog::start_thread`], except by [`FileLog::write_here`]. Counts the bytes that are not
    /// written in `unwritten_bytes`.
    pub(crate) fn new(
        files: OpenFiles,
        policy: FlushPolicy,
        gate: &Arc<CommitGate>,
        unwritten_bytes: &Arc<AtomicU64>,
        owner: Weak<dyn LogOwner>,
    ) -> FileLog {
        let flushed = files.log.as_ref().map_or(0, |log| log.flushed());
        gate.release(flushed, flushed);
        let shared = Shared {
            orders: Mutex::default(),
            work: Condvar::new(),
            files: Mutex::new(files),
            gate: Arc::clone(gate),
            policy: AtomicU8::new(policy as u8),
            wanted_policy: AtomicU8::new(policy as u8),
            owner,
            has_failed: AtomicBool::new(false),
            unwritten_bytes: Arc::clone(unwritten_bytes),
            times_flushes: AtomicBool::new(false),
            longest_flush_ns: AtomicU64::new(0),
        };
        FileLog { shared: Arc::new(shared), thread: Mutex::default() }
    }

    /// Starts the thread.
    pub(crate) fn start_thread(&self) -> io::Result<()> {
        #[cfg(feature = "simulation")]
        if crate::simulation::is_on() {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("lockwheel-log".into());
        *self.thread.lock() = Some(thread.spawn(move || shared.write_until_end())?);
        Ok(())
    }

    fn order(&self, order: Order) {
        self.shared.orders.lock().waiting.push_back(order);
        self.wake();
    }

    fn end(&self) {
        self.shared.orders.lock().ends = true;
        self.wake();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the thread has been reported where it happened.
            let _ = thread.join();
        }
    }

    /// As [`Log::append`], for a thread that calls [`FileLog::write_here`] soon: the log's thread
    /// is not woken.
    pub(crate) fn append_here(&self, units: Units<'_>, clocks: Clocks) {
        self.push(units, clocks);
    }

    /// Queues units. Returns whether the log's thread waits for them.
    fn push(&self, units: Units<'_>, clocks: Clocks) -> bool {
        let Units { first, last, effects } = units;
        self.shared.unwritten_bytes.fetch_add(effects.len() as u64, Ordering::Relaxed);
        let mut orders = self.shared.orders.lock();
        match orders.waiting.back_mut() {
            Some(Order::Write(batch)) if batch.bytes() < limits::LOG_BATCH_BYTES => {
                batch.push(first, last, effects, clocks);
            }
            _ => {
                let mut batch = orders.spare.take().unwrap_or_default();
                batch.push(first, last, effects, clocks);
                orders.waiting.push_back(Order::Write(batch));
            }
        }
        let is_awaited = orders.units_only().is_none_or(|units| units >= orders.awaited_units);
        drop(orders);
        if defect!(ReplyBeforeFlush) {
            self.shared.gate.release(last, last);
        }
        is_awaited
    }

    /// Writes and flushes on this thread what was appended, unless another thread is writing.
    pub(crate) fn write_here(&self) {
        if let Some(mut files) = self.shared.files.try_lock() {
            self.shared.carry_out_all(&mut files);
        } else {
            self.wake();
        }
    }

    /// Wakes the log's thread, which writes what was appended.
    pub(crate) fn wake(&self) {
        self.shared.work.notify_one();
    }

    /// Sets the policy by which later writes are flushed.
    pub(crate) fn set_policy(&self, policy: FlushPolicy) {
        if self.shared.wanted_policy.load(Ordering::Acquire) != policy as u8 {
            self.follow(policy);
        }
    }

    /// As [`FileLog::set_policy`]; all leases are in the log from now on.
    pub(crate) fn follow(&self, policy: FlushPolicy) {
        self.shared.wanted_policy.store(policy as u8, Ordering::Release);
        self.order(Order::Follow(policy));
    }

    /// Sets whether flushes that replies wait for are timed.
    pub(crate) fn time_flushes(&self, is_timed: bool) {
        if self.shared.times_flushes.load(Ordering::Relaxed) != is_timed {
            self.shared.times_flushes.store(is_timed, Ordering::Relaxed);
        }
    }

    /// The nanoseconds of the longest flush since the last call, among those that were timed.
    pub(crate) fn take_longest_flush(&self) -> Option<u64> {
        let longest_ns = &self.shared.longest_flush_ns;
        // Most calls find none, and a swap costs more.
        let is_timed = longest_ns.load(Ordering::Relaxed) > 0;
        is_timed.then(|| longest_ns.swap(0, Ordering::Relaxed))
    }

    /// Records the ceiling before the units that are appended later are released.
    pub(crate) fn raise_ceiling(&self, ceiling: Ceiling, clocks: Clocks) {
        self.order(Order::Record(ceiling, clocks));
    }

    /// Records a lower ceiling, and all that was ordered before. It is durable when this returns.
    pub(crate) fn lower_ceiling(&self, ceiling: Ceiling, clocks: Clocks) {
        self.order(Order::Record(ceiling, clocks));
        let mut files = self.shared.files.lock();
        self.shared.carry_out_all(&mut files);
    }

    /// Begins a snapshot of the state after the units that were appended. The file is sent to the
    /// receiver that is returned; not if the log ends or fails.
    pub(crate) fn begin_snapshot(&self) -> Receiver<Snapshot> {
        let (sender, receiver) = sync_channel(1);
        self.order(Order::BeginSnapshot(sender));
        receiver
    }

    /// Removes the files that a complete snapshot replaces, on this thread.
    pub(crate) fn remove_before(&self, snapshot: Position) {
        if self.shared.has_failed.load(Ordering::Acquire) {
            return;
        }
        let replace = |log: &mut Files| log.replace_before(snapshot);
        let obsolete = self.shared.files.lock().log.as_mut().map(replace);
        // The files are removed without the lock, so that units are written meanwhile.
        let removed = obsolete.transpose().and_then(|files| files.map_or(Ok(()), Obsolete::remove));
        self.shared.check(removed);
    }

    /// Writes and flushes all units, ends the log, and gives up the directory. The leases of `keys`
    /// still run.
    pub(crate) fn end_with(&self, keys: Option<Ceiling>, clocks: Clocks) {
        self.end();
        // After an error the log may lack units, and the record must not say that it has all.
        if let Some(keys) = keys
            && !self.shared.has_failed.load(Ordering::Acquire)
        {
            self.shared.check(self.shared.files.lock().end(&keys, clocks));
        }
        // Another server may use the directory from now on, so nothing is written any more.
        *self.shared.files.lock() = OpenFiles::new(None, None, None);
    }

    /// Carries out the next order, on this thread. For a log without a thread.
    #[cfg(feature = "simulation")]
    pub(crate) fn step(&self) {
        let shared = &self.shared;
        let mut files = shared.files.lock();
        if !shared.has_failed.load(Ordering::Acquire) {
            shared.check(shared.carry_out(&mut files));
        }
    }

    /// Whether [`FileLog::step`] has something to do.
    #[cfg(feature = "simulation")]
    pub(crate) fn has_orders(&self) -> bool {
        !self.shared.has_failed.load(Ordering::Acquire)
            && !self.shared.orders.lock().waiting.is_empty()
    }

    /// Does what the log's thread does once a second.
    #[cfg(feature = "simulation")]
    pub(crate) fn second(&self) {
        if !self.shared.has_failed.load(Ordering::Acquire) {
            self.shared.end_second(self.shared.files.lock());
        }
    }

    /// Writes and flushes all units, as the log's thread does when it ends.
    #[cfg(feature = "simulation")]
    pub(crate) fn finish(&self) {
        self.shared.finish();
    }
}

impl Log for FileLog {
    /// The units are written by the log's thread.
    fn append(&self, units: Units<'_>, clocks: Clocks) {
        if self.push(units, clocks) {
            self.wake();
        }
    }

    fn released(&self) -> Position {
        self.shared.gate.released()
    }

    fn flushed(&self) -> Position {
        self.shared.gate.flushed()
    }
}

impl Shared {
    fn policy(&self) -> FlushPolicy {
        let number = usize::from(self.policy.load(Ordering::Acquire));
        FlushPolicy::ALL.get(number).copied().unwrap_or(FlushPolicy::Always)
    }

    fn write_until_end(&self) {
        let (mut last_second, mut pace) = (Stopwatch::start(), Pace::default());
        while self.wait_for_orders() && !self.has_failed.load(Ordering::Acquire) {
            self.wait_for_units(&pace);
            let mut files = self.files.lock();
            let begin = Stopwatch::start();
            let before = self.gate.released();
            self.check(self.carry_out(&mut files));
            let flushed_units = self.gate.released() - before;
            if flushed_units > 0 {
                let waiting_units = self.orders.lock().units_only().unwrap_or(0);
                pace = Pace::after_flush(flushed_units, waiting_units, begin.elapsed());
            }
            if last_second.elapsed() >= SECOND {
                last_second = Stopwatch::start();
                self.end_second(files);
            }
        }
        self.finish();
    }

    fn finish(&self) {
        let mut files = self.files.lock();
        self.carry_out_all(&mut files);
        self.check(files.sync());
    }

    /// Waits for orders, or for a second; false if the log ends.
    fn wait_for_orders(&self) -> bool {
        let mut orders = self.orders.lock();
        if orders.waiting.is_empty() && !orders.ends {
            self.work.wait_for(&mut orders, SECOND);
        }
        !orders.ends
    }

    /// Waits until the next batch has as many units as are expected, unless something else waits,
    /// or replies do not wait for a flush.
    fn wait_for_units(&self, pace: &Pace) {
        if self.policy() != FlushPolicy::Always {
            return;
        }
        let begin = Stopwatch::start();
        let mut orders = self.orders.lock();
        orders.awaited_units = pace.units;
        while orders.units_only().is_some_and(|units| units < pace.units) && !orders.ends {
            let left = pace.wait.saturating_sub(begin.elapsed());
            if left.is_zero() || self.work.wait_for(&mut orders, left).timed_out() {
                break;
            }
        }
        orders.awaited_units = 0;
    }

    /// Carries out all orders.
    fn carry_out_all(&self, files: &mut OpenFiles) {
        loop {
            if self.has_failed.load(Ordering::Acquire) || !self.check(self.carry_out(files)) {
                return;
            }
        }
    }

    /// Carries out the next order; returns whether there was one.
    fn carry_out(&self, files: &mut OpenFiles) -> io::Result<bool> {
        let order = self.orders.lock().waiting.pop_front();
        match order {
            None => return Ok(false),
            Some(Order::Write(mut batch)) => {
                let (last, bytes) = (batch.last(), batch.bytes() as u64);
                files.write(&mut batch)?;
                self.unwritten_bytes.fetch_sub(bytes, Ordering::Relaxed);
                if self.policy() == FlushPolicy::Always && !defect!(ReleasedBeforeFlush) {
                    self.flush(files)?;
                }
                self.release(last, files);
                self.orders.lock().spare = Some(batch);
            }
            Some(Order::BeginSnapshot(sender)) => {
                // Fails if the snapshot has been given up.
                if let Some(log) = &mut files.log {
                    let _ = sender.send(log.begin_snapshot()?);
                }
                files.record_segment()?;
            }
            Some(Order::Record(ceiling, clocks)) => files.raise_ceiling(&ceiling, clocks)?,
            Some(Order::Follow(policy)) => {
                files.follow(policy)?;
                self.policy.store(policy as u8, Ordering::Release);
            }
        }
        Ok(true)
    }

    /// Flushes units before they are released.
    fn flush(&self, files: &mut OpenFiles) -> io::Result<()> {
        if files.log.is_none() || !self.times_flushes.load(Ordering::Relaxed) {
            return files.sync();
        }
        let begin = Stopwatch::start();
        files.sync()?;
        let took_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.longest_flush_ns.fetch_max(took_ns.max(1), Ordering::Relaxed);
        Ok(())
    }

    fn release(&self, written: Position, files: &OpenFiles) {
        let flushed = files.log.as_ref().map_or(0, |log| log.flushed());
        let flushed = if defect!(WrittenCountsAsFlushed) { written } else { flushed };
        self.gate.release(written, flushed);
        if self.gate.is_flush_awaited()
            && let Some(owner) = self.owner.upgrade()
        {
            owner.log_is_flushed();
        }
    }

    /// Does what is due once a second.
    fn end_second(&self, mut files: MutexGuard<'_, OpenFiles>) {
        let is_due = self.policy() == FlushPolicy::EverySecond || defect!(ReleasedBeforeFlush);
        if is_due && self.check(files.sync().map(|()| true)) {
            self.release(0, &files);
        }
        let Some(free_bytes) = files.free_bytes() else { return };
        // Every change is in a file of the log, or none is promised any more.
        if let Some(Err(error)) = files.log.as_ref().map(Files::check_names)
            && error.kind() == io::ErrorKind::NotFound
        {
            return self.check(Err(error));
        }
        let sizes = files
            .log
            .as_ref()
            .map(|log| LogSizes { snapshot: log.snapshot_bytes(), segments: log.segment_bytes() });
        drop(files);
        if let Some(owner) = self.owner.upgrade() {
            owner.log_second(sizes, free_bytes);
        }
    }

    /// Returns the value of a result; after an error the log has failed. No write is repeated,
    /// since a second flush may succeed although the data of the first one is lost.
    fn check<T: Default>(&self, result: io::Result<T>) -> T {
        result.unwrap_or_else(|error| {
            if !self.has_failed.swap(true, Ordering::AcqRel) {
                error!(%error, "the log cannot be written; the server stops");
                if let Some(owner) = self.owner.upgrade() {
                    owner.log_has_failed();
                }
            }
            T::default()
        })
    }
}

impl OpenFiles {
    /// Writes units. Without a log there is nothing to write.
    fn write(&mut self, batch: &mut Batch) -> io::Result<()> {
        let Some(log) = &mut self.log else {
            batch.clear();
            return Ok(());
        };
        log.write(batch)?;
        self.record_segment()
    }

    /// Records the segment that the log has begun: a start finds out then whether it is missing.
    fn record_segment(&mut self) -> io::Result<()> {
        match (&self.log, &mut self.ceiling) {
            (Some(log), Some(ceiling)) => ceiling.set_segment(log.segment()),
            _ => Ok(()),
        }
    }

    /// The free space of their disk; `None` without files.
    pub(crate) fn free_bytes(&self) -> Option<io::Result<u64>> {
        match (&self.log, &self.ceiling) {
            (Some(log), _) => Some(log.free_bytes()),
            (None, ceiling) => ceiling.as_ref().map(CeilingFile::free_bytes),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.log.as_mut().map_or(Ok(()), |log| log.sync())
    }

    fn raise_ceiling(&mut self, ceiling: &Ceiling, clocks: Clocks) -> io::Result<()> {
        let Some(file) = &mut self.ceiling else { return Ok(()) };
        file.write(ceiling, file.kept(), clocks)
    }

    /// Prepares the files for a policy. Before less is kept than the record says, the record must
    /// say so; it says more when that is true.
    fn follow(&mut self, policy: FlushPolicy) -> io::Result<()> {
        let kept = kept_by(policy);
        if self.log.is_none() {
            return Ok(());
        }
        if kept == Kept::Durable {
            self.sync()?;
        }
        self.ceiling.as_mut().map_or(Ok(()), |ceiling| ceiling.set_kept(kept))
    }

    /// Records what is left of the leases when the server ends. The log is flushed.
    fn end(&mut self, keys: &Ceiling, clocks: Clocks) -> io::Result<()> {
        let Some(file) = &mut self.ceiling else { return Ok(()) };
        let kept = match file.kept() {
            Kept::Nothing => Kept::Nothing,
            Kept::Written | Kept::Durable => Kept::Durable,
        };
        file.write(keys, kept, clocks)
    }
}

const SECOND: Duration = Duration::from_secs(1);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("orders", &self.orders).finish_non_exhaustive()
    }
}

impl Drop for FileLog {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use lockwheel_engine::timing::time::Millis;
    use lockwheel_log::ceiling::CeilingRecord;
    use lockwheel_log::recovery::Recovered;
    use lockwheel_simulated_disk::{DiskFault, Random, SimulatedDisk};

    use super::*;

    struct NoOwner;

    impl LogOwner for NoOwner {
        fn log_has_failed(&self) {}

        fn log_second(&self, _: Option<LogSizes>, _: io::Result<u64>) {}

        fn log_is_flushed(&self) {}
    }

    /// The operations of the disk that write a unit.
    const WRITE: u64 = 1;
    const FLUSH: u64 = 2;

    /// What the record says after a server with `appendfsync everysec` has ended. A fault happens
    /// to that operation of the disk, of those that write the last unit.
    fn kept_after_the_end(faulty_operation: Option<u64>) -> Kept {
        let disk = Arc::new(SimulatedDisk::new());
        let (boot_id, clocks) = ([1; 16], Clocks::default());
        let ceiling = Ceiling { deadline: Millis(60_000), ..Ceiling::NONE };
        let opened = Files::open(disk.clone(), boot_id, |_| Ok(()), |_| Ok(clocks));
        let (files, _) = opened.expect("an empty log");
        let record = CeilingFile::begin(disk.clone(), boot_id, &ceiling, Kept::Written, clocks, 1);
        let files = OpenFiles::new(Some(files), Some(record.expect("a record")), None);
        let (gate, owner) = (Arc::new(CommitGate::default()), Arc::new(NoOwner));
        let owner: Weak<dyn LogOwner> = Arc::<NoOwner>::downgrade(&owner);
        let unwritten_bytes = Arc::default();
        let log = FileLog::new(files, FlushPolicy::EverySecond, &gate, &unwritten_bytes, owner);
        log.append_here(Units { first: 1, last: 1, effects: b"effects" }, clocks);
        assert_eq!(unwritten_bytes.load(Ordering::Relaxed), 7);
        if let Some(operation) = faulty_operation {
            disk.add_fault(disk.operations() + operation, DiskFault::Fails);
        }
        log.start_thread().expect("a thread");
        log.end_with(Some(ceiling), clocks);
        let is_written = unwritten_bytes.load(Ordering::Relaxed) == 0;
        assert_eq!(is_written, faulty_operation != Some(WRITE));
        CeilingRecord::read(&*disk).expect("a disk").expect("a record").kept
    }

    #[test]
    fn record_says_that_the_log_is_complete_only_if_its_last_flush_succeeded() {
        assert_eq!(kept_after_the_end(None), Kept::Durable);
        assert_eq!(kept_after_the_end(Some(WRITE)), Kept::Written);
        assert_eq!(kept_after_the_end(Some(FLUSH)), Kept::Written);
    }

    /// What happens to a log.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Append,
        SetPolicy(FlushPolicy),
        /// The next order is carried out.
        CarryOut,
        /// All orders are carried out.
        CarryOutAll,
        Second,
    }

    fn steps(random: &mut Random) -> Vec<Step> {
        let mut step = |_| match random.below(12) {
            0..4 => Step::Append,
            4..6 => Step::SetPolicy(
                FlushPolicy::ALL[random.below(FlushPolicy::ALL.len() as u64) as usize],
            ),
            6..10 => Step::CarryOut,
            10 => Step::CarryOutAll,
            _ => Step::Second,
        };
        (0..20).map(&mut step).collect()
    }

    /// A log whose orders are carried out step by step.
    struct Stage {
        disk: SimulatedDisk,
        gate: Arc<CommitGate>,
        log: FileLog,
        last: Position,
        policy: FlushPolicy,
        /// The units that were appended while `appendfsync` was `always`.
        appended_under_always: Vec<Position>,
    }

    const BOOT_ID: [u8; 16] = [1; 16];

    impl Stage {
        fn new(policy: FlushPolicy) -> Stage {
            let (disk, clocks) = (SimulatedDisk::new(), Clocks::default());
            let shared = Arc::new(disk.clone());
            let opened = Files::open(shared.clone(), BOOT_ID, |_| Ok(()), |_| Ok(clocks));
            let (files, _) = opened.expect("an empty log");
            let (ceiling, kept) = (Ceiling::NONE, kept_by(policy));
            let record = CeilingFile::begin(shared, BOOT_ID, &ceiling, kept, clocks, 1);
            let files = OpenFiles::new(Some(files), Some(record.expect("a record")), None);
            let gate = Arc::new(CommitGate::default());
            let owner: Weak<dyn LogOwner> = Weak::<NoOwner>::new();
            let log = FileLog::new(files, policy, &gate, &Arc::default(), owner);
            let (last, appended_under_always) = (0, Vec::new());
            Stage { disk, gate, log, last, policy, appended_under_always }
        }

        fn take(&mut self, step: Step) {
            let shared = &self.log.shared;
            match step {
                Step::Append => {
                    self.last += 1;
                    let (first, last) = (self.last, self.last);
                    let units = Units { first, last, effects: b"effects" };
                    self.log.append(units, Clocks::default());
                    if self.policy == FlushPolicy::Always {
                        self.appended_under_always.push(last);
                    }
                }
                Step::SetPolicy(policy) => {
                    self.policy = policy;
                    self.log.set_policy(policy);
                }
                Step::CarryOut => {
                    shared.check(shared.carry_out(&mut shared.files.lock()));
                }
                Step::CarryOutAll => self.log.write_here(),
                Step::Second => shared.end_second(shared.files.lock()),
            }
            assert!(self.gate.flushed() <= self.gate.released());
            assert!(self.gate.released() <= self.last);
        }

        /// Crashes the machine, which loses all that was not flushed.
        fn crash(self) {
            let (released, flushed) = (self.gate.released(), self.gate.flushed());
            let disk = self.disk.clone();
            drop(self.log);
            disk.clear_faults();
            disk.crash(&mut |_| 0);
            let record = CeilingRecord::read(&disk).expect("a disk").expect("a record");
            let clocks = |_: &Recovered| Ok(Clocks::default());
            let opened = Files::open(Arc::new(disk), BOOT_ID, |_| Ok(()), clocks);
            let found = opened.expect("a log").0.flushed();
            assert!(flushed <= found, "{flushed} is called durable, and {found} is");
            let is_complete = released <= found;
            assert!(is_complete || record.kept == Kept::Written, "the record is wrong");
            let mut promised = self.appended_under_always.into_iter();
            let lost = promised.find(|unit| (found + 1..=released).contains(unit));
            assert_eq!(lost, None, "of {released} released units, {found} are left");
        }
    }

    /// Crashes before any operation of the disk, while the policy changes between units that wait,
    /// are written and are flushed.
    #[test]
    fn released_unit_is_durable_or_the_record_says_otherwise() {
        for seed in 1..100 {
            let mut random = Random::new(seed);
            let policy = FlushPolicy::ALL[random.below(FlushPolicy::ALL.len() as u64) as usize];
            let steps = steps(&mut random);
            let mut has_crashed = true;
            for operation in 1.. {
                if !has_crashed {
                    break;
                }
                let mut stage = Stage::new(policy);
                stage.disk.add_fault(stage.disk.operations() + operation, DiskFault::Crash);
                for step in &steps {
                    if !stage.disk.has_crashed() {
                        stage.take(*step);
                    }
                }
                has_crashed = stage.disk.has_crashed();
                stage.crash();
            }
        }
    }

    #[test]
    fn changed_policy_counts_from_its_place_between_the_units() {
        let mut stage = Stage::new(FlushPolicy::EverySecond);
        let places = |stage: &Stage| (stage.gate.released(), stage.gate.flushed());
        for step in [Step::Append, Step::SetPolicy(FlushPolicy::Always), Step::Append] {
            stage.take(step);
        }
        stage.take(Step::CarryOut);
        assert_eq!(places(&stage), (1, 0), "the first unit is written");
        stage.take(Step::CarryOut);
        stage.take(Step::CarryOut);
        assert_eq!(places(&stage), (2, 2));
        for step in [Step::SetPolicy(FlushPolicy::Never), Step::Append, Step::CarryOutAll] {
            stage.take(step);
        }
        assert_eq!(places(&stage), (3, 2));
        stage.take(Step::Second);
        assert_eq!(places(&stage), (3, 2), "nothing is flushed");
        stage.take(Step::SetPolicy(FlushPolicy::EverySecond));
        stage.take(Step::CarryOutAll);
        stage.take(Step::Second);
        assert_eq!(places(&stage), (3, 3));
    }
}
