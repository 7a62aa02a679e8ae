//! The classes of keyspace events.

use bitflags::bitflags;

bitflags! {
    /// The letters of `notify-keyspace-events`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Events: u32 {
        /// `K`: publish to `__keyspace@<db>__:<key>`.
        const KEYSPACE = 1;
        /// `E`: publish to `__keyevent@<db>__:<event>`.
        const KEYEVENT = 1 << 1;
        /// `g`: commands for any type of value.
        const GENERIC = 1 << 2;
        /// `$`
        const STRING = 1 << 3;
        /// `l`
        const LIST = 1 << 4;
        /// `s`
        const SET = 1 << 5;
        /// `h`
        const HASH = 1 << 6;
        /// `z`
        const ZSET = 1 << 7;
        /// `x`
        const EXPIRED = 1 << 8;
        /// `e`
        const EVICTED = 1 << 9;
        /// `t`
        const STREAM = 1 << 10;
        /// `m`: look-ups of missing keys. Not part of `A`.
        const KEY_MISS = 1 << 11;
        /// `d`: events of modules.
        const MODULE = 1 << 12;
        /// `n`: new keys. Not part of `A`.
        const NEW = 1 << 13;
        /// `A`
        const ALL = Self::GENERIC.bits() | Self::STRING.bits() | Self::LIST.bits()
            | Self::SET.bits() | Self::HASH.bits() | Self::ZSET.bits() | Self::EXPIRED.bits()
            | Self::EVICTED.bits() | Self::STREAM.bits() | Self::MODULE.bits();
    }
}

/// The letters and their classes in the order of `CONFIG GET`.
const LETTERS: [(char, Events); 14] = [
    ('g', Events::GENERIC),
    ('$', Events::STRING),
    ('l', Events::LIST),
    ('s', Events::SET),
    ('h', Events::HASH),
    ('z', Events::ZSET),
    ('x', Events::EXPIRED),
    ('e', Events::EVICTED),
    ('t', Events::STREAM),
    ('d', Events::MODULE),
    ('n', Events::NEW),
    ('K', Events::KEYSPACE),
    ('E', Events::KEYEVENT),
    ('m', Events::KEY_MISS),
];

impl Events {
    /// Reads the letters; `None` if one of them is unknown.
    pub fn parse(letters: &str) -> Option<Events> {
        letters.chars().try_fold(Events::empty(), |events, letter| {
            let more = if letter == 'A' {
                Events::ALL
            } else {
                LETTERS.iter().find(|(l, _)| *l == letter)?.1
            };
            Some(events | more)
        })
    }

    /// The letters in Redis's order, with `A` for all classes that it covers. As in Redis, `n` is
    /// left out together with `A`.
    pub fn letters(self) -> String {
        let all = self.contains(Events::ALL);
        let covered = if all { Events::ALL | Events::NEW } else { Events::empty() };
        let single = LETTERS
            .iter()
            .filter(|(_, event)| (self - covered).contains(*event))
            .map(|(letter, _)| *letter);
        all.then_some('A').into_iter().chain(single).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_printed_as_in_redis() {
        for (given, printed) in [
            ("", ""),
            ("KEA", "AKE"),
            ("Ex", "xE"),
            ("g$lshzxetdK", "AK"),
            ("mnKE", "nKEm"),
            ("AKEmn", "AKEm"),
            ("Kh$", "$hK"),
        ] {
            assert_eq!(Events::parse(given).map(Events::letters).as_deref(), Some(printed));
        }
        assert_eq!(Events::parse("KQ"), None);
    }
}
