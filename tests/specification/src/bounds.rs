//! How much is checked, and the steps that happen.

use crate::state::{Nodes, Time, Vote};

/// Declares an enum, and a list of its values.
macro_rules! listed {
    ($(#[$text:meta])* $visibility:vis enum $name:ident { $($(#[$of:meta])* $value:ident,)* }) => {
        $(#[$text])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        $visibility enum $name { $($(#[$of])* $value,)* }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$value,)*];
        }
    };
}
pub(crate) use listed;

listed! {
    /// What happens on one node, in some of the steps with another one.
    pub enum Step {
        /// All clocks run on.
        Tick,
        /// A leader's message arrives with its log, and the reply at once.
        Heartbeat,
        /// A leader's message arrives with its log; the reply is on its way.
        Message,
        /// The same, but the node gets only the next entry that it lacks, or removes its last entry
        /// if the leader does not have that.
        Part,
        /// The same without entries.
        Contact,
        /// The reply arrives.
        Reply,
        /// A leader stops executing commands. It need not have lost its lease.
        StepDown,
        /// Raft adds an entry without effect, which is the first one of a leader.
        Blank,
        /// A leader adds an entry of its own.
        Barrier,
        /// It executes commands, since that entry is applied.
        Begin,
        /// A client gets the lock.
        Grant,
        /// The client releases it.
        Release,
        /// The leader ends the lease.
        End,
        /// A leader changes which nodes vote, whether it executes commands or not.
        Change,
        /// A majority has an entry.
        Commit,
        /// A node asks another one whether it would get its vote. Without this step it need not.
        Ask,
        /// A node becomes a candidate.
        Stand,
        /// A node votes for a candidate.
        Vote,
        /// The votes of a majority have arrived: the candidate is elected.
        Win,
        /// A node learns that another one has given a later vote.
        Learn,
        /// A machine is suspended with all its clocks.
        Suspend,
        /// It is resumed.
        Resume,
        /// A node starts again.
        Restart,
        /// A node loses its disk.
        LoseDisk,
        /// A node starts again and lacks the last entry.
        CutLog,
        /// It asks how far its log must be.
        Confirm,
    }
}

impl Step {
    pub(crate) fn is_fault(self) -> bool {
        use Step::{CutLog, LoseDisk, Restart, Suspend};
        matches!(self, CutLog | LoseDisk | Restart | Suspend)
    }

    pub(crate) fn is_message(self) -> bool {
        matches!(self, Step::Heartbeat | Step::Message | Step::Part | Step::Contact)
    }

    pub(crate) fn is_command(self) -> bool {
        matches!(self, Step::Grant | Step::Release | Step::End | Step::Change)
    }

    #[cfg(feature = "check")]
    pub(crate) fn has_other(self) -> bool {
        use Step::{Ask, Change, Confirm, Learn, Reply, Vote};
        self.is_message() || matches!(self, Ask | Change | Confirm | Learn | Reply | Vote)
    }
}

/// The states that are checked.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// Their name.
    pub name: &'static str,
    /// The time for which a follower votes for no other node.
    pub promise: Time,
    /// The part of it that the leader does not use.
    pub margin: Time,
    /// The entries of the log.
    pub entries: u8,
    /// The terms. The first one has a leader.
    pub terms: Vote,
    /// Faults.
    pub faults: u8,
    /// Log time.
    pub time: Time,
    /// Which clocks are fast, one bit for each node: one history begins with each.
    pub fast: &'static [Nodes],
    /// The nodes that vote first, and those to which a leader may change them.
    pub members: Vec<Nodes>,
    /// What happens besides ticks.
    pub steps: Vec<Step>,
}

impl Bounds {
    /// Bounds with little of everything, and the steps that every history needs.
    fn least(name: &'static str, steps: &[Step]) -> Bounds {
        use Step::{Barrier, Begin, Commit, Heartbeat, Stand, StepDown, Vote, Win};
        let common = [Heartbeat, StepDown, Barrier, Begin, Commit, Stand, Vote, Win];
        Bounds {
            name,
            promise: 2,
            margin: 1,
            entries: 3,
            terms: 2,
            faults: 1,
            time: 2,
            fast: &[0b110],
            members: vec![0b111],
            steps: [&common, steps].concat(),
        }
    }

    /// Elections and messages in all detail.
    pub fn elections() -> Bounds {
        let steps = [Step::Ask, Step::Message, Step::Reply];
        Bounds { entries: 2, faults: 0, ..Bounds::least("elections", &steps) }
    }

    /// Messages with parts of the log, and late news of votes.
    pub fn messages() -> Bounds {
        let steps = [Step::Part, Step::Contact, Step::Blank, Step::Learn, Step::Reply];
        Bounds { faults: 0, ..Bounds::least("messages", &steps) }
    }

    /// Nodes that start again.
    pub fn restarts() -> Bounds {
        Bounds::least("restarts", &[Step::Grant, Step::Restart])
    }

    /// Machines that are suspended.
    pub fn suspended() -> Bounds {
        Bounds::least("suspended", &[Step::Grant, Step::Suspend, Step::Resume])
    }

    /// Disks that are lost, or lack the end of the log.
    pub fn disks() -> Bounds {
        let steps = [Step::Grant, Step::LoseDisk, Step::CutLog, Step::Confirm];
        Bounds { fast: &[0], ..Bounds::least("disks", &steps) }
    }

    /// Changes of the nodes that vote.
    pub fn members() -> Bounds {
        let members = vec![0b111, 0b001, 0b011];
        Bounds { fast: &[0], members, ..Bounds::least("members", &[Step::Change]) }
    }

    /// All that clients see of a lock.
    pub fn locks() -> Bounds {
        let steps = [Step::Grant, Step::Release, Step::End];
        Bounds { entries: 4, faults: 0, time: 3, ..Bounds::least("locks", &steps) }
    }

    /// Those that every change must pass.
    pub fn small() -> Vec<Bounds> {
        vec![
            Bounds::elections(),
            Bounds::messages(),
            Bounds::restarts(),
            Bounds::suspended(),
            Bounds::disks(),
            Bounds::members(),
            Bounds::locks(),
        ]
    }

    /// The same with clocks of all rates, a longer promise, and more faults.
    pub fn large() -> Vec<Bounds> {
        let clocks = &[0b000, 0b001, 0b110, 0b111];
        vec![
            Bounds { fast: clocks, promise: 4, margin: 2, ..Bounds::elections() },
            Bounds { fast: clocks, ..Bounds::restarts() },
            Bounds { fast: clocks, ..Bounds::suspended() },
            Bounds { faults: 2, ..Bounds::disks() },
            Bounds { entries: 4, ..Bounds::members() },
            Bounds { entries: 5, ..Bounds::locks() },
        ]
    }
}
