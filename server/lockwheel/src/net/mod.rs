//! The network: sockets, threads and time around the engine. Tokio lives here and nowhere else.
//!
//! One engine behind one lock ([`host`]), run by whichever thread has read a request
//! ([`connection`]); messages for other clients wait in their [`outbox`]. What clients are owed is
//! sent when the thread's [`turn`] ends.

pub(crate) mod bell;
pub(crate) mod connection;
pub(crate) mod host;
pub(crate) mod input;
pub(crate) mod listener;
pub(crate) mod outbox;
pub(crate) mod output;
pub(crate) mod registry;
pub(crate) mod runtime_files;
pub(crate) mod slow_script;
pub(crate) mod stream;
pub(crate) mod ticker;
pub(crate) mod turn;
pub(crate) mod workers;
