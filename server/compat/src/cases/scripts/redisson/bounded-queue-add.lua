-- RBoundedBlockingQueue: takes a permit for each element and adds the elements. 1: added.
-- KEYS: permits, queue. ARGV: count, elements.
local left = redis.call('get', KEYS[1])
assert(left ~= false, 'Capacity of queue ' .. KEYS[1] .. ' has not been set')
if tonumber(left) >= tonumber(ARGV[1]) then
    redis.call('decrby', KEYS[1], ARGV[1])
    redis.call('rpush', KEYS[2], unpack(ARGV, 2, #ARGV))
    return 1
end
return 0
