-- RSpinLock: releases one entry and publishes nothing; waiting clients poll.
-- KEYS: lock, latch. ARGV: lease ms, owner, latch ms.
local before = redis.call('get', KEYS[2])
if before ~= false then
    return tonumber(before)
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
    return nil
end
local count = redis.call('hincrby', KEYS[1], ARGV[2], -1)
if count > 0 then
    redis.call('pexpire', KEYS[1], ARGV[1])
    redis.call('set', KEYS[2], 0, 'px', ARGV[3])
    return 0
else
    redis.call('del', KEYS[1])
    redis.call('set', KEYS[2], 1, 'px', ARGV[3])
    return 1
end
