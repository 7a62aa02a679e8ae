//! Writes snapshots: a thread takes the state from the engine in parts, between the requests of
//! clients, and writes them to a file.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use lockwheel_engine::durability::unit_log::Position;
use lockwheel_engine::store::snapshot::SnapshotProgress;
use lockwheel_log::files::Snapshot;
use tracing::{error, info};

use crate::host::Host;
use crate::limits;

/// Begins a snapshot on a thread of its own.
pub(crate) fn start(host: &Arc<Host>) {
    #[cfg(feature = "simulation")]
    if crate::simulation::takes_snapshot() {
        return;
    }
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

#[expect(clippy::disallowed_methods, reason = "there is no event: other threads must run")]
fn write_and_report(host: &Host) {
    let mut snapshot = SnapshotWriter::default();
    let result = loop {
        match snapshot.step(host, limits::SNAPSHOT_PART_KEYS) {
            Ok(None) => std::thread::sleep(limits::SNAPSHOT_PAUSE),
            Ok(Some(position)) => break Ok(position),
            Err(error) => break Err(error),
        }
    };
    report(host, &result);
}

/// Logs how a snapshot has ended.
pub(crate) fn report(host: &Host, result: &io::Result<Position>) {
    match result {
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

/// A snapshot on its way to a file, in steps.
#[derive(Debug, Default)]
pub(crate) struct SnapshotWriter {
    phase: Phase,
    part: Vec<u8>,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Begin,
    /// Waiting for the file from the log.
    Awaiting(Receiver<Snapshot>),
    Writing(Snapshot),
    /// Complete: all parts are written.
    Written(Snapshot),
}

impl SnapshotWriter {
    /// Does the next step, such as a part of about `keys` keys; returns the position of the
    /// snapshot when it is complete. Waits for the log if the log has not carried out the order to
    /// begin.
    pub(crate) fn step(&mut self, host: &Host, keys: usize) -> io::Result<Option<Position>> {
        self.phase = match std::mem::take(&mut self.phase) {
            Phase::Begin => Phase::Awaiting(host.begin_snapshot()?),
            // The log sends no file if it has failed.
            Phase::Awaiting(file) => Phase::Writing(file.recv().map_err(|_| stopped())?),
            Phase::Writing(file) => self.write_part(host, file, keys)?,
            Phase::Written(file) => {
                let position = file.position();
                file.finish()?;
                host.snapshot_is_durable(position);
                return Ok(Some(position));
            }
        };
        Ok(None)
    }

    fn write_part(&mut self, host: &Host, mut file: Snapshot, keys: usize) -> io::Result<Phase> {
        match write_part(host, &mut file, &mut self.part, keys) {
            Ok(SnapshotProgress::Partial) => Ok(Phase::Writing(file)),
            Ok(SnapshotProgress::Complete) => Ok(Phase::Written(file)),
            // A database was flushed meanwhile: what is left is quickly written.
            Ok(SnapshotProgress::Void) => {
                file.give_up()?;
                Ok(Phase::Begin)
            }
            Err(error) => {
                // The next start removes a file that is left.
                let _ = file.give_up();
                Err(error)
            }
        }
    }

    /// Whether the next step waits for the log.
    #[cfg(feature = "simulation")]
    pub(crate) fn awaits_log(&self) -> bool {
        matches!(self.phase, Phase::Awaiting(_))
    }
}

/// Takes the next part of a snapshot, of about `keys` keys, and writes it to the file. `part` is a
/// buffer.
///
/// # Errors
/// If the disk would have too little space for the log, or the server ends.
pub(crate) fn write_part(
    host: &Host,
    file: &mut Snapshot,
    part: &mut Vec<u8>,
    keys: usize,
) -> io::Result<SnapshotProgress> {
    part.clear();
    let taken = host.with_fair(|engine| {
        let progress = engine.snapshot_part(keys, |effects| part.extend_from_slice(effects));
        (progress, engine.dataset_bytes() as u64)
    });
    let (progress, dataset_bytes) = taken.map_err(|_| stopped())?;
    if host.is_stopping() {
        return Err(stopped());
    }
    let missing_bytes = dataset_bytes.saturating_sub(file.bytes()).max(part.len() as u64);
    if file.free_bytes()? < limits::snapshot_needs_bytes(missing_bytes) {
        return Err(io::ErrorKind::StorageFull.into());
    }
    if !part.is_empty() {
        file.write(part)?;
    }
    Ok(progress)
}

pub(crate) fn stopped() -> io::Error {
    io::Error::other("the server has ended")
}
