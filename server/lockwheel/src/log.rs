//! The log of a server: a thread that writes the units of the engine to files.
//!
//! Units collect in a batch while the thread writes and flushes the batch before. There is no
//! timer: a batch is as large as the disk is slow.

use std::collections::VecDeque;
use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use lockwheel_engine::Engine;
use lockwheel_engine::time::Millis;
use lockwheel_engine::unit_log::{Position, Units};
use lockwheel_log::Directory;
use lockwheel_log::files::{Batch, Clocks, Files, Snapshot};
use lockwheel_log::recovery::{Effects, LastTime, Recovered, recover};
use parking_lot::{Condvar, Mutex};
use tracing::{error, warn};

use crate::clock::{Clock, boot_id, boot_ms};
use crate::error::{Error, ErrorKind};
use crate::net::commit_gate::CommitGate;

/// When what was written is flushed (`appendfsync`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlushPolicy {
    /// Before any output that depends on it is sent.
    Always,
    /// Once a second. Output is sent when it is written.
    EverySecond,
    /// When the system does.
    Never,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct FileLog {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    orders: Mutex<Orders>,
    /// There are units to write, or the log ends.
    work: Condvar,
    gate: Arc<CommitGate>,
    policy: FlushPolicy,
}

/// What the thread has to do, in order.
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
    /// Starts the thread. Everything in `files` is released. `fail` is called after an error: it
    /// must stop the server.
    pub(crate) fn start(
        mut files: Files,
        policy: FlushPolicy,
        gate: &Arc<CommitGate>,
        fail: impl FnOnce() + Send + 'static,
    ) -> io::Result<FileLog> {
        gate.release(files.flushed());
        let shared = Arc::new(Shared {
            orders: Mutex::default(),
            work: Condvar::new(),
            gate: Arc::clone(gate),
            policy,
        });
        let work = {
            let shared = Arc::clone(&shared);
            move || {
                if let Err(error) = shared.write_until_end(&mut files) {
                    error!(%error, "the log cannot be written");
                    fail();
                }
            }
        };
        let thread = std::thread::Builder::new().name("lockwheel-log".into()).spawn(work)?;
        Ok(FileLog { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Appends units, which follow those before.
    pub(crate) fn append(&self, units: Units<'_>, clocks: Clocks) {
        let Units { first, last, effects } = units;
        let mut orders = self.shared.orders.lock();
        if let Some(Order::Write(batch)) = orders.waiting.back_mut() {
            return batch.push(first, last, effects, clocks);
        }
        let mut batch = orders.spare.take().unwrap_or_default();
        batch.push(first, last, effects, clocks);
        orders.waiting.push_back(Order::Write(batch));
        drop(orders);
        self.shared.work.notify_one();
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
        self.shared.work.notify_one();
    }

    /// Writes and flushes all units, and ends the thread.
    pub(crate) fn end(&self) {
        self.shared.orders.lock().ends = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the thread has been reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn write_until_end(&self, files: &mut Files) -> io::Result<()> {
        while let Some(order) = self.next_order() {
            match order {
                Order::Write(mut batch) => {
                    files.write(&mut batch)?;
                    if self.policy == FlushPolicy::Always {
                        files.sync()?;
                    }
                    self.gate.release(files.written());
                    self.orders.lock().spare = Some(batch);
                }
                Order::BeginSnapshot(sender) => {
                    // Fails if the snapshot has been given up.
                    let _ = sender.send(files.begin_snapshot()?);
                }
                Order::RemoveBefore(snapshot) => files.remove_before(snapshot)?,
            }
        }
        files.sync()
    }

    /// Waits for the next order; `None` if there is none and the log ends.
    fn next_order(&self) -> Option<Order> {
        let mut orders = self.orders.lock();
        while orders.waiting.is_empty() && !orders.ends {
            self.work.wait(&mut orders);
        }
        orders.waiting.pop_front()
    }
}

/// A log that was found at the start.
pub(crate) struct RestoredLog {
    disk: Arc<Directory>,
    found: Recovered,
    lease: Option<Millis>,
}

impl RestoredLog {
    /// Opens the directory, or creates it, and reads how far the log goes.
    pub(crate) fn find(path: &Path) -> Result<RestoredLog, Error> {
        let in_path = |error: &dyn Display| {
            Error::new(ErrorKind::Io, format!("the log in {}: {error}", path.display()))
        };
        let disk = Arc::new(Directory::open(path).map_err(|error| in_path(&error))?);
        let found = recover(&*disk, |_| Ok(())).map_err(|error| in_path(&error))?;
        let lease = found.time.map(|time| Millis(continued(time, boot_id(), boot_ms())));
        Ok(RestoredLog { disk, found, lease })
    }

    /// Where the lease clock goes on; `None` if the log is empty.
    pub(crate) fn lease_clock(&self) -> Option<Millis> {
        self.lease
    }

    /// Applies the log to a new engine, and opens it for writing.
    pub(crate) fn restore(self, engine: &mut Engine, clock: &Clock) -> Result<Files, Error> {
        let time = clock.now();
        let apply = |effects: Effects<'_>| {
            engine.apply(effects.bytes, time).map_err(|error| format!("{error:?}"))
        };
        let boot_id = boot_id().unwrap_or_default();
        let opened = Files::open(self.disk.clone(), boot_id, apply, |_| clock.readings());
        let (files, recovered) = opened.map_err(|error| {
            let path = self.disk.path().display();
            Error::new(ErrorKind::Io, format!("the log in {path}: {error}"))
        })?;
        debug_assert_eq!(recovered.last, self.found.last, "nobody else writes");
        if let Some(torn) = recovered.torn {
            warn!(
                segment = %torn.segment, offset = torn.offset, bytes = torn.bytes,
                "the end of the log was not complete and has been cut off"
            );
        }
        engine.start_log(recovered.last);
        Ok(files)
    }
}

/// The lease clock at a start, from the time of the last frame of the log. Within one run of the
/// machine the time that passed since then counts; otherwise none has passed.
fn continued(last: LastTime, boot_id: Option<[u8; 16]>, boot_ms: i64) -> i64 {
    let elapsed_ms = match boot_id {
        Some(id) if id == last.boot_id => boot_ms.saturating_sub(last.boot_ms).max(0),
        _ => 0,
    };
    last.lease_ms.saturating_add(elapsed_ms)
}

impl Drop for FileLog {
    fn drop(&mut self) {
        self.end();
    }
}
