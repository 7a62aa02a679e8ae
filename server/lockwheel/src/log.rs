//! The log of a server: a thread that writes the units of the engine to files.
//!
//! Units collect in a batch while the thread writes and flushes the batch before. There is no
//! timer: a batch is as large as the disk is slow.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use lockwheel_engine::Engine;
use lockwheel_engine::time::Millis;
use lockwheel_engine::unit_log::Units;
use lockwheel_log::Directory;
use lockwheel_log::files::{Batch, Clocks, Files};
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
    collected: Mutex<Collected>,
    /// There are units to write, or the log ends.
    work: Condvar,
    gate: Arc<CommitGate>,
    policy: FlushPolicy,
}

/// What the thread has to do.
#[derive(Debug, Default)]
struct Collected {
    batch: Batch,
    ends: bool,
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
            collected: Mutex::default(),
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
        let mut collected = self.shared.collected.lock();
        collected.batch.push(units.first, units.last, units.effects, clocks);
        drop(collected);
        self.shared.work.notify_one();
    }

    /// Writes and flushes all units, and ends the thread.
    pub(crate) fn end(&self) {
        self.shared.collected.lock().ends = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of the thread has been reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn write_until_end(&self, files: &mut Files) -> io::Result<()> {
        let mut batch = Batch::default();
        loop {
            {
                let mut collected = self.collected.lock();
                while collected.batch.is_empty() && !collected.ends {
                    self.work.wait(&mut collected);
                }
                if collected.batch.is_empty() {
                    break;
                }
                std::mem::swap(&mut collected.batch, &mut batch);
            }
            files.write(&mut batch)?;
            if self.policy == FlushPolicy::Always {
                files.sync()?;
            }
            self.gate.release(files.written());
        }
        files.sync()
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
