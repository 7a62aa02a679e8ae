//! The defects that the simulation must find.

use lockwheel_defects::{Defect, Suite};

/// Effects that are left out, one at a time. Some are not here: the simulation has no commands that
/// record them, they change no state, they seldom matter alone (`TokensIssued`: if no grant follows
/// a snapshot; `Plain`: without it a guard lasts longer), or only nodes of a cluster record them
/// (users).
pub const LEFT_OUT: &[&str] = &[
    "Set",
    "Deleted",
    "Expired",
    "Deadline",
    "Moved",
    "Copied",
    "Patched",
    "FieldSet",
    "FieldRemoved",
    "HashGrown",
    "Pushed",
    "Popped",
    "Inserted",
    "Replaced",
    "Cut",
    "ElementsRemoved",
    "ListForm",
    "MemberAdded",
    "MemberRemoved",
    "SetForm",
    "Scored",
    "ScoreRemoved",
    "RanksRemoved",
    "SortedSetGrown",
    "EntryAdded",
    "EntryDeleted",
    "Trimmed",
    "StreamTotals",
    "GroupAdded",
    "GroupRemoved",
    "GroupPosition",
    "ConsumerSeen",
    "ConsumerActive",
    "ConsumerRemoved",
    "Assigned",
    "Acknowledged",
    "Flushed",
    "Swapped",
    "HoldGranted",
    "HoldChanged",
    "HoldEnded",
    "LibraryLoaded",
    "LibraryDeleted",
    "LibrariesFlushed",
];

/// All defects.
pub fn all() -> impl Iterator<Item = Defect> {
    let left_out = LEFT_OUT.iter().copied().map(Defect::EffectLeftOut);
    Suite::Simulation.defects().chain(left_out).chain(Suite::Servers.defects())
}

/// Whether histories of clusters must show the defect.
pub fn is_of_clusters(defect: Defect) -> bool {
    defect.suite() != Suite::Simulation
}

/// The defect with this name, which may be one that another suite must find.
pub fn find(name: &str) -> Option<Defect> {
    all().chain(Suite::Cluster.defects()).find(|defect| defect.to_string() == name)
}
