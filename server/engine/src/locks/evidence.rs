//! How sure it is that a key is a lock: the first impression, and the proofs that come later.

use serde::Serialize;

use crate::glob;
use crate::settings::Settings;

use super::Shape;
use super::words::{Name, Value};

/// How sure it is that a key is a lock; see the documentation of [`locks`](super).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Confidence {
    /// It has the shape of a lock, and nothing else shows that it is one.
    Possible,
    /// Its name, its value or the way it is used is that of a lock.
    Likely,
    /// Its owner proved to be the owner, or it was declared.
    Certain,
}

/// What the creation of a key shows; the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Impression {
    /// It is a native lock.
    Native,
    /// Its name matches a pattern that was declared.
    Declared,
    /// A unique owner holds a count in a hash.
    UniqueOwner,
    /// Its name has a word for a lock.
    Name,
    /// The value is unique.
    UniqueValue,
    /// The value may name an owner, unless it is the value of another key too.
    OwnerValue,
    /// Nothing.
    Shape,
}

impl Impression {
    /// The impression of a string.
    pub(super) fn of(name: Name, value: Value, has_lease: bool) -> Impression {
        match (name, value) {
            (Name::Lock, _) => Impression::Name,
            (Name::Data | Name::Other, Value::Unique) => Impression::UniqueValue,
            (Name::Other, Value::Owner) if has_lease => Impression::OwnerValue,
            _ => Impression::Shape,
        }
    }

    /// The impression of a hash with a count for this owner. `reads`: the script has read it.
    pub(super) fn of_owner(name: Name, owner: Value, reads: bool) -> Impression {
        match (name, owner) {
            (_, Value::Unique) => Impression::UniqueOwner,
            (Name::Lock, _) => Impression::Name,
            // A script that takes a lock looks whether it is free.
            (Name::Other, Value::Owner) if reads => Impression::OwnerValue,
            _ => Impression::Shape,
        }
    }

    /// The impression of a sorted set with this member. A sliding window of requests has unique
    /// members too, but its scores are past times, and the set gets a lease.
    pub(super) fn of_member(
        name: Name,
        member: Value,
        has_lease: bool,
        ends_later: bool,
    ) -> Impression {
        match (name, member) {
            (Name::Lock, _) => Impression::Name,
            (Name::Other, Value::Unique) if ends_later || !has_lease => Impression::UniqueValue,
            (Name::Other, Value::Owner) if ends_later => Impression::OwnerValue,
            _ => Impression::Shape,
        }
    }
}

/// A use of a key that shows that it is a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Proof {
    /// A client that was refused tried repeatedly.
    Retried,
    /// The client that created the key deleted it.
    DeletedByCreator,
    /// A client that was refused acquired it later.
    Waited,
    /// `GETSET` replaced a time that has passed.
    Exchanged,
    /// The value was compared before the key was deleted or renewed.
    Compared,
}

/// What is known of a key that is or was a lock, possibly.
#[derive(Clone, Debug)]
pub(crate) struct Evidence {
    pub(crate) impression: Impression,
    pub(crate) proof: Option<Proof>,
    pub(crate) shape: Shape,
    /// The owner of the first impression.
    pub(crate) value: Vec<u8>,
}

impl Evidence {
    /// Handles a lease of a whole sorted set: a sliding window of requests has one.
    pub(super) fn weaken_as_window(&mut self, ends_later: bool) {
        if self.impression == Impression::UniqueValue && !ends_later {
            self.impression = Impression::Shape;
        }
    }

    /// The confidence and its reason. `is_shared`: the value is that of another key too.
    pub(crate) fn confidence(&self, is_shared: bool) -> (Confidence, &'static str) {
        let of_proof = match self.proof {
            Some(Proof::Compared) => {
                (Confidence::Certain, "its owner was compared before it was released or renewed")
            }
            Some(Proof::Exchanged) => {
                (Confidence::Certain, "GETSET replaced a time that has passed")
            }
            Some(Proof::Waited) => {
                (Confidence::Certain, "a client that was refused acquired it later")
            }
            Some(Proof::DeletedByCreator) => {
                (Confidence::Likely, "the client that created it deleted it")
            }
            Some(Proof::Retried) => {
                (Confidence::Likely, "a client that was refused tried again and again")
            }
            None => (Confidence::Possible, "it has the shape of a lock"),
        };
        let of_impression = match self.impression {
            Impression::Native => (Confidence::Certain, "it is a native lock"),
            Impression::Declared => (Confidence::Certain, "it was declared"),
            Impression::UniqueOwner => (Confidence::Certain, "its owner is unique"),
            Impression::Name => (Confidence::Likely, "its name has a word for a lock"),
            Impression::UniqueValue => (Confidence::Likely, "its value is unique"),
            Impression::OwnerValue if !is_shared => {
                (Confidence::Likely, "its value may name an owner, and it has a lease")
            }
            Impression::OwnerValue | Impression::Shape => {
                (Confidence::Possible, "it has the shape of a lock")
            }
        };
        if of_proof.0 >= of_impression.0 { of_proof } else { of_impression }
    }
}

/// The patterns of keys that the user has declared.
#[derive(Clone, Debug, Default)]
pub struct Declared {
    locks: Vec<Vec<u8>>,
    ignored: Vec<Vec<u8>>,
}

impl Declared {
    /// The patterns in these settings.
    pub(crate) fn of(settings: &Settings) -> Declared {
        let patterns = |text: &Option<String>| {
            let words = text.iter().flat_map(|text| text.split_whitespace());
            words.map(|word| word.as_bytes().to_vec()).collect()
        };
        Declared {
            locks: patterns(&settings.lock_keys),
            ignored: patterns(&settings.ignored_lock_keys),
        }
    }

    /// Declares that keys that match `pattern` are locks.
    pub fn declare(&mut self, pattern: &[u8]) {
        self.ignored.retain(|known| known != pattern);
        if !self.locks.iter().any(|known| known == pattern) {
            self.locks.push(pattern.to_vec());
        }
    }

    /// Declares that keys that match `pattern` are no locks, also if they match another pattern.
    pub fn ignore(&mut self, pattern: &[u8]) {
        self.locks.retain(|known| known != pattern);
        if !self.ignored.iter().any(|known| known == pattern) {
            self.ignored.push(pattern.to_vec());
        }
    }

    pub(super) fn is_lock(&self, key: &[u8]) -> bool {
        self.locks.iter().any(|pattern| glob::matches(pattern, key))
    }

    pub(super) fn ignores(&self, key: &[u8]) -> bool {
        self.ignored.iter().any(|pattern| glob::matches(pattern, key))
    }
}
