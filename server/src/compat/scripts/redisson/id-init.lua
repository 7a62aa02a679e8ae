-- RIdGenerator: the first id and the size of ranges, once. 1: set.
-- KEYS: next, size. ARGV: first, size.
if redis.call('setnx', KEYS[1], ARGV[1]) == 1 then
    redis.call('set', KEYS[2], ARGV[2])
    return 1
end
return 0
