-- RDelayedQueue: moves due elements to their queue. Returns the time of the next one, if any.
-- KEYS: destination, timeouts, queue. ARGV: now, largest number of elements.
local due = redis.call('zrangebyscore', KEYS[2], 0, ARGV[1], 'limit', 0, ARGV[2])
if #due > 0 then
    for _, packed in ipairs(due) do
        local _, element = struct.unpack('Bc0Lc0', packed)
        redis.call('rpush', KEYS[1], element)
        redis.call('lrem', KEYS[3], 1, packed)
    end
    redis.call('zrem', KEYS[2], unpack(due))
end
local first = redis.call('zrange', KEYS[2], 0, 0, 'WITHSCORES')
if first[1] ~= nil then
    return first[2]
end
return nil
