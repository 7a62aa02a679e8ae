//! Finds the known difference that explains an observed one.

use super::difference::{KnownDifference, ObservedDifference};
use super::{bits, blocking, keys, lists, objects, requests, scripts, sorted_sets, streams};
use crate::fuzz::reference::is_named;

/// All known differences, by family. The first that matches explains a difference.
pub(super) const FAMILIES: &[&[KnownDifference]] = &[
    sorted_sets::DIFFERENCES,
    objects::DIFFERENCES,
    keys::DIFFERENCES,
    lists::DIFFERENCES,
    bits::DIFFERENCES,
    blocking::DIFFERENCES,
    streams::DIFFERENCES,
    scripts::DIFFERENCES,
    requests::DIFFERENCES,
];

/// The known difference that matches, if any.
pub fn find(observed: &ObservedDifference<'_>) -> Option<&'static KnownDifference> {
    let named = |it: &KnownDifference| {
        it.commands.is_empty() || it.commands.iter().any(|name| is_named(observed.words, name))
    };
    all().find(|it| it.references.holds(observed.version) && named(it) && (it.is)(observed))
}

/// Whether a command may differ in a known way: the effect on the reply of a script is unknown.
pub fn may_differ(words: &[Vec<u8>]) -> bool {
    let mut commands = all().flat_map(|it| it.commands);
    commands.any(|name| is_named(words, name))
}

pub(super) fn all() -> impl Iterator<Item = &'static KnownDifference> {
    FAMILIES.iter().copied().flatten()
}
