-- RPermitExpirableSemaphore: the number of permits that are held.
-- KEYS: semaphore, deadlines, channel. ARGV: now, publish command.
local ended = redis.call('zrangebyscore', KEYS[2], 0, ARGV[1], 'limit', 0, -1)
if #ended > 0 then
    redis.call('zrem', KEYS[2], unpack(ended))
    local available = redis.call('incrby', KEYS[1], #ended)
    if tonumber(available) > 0 then
        redis.call(ARGV[2], KEYS[3], available)
    end
end
local acquired = redis.call('zcount', KEYS[2], 0, '+inf')
return acquired == false and 0 or acquired
