//! The storage passes the test suite of `openraft`, on a disk in memory.

use std::fmt::Debug;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use lockwheel_raft::{LogReader, LogStore, NodeId, StateMachine, Types, WritesOn};
use lockwheel_simulated_disk::SimulatedDisk;
use openraft::storage::{LogFlushed, LogState, RaftLogStorage, RaftLogStorageExt};
use openraft::testing::{StoreBuilder, Suite};
use openraft::{Entry, LogId, OptionalSend, RaftLogReader, StorageError, Vote};

use crate::words::Words;

type Result<T> = std::result::Result<T, StorageError<NodeId>>;

/// A log in which gaps are filled with blank entries: the suite leaves gaps between entries, which
/// a real log never has.
struct Filled {
    log: LogStore,
    /// The place up to which the log was purged while it was empty. Entries up to there are
    /// ignored.
    purged: Option<LogId<NodeId>>,
}

impl Filled {
    /// The index after the last entry.
    async fn next(&mut self) -> Result<u64> {
        let last = self.get_log_state().await?.last_log_id;
        Ok(last.map_or(0, |last| last.index + 1))
    }
}

/// Blank entries, of the leader of the entry `next`.
fn blanks(indexes: Range<u64>, next: LogId<NodeId>) -> impl Iterator<Item = Entry<Types>> {
    indexes.map(move |index| Entry { log_id: LogId { index, ..next }, ..Entry::default() })
}

impl RaftLogReader<Types> for Filled {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<Entry<Types>>> {
        self.log.try_get_log_entries(range).await
    }
}

impl RaftLogStorage<Types> for Filled {
    type LogReader = LogReader;

    async fn get_log_state(&mut self) -> Result<LogState<Types>> {
        let state = self.log.get_log_state().await?;
        let purged = state.last_purged_log_id.max(self.purged);
        let last_log_id = state.last_log_id.or(purged);
        Ok(LogState { last_purged_log_id: purged, last_log_id })
    }

    async fn get_log_reader(&mut self) -> LogReader {
        self.log.get_log_reader().await
    }

    async fn save_vote(&mut self, vote: &Vote<NodeId>) -> Result<()> {
        self.log.save_vote(vote).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<NodeId>>> {
        self.log.read_vote().await
    }

    async fn save_committed(&mut self, committed: Option<LogId<NodeId>>) -> Result<()> {
        self.log.save_committed(committed).await
    }

    async fn read_committed(&mut self) -> Result<Option<LogId<NodeId>>> {
        self.log.read_committed().await
    }

    async fn append<I>(&mut self, entries: I, flushed: LogFlushed<Types>) -> Result<()>
    where
        I: IntoIterator<Item = Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let (mut filled, mut next) = (Vec::new(), self.next().await?);
        let purged = self.purged;
        for entry in entries.into_iter().filter(|entry| Some(entry.log_id) > purged) {
            filled.extend(blanks(next..entry.log_id.index, entry.log_id));
            next = entry.log_id.index + 1;
            filled.push(entry);
        }
        self.log.append(filled, flushed).await
    }

    async fn truncate(&mut self, log_id: LogId<NodeId>) -> Result<()> {
        self.log.truncate(log_id).await
    }

    async fn purge(&mut self, log_id: LogId<NodeId>) -> Result<()> {
        let missing = self.next().await?..log_id.index + 1;
        if missing.start == 0 {
            self.purged = Some(log_id);
            return Ok(());
        }
        if !missing.is_empty() {
            self.log.blocking_append(blanks(missing, log_id)).await?;
        }
        self.log.purge(log_id).await
    }
}

struct Empty;

impl StoreBuilder<Types, Filled, StateMachine> for Empty {
    async fn build(&self) -> Result<((), Filled, StateMachine)> {
        let (disk, state) = (Arc::new(SimulatedDisk::new()), Arc::new(Words::default()));
        let (log, machine) =
            StateMachine::open(disk, state, WritesOn::Thread).expect("an empty disk");
        Ok(((), Filled { log, purged: None }, machine))
    }
}

#[test]
fn storage_passes_the_suite_of_openraft() {
    Suite::test_all(Empty).expect("no error");
}
