//! Every limit of the program, with its reason.

/// File descriptors kept for what is not a client: listeners, log, standard streams. As in Redis,
/// so that the same `ulimit -n` admits as many clients.
pub(crate) const RESERVED_FILE_DESCRIPTORS: u32 = 32;

/// Lines of the log that may wait to be written; further ones are left out. Room for all of them is
/// made at the start and touched: at the default, 128 thousand, that took 1.5 ms and 4 MB.
pub(crate) const LOG_LINES_MAX: usize = 4096;

/// Locks that `lockwheel run` names when its command has left them behind: a screenful.
pub(crate) const LOCKS_TOLD_MAX: usize = 50;

/// Bytes of a configuration file. A path to a device would be read for ever.
pub(crate) const CONFIG_FILE_BYTES_MAX: u64 = 1 << 20;

/// Files that include each other. One that includes itself has no end.
pub(crate) const INCLUDE_DEPTH_MAX: usize = 16;
