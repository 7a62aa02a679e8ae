-- RRateLimiter: sets the rate and deletes the acquisitions. Returns nothing.
-- KEYS: limiter, value, this client's value, permits, this client's permits.
-- ARGV: rate, interval ms, type, time to live ms.
local value = KEYS[2]
local permits = KEYS[4]
if ARGV[3] == '1' then
    value = KEYS[3]
    permits = KEYS[5]
end
redis.call('hset', KEYS[1], 'rate', ARGV[1])
redis.call('hset', KEYS[1], 'interval', ARGV[2])
redis.call('hset', KEYS[1], 'type', ARGV[3])
redis.call('hset', KEYS[1], 'keepAliveTime', ARGV[4])
if tonumber(ARGV[4]) > 0 then
    redis.call('pexpire', KEYS[1], ARGV[4])
end
redis.call('del', value, permits)
