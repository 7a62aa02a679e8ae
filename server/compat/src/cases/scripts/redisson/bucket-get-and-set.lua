-- RBucket: sets a value with a lease and returns the old one.
-- KEYS: bucket. ARGV: new, ms.
local value = redis.call('get', KEYS[1])
redis.call('psetex', KEYS[1], ARGV[2], ARGV[1])
return value
