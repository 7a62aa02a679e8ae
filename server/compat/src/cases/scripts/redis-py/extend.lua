-- ARGV: token, milliseconds, "1" to replace the remaining lease and "0" to add to it.
local held_by = redis.call('get', KEYS[1])
if not held_by or held_by ~= ARGV[1] then
    return 0
end
local left = redis.call('pttl', KEYS[1])
if not left then
    left = 0
end
if left < 0 then
    return 0
end
local lease = ARGV[2]
if ARGV[3] == '0' then
    lease = ARGV[2] + left
end
redis.call('pexpire', KEYS[1], lease)
return 1
