-- RLocalCachedMap: sets an entry and invalidates it in other clients. Returns the old value.
-- KEYS: map, topic, log of updates.
-- ARGV: field, value, message, 1 to publish or 2 to log too, now, log entry, publish command.
local old = redis.call('hget', KEYS[1], ARGV[1])
redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
if ARGV[4] == '1' then
    redis.call(ARGV[7], KEYS[2], ARGV[3])
end
if ARGV[4] == '2' then
    redis.call('zadd', KEYS[3], ARGV[5], ARGV[6])
    redis.call(ARGV[7], KEYS[2], ARGV[3])
end
return old
