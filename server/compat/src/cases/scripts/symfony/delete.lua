local key = KEYS[1]
local token = ARGV[1]
if redis.call('TYPE', key).ok == 'string' then
    return false
end
if not redis.call('ZSCORE', key, token) then
    return false
end
redis.call('ZREM', key, token)
redis.call('ZREM', key, '__write__')
local last = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2]
if nil ~= last then
    redis.call('PEXPIREAT', key, last)
end
return true
