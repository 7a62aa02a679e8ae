-- RPermitExpirableSemaphore: releases several permits if all of them are still held. Returns their
-- number.
-- KEYS: semaphore, channel, deadlines. ARGV: count, now, publish command, ids.
for i = 4, #ARGV, 1 do
    local ends = redis.call('zscore', KEYS[3], ARGV[i])
    if ends == false or tonumber(ends) <= tonumber(ARGV[2]) then
        return 0
    end
end
local ended = redis.call('zrangebyscore', KEYS[3], 0, ARGV[2], 'limit', 0, -1)
if #ended > 0 then
    redis.call('zrem', KEYS[3], unpack(ended))
    local available = redis.call('incrby', KEYS[1], #ended)
    if tonumber(available) > 0 then
        redis.call(ARGV[3], KEYS[2], available)
    end
end
local ids = {}
for i = 4, #ARGV, 1 do
    table.insert(ids, ARGV[i])
end
local removed = redis.call('zrem', KEYS[3], unpack(ids))
redis.call('incrby', KEYS[1], removed)
redis.call(ARGV[3], KEYS[2], removed)
return removed
