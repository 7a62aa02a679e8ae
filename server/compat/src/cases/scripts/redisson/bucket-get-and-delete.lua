-- RBucket: deletes the value and returns it.
-- KEYS: bucket.
local value = redis.call('get', KEYS[1])
redis.call('del', KEYS[1])
return value
