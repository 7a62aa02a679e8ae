-- RIdGenerator: sets the first id and the size of ranges, once. 1: set.
-- KEYS: next, size. ARGV: first, size.
redis.call('setnx', KEYS[1], ARGV[1])
return redis.call('setnx', KEYS[2], ARGV[2])
