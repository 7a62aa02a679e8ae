//! Storage for millions of short byte strings. Strings of about the same length share the slab of
//! one size class, so that a string costs about its length and no allocation of its own. The
//! contents are opaque here.
//!
//! Invariant: a string of up to `SLAB_BYTES_MAX` bytes is in the slab of its size class, at the
//! start of its place; a longer one has an allocation of its own.

use std::ops::Range;

use super::packed::{self, PackedMut, Part};
use super::pages::Pages;
use super::slab::{Chunks, PAGES_BLOCK, PAGES_PLACES, Slab};

/// The difference in bytes between the places of one size class and the next. The places of the
/// first class have no bytes.
const CLASS_STEP_BYTES: usize = 8;

/// Length of the longest string in a slab. Longer ones have an allocation of their own, whose
/// overhead is negligible then.
const SLAB_BYTES_MAX: usize = 256;

/// Replaces the length of a string that has an allocation of its own.
const LONG: u16 = u16::MAX;

/// Storage for short byte strings.
#[derive(Debug, Default)]
pub struct StringSlabs {
    /// By size class, up to the largest one that was ever used.
    classes: Vec<Chunks<Pages, PAGES_BLOCK>>,
    long: Slab<Box<[u8]>>,
}

/// Identifies a string.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StringHandle {
    /// Its number in its slab, or among the long strings.
    pub number: u32,
    /// Its length, or `LONG`.
    pub length: u16,
}

impl StringSlabs {
    /// Adds a string made of these parts.
    #[inline(always)]
    pub fn add<const N: usize>(&mut self, parts: [Part<'_>; N]) -> StringHandle {
        let length = packed::size_of(&parts);
        if length > SLAB_BYTES_MAX {
            let number = self.long.insert(packed::concat(&parts));
            return StringHandle { number, length: LONG };
        }
        let class = class_of(length);
        if class >= self.classes.len() {
            self.classes.resize_with(class + 1, Chunks::default);
        }
        let memory = || Pages::new(place_bytes(class) * PAGES_PLACES);
        let (number, memory, place) = self.classes[class].allocate(memory);
        let start = place * place_bytes(class);
        packed::write(&mut memory[start..start + length], &parts);
        StringHandle { number, length: length as u16 }
    }

    /// The bytes of a string.
    #[inline]
    pub fn get(&self, handle: StringHandle) -> &[u8] {
        if handle.length == LONG {
            return self.long.get(handle.number);
        }
        let class = class_of(handle.length.into());
        let (memory, place) = self.classes[class].at(handle.number);
        let start = place * place_bytes(class);
        &memory[start..start + usize::from(handle.length)]
    }

    /// The bytes of a string.
    #[inline]
    pub fn get_mut(&mut self, handle: StringHandle) -> &mut [u8] {
        if handle.length == LONG {
            return self.long.get_mut(handle.number);
        }
        let class = class_of(handle.length.into());
        let (memory, place) = self.classes[class].at_mut(handle.number);
        let start = place * place_bytes(class);
        &mut memory[start..start + usize::from(handle.length)]
    }

    /// Removes a string.
    #[inline]
    pub fn remove(&mut self, handle: StringHandle) {
        if handle.length == LONG {
            drop(self.long.remove(handle.number));
        } else {
            self.classes[class_of(handle.length.into())].release(handle.number);
        }
    }

    /// Frees a part of a store that is no longer used. Returns whether there was anything to free.
    pub fn free_part(&mut self) -> bool {
        self.classes.iter_mut().any(Chunks::free_part) || self.long.pop_chunk().is_some()
    }

    /// Gives write access to a string. Its handle may change.
    pub fn edit<'a>(&'a mut self, handle: &'a mut StringHandle) -> StringMut<'a> {
        StringMut { strings: self, handle }
    }
}

/// A string, to be changed.
#[derive(Debug)]
pub struct StringMut<'a> {
    strings: &'a mut StringSlabs,
    handle: &'a mut StringHandle,
}

impl PackedMut for StringMut<'_> {
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.strings.get_mut(*self.handle)
    }

    /// Replaces a part. The string stays where it is as long as its size class is the same.
    fn splice(&mut self, range: Range<usize>, parts: &[Part<'_>]) {
        let StringMut { strings, handle } = self;
        let old_length = strings.get(**handle).len();
        let length = old_length - range.len() + packed::size_of(parts);
        let old_class = (handle.length != LONG).then(|| class_of(old_length));
        let class = (length <= SLAB_BYTES_MAX).then(|| class_of(length));
        match (old_class, class) {
            (Some(old_class), Some(class)) if old_class == class => {
                let tail = range.end..old_length;
                handle.length = length.max(old_length) as u16;
                let bytes = strings.get_mut(**handle);
                let start = range.start + packed::size_of(parts);
                bytes.copy_within(tail, start);
                packed::write(&mut bytes[range.start..start], parts);
                handle.length = length as u16;
            }
            (None, None) => strings.long.get_mut(handle.number).splice(range, parts),
            _ => {
                let mut bytes: Box<[u8]> = strings.get(**handle).into();
                strings.remove(**handle);
                bytes.splice(range, parts);
                **handle = strings.add([Part::Bytes(&bytes)]);
            }
        }
    }
}

fn class_of(length: usize) -> usize {
    length.div_ceil(CLASS_STEP_BYTES)
}

fn place_bytes(class: usize) -> usize {
    class * CLASS_STEP_BYTES
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn agrees_with_vectors(
            steps in prop::collection::vec(
                (0..8_usize, any::<[prop::sample::Index; 2]>(), 0..70_usize, any::<u8>()),
                1..200,
            ),
        ) {
            let mut strings = StringSlabs::default();
            let mut model: Vec<(StringHandle, Vec<u8>)> = Vec::new();
            for (at, range, length, byte) in steps {
                let new = vec![byte; length * length / 12];
                if let Some((handle, bytes)) = model.get_mut(at) {
                    let mut ends = range.map(|end| end.index(bytes.len() + 1));
                    ends.sort_unstable();
                    let range = ends[0]..ends[1];
                    strings.edit(handle).splice(range.clone(), &[Part::Bytes(&new)]);
                    bytes.splice(range, new);
                } else {
                    let handle = strings.add([Part::Bytes(&new)]);
                    model.push((handle, new));
                }
                for (handle, bytes) in &model {
                    prop_assert_eq!(strings.get(*handle), &bytes[..]);
                }
                if byte < 40 {
                    let (handle, _) = model.swap_remove(at.min(model.len() - 1));
                    strings.remove(handle);
                }
            }
            let shelved: usize = strings.classes.iter().map(Chunks::len).sum();
            prop_assert_eq!(shelved + strings.long.chunks().len(), model.len());
        }
    }
}
