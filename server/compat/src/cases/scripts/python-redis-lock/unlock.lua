-- KEYS: lock, signal list. ARGV: token, time to live of the signal in ms.
if redis.call('get', KEYS[1]) ~= ARGV[1] then
    return 1
end
redis.call('del', KEYS[2])
redis.call('lpush', KEYS[2], 1)
redis.call('pexpire', KEYS[2], ARGV[2])
redis.call('del', KEYS[1])
return 0
