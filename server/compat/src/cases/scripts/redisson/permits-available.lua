-- RPermitExpirableSemaphore: the number of free permits, as an integer or as the stored string.
-- KEYS: semaphore, deadlines, channel. ARGV: now, publish command.
local ended = redis.call('zrangebyscore', KEYS[2], 0, ARGV[1], 'limit', 0, -1)
if #ended > 0 then
    redis.call('zrem', KEYS[2], unpack(ended))
    local available = redis.call('incrby', KEYS[1], #ended)
    if tonumber(available) > 0 then
        redis.call(ARGV[2], KEYS[3], available)
    end
    return available
end
local available = redis.call('get', KEYS[1])
return available == false and 0 or available
