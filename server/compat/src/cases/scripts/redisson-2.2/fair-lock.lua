-- RFairLock of Redisson 2.2: a waiting client is alive while its key exists, which has a lease.
-- The names of these keys are built here and not declared. Nil: taken; else the time to wait.
-- KEYS: lock, queue, key of this client. ARGV: lease ms, owner, wait ms.
local function key_of(waiter)
    return 'redisson_lock_thread:{' .. KEYS[1] .. '}:' .. waiter
end
while true do
    local first = redis.call('lindex', KEYS[2], 0)
    if first == false then
        break
    end
    if redis.call('exists', key_of(first)) == 0 then
        redis.call('lpop', KEYS[2])
    else
        break
    end
end
if redis.call('exists', KEYS[1]) == 0
    and (redis.call('exists', KEYS[2]) == 0 or redis.call('lindex', KEYS[2], 0) == ARGV[2])
then
    redis.call('lpop', KEYS[2])
    redis.call('del', KEYS[3])
    redis.call('hset', KEYS[1], ARGV[2], 1)
    redis.call('pexpire', KEYS[1], ARGV[1])
    return nil
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
    redis.call('hincrby', KEYS[1], ARGV[2], 1)
    redis.call('pexpire', KEYS[1], ARGV[1])
    return nil
end
local first = redis.call('lindex', KEYS[2], 0)
local ttl = redis.call('pttl', KEYS[1])
if first ~= false and first ~= ARGV[2] then
    ttl = redis.call('pttl', key_of(first))
end
if redis.call('exists', KEYS[3]) == 0 then
    redis.call('rpush', KEYS[2], ARGV[2])
    redis.call('set', KEYS[3], 1)
end
redis.call('pexpire', KEYS[3], ttl + tonumber(ARGV[3]))
return ttl
