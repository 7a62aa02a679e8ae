//! Which of many scripts was used least recently, and what they take together. Knows no script.

use std::collections::BTreeMap;

use crate::script::Sha;

/// Scripts in the order of their last use.
///
/// A use moves nothing here, since it must cost little: a script stays where it was put until it is
/// the first, and is then put where its last use belongs. So no script is before one that was used
/// earlier when it is taken.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    order: BTreeMap<u64, Sha>,
    bytes: usize,
}

impl Recent {
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// What all of them take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a script whose last use was `used`.
    pub(crate) fn add(&mut self, used: u64, sha: Sha, bytes: usize) {
        self.order.insert(used, sha);
        self.bytes += bytes;
    }

    /// Removes a script that stands at the use `at`.
    pub(crate) fn remove(&mut self, at: u64, bytes: usize) {
        self.order.remove(&at);
        self.bytes -= bytes;
    }

    /// The script that was used least recently. `place` sets where a script stands to its last
    /// use, which it returns.
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
    fn least_recently_used_script_comes_first() {
        let shas = [b"a", b"b", b"c"].map(|text| Sha::of(text));
        let mut recent = Recent::default();
        for (used, sha) in (1..).zip(shas) {
            recent.add(used, sha, 10);
        }
        let mut used = [5, 4, 3];
        let mut least = |used: &[u64; 3]| {
            let at = |sha: &Sha| shas.iter().position(|it| it == sha).expect("one of them");
            let least = recent.least(|sha| used[at(sha)]).expect("some are left");
            recent.remove(used[at(&least)], 10);
            (at(&least), recent.len(), recent.bytes())
        };
        assert_eq!(least(&used), (2, 2, 20));
        used[1] = 6;
        assert_eq!(least(&used), (0, 1, 10));
        assert_eq!(least(&used), (1, 0, 0));
    }
}
