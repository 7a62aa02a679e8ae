-- RLock: releases one entry, and wakes a waiting client when the lock is free. The latch keeps the
-- reply for a retry of the same unlock. Nil: not the holder; 0: still held; 1: free.
-- KEYS: lock, channel, latch. ARGV: message, lease ms, owner, publish command, latch ms.
local before = redis.call('get', KEYS[3])
if before ~= false then
    return tonumber(before)
end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
    return nil
end
local count = redis.call('hincrby', KEYS[1], ARGV[3], -1)
if count > 0 then
    redis.call('pexpire', KEYS[1], ARGV[2])
    redis.call('set', KEYS[3], 0, 'px', ARGV[5])
    return 0
else
    redis.call('del', KEYS[1])
    redis.call(ARGV[4], KEYS[2], ARGV[1])
    redis.call('set', KEYS[3], 1, 'px', ARGV[5])
    return 1
end
