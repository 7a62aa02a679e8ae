-- RReadWriteLock: releases one entry of the writer. If it reads too, other readers may then enter.
-- KEYS: lock, channel, latch. ARGV: message, lease ms, writer, publish command, latch ms.
local before = redis.call('get', KEYS[3])
if before ~= false then
    return tonumber(before)
end
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
    redis.call(ARGV[4], KEYS[2], ARGV[1])
    redis.call('set', KEYS[3], 1, 'px', ARGV[5])
    return nil
end
if mode == 'write' then
    if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
        return nil
    else
        local count = redis.call('hincrby', KEYS[1], ARGV[3], -1)
        if count > 0 then
            redis.call('pexpire', KEYS[1], ARGV[2])
            redis.call('set', KEYS[3], 0, 'px', ARGV[5])
            return 0
        else
            redis.call('hdel', KEYS[1], ARGV[3])
            if redis.call('hlen', KEYS[1]) == 1 then
                redis.call('del', KEYS[1])
                redis.call(ARGV[4], KEYS[2], ARGV[1])
            else
                redis.call('hset', KEYS[1], 'mode', 'read')
            end
            redis.call('set', KEYS[3], 1, 'px', ARGV[5])
            return 1
        end
    end
end
return nil
