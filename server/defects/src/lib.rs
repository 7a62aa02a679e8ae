//! Switchable defects: mistakes that break one rule each, which the tests of that rule must find.
//!
//! The code asks with [`defect!`] whether one is switched on. Without the feature `switch` the
//! answer is always no, and the compiler removes what depends on it.

#![forbid(unsafe_code)]

use std::fmt;

/// Whether the defect with this name is switched on, on this thread.
#[macro_export]
macro_rules! defect {
    ($name:ident) => {
        $crate::is_on($crate::Defect::$name)
    };
}

/// Declares the defects of each suite: name in the code, name for people, what is wrong, and the
/// identifiers of the promises that it breaks.
macro_rules! defects {
    ($($suite:ident {
        $($name:ident = $shown:literal: $text:literal $([$($promise:ident)*])?,)*
    })*) => {
        /// A defect.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Defect {
            $($(
                #[doc = $text]
                $name,
            )*)*
            /// Effects with this name are not recorded.
            EffectLeftOut(&'static str),
        }

        impl Defect {
            /// All defects, apart from those that leave out an effect.
            pub const ALL: &'static [Defect] = &[$($(Defect::$name,)*)*];

            /// The tests that must find the defect.
            pub const fn suite(self) -> Suite {
                match self {
                    $($(Defect::$name => Suite::$suite,)*)*
                    Defect::EffectLeftOut(_) => Suite::Simulation,
                }
            }

            /// What is wrong with it.
            pub const fn text(self) -> &'static str {
                match self {
                    $($(Defect::$name => $text,)*)*
                    Defect::EffectLeftOut(_) => "the effect is not recorded",
                }
            }

            /// The promises that it breaks: their identifiers in the documentation.
            pub const fn promises(self) -> &'static [&'static str] {
                match self {
                    $($(Defect::$name => &[$($(stringify!($promise),)*)?],)*)*
                    Defect::EffectLeftOut(_) => &["G33"],
                }
            }
        }

        impl fmt::Display for Defect {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($(Defect::$name => f.pad($shown),)*)*
                    Defect::EffectLeftOut(effect) => {
                        f.pad(&format!("effect-left-out:{effect}"))
                    }
                }
            }
        }
    };
}

/// Tests that must find defects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// The simulation of one server, `tests/simulation`.
    Simulation,
    /// The simulation of a cluster, `server/raft/tests/cluster`.
    Cluster,
    /// The simulation of the servers of a cluster, `tests/simulation` with `--cluster`.
    Servers,
}

defects! {
    Simulation {
        ReplyBeforeFlush = "reply-before-flush":
            "output is released before its units are written" [G33 G34],
        ReleasedBeforeFlush = "released-before-flush":
            "output is released when its units are written and not flushed" [G34],
        WrittenCountsAsFlushed = "written-counts-as-flushed": "WAITAOF answers before the flush",
        RepliesNotGated = "replies-not-gated": "replies do not wait for the log" [G34 G37],
        MessagesNotGated = "messages-not-gated": "messages do not wait for the log" [G37],
        KeyspaceEventsNotGated = "keyspace-events-not-gated":
            "keyspace events do not wait for the log" [G37],
        InvalidationsNotGated = "invalidations-not-gated":
            "invalidations do not wait for the log" [G37],
        CallsNotGated = "calls-not-gated": "calls within the process do not wait for the log" [G37],
        KeysReadNotGated = "keys-read-not-gated":
            "a reply that shows an unreleased change does not wait" [G37],
        DeletedKeysNotNoted = "deleted-keys-not-noted":
            "a reply that shows an unreleased deletion does not wait" [G37],
        NamesReadNotGated = "names-read-not-gated":
            "a list of keys with unreleased ones does not wait" [G37],
        AbortedTransactionsNotGated = "aborted-transactions-not-gated":
            "the reply of an aborted transaction does not wait" [G37],
        BatchInWrongOrder = "batch-in-wrong-order":
            "units of a batch are written in the wrong order" [G33 G34],
        WriteErrorIgnored = "write-error-ignored":
            "the server goes on after a failed write" [G24 G31 G35],
        FlushErrorIgnored = "flush-error-ignored": "the server goes on after a failed flush" [G35],
        DirectoryNotFlushed = "directory-not-flushed":
            "the name of a new segment is not flushed" [G34],
        DirectoryNotLocked = "directory-not-locked": "a second process may use the directory" [S6],
        SegmentNotFlushedAtItsEnd = "segment-not-flushed-at-its-end":
            "a segment begins before the one before is flushed" [G34],
        SegmentsRemovedTooEarly = "segments-removed-too-early":
            "segments are removed before the snapshot is complete" [G33 G34],
        SnapshotNotFlushed = "snapshot-not-flushed":
            "a snapshot is renamed before it is flushed" [G34],
        SnapshotVisibleTooEarly = "snapshot-visible-too-early":
            "a snapshot has its name before it is complete" [G33 G34],
        SnapshotMissesChanges = "snapshot-misses-changes":
            "a snapshot shows keys as they are later" [G33],
        SnapshotHasLaterKeys = "snapshot-has-later-keys":
            "a snapshot contains keys that were added later" [G33],
        TailNotTruncated = "tail-not-truncated": "an incomplete frame is not cut off" [G39],
        FlushedPartCutOff = "flushed-part-cut-off":
            "damage in a part that was flushed is cut off" [G36],
        DamagedSegmentRemoved = "damaged-segment-removed":
            "a last segment whose first frame is damaged is removed with the units behind it" [G36],
        MissingSegmentNotNoticed = "missing-segment-not-noticed":
            "a start does not notice that the last segment is missing" [G36],
        ChecksumNotChecked = "checksum-not-checked": "checksums are not compared" [G36],
        RecoveredUnitsNotFlushed = "recovered-units-not-flushed":
            "what was read at the start is served before it is flushed" [G34],
        RecoveredUnitsNotWrittenAgain = "recovered-units-not-written-again":
            "what a failed flush has left in memory is served as if it could be flushed" [G35],
        LeaseClockFromWallClock = "lease-clock-from-wall-clock":
            "the lease clock goes on from the wall clock" [G40 G42],
        BootIdIgnored = "boot-id-ignored":
            "the time since the start of another machine counts" [G42],
        StoppedTimeIgnored = "stopped-time-ignored": "leases begin anew where the log ended" [G41],
        GuardSkippedWithoutLog = "guard-skipped-without-log":
            "no restart guard for a server without a log" [G25 G26 S1 S2],
        GuardSkippedWithLog = "guard-skipped-with-log":
            "no restart guard for a log that is flushed once a second" [G30 S1 S2],
        CeilingNotRaised = "ceiling-not-raised":
            "the lease ceiling is not recorded" [G25 G30 S1 S9],
        CeilingAfterGrant = "ceiling-after-grant":
            "the lease ceiling is recorded after the lease is granted" [G25 G30 S9],
        CeilingByWallClock = "ceiling-by-wall-clock":
            "the restart guard trusts the wall clock" [S15],
        BootIdIgnoredByGuard = "boot-id-ignored-by-guard":
            "the restart guard counts the time of another machine" [G26 S15],
        CeilingWithoutReserve = "ceiling-without-reserve":
            "the lease ceiling has no space of its own on a full disk" [G11],
        GrantOvertakesQueue = "grant-overtakes-queue":
            "a lock is granted although others wait for it",
        QueueNotWokenWhenFirstLeaves = "queue-not-woken-when-first-leaves":
            "when a client leaves a queue, those behind it are not served",
        TokenNotReserved = "token-not-reserved":
            "the fencing tokens that were given out are not recorded" [L4 L11],
        TokenNotRestored = "token-not-restored":
            "fencing tokens of the log and of snapshots are not restored" [L3 L11],
        TokenFloorIgnored = "token-floor-ignored":
            "fencing tokens do not begin at the wall clock" [L5 L11],
        BoundLockKept = "bound-lock-kept":
            "a bound lock is not released when its connection ends" [L12],
        BoundGraceIgnored = "bound-grace-ignored":
            "a bound lock is released as soon as its connection ends" [L12 L17],
        GrantKeptWhenReplyLost = "grant-kept-when-reply-lost":
            "a grant is kept for the grace when its reply is lost" [L19],
        ExpiredHoldCounts = "expired-hold-counts": "a hold counts after its deadline" [G2],
        PermitsNotCounted = "permits-not-counted": "more permits are granted than there are",
        LocksCountAsPlain = "locks-count-as-plain":
            "the restart guard does not wait for locks of SET" [G38 S22],
        GuardEndsEarly = "guard-ends-early":
            "requests in the last second of the restart guard are run at once" [S3],
    }
    Cluster {
        RaftAllEntriesCommitted = "raft-all-entries-committed":
            "a node applies entries of its log at the start that no majority has" [R2],
        RaftAppliedBeforeFlush = "raft-applied-before-flush":
            "a leader applies entries before it has flushed them" [R1 R2],
        RaftBarrierLeftOut = "raft-barrier-left-out":
            "a new leader serves before its barrier is applied" [R3 R9],
        RaftBatchesNotDivided = "raft-batches-not-divided":
            "a batch of any size is one entry of the log",
        RaftBatchesOfEarlierLeadersApplied = "raft-batches-of-earlier-leaders-applied":
            "effects of a deposed leader are applied after the barrier of the next" [R3 R5],
        RaftCandidateDespiteLeader = "raft-candidate-despite-leader":
            "a node is a candidate within the lease of a leader" [R4],
        RaftConflictsKept = "raft-conflicts-kept":
            "entries that the leader replaces stay in the log's files" [R2],
        RaftCutLogTrusted = "raft-cut-log-trusted":
            "a node whose log was cut at the start votes like any other" [R2],
        RaftElectionAddedToLeaseTime = "raft-election-added-to-lease-time":
            "the lease clock jumps forward at each election" [R6],
        RaftEntriesDroppedWithoutSnapshot = "raft-entries-dropped-without-snapshot":
            "segments are removed although the snapshot lacks their entries" [R2],
        RaftEntriesNotFlushed = "raft-entries-not-flushed":
            "entries are acknowledged before they are flushed" [R1 R2],
        RaftGuardSkipped = "raft-guard-skipped":
            "a new leader does not keep the guard that the log contains" [S8],
        RaftInstalledSnapshotAtWrongPlace = "raft-installed-snapshot-at-wrong-place":
            "a received snapshot keeps the barrier of the state it replaces" [R2],
        RaftLeaderGoesOnAfterCrash = "raft-leader-goes-on-after-crash":
            "a leader that was killed goes on in its term, without what it had not flushed" [R1 R2],
        RaftLeaderRemovesItself = "raft-leader-removes-itself":
            "a leader that is to be removed does not let another node lead",
        RaftLeadsWithACutLog = "raft-leads-with-a-cut-log":
            "a leader whose log was cut at the start leads again in the same term" [R2],
        RaftLearnersCounted = "raft-learners-counted":
            "nodes without a vote count in the majority that confirms a leader" [R4],
        RaftLeaseFromReceipt = "raft-lease-from-receipt":
            "a leader's lease begins when a reply arrives, not when its request is sent" [R4],
        RaftLeaseIgnored = "raft-lease-ignored": "a leader serves after its lease" [R4 R5],
        RaftLeaseTimeBeginsAnew = "raft-lease-time-begins-anew":
            "the lease clock begins at zero after an election" [R6],
        RaftLeaseTooLong = "raft-lease-too-long":
            "a leader's lease is twice as long as the followers' promise" [R4],
        RaftLessThanAMajority = "raft-less-than-a-majority":
            "a leader is confirmed by one node too few" [R4],
        RaftLostLogNotNoticed = "raft-lost-log-not-noticed":
            "a leader sends entries to a node that has lost acknowledged ones" [R2],
        RaftLostVoteNotNoticed = "raft-lost-vote-not-noticed":
            "a node that has lost its vote starts" [R2],
        RaftMessagesOfAnySize = "raft-messages-of-any-size":
            "a message carries all entries that a node lacks",
        RaftOnlyNewVotersCounted = "raft-only-new-voters-counted":
            "the majority of the old members is not asked while members change" [R4],
        RaftReadBeforeApplied = "raft-read-before-applied":
            "a follower reads before it has applied what the leader has" [R9],
        RaftReadIndexUnconfirmed = "raft-read-index-unconfirmed":
            "a deposed leader tells followers how far to read" [R9],
        RaftReplacedEntriesSent = "raft-replaced-entries-sent":
            "entries are sent that were replaced while they were read" [R2],
        RaftReplyBeforeCommit = "raft-reply-before-commit":
            "a leader replies before a majority has the entry" [R1],
        RaftSnapshotNotChecked = "raft-snapshot-not-checked":
            "a received snapshot is installed without a check of its bytes" [R2],
        RaftSnapshotOfABrokenState = "raft-snapshot-of-a-broken-state":
            "a snapshot is made of a state that could not be rebuilt" [R2],
        RaftSnapshotOfUncommittedEffects = "raft-snapshot-of-uncommitted-effects":
            "a leader's snapshot contains effects that no majority has" [R5],
        RaftSnapshotWithinABatch = "raft-snapshot-within-a-batch":
            "a snapshot ends between the parts of a batch" [R2],
        RaftSnapshotWithoutBarrier = "raft-snapshot-without-barrier":
            "a snapshot lacks the barrier" [R3],
        RaftSnapshotWithoutGuard = "raft-snapshot-without-guard": "a snapshot lacks the guard" [S8],
        RaftSnapshotWithoutLeaseTime = "raft-snapshot-without-lease-time":
            "a snapshot lacks the lease clock" [R6],
        RaftSnapshotWithoutMembers = "raft-snapshot-without-members":
            "a snapshot lacks the members of the cluster",
        RaftStateNotCleared = "raft-state-not-cleared":
            "a received snapshot is added to the old state" [R2],
        RaftTokenUsedTwice = "raft-token-used-twice": "a join token admits a second node",
        RaftUncommittedEffectsKept = "raft-uncommitted-effects-kept":
            "a deposed leader keeps effects that no majority has" [R5],
        RaftUnflushedCommitSent = "raft-unflushed-commit-sent":
            "followers apply what the leader has not flushed" [R1 R2],
        RaftVoteNotSaved = "raft-vote-not-saved":
            "a vote is given before it is on the disk" [R2 R3],
        RaftVotesDuringLease = "raft-votes-during-lease":
            "a node votes for another one within the lease of a leader" [R4],
    }
    Servers {
        AllReleasedAtACommit = "all-released-at-a-commit":
            "the commit of a batch releases the output of later units, too" [R1],
        BackupTrusted = "backup-trusted":
            "a cluster that begins with a backup has no guard for what the backup lacks" [S8 R3],
        CallsOutliveTheirLeadership = "calls-outlive-their-leadership":
            "a call within the process waits for the number of a unit, also in the next leadership"
            [R1],
        BatchAppliedByItsLeader = "batch-applied-by-its-leader":
            "a leader applies its own batches again when they are committed" [R2],
        ClientsKeptAtStepDown = "clients-kept-at-step-down":
            "a former leader keeps the connections of its clients",
        GuardSkippedByLeaders = "guard-skipped-by-leaders":
            "a leader does not keep the guard with which its cluster has begun" [S8],
        HeldRequestsForgotten = "held-requests-forgotten":
            "requests that are held are never confirmed or refused",
        LeadershipNotChecked = "leadership-not-checked":
            "a leader serves requests without checking that it still leads" [R3 R4 R5],
        LeaseClockKeptAtStepDown = "lease-clock-kept-at-step-down":
            "the lease clock of a former leader goes on" [R7],
        LeaseTimeFromWallClock = "lease-time-from-wall-clock":
            "the lease clock of a new leader begins at its wall clock" [R8],
        PositionsBeginAnew = "positions-begin-anew":
            "a leader uses the numbers of units of its earlier leadership" [R1],
        ReadsNotConfirmed = "reads-not-confirmed":
            "a follower reads without asking the leader" [R9],
        RepliesBeforeCommit = "replies-before-commit":
            "replies are sent before their units are committed" [R1 R2],
        StateKeptAtStepDown = "state-kept-at-step-down":
            "a former leader keeps changes that were not committed" [R5],
        TimersKeepTheirTime = "timers-keep-their-time":
            "the timers of a former leader wait for its time, which is ahead of the log" [R7],
        RaftUnansweredWriteAwaited = "raft-unanswered-write-awaited":
            "a former leader waits for a write that is never answered, also when it leads again",
        TokensRepeatedAfterBackup = "tokens-repeated-after-backup":
            "a cluster that begins with a backup gives tokens again that the backup lacks" [L11],
        UnitsKeptAcrossLeaderships = "units-kept-across-leaderships":
            "units of a leadership are replicated in the next one" [R3 R5],
        UnitsOfOthersReleased = "units-of-others-released":
            "output waits for the number of a unit, also if another leader has committed it" [R1],
        WaitersServedInDoubt = "waiters-served-in-doubt":
            "a leader serves the clients that wait although another one may lead" [R4 R5],
    }
}

impl Suite {
    /// The defects that these tests must find, apart from those that leave out an effect.
    pub fn defects(self) -> impl Iterator<Item = Defect> {
        Defect::ALL.iter().copied().filter(move |defect| defect.suite() == self)
    }
}

#[cfg(feature = "switch")]
mod switch {
    use std::cell::Cell;

    use super::Defect;

    thread_local! {
        static ACTIVE: Cell<Option<Defect>> = const { Cell::new(None) };
    }

    /// Switches to a defect on this thread, or all off.
    pub fn set(defect: Option<Defect>) {
        ACTIVE.set(defect);
    }

    /// Whether a defect is switched on.
    pub fn is_on(defect: Defect) -> bool {
        ACTIVE.get() == Some(defect)
    }
}

#[cfg(feature = "switch")]
pub use switch::{is_on, set};

/// Whether a defect is switched on: never.
#[cfg(not(feature = "switch"))]
#[inline(always)]
pub const fn is_on(_: Defect) -> bool {
    false
}
