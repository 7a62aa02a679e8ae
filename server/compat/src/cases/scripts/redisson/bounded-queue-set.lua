-- RBoundedBlockingQueue: sets the capacity, once. 1: set.
-- KEYS: permits, channel. ARGV: count.
local left = redis.call('get', KEYS[1])
if left == false then
    redis.call('set', KEYS[1], ARGV[1])
    redis.call('publish', KEYS[2], ARGV[1])
    return 1
end
return 0
