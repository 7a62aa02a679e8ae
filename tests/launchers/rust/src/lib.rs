//! Tests of Rust libraries that start a redis-server: see `tests/`.
