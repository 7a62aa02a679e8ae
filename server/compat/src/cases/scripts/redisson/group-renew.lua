-- The watchdog of a group. 1: renewed.
-- KEYS: group. ARGV: lease ms, now, owner, names.
local lease = tonumber(ARGV[1])
local now = tonumber(ARGV[2])
local owner = ARGV[3]
if redis.call('exists', KEYS[1]) > 0 then
    local new_ends = lease + now
    for i = 4, #ARGV, 1 do
        local holder = redis.call('hget', KEYS[1], ARGV[i])
        if holder ~= false and holder == owner then
            local field = ARGV[i] .. ':' .. holder .. ':expire_time'
            local ends = redis.call('hget', KEYS[1], field)
            if tonumber(ends) < new_ends then
                redis.call('hset', KEYS[1], field, new_ends)
            end
        else
            return 0
        end
    end
    local ttl = redis.call('pttl', KEYS[1])
    if tonumber(ttl) < tonumber(lease) then
        redis.call('pexpire', KEYS[1], lease)
    end
    return 1
end
return 0
