//! Nothing: the test of this package is in `tests/snapshot.rs`.
