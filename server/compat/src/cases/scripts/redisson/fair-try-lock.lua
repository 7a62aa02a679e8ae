-- RFairLock.tryLock(): takes the lock if no other client is first in the queue. Nil: taken.
-- KEYS: lock, queue, timeouts. ARGV: lease ms, owner, now, wait ms.
while true do
    local first = redis.call('lindex', KEYS[2], 0)
    if first == false then
        break
    end
    local timeout = redis.call('zscore', KEYS[3], first)
    if timeout ~= false and tonumber(timeout) <= tonumber(ARGV[3]) then
        -- Its timeout has passed: removed from the queue. Other timeouts stay.
        redis.call('zrem', KEYS[3], first)
        redis.call('lpop', KEYS[2])
    else
        break
    end
end
if redis.call('exists', KEYS[1]) == 0
    and (redis.call('exists', KEYS[2]) == 0 or redis.call('lindex', KEYS[2], 0) == ARGV[2])
then
    redis.call('lpop', KEYS[2])
    redis.call('zrem', KEYS[3], ARGV[2])
    -- Clients behind move forward.
    local waiting = redis.call('zrange', KEYS[3], 0, -1)
    for i = 1, #waiting, 1 do
        redis.call('zincrby', KEYS[3], -tonumber(ARGV[4]), waiting[i])
    end
    redis.call('hset', KEYS[1], ARGV[2], 1)
    redis.call('pexpire', KEYS[1], ARGV[1])
    return nil
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
    redis.call('hincrby', KEYS[1], ARGV[2], 1)
    redis.call('pexpire', KEYS[1], ARGV[1])
    return nil
end
return 1
