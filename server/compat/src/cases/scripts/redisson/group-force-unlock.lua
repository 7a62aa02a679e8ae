-- FasterMultiLock: releases the names of any holder. Returns how many were held.
-- KEYS: group, channel. ARGV: message, publish command, names.
local removed = 0
for i = 3, #ARGV, 1 do
    local holder = redis.call('hget', KEYS[1], ARGV[i])
    local count = redis.call('HDEL', KEYS[1], ARGV[i])
    -- The name is not held: false cannot be concatenated, and the script fails.
    redis.call('HDEL', KEYS[1], ARGV[i] .. ':' .. holder .. ':expire_time')
    redis.call('HDEL', KEYS[1], ARGV[i] .. ':' .. holder .. ':lock_count')
    removed = removed + count
end
redis.call(ARGV[2], KEYS[2], ARGV[1])
return removed
