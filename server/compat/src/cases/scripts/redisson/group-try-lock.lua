-- FasterMultiLock.tryLock(): takes all names of a group or none. 1: taken.
-- KEYS: group. ARGV: now, lease ms, owner, names.
local now = tonumber(ARGV[1])
local lease = tonumber(ARGV[2])
local owner = ARGV[3]
local known
if redis.call('exists', KEYS[1]) > 0 then
    known = true
    for i = 4, #ARGV, 1 do
        local holder = redis.call('hget', KEYS[1], ARGV[i])
        if holder ~= false and holder ~= owner then
            local ends = redis.call('hget', KEYS[1], ARGV[i] .. ':' .. holder .. ':expire_time')
            if tonumber(ends) > now then
                return 0
            end
        end
    end
else
    known = false
end
for i = 4, #ARGV, 1 do
    redis.call('hset', KEYS[1], ARGV[i], owner)
    local field = ARGV[i] .. ':' .. owner .. ':expire_time'
    local ends = redis.call('hget', KEYS[1], field)
    local new_ends = lease + now
    if ends == false or tonumber(ends) < new_ends then
        redis.call('hset', KEYS[1], field, new_ends)
    end
    redis.call('HINCRBY', KEYS[1], ARGV[i] .. ':' .. owner .. ':lock_count', 1)
end
if known then
    local ttl = redis.call('pttl', KEYS[1])
    if tonumber(ttl) > 0 and lease > tonumber(ttl) then
        redis.call('pexpire', KEYS[1], lease)
    end
else
    redis.call('pexpire', KEYS[1], lease)
end
return 1
