-- RRateLimiter: the number of free permits, as an integer or as the stored string.
-- KEYS: limiter, value, this client's value, permits, this client's permits. ARGV: now.
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
    redis.call('set', value, rate)
    return rate
end
local old = redis.call('zrangebyscore', permits, 0, tonumber(ARGV[1]) - interval)
local released = 0
for _, member in ipairs(old) do
    local _, count = struct.unpack('Bc0I', member)
    released = released + count
end
if released > 0 then
    redis.call('zremrangebyscore', permits, 0, tonumber(ARGV[1]) - interval)
    left = tonumber(left) + released
    redis.call('set', value, left)
end
return left
