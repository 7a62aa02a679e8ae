-- RBlockingQueue: removes at most this number of elements from the head.
-- KEYS: queue. ARGV: count.
local count = math.min(ARGV[1], redis.call('llen', KEYS[1]))
local taken = redis.call('lrange', KEYS[1], 0, count - 1)
redis.call('ltrim', KEYS[1], count, -1)
return taken
