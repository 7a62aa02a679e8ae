//! The network: sockets, threads and time around the engine. Only this module uses tokio.
//!
//! There is one engine behind one lock ([`host`]). The thread that has read a request runs it
//! ([`connection`]). Messages for other clients wait in their [`outbox`]. Output is sent at the end
//! of the thread's [`turn`].

pub(crate) mod commit_gate;
pub(crate) mod connection;
pub(crate) mod dependencies;
#[cfg(feature = "tls")]
pub(crate) mod handshakes;
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
#[cfg(feature = "tls")]
pub(crate) mod tls_stream;
pub(crate) mod turn;
pub(crate) mod wake_timer;
pub(crate) mod workers;
