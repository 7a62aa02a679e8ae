//! The defects that the simulation must find.

/// A defect.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// Its name in the code.
    pub name: &'static str,
    /// What is wrong with it.
    pub defect: &'static str,
}

const fn mutant(name: &'static str, defect: &'static str) -> Mutant {
    Mutant { name, defect }
}

/// An effect of that name is left out.
macro_rules! left_out {
    ($effect:literal) => {
        mutant(concat!("effect-left-out:", $effect), "the effect is not recorded")
    };
}

/// All defects. Some effects are not here: the simulation has no commands that record them, they
/// change no state, they seldom matter alone (`TokensIssued`: if no grant follows a snapshot), or
/// only the nodes of a cluster record them (users).
pub const MUTANTS: &[Mutant] = &[
    mutant("reply-before-flush", "output is released before its units are written"),
    mutant(
        "released-before-flush",
        "output is released when its units are written and not flushed",
    ),
    mutant("written-counts-as-flushed", "WAITAOF answers before the flush"),
    mutant("replies-not-gated", "replies do not wait for the log"),
    mutant("messages-not-gated", "messages do not wait for the log"),
    mutant("keyspace-events-not-gated", "keyspace events do not wait for the log"),
    mutant("invalidations-not-gated", "invalidations do not wait for the log"),
    mutant("calls-not-gated", "calls within the process do not wait for the log"),
    mutant("keys-read-not-gated", "a reply that shows an unreleased change does not wait"),
    mutant("deleted-keys-not-noted", "a reply that shows an unreleased deletion does not wait"),
    mutant("names-read-not-gated", "a list of keys with unreleased ones does not wait"),
    mutant("aborted-transactions-not-gated", "the reply of an aborted transaction does not wait"),
    mutant("batch-in-wrong-order", "units of a batch are written in the wrong order"),
    mutant("write-error-ignored", "the server goes on after a failed write"),
    mutant("flush-error-ignored", "the server goes on after a failed flush"),
    mutant("directory-not-flushed", "the name of a new segment is not flushed"),
    mutant("directory-not-locked", "a second process may use the directory"),
    mutant("segment-not-flushed-at-its-end", "a segment begins before the one before is flushed"),
    mutant("segments-removed-too-early", "segments are removed before the snapshot is complete"),
    mutant("snapshot-not-flushed", "a snapshot is renamed before it is flushed"),
    mutant("snapshot-visible-too-early", "a snapshot has its name before it is complete"),
    mutant("snapshot-misses-changes", "a snapshot shows keys as they are later"),
    mutant("snapshot-has-later-keys", "a snapshot contains keys that were added later"),
    mutant("tail-not-truncated", "an incomplete frame is not cut off"),
    mutant("flushed-part-cut-off", "damage in a part that was flushed is cut off"),
    mutant("checksum-not-checked", "checksums are not compared"),
    mutant(
        "recovered-units-not-flushed",
        "what was read at the start is served before it is flushed",
    ),
    mutant(
        "recovered-units-not-written-again",
        "what a failed flush has left in memory is served as if it could be flushed",
    ),
    mutant("lease-clock-from-wall-clock", "the lease clock goes on from the wall clock"),
    mutant("boot-id-ignored", "the time since the start of another machine counts"),
    mutant("stopped-time-ignored", "leases begin anew where the log ended"),
    mutant("guard-skipped-without-log", "no restart guard for a server without a log"),
    mutant("guard-skipped-with-log", "no restart guard for a log that is flushed once a second"),
    mutant("ceiling-not-raised", "the lease ceiling is not recorded"),
    mutant("ceiling-after-grant", "the lease ceiling is recorded after the lease is granted"),
    mutant("ceiling-by-wall-clock", "the restart guard trusts the wall clock"),
    mutant("boot-id-ignored-by-guard", "the restart guard counts the time of another machine"),
    mutant("grant-overtakes-queue", "a lock is granted although others wait for it"),
    mutant(
        "queue-not-woken-when-first-leaves",
        "when a client leaves a queue, those behind it are not served",
    ),
    mutant("token-not-reserved", "the fencing tokens that were given out are not recorded"),
    mutant("token-not-restored", "fencing tokens of the log and of snapshots are not restored"),
    mutant("token-floor-ignored", "fencing tokens do not begin at the wall clock"),
    mutant("bound-lock-kept", "a bound lock is not released when its connection ends"),
    mutant("bound-grace-ignored", "a bound lock is released as soon as its connection ends"),
    mutant("grant-kept-when-reply-lost", "a grant is kept for the grace when its reply is lost"),
    mutant("lapsed-hold-counts", "a hold counts after its lease"),
    mutant("permits-not-counted", "more permits are granted than there are"),
    left_out!("Set"),
    left_out!("Deleted"),
    left_out!("Expired"),
    left_out!("Deadline"),
    left_out!("Moved"),
    left_out!("Copied"),
    left_out!("Patched"),
    left_out!("FieldSet"),
    left_out!("FieldRemoved"),
    left_out!("HashGrown"),
    left_out!("Pushed"),
    left_out!("Popped"),
    left_out!("Inserted"),
    left_out!("Replaced"),
    left_out!("Cut"),
    left_out!("ElementsRemoved"),
    left_out!("ListForm"),
    left_out!("MemberAdded"),
    left_out!("MemberRemoved"),
    left_out!("SetForm"),
    left_out!("Scored"),
    left_out!("ScoreRemoved"),
    left_out!("RanksRemoved"),
    left_out!("SortedSetGrown"),
    left_out!("EntryAdded"),
    left_out!("EntryDeleted"),
    left_out!("Trimmed"),
    left_out!("StreamTotals"),
    left_out!("GroupAdded"),
    left_out!("GroupRemoved"),
    left_out!("GroupPosition"),
    left_out!("ConsumerSeen"),
    left_out!("ConsumerActive"),
    left_out!("ConsumerRemoved"),
    left_out!("Assigned"),
    left_out!("Acknowledged"),
    left_out!("Flushed"),
    left_out!("Swapped"),
    left_out!("HoldGranted"),
    left_out!("HoldChanged"),
    left_out!("HoldEnded"),
    left_out!("LibraryLoaded"),
    left_out!("LibraryDeleted"),
    left_out!("LibrariesFlushed"),
];
