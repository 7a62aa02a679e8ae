//! Finds the least recently used script and adds up the memory of all. Handles digests only.

use std::collections::BTreeMap;

use crate::script::Sha;

/// Scripts in the order of their last use.
///
/// A use changes nothing here, because it must be cheap: a script keeps its place until it is the
/// first, and is then moved to the place of its last use. So the script that is returned as the
/// least recently used is always the right one.
#[derive(Debug, Default)]
pub(crate) struct LruOrder {
    order: BTreeMap<u64, Sha>,
    bytes: usize,
}

impl LruOrder {
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The memory of all scripts.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a script with the number of its last use.
    pub(crate) fn add(&mut self, used: u64, sha: Sha, bytes: usize) {
        self.order.insert(used, sha);
        self.bytes += bytes;
    }

    /// Removes the script at the place `at`.
    pub(crate) fn remove(&mut self, at: u64, bytes: usize) {
        self.order.remove(&at);
        self.bytes -= bytes;
    }

    /// Returns the script that was used least recently. `place` moves a script to the place of
    /// its last use and returns that.
    pub(crate) fn least(&mut self, mut place: impl FnMut(&Sha) -> u64) -> Option<Sha> {
        loop {
            let first = self.order.first_entry()?;
            let (at, sha) = (*first.key(), *first.get());
            let used = place(&sha);
            if used == at {
                return Some(sha);
            }
            first.remove();
            self.order.insert(used, sha);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_script_is_returned_first() {
        let shas = [b"a", b"b", b"c"].map(|text| Sha::of(text));
        let mut lru = LruOrder::default();
        for (used, sha) in (1..).zip(shas) {
            lru.add(used, sha, 10);
        }
        let mut used = [5, 4, 3];
        let mut least = |used: &[u64; 3]| {
            let at = |sha: &Sha| shas.iter().position(|it| it == sha).expect("one of them");
            let least = lru.least(|sha| used[at(sha)]).expect("some are left");
            lru.remove(used[at(&least)], 10);
            (at(&least), lru.len(), lru.bytes())
        };
        assert_eq!(least(&used), (2, 2, 20));
        used[1] = 6;
        assert_eq!(least(&used), (0, 1, 10));
        assert_eq!(least(&used), (1, 0, 0));
    }
}
