//! A server from its settings to its end: `core` has [`Builder`] and [`Server`], `acl_file` the
//! file of users, `descriptors` divides the descriptors of the process.

mod acl_file;
mod core;
mod descriptors;

pub use core::{Builder, Server};
pub use descriptors::share_descriptors;
