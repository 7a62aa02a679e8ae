-- FasterMultiLock: whether an owner holds all the names. 1: so it is.
-- KEYS: group. ARGV: now, owner, names.
if redis.call('exists', KEYS[1]) == 0 then
    return 0
end
for i = 3, #ARGV, 1 do
    local holder = redis.call('hget', KEYS[1], ARGV[i])
    if holder == false or holder ~= ARGV[2] then
        return 0
    end
    local ends = redis.call('hget', KEYS[1], ARGV[i] .. ':' .. holder .. ':expire_time')
    if ends == false or tonumber(ends) < tonumber(ARGV[1]) then
        return 0
    end
end
return 1
