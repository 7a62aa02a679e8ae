-- RRateLimiter of Redisson 3.13: an acquisition is a random float and a number of permits.
-- KEYS: limiter, value, this client's value, permits, this client's permits.
-- ARGV: permits, now, random number.
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
if left ~= false then
    local old = redis.call('zrangebyscore', permits, 0, tonumber(ARGV[2]) - interval)
    local released = 0
    for _, member in ipairs(old) do
        local _, count = struct.unpack('fI', member)
        released = released + count
    end
    if released > 0 then
        redis.call('zrem', permits, unpack(old))
        left = tonumber(left) + released
        redis.call('set', value, left)
    end
    if tonumber(left) < tonumber(ARGV[1]) then
        local after = '(' .. (tonumber(ARGV[2]) - interval)
        local now = tonumber(ARGV[2])
        local first = redis.call('zrangebyscore', permits, after, now, 'withscores', 'limit', 0, 1)
        return tonumber(first[2]) - (tonumber(ARGV[2]) - interval)
    else
        redis.call('zadd', permits, ARGV[2], struct.pack('fI', ARGV[3], ARGV[1]))
        redis.call('decrby', value, ARGV[1])
        return nil
    end
else
    redis.call('set', value, rate)
    redis.call('zadd', permits, ARGV[2], struct.pack('fI', ARGV[3], ARGV[1]))
    redis.call('decrby', value, ARGV[1])
    return nil
end
