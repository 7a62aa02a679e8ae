local key = KEYS[1]
local token = ARGV[2]
local lease = tonumber(ARGV[3])
if redis.call('TYPE', key).ok == 'string' then
    return false
end
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
if not redis.call('ZSCORE', key, token) and redis.call('ZSCORE', key, '__write__') then
    return false
end
redis.call('ZADD', key, now + lease, token)
redis.call('ZREM', key, '__write__')
local last = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2]
redis.call('PEXPIREAT', key, last)
return true
