//! Tests of code that takes locks through a library, with a stopped clock: the library's own
//! timers, and how to handle them.

mod async_redis_lock;
mod redis_rs;
mod rslock;
