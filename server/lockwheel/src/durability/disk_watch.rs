//! Watches the free space of the disk that has the log or the lease ceiling: while it is low, the
//! engine refuses what needs more, so that locks can still be released and renewed, and no write
//! fails.

use std::io;

use tracing::{info, warn};

use crate::limits;

/// The state of the disk at the last check.
#[derive(Debug, Default)]
pub(crate) struct DiskWatch {
    is_full: bool,
    /// Whether the free space could not be read, which is reported once.
    has_failed: bool,
}

impl DiskWatch {
    /// Whether the disk is full.
    #[cfg(feature = "replication")]
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Compares the free space of the disk with the reserve. Returns whether the disk is full, if
    /// that has changed.
    pub(crate) fn check(
        &mut self,
        free_bytes: io::Result<u64>,
        reserve_bytes: u64,
    ) -> Option<bool> {
        let free_bytes = match free_bytes {
            Ok(free_bytes) => free_bytes,
            Err(error) => {
                if !self.has_failed {
                    warn!(%error, "the free space of the disk cannot be read");
                }
                self.has_failed = true;
                return None;
            }
        };
        let margin =
            if self.is_full { reserve_bytes / limits::DISK_RESERVE_MARGIN_PART } else { 0 };
        let is_full = free_bytes < reserve_bytes + margin;
        if is_full == self.is_full {
            return None;
        }
        self.is_full = is_full;
        if is_full {
            warn!(free_bytes, "the disk is nearly full: locks can only be released and renewed");
        } else {
            info!(free_bytes, "the disk has space again");
        }
        Some(is_full)
    }
}

#[cfg(test)]
mod tests {
    use lockwheel_log::Disk;
    use lockwheel_simulated_disk::SimulatedDisk;

    use super::*;

    /// Shows G22.
    #[test]
    fn change_is_reported_once_and_ends_with_a_margin() {
        let (disk, mut watch) = (SimulatedDisk::new(), DiskWatch::default());
        let reserve_bytes = 800;
        for (space_bytes, change) in [
            (reserve_bytes, None),
            (reserve_bytes - 1, Some(true)),
            (0, None),
            (reserve_bytes, None),
            (reserve_bytes + 99, None),
            (reserve_bytes + 100, Some(false)),
            (reserve_bytes, None),
            (reserve_bytes - 1, Some(true)),
            (reserve_bytes + 99, None),
            (reserve_bytes + 100, Some(false)),
            (reserve_bytes + 99, None),
            (reserve_bytes - 1, Some(true)),
        ] {
            disk.set_space(Some(space_bytes));
            assert_eq!(watch.check(disk.free_bytes(), reserve_bytes), change, "{space_bytes}");
        }
        assert_eq!(watch.check(Err(io::ErrorKind::Other.into()), reserve_bytes), None);
    }
}
