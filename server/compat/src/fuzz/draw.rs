//! How a value of each kind is drawn.
//!
//! Each type has keys of its own, and sometimes a command gets a key of another type. Leases are
//! long, already over, or so short that the episode waits for their end, so that two servers agree
//! about them however slow they are.

use super::grammar::{Grammar, Values};
use super::kinds::{EDGES, KEYS, ValueKind};
use super::script;
use crate::cases;
use crate::random::Random;

/// Number of values of which one is not of its kind.
const ODD_ONE_IN: u64 = 25;
/// Number of leases of which one is so short that the episode waits for its end.
const SHORT_ONE_IN: u64 = 40;

/// The context in which values are drawn.
pub struct Draw<'a> {
    /// The commands for scripts.
    pub grammar: &'a Grammar,
    /// Whether short leases may be drawn, for which the episode waits.
    pub short_leases: bool,
    /// Whether a short lease was drawn.
    pub drew_short_lease: bool,
    /// Whether the value belongs to a command within a script or within `COMMAND GETKEYS`.
    pub nested: bool,
}

impl Values for Draw<'_> {
    fn draw(&mut self, kind: ValueKind, random: &mut Random, words: &mut Vec<Vec<u8>>) {
        let word = match kind {
            ValueKind::Command => {
                words.extend(self.nested(random));
                return;
            }
            kind if kind.is_key() => self.key(kind, random).into(),
            kind if kind.is_number() && random.once_in(ODD_ONE_IN) => (*random.pick(EDGES)).into(),
            ValueKind::Milliseconds => self.milliseconds(random),
            ValueKind::Script => script::draw(&mut |random| self.nested(random), random),
            ValueKind::LockScript => format!("@{}", random.pick(&lock_scripts())).into_bytes(),
            ValueKind::Digest if random.once_in(10) => vec![b'0'; 40],
            ValueKind::Digest => format!("@{}.sha1", random.pick(&lock_scripts())).into_bytes(),
            ValueKind::Element | ValueKind::Member | ValueKind::Value if random.once_in(40) => {
                odd_value(random)
            }
            kind => (*random.pick(kind.words())).into(),
        };
        words.push(word);
    }
}

impl Draw<'_> {
    /// Draws a command within a command.
    fn nested(&mut self, random: &mut Random) -> Vec<Vec<u8>> {
        let mut inner = Draw { short_leases: false, nested: true, ..*self };
        // Commands that contain commands would not end.
        let plain = |name: &str| !name.starts_with("EVAL") && name != "COMMAND";
        loop {
            let form = self.grammar.pick(random);
            if plain(form.name()) {
                return form.draw(random, &mut inner);
            }
        }
    }

    fn key(&self, kind: ValueKind, random: &mut Random) -> &'static str {
        let kind = match random.below(100) {
            0..=5 => *random.pick(KEYS),
            6..=11 => ValueKind::Key,
            _ if kind == ValueKind::Key => *random.pick(KEYS),
            _ => kind,
        };
        random.pick::<&'static str>(kind.words())
    }

    fn milliseconds(&mut self, random: &mut Random) -> Vec<u8> {
        if self.short_leases && random.once_in(SHORT_ONE_IN) {
            self.drew_short_lease = true;
            return (*random.pick(&["1", "2", "5"])).into();
        }
        (*random.pick(&["100000", "200000", "5000000", "100000", "30000000", "0", "-1"])).into()
    }
}

/// The scripts with replies that do not depend on time or chance.
pub fn lock_scripts() -> Vec<&'static str> {
    let steady = |text: &str| {
        let text = text.to_lowercase();
        !["'time'", "\"time\"", "random", "os.clock", "'*'", "\"*\""]
            .iter()
            .any(|word| text.contains(word))
    };
    cases::SCRIPTS.iter().filter(|(_, text)| steady(text)).map(|(name, _)| *name).collect()
}

fn odd_value(random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => b"x".repeat(*random.pick(&[1, 44, 45, 63, 64, 65, 100])),
        1 => b"\xff\x00\r\n".to_vec(),
        2 => (*random.pick(EDGES)).into(),
        _ => random.below(100_000).to_string().into_bytes(),
    }
}
