-- RRateLimiter: sets the rate, and keeps the acquisitions if required. 1: set.
-- KEYS: limiter, value, this client's value, permits, this client's permits.
-- ARGV: rate, interval ms, type, time to live ms, now, 1 to keep acquisitions, 1 if it must exist.
if ARGV[7] == '1' and redis.call('exists', KEYS[1]) == 0 then
    return 0
end
local value = KEYS[2]
local permits = KEYS[4]
if ARGV[3] == '1' then
    value = KEYS[3]
    permits = KEYS[5]
end
local old = redis.call('hget', KEYS[1], 'type')
redis.call('hset', KEYS[1], 'rate', ARGV[1])
redis.call('hset', KEYS[1], 'interval', ARGV[2])
redis.call('hset', KEYS[1], 'type', ARGV[3])
redis.call('hset', KEYS[1], 'keepAliveTime', ARGV[4])
if tonumber(ARGV[4]) > 0 then
    redis.call('pexpire', KEYS[1], ARGV[4])
end
if old ~= false and old ~= ARGV[3] then
    redis.call('del', KEYS[2], KEYS[3], KEYS[4], KEYS[5])
    return 1
end
if ARGV[6] == '0' then
    redis.call('del', value, permits)
    return 1
end
redis.call('get', value)
redis.call('zremrangebyscore', permits, 0, tonumber(ARGV[5]) - tonumber(ARGV[2]))
local used = 0
for _, member in ipairs(redis.call('zrange', permits, 0, -1)) do
    local _, count = struct.unpack('Bc0I', member)
    used = used + count
end
local left = tonumber(ARGV[1]) - used
if left < 0 then
    left = 0
end
redis.call('set', value, left)
local keep = redis.call('hget', KEYS[1], 'keepAliveTime')
if keep ~= false and tonumber(keep) > 0 then
    redis.call('pexpire', KEYS[1], keep)
    redis.call('pexpire', value, keep)
    redis.call('pexpire', permits, keep)
else
    local ttl = redis.call('pttl', KEYS[1])
    if ttl > 0 then
        redis.call('pexpire', value, ttl)
        redis.call('pexpire', permits, ttl)
    end
end
return 1
