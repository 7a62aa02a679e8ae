-- RPermitExpirableSemaphore: sets the deadline of a held permit. 1: it was held.
-- KEYS: semaphore, deadlines, channel. ARGV: id, deadline, now, publish command.
local ended = redis.call('zrangebyscore', KEYS[2], 0, ARGV[3], 'limit', 0, -1)
if #ended > 0 then
    redis.call('zrem', KEYS[2], unpack(ended))
    local available = redis.call('incrby', KEYS[1], #ended)
    if tonumber(available) > 0 then
        redis.call(ARGV[4], KEYS[3], available)
    end
end
local ends = redis.call('zscore', KEYS[2], ARGV[1])
if ends ~= false then
    redis.call('zadd', KEYS[2], ARGV[2], ARGV[1])
    return 1
end
return 0
