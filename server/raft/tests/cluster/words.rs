//! A state for tests.

use std::io;

use lockwheel_log::files::Snapshot;
use lockwheel_raft::{Batch, Guard, SnapshotParts, State};
use parking_lot::Mutex;

/// The effects of all batches, in order.
#[derive(Debug, Default)]
pub(crate) struct Words(pub(crate) Mutex<KnownWords>);

#[derive(Debug, Default)]
pub(crate) struct KnownWords {
    pub(crate) words: Vec<Vec<u8>>,
    /// The barrier of the batches of this process, if it leads.
    pub(crate) leading: Option<u64>,
}

impl State for Words {
    fn clear(&self) {
        self.0.lock().words.clear();
    }

    fn load(&self, effects: &[u8], _: i64) -> Result<(), String> {
        self.0.lock().words.push(effects.to_vec());
        Ok(())
    }

    fn commit(&self, batch: &Batch) -> Result<(), String> {
        let is_own = self.0.lock().leading == Some(batch.barrier);
        if is_own { Ok(()) } else { self.load(&batch.effects, batch.lease_ms) }
    }

    fn begin_leading(&self, barrier: u64, _: i64, _: Option<&Guard>) -> u64 {
        let mut known = self.0.lock();
        known.leading = Some(barrier);
        known.words.len() as u64
    }

    fn stop_leading(&self) {
        self.0.lock().leading = None;
    }

    fn begin_snapshot(&self) -> Box<dyn SnapshotParts> {
        let known = self.0.lock();
        let last = known.leading.map(|_| known.words.len() as u64);
        Box::new(Parts { words: known.words.clone(), last })
    }
}

struct Parts {
    words: Vec<Vec<u8>>,
    last: Option<u64>,
}

impl SnapshotParts for Parts {
    fn last(&self) -> Option<u64> {
        self.last
    }

    fn write(&mut self, file: &mut Snapshot) -> io::Result<bool> {
        self.words.iter().try_for_each(|word| file.write(word)).map(|()| true)
    }

    fn end(&mut self, _: bool) {}
}
