//! The commands, one file or folder for each family: rows first, then handlers, then tests.
//!
//! `common` has the list of families, and what several of them use.
//!
//! Rule: a new command needs a change only in the file of its family; a new family needs a line
//! here and one in `common`.

pub mod acl;
pub mod bits;
pub mod client;
mod client_list;
pub mod cluster;
mod common;
pub mod conditional;
pub mod connection;
pub mod debug;
pub mod dump;
pub mod expiry;
pub mod functions;
pub mod hashes;
pub mod info;
pub mod introspection;
pub mod keys;
pub mod latency;
pub mod lists;
pub mod lock;
pub mod lockwheel;
pub mod memory;
pub mod monitor;
pub mod multi_pop;
pub mod persistence;
pub mod picks;
pub mod pubsub;
pub mod replication;
pub mod scan;
pub mod scripts;
pub mod sentinel;
pub mod server;
pub mod sets;
pub mod settings;
pub mod slowlog;
pub mod sort;
pub mod sorted_sets;
pub mod streams;
pub mod strings;
mod time_unit;
mod tracking;
pub mod transactions;

pub(crate) use common::at_least;
pub(crate) use common::help_row;
pub(crate) use common::json;
pub(crate) use common::map;
pub(crate) use common::number;
pub(crate) use common::text;
pub(crate) use common::timeout;
pub(crate) use common::timeout_seconds;
pub(crate) use common::unknown_form;
pub use common::{FAMILIES, node_commands, sentinel_commands, server_commands};
pub(crate) use common::{help, help_of};
