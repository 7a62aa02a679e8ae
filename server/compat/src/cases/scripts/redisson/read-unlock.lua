-- RReadWriteLock: releases one entry of a reader. The lock then ends with the last other entry.
-- KEYS: lock, channel, prefix of the reader's entries, prefix of all entries, latch.
-- ARGV: message, reader, publish command, latch ms.
local before = redis.call('get', KEYS[5])
if before ~= false then
    return tonumber(before)
end
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
    redis.call(ARGV[3], KEYS[2], ARGV[1])
    redis.call('set', KEYS[5], 1, 'px', ARGV[4])
    return nil
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
    return nil
end
local count = redis.call('hincrby', KEYS[1], ARGV[2], -1)
if count == 0 then
    redis.call('hdel', KEYS[1], ARGV[2])
end
redis.call('del', KEYS[3] .. ':' .. (count + 1))
if redis.call('hlen', KEYS[1]) > 1 then
    local longest = -3
    local fields = redis.call('hkeys', KEYS[1])
    for _, field in ipairs(fields) do
        count = tonumber(redis.call('hget', KEYS[1], field))
        if type(count) == 'number' then
            for i = count, 1, -1 do
                local entry = KEYS[4] .. ':' .. field .. ':rwlock_timeout:' .. i
                longest = math.max(redis.call('pttl', entry), longest)
            end
        end
    end
    if longest > 0 then
        redis.call('pexpire', KEYS[1], longest)
        redis.call('set', KEYS[5], 0, 'px', ARGV[4])
        return 0
    end
    if mode == 'write' then
        redis.call('set', KEYS[5], 0, 'px', ARGV[4])
        return 0
    end
end
redis.call('del', KEYS[1])
redis.call(ARGV[3], KEYS[2], ARGV[1])
redis.call('set', KEYS[5], 1, 'px', ARGV[4])
return 1
