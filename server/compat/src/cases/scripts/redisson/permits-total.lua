-- RPermitExpirableSemaphore: the number of permits, held ones included.
-- KEYS: semaphore, deadlines, channel. ARGV: now, publish command.
local ended = redis.call('zrangebyscore', KEYS[2], 0, ARGV[1], 'limit', 0, -1)
if #ended > 0 then
    redis.call('zrem', KEYS[2], unpack(ended))
    local available = redis.call('incrby', KEYS[1], #ended)
    if tonumber(available) > 0 then
        redis.call(ARGV[2], KEYS[3], available)
    end
end
local available = redis.call('get', KEYS[1])
if available == false then
    return 0
end
local acquired = redis.call('zcount', KEYS[2], 0, '+inf')
if acquired == false then
    return tonumber(available)
end
return tonumber(available) + acquired
