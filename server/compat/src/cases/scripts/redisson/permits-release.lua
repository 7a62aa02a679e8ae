-- RPermitExpirableSemaphore: releases one permit. 0: it is not held, or it had expired.
-- KEYS: semaphore, channel, deadlines. ARGV: id, 1, now, publish command.
local ends = redis.call('zscore', KEYS[3], ARGV[1])
local removed = redis.call('zrem', KEYS[3], ARGV[1])
if tonumber(removed) ~= 1 then
    return 0
end
local available = redis.call('incrby', KEYS[1], ARGV[2])
redis.call(ARGV[4], KEYS[2], available)
if tonumber(ends) <= tonumber(ARGV[3]) then
    return 0
end
return 1
