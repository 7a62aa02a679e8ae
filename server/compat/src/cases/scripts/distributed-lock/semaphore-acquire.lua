-- ARGV: id, most holders, lease of one, lease of all.
redis.replicate_commands()
local now = redis.call('time')
local now_ms = (tonumber(now[1]) * 1000.0) + (tonumber(now[2]) / 1000.0)
redis.call('zremrangebyscore', KEYS[1], '-inf', now_ms)
if redis.call('zcard', KEYS[1]) < tonumber(ARGV[2]) then
    redis.call('zadd', KEYS[1], now_ms + tonumber(ARGV[3]), ARGV[1])
    local left = redis.call('pttl', KEYS[1])
    if left < tonumber(ARGV[4]) then
        redis.call('pexpire', KEYS[1], ARGV[4])
    end
    return 1
end
return 0
