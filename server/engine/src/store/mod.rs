//! The databases: keys, their values and their deadlines.
//!
//! - `keyspace` has the databases; `state` is all that effects change, and `writer` the only way to
//!   change it. Begin with `writer`.
//! - `effects` are changes as data; `apply` applies them; `snapshot` and `digest` read the state.
//! - `records`, `dict`, `index`, `slab` and `pages` are the memory of keys; `value` and the files
//!   of the types are that of values.
//!
//! Invariants: a key is removed before any access once its deadline has been reached, and a key
//! with a deadline has exactly one timer in the wheel of its database (none while active expiry is
//! off).

pub mod access_frequency;
pub mod apply;
pub(crate) mod counter;
pub mod dict;
pub mod digest;
pub mod edit;
pub mod effects;
pub mod events;
pub mod garbage;
pub mod hash;
pub mod index;
mod keyspace;
pub mod libraries;
pub mod list;
pub mod lock;
pub mod lock_notes;
pub mod lookup_cache;
pub mod packed;
mod pages;
pub mod records;
pub mod sequence;
pub mod serialised;
pub mod set;
pub mod slab;
pub mod snapshot;
pub mod sorted_set;
pub mod state;
pub mod stream;
pub mod string_slabs;
pub mod string_value;
pub mod users;
pub mod value;
pub mod writer;

pub(crate) use keyspace::random_sample;
pub use keyspace::{Database, DatabaseKey, Keyspace};
pub use records::{DUE_TOGETHER, Due};
