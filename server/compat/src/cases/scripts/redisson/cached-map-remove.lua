-- RLocalCachedMap: removes an entry and invalidates the caches of other clients.
-- KEYS: map, topic, log of updates.
-- ARGV: field, message, 1 to publish or 2 to log too, now, log entry, publish command.
local old = redis.call('hget', KEYS[1], ARGV[1])
if redis.call('hdel', KEYS[1], ARGV[1]) == 1 then
    if ARGV[3] == '1' then
        redis.call(ARGV[6], KEYS[2], ARGV[2])
    end
    if ARGV[3] == '2' then
        redis.call('zadd', KEYS[3], ARGV[4], ARGV[5])
        redis.call(ARGV[6], KEYS[2], ARGV[2])
    end
end
return old
