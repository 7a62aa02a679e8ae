-- RRateLimiter: returns permits before their window ends. Returns nothing.
-- KEYS: limiter, value, this client's value, permits, this client's permits. ARGV: permits.
local rate = redis.call('hget', KEYS[1], 'rate')
local interval = redis.call('hget', KEYS[1], 'interval')
local type = redis.call('hget', KEYS[1], 'type')
assert(rate ~= false and interval ~= false and type ~= false, 'RateLimiter is not initialized')
local value = KEYS[2]
local permits = KEYS[4]
if type == '1' then
    value = KEYS[3]
    permits = KEYS[5]
end
local left = redis.call('get', value)
if left == false then
    left = tonumber(rate)
else
    left = tonumber(left)
end
left = left + tonumber(ARGV[1])
if left > tonumber(rate) then
    left = tonumber(rate)
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
