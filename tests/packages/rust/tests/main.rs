//! Tests with lock libraries and a stopped clock: how to handle the libraries' own timers.

mod async_redis_lock;
mod cluster;
mod locks;
mod redis_rs;
mod rslock;
