-- RRateLimiter: takes permits of the current window. Nil: taken; else the time in ms until the
-- oldest leave the window. An acquisition is one member: length, random id, number of permits.
-- KEYS: limiter, value, this client's value, permits, this client's permits.
-- ARGV: permits, now, random id.
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

assert(tonumber(rate) >= tonumber(ARGV[1]), 'Requested permits amount cannot exceed defined rate')

local left = redis.call('get', value)
local wait
if left ~= false then
    -- A difference of two strings: Lua converts both to numbers.
    local old = redis.call('zrangebyscore', permits, 0, tonumber(ARGV[2]) - interval)
    local released = 0
    for _, member in ipairs(old) do
        local _, count = struct.unpack('Bc0I', member)
        released = released + count
    end
    if released > 0 then
        redis.call('zremrangebyscore', permits, 0, tonumber(ARGV[2]) - interval)
        if tonumber(left) + released > tonumber(rate) then
            local used = 0
            for _, member in ipairs(redis.call('zrange', permits, 0, -1)) do
                local _, count = struct.unpack('Bc0I', member)
                used = used + count
            end
            left = tonumber(rate) - used
        else
            left = tonumber(left) + released
        end
        redis.call('set', value, left)
    end
    if tonumber(left) < tonumber(ARGV[1]) then
        local first = redis.call('zrange', permits, 0, 0, 'withscores')
        wait = 3 + interval - (tonumber(ARGV[2]) - tonumber(first[2]))
    else
        local member = struct.pack('Bc0I', string.len(ARGV[3]), ARGV[3], ARGV[1])
        redis.call('zadd', permits, ARGV[2], member)
        redis.call('decrby', value, ARGV[1])
        wait = nil
    end
else
    redis.call('set', value, rate)
    local member = struct.pack('Bc0I', string.len(ARGV[3]), ARGV[3], ARGV[1])
    redis.call('zadd', permits, ARGV[2], member)
    redis.call('decrby', value, ARGV[1])
    wait = nil
end

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
return wait
