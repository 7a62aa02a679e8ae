-- RBucket: sets the value if it is the expected one. 1: set.
-- KEYS: bucket. ARGV: expected, new.
if redis.call('get', KEYS[1]) == ARGV[1] then
    redis.call('set', KEYS[1], ARGV[2])
    return 1
else
    return 0
end
