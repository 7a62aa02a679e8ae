//! The log of a server: writes the units of the engine to files.
//!
//! Units collect in a batch while the batch before is written and flushed. There is no timer: a
//! batch is as large as the disk is slow. A thread of its own writes, unless a thread that has
//! nothing else to do writes its own units ([`FileLog::write_here`]).

mod restored;
pub(crate) mod settings;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use lockwheel_engine::settings::FlushPolicy;
use lockwheel_engine::unit_log::{Position, Units};
use lockwheel_log::files::{Batch, Clocks, Files, Snapshot};
use parking_lot::{Condvar, Mutex};
use tracing::error;

use crate::clock::Stopwatch;
use crate::limits;
use crate::net::commit_gate::CommitGate;
pub(crate) use restored::RestoredLog;

/// What the log causes in the server.
pub(crate) trait LogOwner: Send + Sync {
    /// The log cannot be written: nothing is released any more, and the server must stop.
    fn log_has_failed(&self);

    /// Called about once a second.
    fn log_second(&self, sizes: LogSizes);

    /// Everything up to the position is durable, and a client waits for that.
    fn log_is_flushed(&self);
}

/// The sizes of the files of a log, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogSizes {
    /// The snapshot.
    pub(crate) snapshot: u64,
    /// The segments after it.
    pub(crate) segments: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct FileLog {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    orders: Mutex<Orders>,
    /// There are orders, or the log ends.
    work: Condvar,
    /// A thread that has them carries out orders, in order.
    files: Mutex<Files>,
    gate: Arc<CommitGate>,
    /// A [`FlushPolicy`].
    policy: AtomicU8,
    owner: Weak<dyn LogOwner>,
    /// After an error nothing is written any more.
    has_failed: AtomicBool,
}

/// What has to be done with the files, in order.
#[derive(Debug, Default)]
struct Orders {
    waiting: VecDeque<Order>,
    /// An empty batch, to be used again.
    spare: Option<Batch>,
    ends: bool,
}

#[derive(Debug)]
enum Order {
    /// Write these units.
    Write(Batch),
    /// Begin a snapshot of the state after the units before, and send the file.
    BeginSnapshot(SyncSender<Snapshot>),
    /// A snapshot of this position is complete.
    RemoveBefore(Position),
}

impl FileLog {
    /// A log that releases to `gate`; everything in `files` is released. Nothing is written before
    /// [`FileLog::start_thread`], except by [`FileLog::write_here`].
    pub(crate) fn new(
        files: Files,
        policy: FlushPolicy,
        gate: &Arc<CommitGate>,
        owner: Weak<dyn LogOwner>,
    ) -> FileLog {
        gate.release(files.flushed(), files.flushed());
        let shared = Shared {
            orders: Mutex::default(),
            work: Condvar::new(),
            files: Mutex::new(files),
            gate: Arc::clone(gate),
            policy: AtomicU8::new(policy as u8),
            owner,
            has_failed: AtomicBool::new(false),
        };
        FileLog { shared: Arc::new(shared), thread: Mutex::default() }
    }

    /// Starts the thread.
    pub(crate) fn start_thread(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("lockwheel-log".into());
        *self.thread.lock() = Some(thread.spawn(move || shared.write_until_end())?);
        Ok(())
    }

    /// Appends units, which follow those before. They are written by the log's thread, or, if
    /// `here` is true, by this thread, which must call [`FileLog::write_here`] soon.
    pub(crate) fn append(&self, units: Units<'_>, clocks: Clocks, here: bool) {
        let Units { first, last, effects } = units;
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
        drop(orders);
        if !here {
            self.wake();
        }
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

    /// From now on, what is written is flushed according to `policy`.
    pub(crate) fn set_policy(&self, policy: FlushPolicy) {
        if self.shared.policy() != policy {
            self.shared.policy.store(policy as u8, Ordering::Release);
        }
    }

    /// Begins a snapshot of the state after the units that were appended. The file is sent to the
    /// receiver that is returned; not if the log ends or fails.
    pub(crate) fn begin_snapshot(&self) -> Receiver<Snapshot> {
        let (sender, receiver) = sync_channel(1);
        self.order(Order::BeginSnapshot(sender));
        receiver
    }

    /// A snapshot is complete: files that it replaces are removed.
    pub(crate) fn remove_before(&self, snapshot: Position) {
        self.order(Order::RemoveBefore(snapshot));
    }

    fn order(&self, order: Order) {
        self.shared.orders.lock().waiting.push_back(order);
        self.wake();
    }

    /// Writes and flushes all units, and ends the thread.
    pub(crate) fn end(&self) {
        self.shared.orders.lock().ends = true;
        self.wake();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the thread has been reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn policy(&self) -> FlushPolicy {
        let number = usize::from(self.policy.load(Ordering::Acquire));
        FlushPolicy::ALL.get(number).copied().unwrap_or_default()
    }

    fn write_until_end(&self) {
        let mut last_second = Stopwatch::start();
        while self.wait_for_orders() && !self.has_failed.load(Ordering::Acquire) {
            let mut files = self.files.lock();
            self.carry_out_all(&mut files);
            if last_second.elapsed() >= SECOND {
                last_second = Stopwatch::start();
                self.end_second(files);
            }
        }
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

    /// Carries out all orders.
    fn carry_out_all(&self, files: &mut Files) {
        loop {
            if self.has_failed.load(Ordering::Acquire) || !self.check(self.carry_out(files)) {
                return;
            }
        }
    }

    /// Carries out the next order; returns whether there was one.
    fn carry_out(&self, files: &mut Files) -> io::Result<bool> {
        let order = self.orders.lock().waiting.pop_front();
        match order {
            None => return Ok(false),
            Some(Order::Write(mut batch)) => {
                files.write(&mut batch)?;
                if self.policy() == FlushPolicy::Always {
                    files.sync()?;
                }
                self.release(files);
                self.orders.lock().spare = Some(batch);
            }
            Some(Order::BeginSnapshot(sender)) => {
                // Fails if the snapshot has been given up.
                let _ = sender.send(files.begin_snapshot()?);
            }
            Some(Order::RemoveBefore(snapshot)) => files.remove_before(snapshot)?,
        }
        Ok(true)
    }

    fn release(&self, files: &Files) {
        self.gate.release(files.written(), files.flushed());
        if self.gate.is_flush_awaited()
            && let Some(owner) = self.owner.upgrade()
        {
            owner.log_is_flushed();
        }
    }

    /// Does what is due once a second.
    fn end_second(&self, mut files: parking_lot::MutexGuard<'_, Files>) {
        if self.policy() == FlushPolicy::EverySecond && self.check(files.sync().map(|()| true)) {
            self.release(&files);
        }
        let sizes = LogSizes { snapshot: files.snapshot_bytes(), segments: files.segment_bytes() };
        drop(files);
        if let Some(owner) = self.owner.upgrade() {
            owner.log_second(sizes);
        }
    }

    /// After an error the log has failed: no write is repeated, since a second flush may succeed
    /// although the data of the first one is lost.
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
