//! How code that takes locks through a library is tested with a stopped clock: what its own timers
//! do, and what to do about them.

mod async_redis_lock;
mod redis_rs;
mod rslock;
