local key = KEYS[1]
local token = ARGV[2]
if redis.call('TYPE', key).ok == 'string' then
    return false
end
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
if redis.call('ZSCORE', key, token) then
    return true
end
return false
