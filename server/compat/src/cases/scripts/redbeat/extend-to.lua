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
redis.call('pexpire', KEYS[1], ARGV[2])
return 1
