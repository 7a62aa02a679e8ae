-- RBoundedBlockingQueue: takes the head out and gives its permit back.
-- KEYS: queue, permits, channel. ARGV: publish command.
local element = redis.call('lpop', KEYS[1])
if element ~= false then
    local left = redis.call('incrby', KEYS[2], 1)
    redis.call(ARGV[1], KEYS[3], left)
end
return element
