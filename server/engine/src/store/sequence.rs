//! A long sequence of small items in pieces: it is searched, counted and changed in the middle
//! without moving all items.
//!
//! The rank of an item is the number of items before it. To find the place of a rank, the lengths
//! of all pieces before it are added; everything else takes logarithmic time and the moving of half
//! a piece.

use std::ops::Range;

use super::garbage::free_end;

/// The maximum number of items in a piece: adding one moves half as many, counting skips over all
/// of them.
const PIECE_MAX: usize = 512;

/// Fewest items of a piece: one with fewer is joined with an adjacent one, so that memory is freed
/// after a mass release.
const PIECE_MIN: usize = PIECE_MAX / 8;

/// A long sequence of small items, in pieces.
#[derive(Clone, Debug)]
pub struct Sequence<T> {
    /// At least one; none is empty, unless it is the only one.
    pieces: Vec<Vec<T>>,
    len: usize,
}

/// The position of an item, or the one it would have. Valid until the sequence changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PieceIndex {
    piece: usize,
    at: usize,
}

impl<T> Default for Sequence<T> {
    fn default() -> Sequence<T> {
        Sequence { pieces: vec![Vec::new()], len: 0 }
    }
}

impl<T> Sequence<T> {
    /// The number of items.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The place of the first item for which `before` is false. The items for which it is true must
    /// come first.
    pub fn search(&self, mut before: impl FnMut(&T) -> bool) -> PieceIndex {
        let wholly = |piece: &Vec<T>| piece.last().is_some_and(&mut before);
        let piece = self.pieces.partition_point(wholly).min(self.pieces.len() - 1);
        PieceIndex { piece, at: self.pieces[piece].partition_point(before) }
    }

    /// The number of items before a place.
    pub fn rank(&self, place: PieceIndex) -> usize {
        self.pieces[..place.piece].iter().map(Vec::len).sum::<usize>() + place.at
    }

    /// The place of a rank; the end for a rank beyond it.
    pub fn place(&self, rank: usize) -> PieceIndex {
        let (mut piece, mut at) = (0, rank.min(self.len));
        while piece + 1 < self.pieces.len() && at >= self.pieces[piece].len() {
            at -= self.pieces[piece].len();
            piece += 1;
        }
        PieceIndex { piece, at }
    }

    /// The items of a range of ranks, which must be within the sequence.
    pub fn range(&self, ranks: Range<usize>) -> impl DoubleEndedIterator<Item = &T> {
        let (from, to) = (self.place(ranks.start), self.place(ranks.end));
        (from.piece..=to.piece).flat_map(move |number| {
            let piece = &self.pieces[number];
            &piece[part(from, to, number, piece)]
        })
    }

    /// Inserts an item at a place, before the item there.
    pub fn insert(&mut self, place: PieceIndex, item: T) {
        let piece = &mut self.pieces[place.piece];
        piece.insert(place.at, item);
        if piece.len() > PIECE_MAX {
            let rest = piece.split_off(PIECE_MAX / 2);
            self.pieces.insert(place.piece + 1, rest);
        }
        self.len += 1;
    }

    /// Removes the item at a place, which must not be the end.
    pub fn remove(&mut self, place: PieceIndex) -> T {
        let item = self.pieces[place.piece].remove(place.at);
        self.len -= 1;
        self.join(place.piece);
        item
    }

    /// Removes the items of a range of ranks, which must be within the sequence.
    pub fn remove_range(&mut self, ranks: Range<usize>) -> Vec<T> {
        let (from, to) = (self.place(ranks.start), self.place(ranks.end));
        let mut items = Vec::with_capacity(ranks.len());
        for (piece, number) in self.pieces[from.piece..=to.piece].iter_mut().zip(from.piece..) {
            items.extend(piece.drain(part(from, to, number, piece)));
        }
        self.len -= items.len();
        self.pieces.retain(|piece| !piece.is_empty());
        if self.pieces.is_empty() {
            self.pieces.push(Vec::new());
        }
        self.join(from.piece.min(self.pieces.len() - 1));
        items
    }

    /// Frees up to `budget` pieces of a sequence that is no longer used. Returns whether there are
    /// more.
    pub(super) fn free_part(&mut self, budget: &mut usize) -> bool {
        free_end(&mut self.pieces, budget)
    }

    /// Joins a piece that has become short with an adjacent one, if both together leave room to
    /// grow.
    fn join(&mut self, number: usize) {
        let short = self.pieces[number].len();
        if short >= PIECE_MIN {
            return;
        }
        let fits = |left: &usize| match self.pieces.get(*left..left + 2) {
            Some([one, other]) => short == 0 || one.len() + other.len() <= PIECE_MAX / 2,
            _ => false,
        };
        if let Some(left) = [number.saturating_sub(1), number].into_iter().find(fits) {
            let mut right = self.pieces.remove(left + 1);
            self.pieces[left].append(&mut right);
        }
    }
}

/// The items between two places that are in the piece of this number.
fn part<T>(from: PieceIndex, to: PieceIndex, number: usize, piece: &[T]) -> Range<usize> {
    let start = if number == from.piece { from.at } else { 0 };
    let end = if number == to.piece { to.at } else { piece.len() };
    start..end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl<T> Sequence<T> {
        fn check_pieces(&self) {
            let lens: Vec<usize> = self.pieces.iter().map(Vec::len).collect();
            assert_eq!(lens.iter().sum::<usize>(), self.len);
            assert!(lens.iter().all(|&len| len <= PIECE_MAX), "{lens:?}");
            assert!(lens.len() == 1 || lens.iter().all(|&len| len > 0), "{lens:?}");
        }
    }

    fn sorted(count: u32) -> Sequence<u32> {
        let mut sequence = Sequence::default();
        for number in 0..count {
            let place = sequence.search(|&other| other < number * 2);
            sequence.insert(place, number * 2);
        }
        sequence
    }

    #[test]
    fn every_rank_has_its_place() {
        for count in [0, 1, 512, 513, 3000] {
            let sequence = sorted(count);
            sequence.check_pieces();
            for number in 0..=count {
                let place = sequence.search(|&other| other < number * 2);
                assert_eq!(sequence.rank(place), number as usize);
                let place = sequence.place(number as usize);
                assert_eq!(sequence.rank(place), number as usize);
            }
            assert_eq!(sequence.rank(sequence.place(usize::MAX)), count as usize);
        }
    }

    #[test]
    fn mass_release_leaves_no_nearly_empty_pieces() {
        let mut sequence = sorted(100_000);
        for kept in 0..100 {
            for _ in 0..999 {
                sequence.remove(sequence.place(kept));
            }
            sequence.check_pieces();
        }
        assert!(sequence.range(0..100).enumerate().all(|(at, &n)| n as usize == at * 2000 + 1998));
        assert!(sequence.pieces.len() < 10, "{}", sequence.pieces.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn agrees_with_a_vec(
            steps in prop::collection::vec((0..8_u8, 0..1_u32 << 16), 1..2000),
            ranges in prop::collection::vec((0..2100_usize, 0..2100_usize), 10),
        ) {
            let (mut sequence, mut model) = (Sequence::default(), Vec::new());
            for (index, &(kind, number)) in steps.iter().enumerate() {
                let growing = index < steps.len() * 3 / 4;
                if model.is_empty() || growing || kind < 2 {
                    let at = number as usize % (model.len() + 1);
                    sequence.insert(sequence.place(at), number);
                    model.insert(at, number);
                } else if kind < 7 {
                    let at = number as usize % model.len();
                    prop_assert_eq!(sequence.remove(sequence.place(at)), model.remove(at));
                } else {
                    let from = number as usize % model.len();
                    let to = (from + number as usize / 256).min(model.len());
                    let removed: Vec<u32> = model.drain(from..to).collect();
                    prop_assert_eq!(sequence.remove_range(from..to), removed);
                }
                sequence.check_pieces();
            }
            for (a, b) in ranges {
                let (from, to) = (a.min(b).min(model.len()), a.max(b).min(model.len()));
                prop_assert!(sequence.range(from..to).eq(&model[from..to]));
                prop_assert!(sequence.range(from..to).rev().eq(model[from..to].iter().rev()));
            }
        }
    }
}
