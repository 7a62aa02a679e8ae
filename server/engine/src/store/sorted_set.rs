//! The sorted set type: members in the order of their scores, and of their bytes where scores are
//! equal. A few members in a vector, many in a dictionary and an ordered sequence.
//!
//! Invariants: no score is NaN, and the dictionary and the sequence of the large form hold the same
//! members with the same scores. Ranges of scores and of bytes are converted to ranges of ranks
//! first.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Range;

use crate::random::Random;
use crate::store::dict::{Dict, HashSeed, Slot};
use crate::store::sequence::Sequence;

/// When a sorted set leaves its small form. Redis's `zset-max-listpack-entries` and `-value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallSortedSetLimits {
    /// A sorted set with more members than this takes the large form.
    pub entries_max: usize,
    /// A sorted set with a longer member than this does, too.
    pub member_bytes_max: usize,
}

/// A member with its score.
pub type Scored<'a> = (&'a [u8], f64);

/// Members with scores. Never empty while it is stored: the key is removed with its last member.
#[derive(Clone, Debug)]
pub enum SortedSet {
    /// In order.
    Small(Vec<(Box<[u8]>, f64)>),
    /// By member and in order. In a box, so that it does not make other values larger.
    Large(Box<Large>),
}

/// A sorted set of many members.
#[derive(Clone, Debug)]
pub struct Large {
    scores: Dict<f64>,
    /// Contains the scores again, so that a comparison seldom needs the member.
    order: Sequence<(f64, Slot)>,
}

impl Default for SortedSet {
    fn default() -> SortedSet {
        SortedSet::Small(Vec::new())
    }
}

impl SortedSet {
    /// The number of members.
    pub fn len(&self) -> usize {
        match self {
            SortedSet::Small(members) => members.len(),
            SortedSet::Large(large) => large.order.len(),
        }
    }

    /// Whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The score of a member.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match self {
            SortedSet::Small(members) => position(members, member).map(|at| members[at].1),
            SortedSet::Large(large) => large.scores.get(member).copied(),
        }
    }

    /// The number of members before this one, and its score.
    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        match self {
            SortedSet::Small(members) => position(members, member).map(|at| (at, members[at].1)),
            SortedSet::Large(large) => {
                let score = *large.scores.get(member)?;
                let place = large.order.search(|other| large.is_before(other, (member, score)));
                Some((large.order.rank(place), score))
            }
        }
    }

    /// Sets the score of a member; returns the previous one.
    pub fn set(
        &mut self,
        member: &[u8],
        score: f64,
        limits: SmallSortedSetLimits,
        seed: HashSeed,
    ) -> Option<f64> {
        self.make_room(member, limits, seed);
        self.set_in_form(member, score)
    }

    /// An empty sorted set of one of the forms.
    pub(super) fn empty(is_large: bool, seed: HashSeed) -> SortedSet {
        let mut set = SortedSet::default();
        if is_large {
            set.make_large(seed);
        }
        set
    }

    /// Sets the score of a member and keeps the form; returns the previous score.
    pub(super) fn set_in_form(&mut self, member: &[u8], score: f64) -> Option<f64> {
        match self {
            SortedSet::Small(members) => {
                let score = without_negative_zero(score);
                let old = position(members, member).map(|at| members.remove(at));
                let at =
                    members.partition_point(|(m, s)| compare((m, *s), (member, score)).is_lt());
                let (member, old) = match old {
                    Some((member, old)) => (member, Some(old)),
                    None => (member.into(), None),
                };
                members.insert(at, (member, score));
                old
            }
            SortedSet::Large(large) => large.set(member, score),
        }
    }

    /// Removes a member; returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match self {
            SortedSet::Small(members) => position(members, member).map(|at| members.remove(at).1),
            SortedSet::Large(large) => large.remove(member),
        }
    }

    /// Removes the members of a range of ranks.
    pub fn remove_range(&mut self, ranks: Range<usize>) {
        match self {
            SortedSet::Small(members) => drop(members.drain(ranks)),
            SortedSet::Large(large) => {
                for (_, slot) in large.order.remove_range(ranks) {
                    large.scores.remove_slot(slot);
                }
            }
        }
    }

    /// The members of a range of ranks, in order.
    pub fn range(&self, ranks: Range<usize>) -> impl DoubleEndedIterator<Item = Scored<'_>> {
        let (small, large) = match self {
            SortedSet::Small(members) => (Some(&members[ranks]), None),
            SortedSet::Large(large) => {
                let in_order = large.order.range(ranks);
                (None, Some(in_order.map(|&(score, slot)| (large.scores.key(slot), score))))
            }
        };
        let small = small.into_iter().flatten().map(|(member, score)| (&**member, *score));
        small.chain(large.into_iter().flatten())
    }

    /// All members, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Scored<'_>> {
        self.range(0..self.len())
    }

    /// The rank of the first member for which `before` is false. The members for which it is true
    /// must come first.
    pub fn rank_where(&self, mut before: impl FnMut(Scored<'_>) -> bool) -> usize {
        match self {
            SortedSet::Small(members) => members.partition_point(|(m, s)| before((m, *s))),
            SortedSet::Large(large) => {
                let Large { scores, order } = &**large;
                order.rank(order.search(|&(score, slot)| before((scores.key(slot), score))))
            }
        }
    }

    /// A random member, uniform; `None` if there is none.
    pub fn random(&self, random: &mut Random) -> Option<Scored<'_>> {
        if self.is_empty() {
            return None;
        }
        let rank = random.below(self.len());
        self.range(rank..rank + 1).next()
    }

    /// `count` different members; all of them if there are not more.
    pub fn random_distinct(&self, count: usize, random: &mut Random) -> Vec<Scored<'_>> {
        if count >= self.len() {
            return self.iter().collect();
        }
        // If most are wanted, draws those to leave out, so that at least every other draw finds a
        // new rank.
        let leave_out = count > self.len() / 2;
        let draws = if leave_out { self.len() - count } else { count };
        let mut drawn = BTreeSet::new();
        while drawn.len() < draws {
            drawn.insert(random.below(self.len()));
        }
        if leave_out {
            let ranked = self.iter().enumerate().filter(|(rank, _)| !drawn.contains(rank));
            return ranked.map(|(_, scored)| scored).collect();
        }
        drawn.into_iter().flat_map(|rank| self.range(rank..rank + 1)).collect()
    }

    /// Some members, from `cursor` on, and the next cursor, 0 at the end. The small form is
    /// returned at once, as in Redis.
    pub fn scan(&self, cursor: u64, count: usize) -> (Vec<Scored<'_>>, u64) {
        match self {
            SortedSet::Small(_) => (self.iter().collect(), 0),
            SortedSet::Large(large) => {
                let (slots, next) = large.scores.scan(cursor, count);
                let scored = |slot| (large.scores.key(slot), *large.scores.value(slot));
                (slots.map(scored).collect(), next)
            }
        }
    }

    /// The name that `OBJECT ENCODING` replies with.
    pub fn encoding(&self) -> &'static str {
        match self {
            SortedSet::Small(_) => "listpack",
            SortedSet::Large(_) => "skiplist",
        }
    }

    /// Takes the small form if the members fit into it.
    pub fn settle(&mut self, limits: SmallSortedSetLimits) {
        let fits = |(member, _): Scored<'_>| member.len() <= limits.member_bytes_max;
        if self.len() <= limits.entries_max && self.iter().all(fits) {
            let scored =
                |(member, score): Scored<'_>| (member.into(), without_negative_zero(score));
            let members = self.iter().map(scored);
            *self = SortedSet::Small(members.collect());
        }
    }

    /// Takes the large form if `member` would make the small one too large. A large sorted set
    /// never becomes small again, as in Redis.
    fn make_room(&mut self, member: &[u8], limits: SmallSortedSetLimits, seed: HashSeed) {
        let SortedSet::Small(members) = self else { return };
        let fits = members.len() < limits.entries_max && member.len() <= limits.member_bytes_max;
        if !fits && position(members, member).is_none() {
            self.make_large(seed);
        }
    }

    /// Takes the large form.
    pub(super) fn make_large(&mut self, seed: HashSeed) {
        let SortedSet::Small(members) = self else { return };
        let mut large = Large { scores: Dict::new(seed), order: Sequence::default() };
        for (member, score) in std::mem::take(members) {
            large.set(&member, score);
        }
        *self = SortedSet::Large(Box::new(large));
    }
}

/// The score of a member in the small form, which Redis keeps as text without a negative zero.
fn without_negative_zero(score: f64) -> f64 {
    score + 0.0
}

impl Large {
    /// Frees up to `budget` parts of a set that is no longer used. Returns whether there are more.
    pub(super) fn free_part(&mut self, budget: &mut usize) -> bool {
        self.order.free_part(budget) || self.scores.free_part(budget)
    }

    fn set(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let (slot, old) = match self.scores.find(member) {
            Some(slot) => {
                let old = *self.scores.value(slot);
                self.take_out(member, old);
                *self.scores.value_mut(slot) = score;
                (slot, Some(old))
            }
            None => (self.scores.insert_new(member, score), None),
        };
        let place = self.order.search(|other| self.is_before(other, (member, score)));
        self.order.insert(place, (score, slot));
        old
    }

    fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let score = *self.scores.get(member)?;
        self.take_out(member, score);
        self.scores.remove(member).map(|(_, score)| score)
    }

    /// Removes an existing member from the sequence.
    fn take_out(&mut self, member: &[u8], score: f64) {
        let place = self.order.search(|other| self.is_before(other, (member, score)));
        self.order.remove(place);
    }

    fn is_before(&self, &(score, slot): &(f64, Slot), other: Scored<'_>) -> bool {
        compare((self.scores.key(slot), score), other).is_lt()
    }
}

/// The order of members: by score, and by their bytes where scores are equal. The two zeros are
/// equal.
fn compare(a: Scored<'_>, b: Scored<'_>) -> Ordering {
    a.1.partial_cmp(&b.1).unwrap_or(Ordering::Equal).then_with(|| a.0.cmp(b.0))
}

fn position(members: &[(Box<[u8]>, f64)], member: &[u8]) -> Option<usize> {
    members.iter().position(|(other, _)| **other == *member)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const SMALL: SmallSortedSetLimits =
        SmallSortedSetLimits { entries_max: 8, member_bytes_max: 4 };

    fn add(set: &mut SortedSet, member: &[u8], score: f64) -> Option<f64> {
        set.set(member, score, SMALL, HashSeed(1, 2))
    }

    /// The members in the order of the reference map.
    fn in_order(model: &BTreeMap<Vec<u8>, i32>) -> Vec<(i32, &[u8])> {
        let mut order: Vec<_> = model.iter().map(|(member, score)| (*score, &**member)).collect();
        order.sort();
        order
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn agrees_with_a_map(
            members in 1..2000_u32,
            steps in prop::collection::vec((0..10_u8, any::<u32>(), -5..5_i32), 1..1000),
        ) {
            let (mut set, mut model) = (SortedSet::default(), BTreeMap::new());
            for &(kind, number, score) in &steps {
                let member = (number % members).to_string().into_bytes();
                match kind {
                    0..7 => {
                        let old = model.insert(member.clone(), score);
                        prop_assert_eq!(add(&mut set, &member, score.into()), old.map(f64::from));
                    }
                    7..9 => {
                        let old = model.remove(&member).map(f64::from);
                        prop_assert_eq!(set.remove(&member), old);
                    }
                    _ => {
                        let from = number as usize % (model.len() + 1);
                        let to = (from + 3).min(model.len());
                        let mut order: Vec<_> = model.into_iter().collect();
                        order.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
                        order.drain(from..to);
                        model = order.into_iter().collect();
                        set.remove_range(from..to);
                    }
                }
            }
            let order = in_order(&model);
            prop_assert_eq!(set.len(), order.len());
            prop_assert!(set.iter().eq(order.iter().map(|&(s, m)| (m, f64::from(s)))));
            for (rank, &(score, member)) in order.iter().enumerate() {
                prop_assert_eq!(set.rank(member), Some((rank, f64::from(score))));
                prop_assert_eq!(set.score(member), Some(f64::from(score)));
            }
            for bound in -6..6 {
                let rank = set.rank_where(|(_, score)| score < f64::from(bound));
                prop_assert_eq!(rank, order.partition_point(|&(score, _)| score < bound));
            }
        }
    }

    #[test]
    fn scores_keep_their_exact_value() {
        let scores = [f64::NEG_INFINITY, -1e300, -5e-324, 5e-324, 922_337_203_685_477.0, 1e300];
        for entries in [0, 3000] {
            let mut set = SortedSet::default();
            for number in 0..entries {
                add(&mut set, format!("{number}").as_bytes(), 0.0);
            }
            for (at, &score) in scores.iter().enumerate() {
                assert_eq!(add(&mut set, &[at as u8], score), None);
            }
            for (at, &score) in scores.iter().enumerate() {
                assert_eq!(set.score(&[at as u8]), Some(score));
            }
            let positive = set.rank_where(|(_, score)| score <= 0.0);
            assert_eq!(set.len() - positive, 3);
        }
    }

    #[test]
    fn random_members_are_distinct_and_all_are_drawn() {
        let mut random = Random::new(1);
        for members in [5_usize, 100] {
            let mut set = SortedSet::default();
            for member in 0..members {
                add(&mut set, member.to_string().as_bytes(), 1.0);
            }
            for count in [1, members / 3, members - 1, members, members + 1] {
                let mut seen = BTreeSet::new();
                for _ in 0..1000 {
                    let picked = set.random_distinct(count, &mut random);
                    let different: BTreeSet<_> = picked.iter().map(|(m, _)| m.to_vec()).collect();
                    assert_eq!(different.len(), count.min(members));
                    seen.extend(different);
                }
                assert_eq!(seen.len(), members, "{count}");
            }
        }
    }
}
