-- RLocalCachedMap: no entry any more, and a message that makes others forget theirs.
-- KEYS: map, topic. ARGV: field, message, publish command.
local old = redis.call('hget', KEYS[1], ARGV[1])
if redis.call('hdel', KEYS[1], ARGV[1]) == 1 then
    redis.call(ARGV[3], KEYS[2], ARGV[2])
end
return old
