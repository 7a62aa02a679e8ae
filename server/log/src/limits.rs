//! Every bound of the log, with its reason.

/// Length after which a segment ends. A start reads whole segments, and a snapshot removes whole
/// segments, so they must be small beside the memory of a server; each new one costs two flushes.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// Bytes that are read from a file at once, unless a frame is longer.
pub const READ_BYTES: usize = 1 << 20;

/// The contents of a frame at most. A unit is never divided; the largest one is a script or a
/// transaction that changes all that the memory holds.
pub const FRAME_BYTES_MAX: usize = u32::MAX as usize;

/// Bytes of a snapshot between two flushes: to flush all of it at its end would
/// delay the flushes of the segments for as long as the disk takes.
pub const SNAPSHOT_SYNC_BYTES: u64 = 1 << 20;

/// Size of the parts in which an obsolete file is freed: the system flushes no segment while it
/// frees one.
pub const FREED_BYTES: u64 = 4 << 20;
