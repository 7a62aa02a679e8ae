-- RFairLock: releases the lock of any holder and wakes the first in the queue. 1: it was held.
-- KEYS: lock, queue, timeouts, channel. ARGV: message, now, publish command.
while true do
    local first = redis.call('lindex', KEYS[2], 0)
    if first == false then
        break
    end
    local timeout = redis.call('zscore', KEYS[3], first)
    if timeout ~= false and tonumber(timeout) <= tonumber(ARGV[2]) then
        redis.call('zrem', KEYS[3], first)
        redis.call('lpop', KEYS[2])
    else
        break
    end
end
if redis.call('del', KEYS[1]) == 1 then
    local first = redis.call('lindex', KEYS[2], 0)
    if first ~= false then
        redis.call(ARGV[3], KEYS[4] .. ':' .. first, ARGV[1])
    end
    return 1
end
return 0
