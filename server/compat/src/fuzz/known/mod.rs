//! The known differences from other servers, each as narrow as possible and with the line of
//! `docs/differences.md` that describes it.
//!
//! A file has those of one family of commands, and the text beside it their examples: conversations
//! that show each difference, and near misses that it must not explain. A difference names the
//! references that have it; `difference.rs` says what else. A reply that waits for several keys is
//! checked on the reference itself: see [`alone`].
//!
//! Begin with `difference.rs` and `lists.rs`.

mod bits;
mod blocking;
mod difference;
mod find;
mod keys;
mod lists;
mod numbers;
mod objects;
mod replies;
mod requests;
mod scripts;
mod sorted_sets;
mod streams;
#[cfg(test)]
mod tests;
mod words;

pub use blocking::{SEVERAL_KEYS, alone};
pub use difference::{KnownDifference, ObservedDifference, Version, waits};
pub use find::{find, may_differ};
pub use numbers::seventeen_digits;
