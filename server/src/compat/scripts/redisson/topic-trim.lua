-- RReliableTopic: removes groups whose subscriber is gone, and then what all others have read.
-- What the last-read ids are is the eighth word of each group.
-- KEYS: stream, timeouts. ARGV: now, group, time. 1: anything was removed.
local gone = redis.call('zrangebyscore', KEYS[2], 0, tonumber(ARGV[1]) - 1)
for _, group in ipairs(gone) do
    redis.call('xgroup', 'destroy', KEYS[1], group)
end
redis.call('zrem', KEYS[2], ARGV[2], unpack(gone))
redis.call('zadd', KEYS[2], ARGV[3], ARGV[2])
local least
for _, group in ipairs(redis.call('xinfo', 'groups', KEYS[1])) do
    local time, count = string.match(group[8], '(%d+)%-(%d+)')
    time, count = tonumber(time), tonumber(count)
    if least == nil or time < least[1] or (time == least[1] and count < least[2]) then
        least = {time, count, group[8]}
    end
end
if least == nil then
    return 0
end
local unread = redis.call('xrange', KEYS[1], '(' .. least[3], '+')
return redis.call('xtrim', KEYS[1], 'maxlen', #unread) > 0 and 1 or 0
