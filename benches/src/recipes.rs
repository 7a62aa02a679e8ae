//! The lock scripts that are measured, as the clients send them. It must not know how.

/// The classical release: only the owner's token deletes.
pub const COMPARE_AND_DELETE: &str = "if redis.call('get',KEYS[1]) == ARGV[1] then \
    return redis.call('del',KEYS[1]) else return 0 end";

/// Redisson 3.15.4 takes a lock, once more if its owner asks: nil, or what remains of it.
pub const REDISSON_LOCK: &str = "if (redis.call('exists', KEYS[1]) == 0) then \
    redis.call('hincrby', KEYS[1], ARGV[2], 1); \
    redis.call('pexpire', KEYS[1], ARGV[1]); \
    return nil; \
    end; \
    if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then \
    redis.call('hincrby', KEYS[1], ARGV[2], 1); \
    redis.call('pexpire', KEYS[1], ARGV[1]); \
    return nil; \
    end; \
    return redis.call('pttl', KEYS[1]);";

/// Redisson 3.15.4 releases a lock and wakes who waits for it.
pub const REDISSON_UNLOCK: &str = "if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then \
    return nil;\
    end; \
    local counter = redis.call('hincrby', KEYS[1], ARGV[3], -1); \
    if (counter > 0) then \
    redis.call('pexpire', KEYS[1], ARGV[2]); \
    return 0; \
    else \
    redis.call('del', KEYS[1]); \
    redis.call('publish', KEYS[2], ARGV[1]); \
    return 1; \
    end; \
    return nil;";

/// Redisson's watchdog prolongs a lock that is still held.
pub const REDISSON_RENEW: &str = "if (redis.call('hexists', KEYS[1], ARGV[2]) == 1) then \
    redis.call('pexpire', KEYS[1], ARGV[1]); \
    return 1; \
    end; \
    return 0;";
