//! The log that a start finds, and the time from which the server goes on.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use lockwheel_engine::Engine;
use lockwheel_engine::time::Millis;
use lockwheel_log::Directory;
use lockwheel_log::files::Files;
use lockwheel_log::recovery::{Effects, LastTime, Recovered, recover};
use tracing::warn;

use crate::clock::{Clock, boot_id, boot_ms};
use crate::error::{Error, ErrorKind};

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
        debug_assert_eq!(recovered.last, self.found.last, "no other process writes");
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
