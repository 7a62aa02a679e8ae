//! The network: sockets and threads around the engine.
//!
//! There is one engine behind one lock ([`crate::host`]). The thread that has read a request runs
//! it ([`connection`]). Messages for other clients wait in their [`outbox`]. Output is sent at the
//! end of the thread's [`turn`].

pub(crate) mod connection;
#[cfg(feature = "tls")]
pub(crate) mod handshakes;
pub(crate) mod input;
pub(crate) mod listen_settings;
pub(crate) mod listener;
pub(crate) mod outbox;
pub(crate) mod output;
pub(crate) mod registry;
pub(crate) mod stream;
pub(crate) mod ticker;
#[cfg(feature = "tls")]
pub(crate) mod tls_stream;
pub(crate) mod turn;
pub(crate) mod wake_timer;
pub(crate) mod workers;
