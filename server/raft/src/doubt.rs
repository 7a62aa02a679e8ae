//! Whether the log of this node may lack entries that it has acknowledged.
//!
//! The end of the log is cut off at the start if it is not complete. Nearly always it was being
//! written when the machine failed. But it may also have been damaged later, and then a majority
//! may have relied on it. So a node that has cut it off neither votes nor becomes a candidate until
//! it knows an entry that comes after all that it may have acknowledged: the last one of a leader
//! that leads for certain, or the last one of all nodes that vote. From then on it votes only for
//! nodes that are as far, and is one itself when it has got that entry. A file keeps the doubt over
//! further restarts.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use lockwheel_defects::defect;
use lockwheel_log::{Disk, small_file};
use openraft::LogId;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use crate::network::Connection;
use crate::node::Node;
use crate::state_machine::blocking;
use crate::types::NodeId;
use crate::wire::{LastEntry, Reply, Request};

/// Name of a file that exists while the node is in doubt.
const NAME: &str = "doubt";

/// What the file contains: its version comes last.
const CONTENTS: &[u8] = b"lockwheel doubt 1\n";

/// What the log of a candidate must have to get the vote of this node, while it is in doubt.
#[derive(Debug)]
pub(crate) struct Doubt(Mutex<Needed>);

/// How far the log of a node must be to get the vote of this one.
#[derive(Clone, Copy, Debug)]
enum Needed {
    /// Only `openraft` decides.
    Nothing,
    /// It is not known.
    Unknown,
    /// It must have this entry, or a later one.
    Entry(Option<LogId<NodeId>>),
}

/// Whether the end of the log has been cut off and is not confirmed.
pub(crate) fn is_kept(disk: &dyn Disk) -> io::Result<bool> {
    Ok(small_file::read(disk, NAME)?.is_some())
}

/// Records the doubt, before the end of the log is cut off.
pub(crate) fn begin(disk: &dyn Disk) -> io::Result<()> {
    small_file::write(disk, NAME, CONTENTS)
}

fn end(disk: &dyn Disk) -> io::Result<()> {
    disk.remove(NAME)?;
    disk.sync()
}

impl Doubt {
    pub(crate) fn new(is_in_doubt: bool) -> Doubt {
        let is_in_doubt = is_in_doubt && !defect!(RaftCutLogTrusted);
        Doubt(Mutex::new(if is_in_doubt { Needed::Unknown } else { Needed::Nothing }))
    }

    /// Whether this node may vote for one whose last entry is this.
    pub(crate) fn permits(&self, last: Option<LogId<NodeId>>) -> bool {
        match *self.0.lock() {
            Needed::Nothing => true,
            Needed::Unknown => false,
            Needed::Entry(needed) => last >= needed,
        }
    }

    fn set(&self, needed: Needed) {
        *self.0.lock() = needed;
    }
}

impl Node {
    /// Ends the doubt of this node, if it is in doubt.
    pub(crate) async fn confirm_log(self: Arc<Self>) {
        if matches!(*self.doubt.0.lock(), Needed::Nothing) {
            return;
        }
        warn!("the end of the log was not complete: this node does not vote until it is confirmed");
        let mut stopped = self.stopped();
        tokio::select! {
            biased;
            () = self.confirm_log_in_time() => {}
            _ = stopped.wait_for(|is_stopped| *is_stopped) => {}
        }
    }

    async fn confirm_log_in_time(&self) {
        let needed = loop {
            sleep(self.settings.heartbeat).await;
            if let Some(needed) = self.needed_entry().await {
                break needed;
            }
        };
        self.doubt.set(Needed::Entry(needed));
        while self.last_entry() < needed {
            sleep(self.settings.heartbeat).await;
        }
        if let Err(error) = blocking(|| end(&*self.machine.shared.disk)) {
            // The next start asks again.
            error!(%error, "the file of the doubt about the log could not be removed");
        }
        self.doubt.set(Needed::Nothing);
        info!("the log is confirmed");
    }

    /// An entry after all that this node may have acknowledged before it started: a leader that
    /// leads for certain has all that is committed, and what it has sent; and of the nodes that
    /// vote, another one has each committed entry.
    async fn needed_entry(&self) -> Option<Option<LogId<NodeId>>> {
        let membership = Arc::clone(&self.metrics().borrow().membership_config);
        // The leader sends the members.
        (*membership.log_id())?;
        let voters = membership.membership().voter_ids().filter(|id| *id != self.settings.id);
        let mut answers = JoinSet::new();
        for id in voters {
            let peer = membership.membership().get_node(&id).cloned().unwrap_or_default();
            let answer =
                timeout(self.settings.lease / 2, last_entry(self.network.connection(id, &peer)));
            answers.spawn(async move { answer.await.ok().flatten() });
        }
        let answers = answers.join_all().await;
        if let Some(leader) = answers.iter().flatten().find(|answer| answer.leads) {
            return Some(leader.last);
        }
        // One that knows later members may have been sent entries by nodes that were not asked.
        let counts = |answer: &LastEntry| answer.membership <= *membership.log_id();
        let all: Option<Vec<LastEntry>> =
            answers.into_iter().map(|answer| answer.filter(counts)).collect();
        let last = all?.into_iter().map(|answer| answer.last).max().flatten();
        Some(last.max(self.last_entry()))
    }

    pub(crate) fn answer_last_entry(&self) -> LastEntry {
        let membership = *self.metrics().borrow().membership_config.log_id();
        // Checked before the last entry is read: a node that leads then has all committed entries.
        let leads = self.leads();
        let has_space = !self.disk_is_full.load(Ordering::Relaxed);
        LastEntry { last: self.machine.shared.last(), membership, leads, has_space }
    }
}

async fn last_entry(mut connection: Connection) -> Option<LastEntry> {
    match connection.call(&Request::LastEntry).await {
        Ok(Reply::LastEntry(answer)) => Some(answer),
        _ => None,
    }
}
