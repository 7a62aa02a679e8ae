-- RBoundedBlockingQueue: removes the head and returns its permit.
-- KEYS: queue, permits, channel. ARGV: 1.
local element = redis.call('lpop', KEYS[1])
if element ~= false then
    local left = redis.call('incrby', KEYS[2], ARGV[1])
    redis.call('publish', KEYS[3], left)
end
return element
