//! Servers that break the promises of locks in known ways, and correct ones on bad networks, for
//! the tests of the program that judges servers from outside.
//!
//! All of them are servers of this process behind a [`Proxy`], which sees each request: it can
//! change it, delay it, lose its reply or answer itself (`handlers.rs`). A [`Pair`] is a primary
//! and a replica that a fake sentinel names.
//!
//! Begin with `proxy.rs`.

pub mod handlers;
mod pair;
mod proxy;

pub use pair::Pair;
pub use proxy::{Handler, Proxy};
