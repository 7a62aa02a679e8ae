-- ARGV: id, lease of one, lease of all.
redis.replicate_commands()
local now = redis.call('time')
local now_ms = (tonumber(now[1]) * 1000.0) + (tonumber(now[2]) / 1000.0)
local changed = redis.call('zadd', KEYS[1], 'XX', 'CH', now_ms + tonumber(ARGV[2]), ARGV[1])
local left = redis.call('pttl', KEYS[1])
if left < tonumber(ARGV[3]) then
    redis.call('pexpire', KEYS[1], ARGV[3])
end
return changed
