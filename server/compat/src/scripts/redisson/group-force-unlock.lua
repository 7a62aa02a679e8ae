-- FasterMultiLock: frees the names whoever holds them. How many were held.
-- KEYS: group, channel. ARGV: message, publish command, names.
local removed = 0
for i = 3, #ARGV, 1 do
    local holder = redis.call('hget', KEYS[1], ARGV[i])
    local count = redis.call('HDEL', KEYS[1], ARGV[i])
    -- A name that nobody holds: false cannot be part of a text, and the script fails.
    redis.call('HDEL', KEYS[1], ARGV[i] .. ':' .. holder .. ':expire_time')
    redis.call('HDEL', KEYS[1], ARGV[i] .. ':' .. holder .. ':lock_count')
    removed = removed + count
end
redis.call(ARGV[2], KEYS[2], ARGV[1])
return removed
