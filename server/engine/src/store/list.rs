//! The list type: elements in a ring, which are quick to add and remove at both ends.
//!
//! Redis keeps a short list in one listpack and a long one as a chain of listpacks (a quicklist),
//! and clients can ask which. Here both are one ring; it keeps the size that the listpack would
//! have and whether the list has outgrown it.

use std::collections::VecDeque;
use std::ops::Range;

use lockwheel_resp::number;

/// An element.
pub type Element = Box<[u8]>;

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The end at which `LPUSH` adds: index 0.
    Left,
    /// The end at which `RPUSH` adds.
    Right,
}

/// When a list is reported as a quicklist: the parsed `list-max-listpack-size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallListLimits {
    entries_max: usize,
    bytes_max: usize,
}

impl SmallListLimits {
    /// Redis's meaning: -1 to -5 limit the bytes, from 4 KiB on, doubling; other values limit the
    /// elements.
    pub fn from_directive(size: i32) -> SmallListLimits {
        match usize::try_from(size) {
            // Even a few elements may not take more bytes than this.
            Ok(entries) => SmallListLimits { entries_max: entries.max(1), bytes_max: 8192 },
            Err(_) => SmallListLimits {
                entries_max: usize::MAX,
                bytes_max: 4096 << (size.unsigned_abs() - 1).min(4),
            },
        }
    }

    fn admits(self, entries: usize, bytes: usize) -> bool {
        entries <= self.entries_max && bytes <= self.bytes_max
    }

    /// The limits at which a list is reported as a listpack again: half as large, so that it does
    /// not change at every push and pop.
    fn half(self) -> SmallListLimits {
        SmallListLimits { entries_max: self.entries_max / 2, bytes_max: self.bytes_max / 2 }
    }
}

/// Elements in order. Never empty while it is stored: the key is removed with its last element. In
/// a box, so that it does not make other values larger.
#[derive(Clone, Debug, Default)]
pub struct List(Box<Ring>);

#[derive(Clone, Debug, Default)]
struct Ring {
    elements: VecDeque<Element>,
    /// The bytes that they would take in a listpack.
    packed_bytes: usize,
    /// Whether it is too large for a listpack, or not yet small enough to become one again.
    outgrown: bool,
}

impl List {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.0.elements.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.0.elements.is_empty()
    }

    /// The elements from left to right.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> + ExactSizeIterator {
        self.0.elements.iter().map(|element| &**element)
    }

    /// The elements at these positions, which must exist.
    pub fn range(&self, places: Range<usize>) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.elements.range(places).map(|element| &**element)
    }

    /// The element at a position.
    pub fn get(&self, place: usize) -> Option<&[u8]> {
        self.0.elements.get(place).map(|element| &**element)
    }

    /// Adds an element at one end.
    pub fn push(&mut self, end: End, element: &[u8]) {
        self.0.packed_bytes += packed_bytes(element);
        match end {
            End::Left => self.0.elements.push_front(element.into()),
            End::Right => self.0.elements.push_back(element.into()),
        }
    }

    /// Removes the element at one end.
    pub fn pop(&mut self, end: End) -> Option<Element> {
        let element = match end {
            End::Left => self.0.elements.pop_front(),
            End::Right => self.0.elements.pop_back(),
        }?;
        self.0.packed_bytes -= packed_bytes(&element);
        Some(element)
    }

    /// Inserts an element at a position, at most the one after the last.
    pub fn insert(&mut self, place: usize, element: &[u8]) {
        self.0.packed_bytes += packed_bytes(element);
        self.0.elements.insert(place, element.into());
    }

    /// Replaces the element at a position; false if there is none.
    pub fn set(&mut self, place: usize, element: &[u8]) -> bool {
        let Some(old) = self.0.elements.get_mut(place) else { return false };
        self.0.packed_bytes += packed_bytes(element);
        self.0.packed_bytes -= packed_bytes(old);
        *old = element.into();
        true
    }

    /// Keeps only the elements at these positions, which must exist.
    pub fn keep(&mut self, places: Range<usize>) {
        self.0.elements.truncate(places.end);
        self.0.elements.drain(..places.start);
        self.0.packed_bytes = self.0.elements.iter().map(|element| packed_bytes(element)).sum();
    }

    /// Removes at most `count` elements equal to this one, counted from one end; returns the number
    /// of removed elements.
    pub fn remove(&mut self, element: &[u8], count: usize, from: End) -> usize {
        let equal = |other: &Element| **other == *element;
        let found = self.0.elements.iter().filter(|other| equal(other)).count();
        let removed = found.min(count);
        let spared = match from {
            End::Left => removed..found,
            End::Right => 0..found - removed,
        };
        let mut nth = 0..found;
        self.0
            .elements
            .retain(|other| !equal(other) || nth.next().is_none_or(|n| spared.contains(&n)));
        self.0.packed_bytes -= removed * packed_bytes(element);
        removed
    }

    /// Must be called before elements are added: marks the list as a quicklist if they would make a
    /// listpack too large.
    pub fn grow(&mut self, added: &[&[u8]], limits: SmallListLimits) {
        let bytes: usize = added.iter().map(|element| element.len()).sum();
        let entries = self.len() + added.len();
        self.0.outgrown |= !limits.admits(entries, self.listpack_bytes() + bytes);
    }

    /// Must be called after elements have been removed: frees room that is no longer needed.
    pub fn shrink(&mut self, limits: SmallListLimits) {
        self.0.outgrown &= !limits.half().admits(self.len(), self.listpack_bytes());
        let elements = &mut self.0.elements;
        if elements.capacity() > ROOM_KEPT && elements.capacity() / 4 > elements.len() {
            elements.shrink_to(elements.len() * 2);
        }
    }

    /// Frees up to `budget` elements of a list that is no longer used. Returns whether there are
    /// more.
    pub(super) fn free_part(&mut self, budget: &mut usize) -> bool {
        let elements = &mut self.0.elements;
        let kept = elements.len().saturating_sub(*budget);
        *budget -= elements.len() - kept;
        elements.truncate(kept);
        kept > 0
    }

    /// Whether the list is reported as a quicklist.
    pub fn is_outgrown(&self) -> bool {
        self.0.outgrown
    }

    /// Sets whether the list is reported as a quicklist.
    pub(super) fn set_outgrown(&mut self, is_outgrown: bool) {
        self.0.outgrown = is_outgrown;
    }

    /// The name that `OBJECT ENCODING` replies with.
    pub fn encoding(&self) -> &'static str {
        if self.0.outgrown { "quicklist" } else { "listpack" }
    }

    fn listpack_bytes(&self) -> usize {
        const HEAD_AND_END: usize = 7;
        HEAD_AND_END + self.0.packed_bytes
    }
}

/// Number of elements for which room is always kept: shrinking below saves nothing.
const ROOM_KEPT: usize = 32;

/// The bytes of an element in a listpack: its header, its contents, and its length once more for
/// reading from the right. Integers are packed.
fn packed_bytes(element: &[u8]) -> usize {
    let bytes = match number::parse_integer(element) {
        Some(0..128) => 1,
        Some(-4096..4096) => 2,
        Some(-32_768..32_768) => 3,
        Some(-8_388_608..8_388_608) => 4,
        Some(-2_147_483_648..2_147_483_648) => 5,
        Some(_) => 9,
        None if element.len() < 64 => 1 + element.len(),
        None if element.len() < 4096 => 2 + element.len(),
        None => 5 + element.len(),
    };
    bytes
        + match bytes {
            0..128 => 1,
            128..16_384 => 2,
            16_384..2_097_152 => 3,
            2_097_152..268_435_456 => 4,
            _ => 5,
        }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(End, u8),
        Pop(End),
        Insert(usize, u8),
        Set(usize, u8),
        Keep(usize, usize),
        Remove(u8, usize, End),
    }

    fn steps() -> impl Strategy<Value = Step> {
        let end = || prop::sample::select(&[End::Left, End::Right][..]);
        let element = || 0..4_u8;
        prop_oneof![
            8 => (end(), element()).prop_map(|(end, element)| Step::Push(end, element)),
            4 => end().prop_map(Step::Pop),
            2 => (0..9_usize, element()).prop_map(|(at, element)| Step::Insert(at, element)),
            2 => (0..9_usize, element()).prop_map(|(at, element)| Step::Set(at, element)),
            1 => (0..9_usize, 0..9_usize).prop_map(|(start, end)| Step::Keep(start, end)),
            2 => (element(), 0..4_usize, end())
                .prop_map(|(element, count, from)| Step::Remove(element, count, from)),
        ]
    }

    /// Elements of several sizes.
    fn element(kind: u8) -> &'static [u8] {
        [&b"7"[..], b"-70000", b"text", &[b'x'; 5000]][usize::from(kind)]
    }

    /// Applies the same step to a vector.
    fn mirror(step: &Step, model: &mut Vec<u8>) {
        match *step {
            Step::Push(End::Left, kind) => model.insert(0, kind),
            Step::Push(End::Right, kind) => model.push(kind),
            Step::Pop(_) if model.is_empty() => {}
            Step::Pop(end) => {
                model.remove(if end == End::Left { 0 } else { model.len() - 1 });
            }
            Step::Insert(at, kind) => model.insert(at.min(model.len()), kind),
            Step::Set(at, kind) => {
                if let Some(old) = model.get_mut(at) {
                    *old = kind;
                }
            }
            Step::Keep(start, end) => {
                let end = end.min(model.len());
                *model = model[start.min(end)..end].to_vec();
            }
            Step::Remove(kind, count, from) => {
                let mut places: Vec<usize> =
                    (0..model.len()).filter(|&n| model[n] == kind).collect();
                if from == End::Right {
                    places.reverse();
                }
                places.truncate(count);
                places.sort_unstable();
                for place in places.into_iter().rev() {
                    model.remove(place);
                }
            }
        }
    }

    fn change(step: &Step, list: &mut List) {
        let length = list.len();
        match *step {
            Step::Push(end, kind) => list.push(end, element(kind)),
            Step::Pop(end) => drop(list.pop(end)),
            Step::Insert(at, kind) => list.insert(at.min(length), element(kind)),
            Step::Set(at, kind) => assert_eq!(list.set(at, element(kind)), at < length),
            Step::Keep(start, end) => list.keep(start.min(end.min(length))..end.min(length)),
            Step::Remove(kind, count, from) => {
                list.remove(element(kind), count, from);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn agrees_with_a_vector(steps in prop::collection::vec(steps(), 1..60)) {
            let (mut list, mut model) = (List::default(), Vec::new());
            for step in &steps {
                change(step, &mut list);
                mirror(step, &mut model);
                let expected: Vec<&[u8]> = model.iter().map(|&kind| element(kind)).collect();
                prop_assert_eq!(list.iter().collect::<Vec<_>>(), expected);
                let bytes: usize = list.iter().map(packed_bytes).sum();
                prop_assert_eq!(list.0.packed_bytes, bytes);
            }
        }
    }

    #[test]
    fn unused_capacity_is_freed() {
        let limits = SmallListLimits::from_directive(-2);
        let mut list = List::default();
        (0..10_000).for_each(|_| list.push(End::Right, b"x"));
        while list.len() > 10 {
            list.pop(End::Left);
            list.shrink(limits);
        }
        assert!(list.0.elements.capacity() <= 100, "{}", list.0.elements.capacity());
    }
}
