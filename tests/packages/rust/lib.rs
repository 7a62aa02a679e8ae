//! An empty library, whose tests use the packed crates.
