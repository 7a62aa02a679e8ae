//! Lua scripts of lock libraries: the fixtures of the compatibility suite.

macro_rules! script {
    ($name:literal) => {
        include_str!(concat!("../../server/compat/src/cases/scripts/", $name, ".lua"))
    };
}

/// The usual release: deletes the key only if it holds the owner's token.
pub const COMPARE_AND_DELETE: &str = script!("compare-and-delete");
/// The usual renewal: sets the lease only if the key holds the owner's token.
pub const COMPARE_AND_RENEW: &str = script!("compare-and-pexpire");
/// Script with which Redisson 2.2.17 takes a free lock: it uses `hset`.
pub const LOCK_2_2_17: &str = script!("redisson-2.2/lock");
/// Unlock of Redisson 2.2.17, which publishes even when the lock does not exist.
pub const UNLOCK_2_2_17: &str = script!("redisson-2.2/unlock");
/// Script with which Redisson 3.13 to 3.23 takes a lock.
pub const LOCK_3: &str = script!("redisson-3/lock");
/// The unlock of every Redisson 3 before the unlock latch: nil if the caller does not hold the
/// lock.
pub const UNLOCK_3: &str = script!("redisson-3/unlock");
/// The watchdog of Redisson 3.
pub const RENEW_3: &str = script!("redisson-3/renew");
/// The watchdog of Redisson since 3.44: one script renews all locks among its keys.
pub const RENEW_ALL: &str = script!("redisson/renew");
/// The unlock of the current Redisson, with a latch.
pub const UNLOCK: &str = script!("redisson/unlock");
/// A release of the lock of any holder.
pub const FORCE_UNLOCK: &str = script!("redisson/force-unlock");
/// Script with which Redisson's `RReadWriteLock` takes a read lock.
pub const READ_LOCK: &str = script!("redisson/read-lock");
/// Script with which Redisson's `RReadWriteLock` takes the write lock.
pub const WRITE_LOCK: &str = script!("redisson/write-lock");
/// Script with which Redisson's `RFairLock` takes the lock or joins the queue.
pub const FAIR_LOCK: &str = script!("redisson/fair-lock");
