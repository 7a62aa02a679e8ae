-- FasterMultiLock: releases one entry of each name. Nil: one is not held; 0: still held; 1: free.
-- KEYS: group, channel, latch.
-- ARGV: owner, message, lease ms, publish command, latch ms, now, names.
local before = redis.call('get', KEYS[3])
if before ~= false then
    return tonumber(before)
end
if redis.call('exists', KEYS[1]) == 0 then
    redis.call(ARGV[4], KEYS[2], ARGV[2])
    return nil
end
local owner = ARGV[1]
local failed = false
local all_free = 1
local new_ends = tonumber(ARGV[3]) + tonumber(ARGV[6])
for i = 7, #ARGV, 1 do
    local name = ARGV[i] .. ':' .. owner
    local ends = redis.call('hget', KEYS[1], name .. ':expire_time')
    if ends ~= false and tonumber(ends) >= tonumber(ARGV[6]) then
        if tonumber(redis.call('hincrby', KEYS[1], name .. ':lock_count', -1)) <= 0 then
            redis.call('hdel', KEYS[1], name .. ':expire_time')
            redis.call('hdel', KEYS[1], name .. ':lock_count')
            redis.call('hdel', KEYS[1], ARGV[i])
        else
            if tonumber(ends) < new_ends then
                redis.call('hset', KEYS[1], name .. ':expire_time', new_ends)
            end
            all_free = 0
        end
    else
        all_free = 0
        failed = true
    end
end
if failed then
    return nil
end
redis.call(ARGV[4], KEYS[2], ARGV[2])
if all_free == 1 then
    redis.call('set', KEYS[3], 1, 'px', ARGV[5])
else
    redis.call('set', KEYS[3], 0, 'px', ARGV[5])
    local ttl = redis.call('pttl', KEYS[1])
    if tonumber(ARGV[3]) > tonumber(ttl) then
        redis.call('pexpire', KEYS[1], ARGV[3])
    end
end
return all_free
