//! An empty library. Its tests use the packed crates.
