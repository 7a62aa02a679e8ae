//! The state of connections: what each client has set, the tables of clients by channel and key,
//! and their output. The engine does no I/O: it appends output to `pending`, and the caller
//! collects it.
//!
//! - `session` has one client's state, and the state of all. Begin here.
//! - `clients` finds a client; `buffers` and `deliveries` are its output.
//! - `waiters` and `queues` are clients that wait for a key; `pauses` are all clients that wait.
//! - `transaction` is `MULTI` and `WATCH`; `pubsub`, `monitors` and `tracking` are subscribers.
//! - `bindings` are locks that end with a connection; `hold_ends` are ends of shared holds.
//! - `notify` publishes keyspace events.
//!
//! Rule: this state is separate from the replicated [`State`](crate::store::state::State): applying
//! the effects of another engine does not change it. The engine passes it those of its commands.

pub mod bindings;
pub mod buffers;
pub mod clients;
pub mod deliveries;
mod hold_ends;
pub mod monitors;
pub mod notify;
pub mod pauses;
pub mod pubsub;
mod queues;
mod session;
pub mod tracking;
pub mod transaction;
pub mod waiters;

pub use session::{ClientId, Close, Origin, ReplyMode, Session, Sessions, Timer, Watched};
