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

/// Declares the defects of each suite: name in the code, name for people, what is wrong.
macro_rules! defects {
    ($($suite:ident { $($name:ident = $shown:literal: $text:literal,)* })*) => {
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
}

defects! {
    Simulation {
        ReplyBeforeFlush = "reply-before-flush":
            "output is released before its units are written",
        ReleasedBeforeFlush = "released-before-flush":
            "output is released when its units are written and not flushed",
        WrittenCountsAsFlushed = "written-counts-as-flushed": "WAITAOF answers before the flush",
        RepliesNotGated = "replies-not-gated": "replies do not wait for the log",
        MessagesNotGated = "messages-not-gated": "messages do not wait for the log",
        KeyspaceEventsNotGated = "keyspace-events-not-gated":
            "keyspace events do not wait for the log",
        InvalidationsNotGated = "invalidations-not-gated":
            "invalidations do not wait for the log",
        CallsNotGated = "calls-not-gated": "calls within the process do not wait for the log",
        KeysReadNotGated = "keys-read-not-gated":
            "a reply that shows an unreleased change does not wait",
        DeletedKeysNotNoted = "deleted-keys-not-noted":
            "a reply that shows an unreleased deletion does not wait",
        NamesReadNotGated = "names-read-not-gated":
            "a list of keys with unreleased ones does not wait",
        AbortedTransactionsNotGated = "aborted-transactions-not-gated":
            "the reply of an aborted transaction does not wait",
        BatchInWrongOrder = "batch-in-wrong-order":
            "units of a batch are written in the wrong order",
        WriteErrorIgnored = "write-error-ignored": "the server goes on after a failed write",
        FlushErrorIgnored = "flush-error-ignored": "the server goes on after a failed flush",
        DirectoryNotFlushed = "directory-not-flushed": "the name of a new segment is not flushed",
        DirectoryNotLocked = "directory-not-locked": "a second process may use the directory",
        SegmentNotFlushedAtItsEnd = "segment-not-flushed-at-its-end":
            "a segment begins before the one before is flushed",
        SegmentsRemovedTooEarly = "segments-removed-too-early":
            "segments are removed before the snapshot is complete",
        SnapshotNotFlushed = "snapshot-not-flushed": "a snapshot is renamed before it is flushed",
        SnapshotVisibleTooEarly = "snapshot-visible-too-early":
            "a snapshot has its name before it is complete",
        SnapshotMissesChanges = "snapshot-misses-changes":
            "a snapshot shows keys as they are later",
        SnapshotHasLaterKeys = "snapshot-has-later-keys":
            "a snapshot contains keys that were added later",
        TailNotTruncated = "tail-not-truncated": "an incomplete frame is not cut off",
        FlushedPartCutOff = "flushed-part-cut-off":
            "damage in a part that was flushed is cut off",
        ChecksumNotChecked = "checksum-not-checked": "checksums are not compared",
        RecoveredUnitsNotFlushed = "recovered-units-not-flushed":
            "what was read at the start is served before it is flushed",
        RecoveredUnitsNotWrittenAgain = "recovered-units-not-written-again":
            "what a failed flush has left in memory is served as if it could be flushed",
        LeaseClockFromWallClock = "lease-clock-from-wall-clock":
            "the lease clock goes on from the wall clock",
        BootIdIgnored = "boot-id-ignored": "the time since the start of another machine counts",
        StoppedTimeIgnored = "stopped-time-ignored": "leases begin anew where the log ended",
        GuardSkippedWithoutLog = "guard-skipped-without-log":
            "no restart guard for a server without a log",
        GuardSkippedWithLog = "guard-skipped-with-log":
            "no restart guard for a log that is flushed once a second",
        CeilingNotRaised = "ceiling-not-raised": "the lease ceiling is not recorded",
        CeilingAfterGrant = "ceiling-after-grant":
            "the lease ceiling is recorded after the lease is granted",
        CeilingByWallClock = "ceiling-by-wall-clock": "the restart guard trusts the wall clock",
        BootIdIgnoredByGuard = "boot-id-ignored-by-guard":
            "the restart guard counts the time of another machine",
        GrantOvertakesQueue = "grant-overtakes-queue":
            "a lock is granted although others wait for it",
        QueueNotWokenWhenFirstLeaves = "queue-not-woken-when-first-leaves":
            "when a client leaves a queue, those behind it are not served",
        TokenNotReserved = "token-not-reserved":
            "the fencing tokens that were given out are not recorded",
        TokenNotRestored = "token-not-restored":
            "fencing tokens of the log and of snapshots are not restored",
        TokenFloorIgnored = "token-floor-ignored":
            "fencing tokens do not begin at the wall clock",
        BoundLockKept = "bound-lock-kept":
            "a bound lock is not released when its connection ends",
        BoundGraceIgnored = "bound-grace-ignored":
            "a bound lock is released as soon as its connection ends",
        GrantKeptWhenReplyLost = "grant-kept-when-reply-lost":
            "a grant is kept for the grace when its reply is lost",
        LapsedHoldCounts = "lapsed-hold-counts": "a hold counts after its lease",
        PermitsNotCounted = "permits-not-counted": "more permits are granted than there are",
    }
    Cluster {
        RaftAllEntriesCommitted = "raft-all-entries-committed": "all entries committed",
        RaftBarrierLeftOut = "raft-barrier-left-out": "barrier left out",
        RaftBatchesNotDivided = "raft-batches-not-divided": "batches not divided",
        RaftBatchesOfEarlierLeadersApplied = "raft-batches-of-earlier-leaders-applied":
            "batches of earlier leaders applied",
        RaftCandidateDespiteLeader = "raft-candidate-despite-leader": "candidate despite leader",
        RaftConflictsKept = "raft-conflicts-kept": "conflicts kept",
        RaftCutLogTrusted = "raft-cut-log-trusted": "cut log trusted",
        RaftElectionAddedToLeaseTime = "raft-election-added-to-lease-time":
            "election added to lease time",
        RaftEntriesDroppedWithoutSnapshot = "raft-entries-dropped-without-snapshot":
            "entries dropped without snapshot",
        RaftEntriesNotFlushed = "raft-entries-not-flushed": "entries not flushed",
        RaftGuardSkipped = "raft-guard-skipped": "guard skipped",
        RaftInstalledSnapshotAtWrongPlace = "raft-installed-snapshot-at-wrong-place":
            "installed snapshot at wrong place",
        RaftLeaderRemovesItself = "raft-leader-removes-itself": "leader removes itself",
        RaftLeadsWithACutLog = "raft-leads-with-a-cut-log": "leads with a cut log",
        RaftLearnersCounted = "raft-learners-counted": "learners counted",
        RaftLeaseFromReceipt = "raft-lease-from-receipt": "lease from receipt",
        RaftLeaseIgnored = "raft-lease-ignored": "lease ignored",
        RaftLeaseTimeBeginsAnew = "raft-lease-time-begins-anew": "lease time begins anew",
        RaftLeaseTooLong = "raft-lease-too-long": "lease too long",
        RaftLessThanAMajority = "raft-less-than-a-majority": "less than a majority",
        RaftLostLogNotNoticed = "raft-lost-log-not-noticed": "lost log not noticed",
        RaftLostVoteNotNoticed = "raft-lost-vote-not-noticed": "lost vote not noticed",
        RaftMessagesOfAnySize = "raft-messages-of-any-size": "messages of any size",
        RaftOnlyNewVotersCounted = "raft-only-new-voters-counted": "only new voters counted",
        RaftReadBeforeApplied = "raft-read-before-applied": "read before applied",
        RaftReadIndexUnconfirmed = "raft-read-index-unconfirmed": "read index unconfirmed",
        RaftReplacedEntriesSent = "raft-replaced-entries-sent": "replaced entries sent",
        RaftReplyBeforeCommit = "raft-reply-before-commit": "reply before commit",
        RaftSnapshotNotChecked = "raft-snapshot-not-checked": "snapshot not checked",
        RaftSnapshotOfABrokenState = "raft-snapshot-of-a-broken-state":
            "snapshot of a broken state",
        RaftSnapshotOfUncommittedEffects = "raft-snapshot-of-uncommitted-effects":
            "snapshot of uncommitted effects",
        RaftSnapshotWithinABatch = "raft-snapshot-within-a-batch": "snapshot within a batch",
        RaftSnapshotWithoutBarrier = "raft-snapshot-without-barrier": "snapshot without barrier",
        RaftSnapshotWithoutGuard = "raft-snapshot-without-guard": "snapshot without guard",
        RaftSnapshotWithoutLeaseTime = "raft-snapshot-without-lease-time":
            "snapshot without lease time",
        RaftSnapshotWithoutMembers = "raft-snapshot-without-members": "snapshot without members",
        RaftStateNotCleared = "raft-state-not-cleared": "state not cleared",
        RaftTokenUsedTwice = "raft-token-used-twice": "token used twice",
        RaftUncommittedEffectsKept = "raft-uncommitted-effects-kept": "uncommitted effects kept",
        RaftVoteNotSaved = "raft-vote-not-saved": "vote not saved",
        RaftVotesDuringLease = "raft-votes-during-lease": "votes during lease",
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
