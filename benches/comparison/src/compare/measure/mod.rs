//! Measuring: the servers, the clients that load them, and what is read from them.
//!
//! A [`servers::ComparedServer`] is started as a [`running::Running`] process. [`generator`] sends
//! encoded [`requests`] on connections that each have one batch pending, [`open_loop`] sends at
//! fixed times instead, and [`load`] fills a server. Every reply is checked byte for byte. A
//! measurement returns [`metric::Reading`]s. The bare server and the bare thread show the lower
//! bounds.
//!
//! Begin with `generator.rs`.

pub(crate) mod bare_server;
pub(crate) mod bare_thread;
pub(crate) mod effort;
pub(crate) mod generator;
pub(crate) mod latencies;
pub(crate) mod load;
pub(crate) mod log_directory;
pub(crate) mod metric;
pub(crate) mod open_loop;
pub(crate) mod requests;
pub(crate) mod rounds;
pub(crate) mod running;
pub(crate) mod servers;
pub(crate) mod shutdown;
