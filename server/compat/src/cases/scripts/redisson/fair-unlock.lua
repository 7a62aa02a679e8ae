-- RFairLock: releases one entry and wakes the first in the queue through its own channel.
-- KEYS: lock, queue, timeouts, channel, latch.
-- ARGV: message, lease ms, owner, now, publish command, latch ms.
local before = redis.call('get', KEYS[5])
if before ~= false then
    return tonumber(before)
end
while true do
    local first = redis.call('lindex', KEYS[2], 0)
    if first == false then
        break
    end
    local timeout = redis.call('zscore', KEYS[3], first)
    if timeout ~= false and tonumber(timeout) <= tonumber(ARGV[4]) then
        redis.call('zrem', KEYS[3], first)
        redis.call('lpop', KEYS[2])
    else
        break
    end
end
if redis.call('exists', KEYS[1]) == 0 then
    local first = redis.call('lindex', KEYS[2], 0)
    if first ~= false then
        redis.call(ARGV[5], KEYS[4] .. ':' .. first, ARGV[1])
    end
    redis.call('set', KEYS[5], 1, 'px', ARGV[6])
    return 1
end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
    return nil
end
local count = redis.call('hincrby', KEYS[1], ARGV[3], -1)
if count > 0 then
    redis.call('pexpire', KEYS[1], ARGV[2])
    redis.call('set', KEYS[5], 0, 'px', ARGV[6])
    return 0
end
redis.call('del', KEYS[1])
redis.call('set', KEYS[5], 1, 'px', ARGV[6])
local first = redis.call('lindex', KEYS[2], 0)
if first ~= false then
    redis.call(ARGV[5], KEYS[4] .. ':' .. first, ARGV[1])
end
return 1
