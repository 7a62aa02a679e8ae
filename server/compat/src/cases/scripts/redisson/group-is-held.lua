-- FasterMultiLock: whether an owner holds the names. 1: it does. Like Redisson, it begins with the
-- second name.
-- KEYS: group. ARGV: now, owner, names.
local now = tonumber(ARGV[1])
local owner = ARGV[2]
if redis.call('exists', KEYS[1]) > 0 then
    for i = 4, #ARGV, 1 do
        local ends = redis.call('hget', KEYS[1], ARGV[i] .. ':' .. owner .. ':expire_time')
        if ends == false or tonumber(ends) < now then
            return 0
        end
    end
else
    return 0
end
return 1
