//! Which bytes of a queue may be sent: each depends on a position of the log, which must be
//! released first.

use std::collections::VecDeque;

use lockwheel_engine::durability::unit_log::Position;

/// The positions that the bytes of a queue depend on. Positions only grow: bytes wait for those
/// before them in any case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dependencies {
    /// Offsets from the front of the queue at which bytes begin that depend on a later position.
    marks: VecDeque<(usize, Position)>,
}

impl Dependencies {
    /// The bytes from `start` on depend on `position`; 0 is no dependency.
    #[inline]
    pub(crate) fn add(&mut self, start: usize, position: Position) {
        if position > 0 {
            self.add_mark(start, position);
        }
    }

    #[cold]
    fn add_mark(&mut self, start: usize, position: Position) {
        if self.marks.back().is_none_or(|(_, last)| *last < position) {
            self.marks.push_back((start, position));
        }
    }

    /// The number of bytes at the front that may be sent, of `length` bytes.
    #[inline]
    pub(crate) fn sendable(&mut self, length: usize, released: impl FnOnce() -> Position) -> usize {
        if self.marks.is_empty() { length } else { self.before_marks(length, released()) }
    }

    #[cold]
    fn before_marks(&mut self, length: usize, released: Position) -> usize {
        while let Some((start, position)) = self.marks.front() {
            if *position > released {
                return *start;
            }
            self.marks.pop_front();
        }
        length
    }

    /// The position that the last bytes depend on.
    pub(crate) fn last(&self) -> Position {
        self.marks.back().map_or(0, |(_, position)| *position)
    }

    /// Removes `count` bytes from the front.
    #[inline]
    pub(crate) fn advance(&mut self, count: usize) {
        for (start, _) in &mut self.marks {
            *start = start.saturating_sub(count);
        }
    }

    /// Appends the dependencies of bytes that are moved to the end of another queue, which has
    /// `length` bytes.
    pub(crate) fn append(&mut self, length: usize, more: &mut Dependencies) {
        for (start, position) in more.marks.drain(..) {
            self.add(length + start, position);
        }
    }

    /// Removes all.
    pub(crate) fn clear(&mut self) {
        self.marks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_wait_for_their_position_and_for_bytes_before_them() {
        let mut dependencies = Dependencies::default();
        for (start, position) in [(0, 0), (10, 3), (20, 2), (30, 0), (40, 5)] {
            dependencies.add(start, position);
        }
        assert_eq!(dependencies.sendable(50, || 2), 10);
        dependencies.advance(4);
        assert_eq!(dependencies.sendable(46, || 2), 6);
        assert_eq!(dependencies.sendable(46, || 3), 36);
        assert_eq!(dependencies.sendable(46, || 5), 46);
    }

    #[test]
    fn dependencies_move_with_their_bytes() {
        let (mut first, mut second) = (Dependencies::default(), Dependencies::default());
        first.add(5, 4);
        second.add(1, 3);
        second.add(2, 6);
        first.append(10, &mut second);
        assert_eq!(first.sendable(20, || 3), 5);
        assert_eq!(first.sendable(20, || 5), 12);
        assert_eq!(second.sendable(7, || 0), 7);
    }
}
