-- RIdGenerator: reserves a range of ids. Returns its first id and its size.
-- KEYS: next, size.
local size = redis.call('get', KEYS[2])
if size == false then
    size = 5000
    redis.call('set', KEYS[2], size)
end
local first = redis.call('get', KEYS[1])
if first == false then
    redis.call('incr', KEYS[1])
    first = 1
end
redis.call('incrby', KEYS[1], size)
return {first, size}
