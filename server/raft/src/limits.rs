//! Every bound of replication, with its reason.

use std::time::Duration;

/// Bytes of the entries that stay in memory, for followers that keep up. A follower that is further
/// behind is sent entries from the disk.
pub(crate) const RECENT_BYTES: usize = 16 << 20;

/// Maximum bytes of the effects in one entry: a larger batch is divided. A leader loses a follower
/// to which it cannot send that many within a heartbeat interval: with five nodes and the default
/// settings, if its link delivers less than 5 Mbit/s.
pub(crate) const ENTRY_BYTES: usize = 32 << 10;

/// Maximum bytes of an entry besides its effects.
pub(crate) const ENTRY_OVERHEAD_BYTES: usize = 256;

/// Parts of a divided batch that are not committed yet. More would keep `openraft` from sending
/// heartbeats, since it waits until each is on the disk; fewer would wait for the network.
pub(crate) const PARTS_UNDER_WAY: usize = 8;

/// The entries of one message to a follower at most, unless the first one is larger: more than a
/// fast network delivers while a message is on its way.
pub(crate) const APPEND_BYTES: usize = 1 << 20;

/// The entries of the first message of a connection: see [`crate::pace`].
pub(crate) const APPEND_BYTES_FIRST: usize = 2 * ENTRY_BYTES;

/// A part of a snapshot that is sent at once.
pub(crate) const SNAPSHOT_PART_BYTES: usize = 256 << 10;

/// A message at most. Only an entry of an earlier version can come near it: it was not divided.
pub(crate) const MESSAGE_BYTES_MAX: u32 = 1 << 30;

/// The first messages of a connection at most: the node that sends them is not known yet.
pub(crate) const HELLO_BYTES_MAX: u32 = 1 << 10;

/// The join tokens of one node that may be valid and not used: the members are a part of messages
/// and snapshots, and a cluster needs few.
pub(crate) const JOIN_TOKENS_MAX: usize = 16;

/// How long a node that cannot be reached is left alone: as long as a restarted one takes to be
/// found, and long enough that attempts cost nothing.
pub(crate) const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// How long a node takes at most to receive a snapshot and to load it.
pub(crate) const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Time without progress of the other node after which a snapshot is given up: its machine has
/// failed, or the network.
pub(crate) const SNAPSHOT_STALL: Duration = Duration::from_secs(10);

/// Interval at which a node that loads a snapshot sends its progress.
pub(crate) const SNAPSHOT_LOADING: Duration = Duration::from_secs(1);
