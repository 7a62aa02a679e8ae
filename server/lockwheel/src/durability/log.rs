//! The interface of a log, [`Log`].

use std::io;
use std::path::{Path, PathBuf};

use lockwheel_engine::durability::unit_log::{Position, Units};
use lockwheel_engine::settings::{Settings, directive};
use lockwheel_log::files::Clocks;

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
    /// Appends units, which follow those before; their numbers are their positions.
    fn append(&self, units: Units<'_>, clocks: Clocks);

    /// The position up to which output may be sent.
    fn released(&self) -> Position;

    /// The position up to which everything is durable. With `appendfsync always` it is the one that
    /// is released.
    fn flushed(&self) -> Position;
}

/// The sizes of the files of a log, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogSizes {
    /// The snapshot.
    pub(crate) snapshot: u64,
    /// The segments after it.
    pub(crate) segments: u64,
}
