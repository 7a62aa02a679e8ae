//! Writes snapshots: a thread takes the state from the engine in parts, between the requests of
//! clients, and writes them to a file.

use std::io;
use std::sync::Arc;

use lockwheel_engine::store::snapshot::SnapshotProgress;
use lockwheel_engine::unit_log::Position;
use lockwheel_log::files::Snapshot;
use tracing::{error, info};

use crate::limits;
use crate::net::host::Host;

/// Begins a snapshot on a thread of its own.
pub(crate) fn start(host: &Arc<Host>) {
    let thread = std::thread::Builder::new().name("lockwheel-snapshot".into());
    let work = {
        let host = Arc::clone(host);
        move || write_and_report(&host)
    };
    if let Err(error) = thread.spawn(work) {
        error!(%error, "no thread for a snapshot");
        end(host, false);
    }
}

fn write_and_report(host: &Host) {
    let result = write(host);
    match &result {
        Ok(position) => info!(position, "snapshot complete"),
        Err(_) if host.is_stopping() => return,
        Err(error) => error!(%error, "the snapshot has failed"),
    }
    end(host, result.is_ok());
}

fn end(host: &Host, succeeded: bool) {
    // A failed engine has no clients any more.
    let _ = host.with(|engine| engine.end_snapshot(succeeded, host.now()));
}

/// Writes a snapshot; returns its position.
fn write(host: &Host) -> io::Result<Position> {
    loop {
        let mut file = host.begin_snapshot()?;
        match write_parts(host, &mut file) {
            Ok(true) => {
                let position = file.position();
                file.finish()?;
                host.snapshot_is_durable(position);
                return Ok(position);
            }
            // A database was flushed meanwhile: what is left is quickly written.
            Ok(false) => file.give_up()?,
            Err(error) => {
                // The next start removes a file that is left.
                let _ = file.give_up();
                return Err(error);
            }
        }
    }
}

/// Writes all parts; false if the snapshot is void.
fn write_parts(host: &Host, file: &mut Snapshot) -> io::Result<bool> {
    let mut part = Vec::new();
    loop {
        part.clear();
        let take = |effects: &[u8]| part.extend_from_slice(effects);
        let progress = host
            .with_fair(|engine| engine.snapshot_part(limits::SNAPSHOT_PART_KEYS, take))
            .map_err(|_| stopped())?;
        if host.is_stopping() {
            return Err(stopped());
        }
        // The log needs the rest, to release locks.
        if file.free_bytes()? < limits::DISK_RESERVE_BYTES / 2 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if !part.is_empty() {
            file.write(&part)?;
        }
        match progress {
            SnapshotProgress::Partial => {}
            SnapshotProgress::Complete => return Ok(true),
            SnapshotProgress::Void => return Ok(false),
        }
    }
}

fn stopped() -> io::Error {
    io::Error::other("the server has ended")
}
