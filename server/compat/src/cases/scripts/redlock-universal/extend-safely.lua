-- ARGV: token, least remaining lease, new lease. Returns {result, remaining lease}.
local left = redis.call('PTTL', KEYS[1])
local least = tonumber(ARGV[2])
local lease = tonumber(ARGV[3])
if left == -2 then
    return {-1, -2}
end
if left < least then
    return {0, left}
end
local owner = redis.call('GET', KEYS[1])
if owner == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], lease)
    return {1, left}
else
    return {-1, left}
end
