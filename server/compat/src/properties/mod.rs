//! Properties under contention: rules that must hold for any number of concurrent clients. Each is
//! run for a bounded time with many connections; the replies are judged afterwards. Every second
//! connection speaks RESP3, if the server does.
//!
//! No check depends on a fast machine: a pause of any length, of a thread, of the server or of the
//! whole machine, must not make a correct server fail. So a conclusion from times uses only that an
//! event happened between the event before it and the event after it.
//!
//! Begin with `property.rs`; `arena.rs` has the connections, `../recipes.rs` the ways to take a
//! lock.

mod arena;
mod atomicity;
mod deletion;
mod exclusion;
mod leases;
mod list;
mod messages;
mod property;
mod repetition;
mod transactions;
mod waiters;

pub use arena::{Arena, ArenaClient, PropertyError};
pub use list::all;
pub use property::Property;
