//! The rules that can be broken.

use crate::bounds::{Bounds, listed};

listed! {
    /// A rule that is broken.
    pub enum Defect {
        /// A node that starts again forgets what it has promised to a leader.
        PromiseForgotten,
        /// A node whose log was cut forgets what it has promised to a leader.
        PromiseForgottenInDoubt,
        /// A node votes for another one within its promise to a leader.
        VotesDespitePromise,
        /// A node is a candidate within its promise to a leader.
        CandidateDespitePromise,
        /// A leader votes for another node.
        VotesWhileItLeads,
        /// A leader answers after its lease.
        LeadsAfterItsLease,
        /// A leader's lease begins when a reply arrives.
        LeaseFromReceipt,
        /// A leader's lease is as long as the promise.
        LeaseWithoutMargin,
        /// A leader's lease is twice as long as the promise.
        LeaseTooLong,
        /// A leader is confirmed by one node too few.
        LessThanAMajority,
        /// While members change, only the new ones confirm a leader.
        OnlyNewVotersCounted,
        /// A leader begins without an entry of its own.
        BarrierLeftOut,
        /// The log time of a new leader begins at zero.
        TimeBeginsAnew,
        /// The log time of a new leader is that of its own clock, which is ahead.
        TimeJumps,
        /// A leader replies before a majority has the entry.
        ReplyBeforeCommit,
        /// A leader that may be deposed lets followers read.
        ReadUnconfirmed,
        /// A follower reads before it has applied what the leader has.
        ReadBeforeApplied,
        /// A vote is not saved.
        VoteNotSaved,
        /// A node whose disk was lost votes.
        LostDiskVotes,
        /// A node whose log was cut votes.
        CutLogTrusted,
        /// A leader whose log was cut leads again.
        CutLogLeads,
        /// The documented case of old reads is not excepted.
        NoException,
    }
}

impl Defect {
    /// Bounds within which it breaks an invariant.
    pub fn bounds(self) -> Bounds {
        match self {
            Defect::CandidateDespitePromise | Defect::LeaseFromReceipt => Bounds::elections(),
            Defect::NoException => Bounds::suspended(),
            Defect::LostDiskVotes
            | Defect::CutLogTrusted
            | Defect::CutLogLeads
            | Defect::PromiseForgottenInDoubt => Bounds::disks(),
            Defect::OnlyNewVotersCounted => Bounds::members(),
            Defect::TimeBeginsAnew | Defect::TimeJumps => Bounds::locks(),
            _ => Bounds::restarts(),
        }
    }
}
