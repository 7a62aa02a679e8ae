//! Lua scripts of lock libraries, byte for byte as the clients send them.

/// The usual release: deletes the key only if it holds the owner's token.
pub const COMPARE_AND_DELETE: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then\n\
    \x20   return redis.call('del',KEYS[1])\n\
    else\n\
    \x20   return 0\n\
    end";

/// The same on one line, as Jedis users write it.
pub const COMPARE_AND_DELETE_ONE_LINE: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then \
    return redis.call('del',KEYS[1]) else return 0 end";

/// Renews the lease only if the key holds the owner's token.
pub const COMPARE_AND_RENEW: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then \
    return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

/// Redisson 2.2.17 acquires a free lock with `hset`.
pub const LOCK_2_2_17: &str = include_str!("../../server/compat/src/scripts/redisson-2.2/lock.lua");

/// Redisson 2.2.17 publishes even when the lock is gone. `end;if` has no space between.
pub const UNLOCK_2_2_17: &str =
    include_str!("../../server/compat/src/scripts/redisson-2.2/unlock.lua");

/// Redisson 3.13.6 and 3.15.4 acquire the lock with `hincrby`.
pub const LOCK_3: &str = include_str!("../../server/compat/src/scripts/redisson-3/lock.lua");

/// The unlock of every Redisson 3 before the unlock latch: nil if the caller does not hold the
/// lock.
pub const UNLOCK_3: &str = include_str!("../../server/compat/src/scripts/redisson-3/unlock.lua");

/// The watchdog of Redisson 3.
pub const RENEW_3: &str = include_str!("../../server/compat/src/scripts/redisson-3/renew.lua");
