//! The clients of Rust, each as it is published.

mod async_redis_lock;
mod deadpool_redis;
mod fred;
mod recipes;
mod redis_rs;
mod rslock;
