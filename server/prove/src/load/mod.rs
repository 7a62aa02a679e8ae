//! The clients that load the servers with locks, each on a thread of its own.
//!
//! A [`client::LockClient`] asks for locks: by the recipe of a library (`client.rs`), or on a
//! majority of independent servers (`redlock.rs`). A worker uses it as programs do (`worker.rs`):
//! it waits, renews, holds on, loses replies and abandons locks. The probe (`probe.rs`) measures
//! for how long no lock is granted.
//!
//! Locks belong to an *epoch*, which is part of their names. When no client uses the locks of an
//! epoch any more, its history is complete and can be judged and forgotten.

mod client;
mod probe;
mod redlock;
mod shared;
mod threads;
mod worker;

pub(crate) use shared::{PROBE_LOCKS, Shared, key_of, probe_key};
pub(crate) use threads::Load;
