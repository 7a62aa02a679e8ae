//! The interface of a log, [`Log`].

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use lockwheel_engine::durability::lease_ceiling::Ceiling;
use lockwheel_engine::durability::unit_log::{Position, Units};
use lockwheel_engine::settings::{FlushPolicy, Settings, directive};
use lockwheel_log::files::{Clocks, Snapshot};

use crate::host::Host;

/// The directory of the log and of the lease ceiling.
pub(crate) fn directory(settings: &Settings) -> PathBuf {
    Path::new(&settings.get(directive::DIR)).join(settings.get(directive::APPENDDIRNAME))
}

/// What the log causes in the server.
pub(crate) trait LogOwner: Send + Sync {
    /// Called when the log cannot be written: nothing more is released, and the server must stop.
    fn log_has_failed(&self);

    /// Called about once a second, with the free space of the disk. The sizes are `None` if there
    /// is only a lease ceiling.
    fn log_second(&self, sizes: Option<LogSizes>, free_bytes: io::Result<u64>);

    /// Called when a position for which a client waits is durable.
    fn log_is_flushed(&self);
}

/// Where the units of the engine are kept before output that shows them is sent. A server without
/// a log keeps its state in memory only, and nothing waits.
///
/// The log releases positions to the commit gate of the server, in order. After an error it calls
/// [`LogOwner::log_has_failed`] and releases nothing more.
pub(crate) trait Log: Send + Sync {
    /// Appends units, which follow those before; their numbers are their positions. They are
    /// written by a thread of the log, or, if `here` is true, by this thread, which must call
    /// [`Log::write_here`] soon.
    fn append(&self, units: Units<'_>, clocks: Clocks, here: bool);

    /// The position up to which output may be sent.
    fn released(&self) -> Position;

    /// The position up to which everything is durable. With `appendfsync always` it is the one that
    /// is released.
    fn flushed(&self) -> Position;

    /// Writes and flushes on this thread what was appended, unless another thread is writing.
    fn write_here(&self);

    /// Wakes the log's thread, which writes what was appended.
    fn wake(&self);

    /// Sets the policy by which later writes are flushed.
    fn set_policy(&self, policy: FlushPolicy);

    /// As [`Log::set_policy`]; all leases are in the log from now on.
    fn follow(&self, policy: FlushPolicy);

    /// Sets whether flushes that replies wait for are timed.
    fn time_flushes(&self, is_timed: bool);

    /// The nanoseconds of the longest flush since the last call, among those that were timed.
    fn take_longest_flush(&self) -> Option<u64>;

    /// Records the ceiling before the units that are appended later are released.
    fn raise_ceiling(&self, ceiling: Ceiling, clocks: Clocks);

    /// Records a lower ceiling, and all that was ordered before. It is durable when this returns.
    fn lower_ceiling(&self, ceiling: Ceiling, clocks: Clocks);

    /// Begins to write a snapshot beside the requests that follow.
    fn start_snapshot(&self, host: &Arc<Host>);

    /// Begins a snapshot of the state after the units that were appended. The file is sent to the
    /// receiver that is returned; not if the log ends or fails.
    fn begin_snapshot(&self) -> Receiver<Snapshot>;

    /// Removes the files that a complete snapshot replaces, on this thread.
    fn remove_before(&self, snapshot: Position);

    /// Writes and flushes all units, and ends the log. The leases of `keys` still run.
    fn end_with(&self, keys: Option<Ceiling>, clocks: Clocks);

    /// Carries out the next order, on this thread; returns whether there was one. For a log
    /// without a thread.
    #[cfg(feature = "simulation")]
    fn step(&self) -> bool;

    /// Whether [`Log::step`] has something to do.
    #[cfg(feature = "simulation")]
    fn has_orders(&self) -> bool;

    /// Does what the log's thread does once a second.
    #[cfg(feature = "simulation")]
    fn second(&self);

    /// Writes and flushes all units, as the log's thread does when it ends.
    #[cfg(feature = "simulation")]
    fn finish(&self);
}

/// The sizes of the files of a log, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogSizes {
    /// The snapshot.
    pub(crate) snapshot: u64,
    /// The segments after it.
    pub(crate) segments: u64,
}
