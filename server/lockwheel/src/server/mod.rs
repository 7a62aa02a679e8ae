//! A server from its settings to its end: `core` has [`Builder`] and [`Server`]; the other files
//! are what it takes from the process: addresses, files, descriptors and figures of its use.

mod acl_file;
pub(crate) mod bounded_file;
mod core;
mod descriptors;
pub(crate) mod listen_settings;
pub(crate) mod process_usage;
pub(crate) mod runtime_files;

#[cfg(feature = "replication")]
pub(crate) use core::seeds;
pub use core::{Builder, Server};
pub use descriptors::share_descriptors;
