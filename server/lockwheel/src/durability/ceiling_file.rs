//! The file with the lease ceiling of a server, while it runs.

use std::io;
use std::sync::Arc;

use lockwheel_engine::durability::key_groups::KeyGroups;
use lockwheel_engine::durability::lease_ceiling::Ceiling;
use lockwheel_engine::durability::unit_log::Position;
use lockwheel_engine::limits;
use lockwheel_engine::timing::time::Millis;
use lockwheel_log::Disk;
use lockwheel_log::ceiling::{CeilingRecord, GROUPS_MAX, Kept, KeyGroup, PREFIX_BYTES_MAX};
use lockwheel_log::files::Clocks;

// The file has room for all groups.
const _: () = assert!(limits::KEY_GROUPS_MAX == GROUPS_MAX);
const _: () = assert!(limits::KEY_GROUP_BYTES_MAX == PREFIX_BYTES_MAX);

/// The groups of a record, with the time that was left of their leases when it was written.
pub(crate) fn groups_left(record: &CeilingRecord) -> KeyGroups {
    let mut groups = KeyGroups::NONE;
    for KeyGroup { prefix, deadline_ms } in &record.groups {
        groups.add(prefix, Millis(deadline_ms.saturating_sub(record.lease_ms)));
    }
    groups
}

/// The file with the lease ceiling.
#[derive(Debug)]
pub(crate) struct CeilingFile {
    disk: Arc<dyn Disk>,
    record: CeilingRecord,
}

impl CeilingFile {
    /// Writes the first record of this run.
    pub(crate) fn begin(
        disk: Arc<dyn Disk>,
        boot_id: [u8; 16],
        ceiling: &Ceiling,
        kept: Kept,
        clocks: Clocks,
        segment: Position,
    ) -> io::Result<CeilingFile> {
        let record = CeilingRecord { boot_id, segment, ..CeilingRecord::default() };
        let mut file = CeilingFile { disk, record };
        file.write(ceiling, kept, clocks)?;
        Ok(file)
    }

    /// Records a ceiling. It is durable when this returns.
    pub(crate) fn write(
        &mut self,
        ceiling: &Ceiling,
        kept: Kept,
        clocks: Clocks,
    ) -> io::Result<()> {
        let groups = ceiling
            .groups
            .iter()
            .map(|group| KeyGroup { prefix: group.prefix.clone(), deadline_ms: group.deadline.0 });
        self.record = CeilingRecord {
            deadline_ms: ceiling.deadline.0,
            lease_ms: clocks.lease_ms,
            boot_ms: clocks.boot_ms,
            wall_ms: clocks.wall_ms,
            has_lasting_keys: ceiling.has_lasting_keys,
            token: ceiling.token,
            kept,
            groups: groups.collect(),
            ..self.record
        };
        self.record.write(&*self.disk)
    }

    /// Records what the log keeps from now on, and leaves the ceiling.
    pub(crate) fn set_kept(&mut self, kept: Kept) -> io::Result<()> {
        if self.record.kept == kept {
            return Ok(());
        }
        self.record.kept = kept;
        self.record.write(&*self.disk)
    }

    /// Records the first unit of the segment that the log has begun, and leaves the ceiling.
    pub(crate) fn set_segment(&mut self, segment: Position) -> io::Result<()> {
        if self.record.segment == segment {
            return Ok(());
        }
        self.record.segment = segment;
        self.record.write(&*self.disk)
    }

    /// The free bytes of the disk.
    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes()
    }

    /// What the log keeps.
    pub(crate) fn kept(&self) -> Kept {
        self.record.kept
    }
}
