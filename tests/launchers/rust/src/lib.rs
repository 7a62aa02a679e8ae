//! What launches a redis-server in Rust's tests: see `tests/`.
