-- KEYS: readers, writer. ARGV: id, lease.
if redis.call('exists', KEYS[2]) == 1 then
    return 0
end
redis.call('sadd', KEYS[1], ARGV[1])
local left = redis.call('pttl', KEYS[1])
if left < tonumber(ARGV[2]) then
    redis.call('pexpire', KEYS[1], ARGV[2])
end
return 1
