-- RDelayedQueue: adds a delayed element. Publishes its time if it is the next one.
-- KEYS: destination, timeouts, queue, channel. ARGV: time, random id, element.
local packed = struct.pack('Bc0Lc0', string.len(ARGV[2]), ARGV[2], string.len(ARGV[3]), ARGV[3])
redis.call('zadd', KEYS[2], ARGV[1], packed)
redis.call('rpush', KEYS[3], packed)
local first = redis.call('zrange', KEYS[2], 0, 0)
if first[1] == packed then
    redis.call('publish', KEYS[4], ARGV[1])
end
