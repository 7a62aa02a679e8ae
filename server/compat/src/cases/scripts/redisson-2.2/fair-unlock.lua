-- RFairLock of Redisson 2.2: releases one entry and wakes the first in the queue. It looks for dead
-- clients under the name of the channel, where none are: a defect of the library, kept here.
-- KEYS: lock, channel, queue. ARGV: message, lease ms, owner.
while true do
    local first = redis.call('lindex', KEYS[2], 0)
    if first == false then
        break
    end
    if redis.call('exists', 'redisson_lock_thread:{' .. KEYS[1] .. '}:' .. first) == 0 then
        redis.call('lpop', KEYS[2])
    else
        break
    end
end
if redis.call('exists', KEYS[1]) == 0 then
    local first = redis.call('lindex', KEYS[3], 0)
    if first ~= false then
        redis.call('publish', KEYS[2] .. ':' .. first, ARGV[1])
    end
    return 1
end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
    return nil
end
local count = redis.call('hincrby', KEYS[1], ARGV[3], -1)
if count > 0 then
    redis.call('pexpire', KEYS[1], ARGV[2])
    return 0
end
redis.call('del', KEYS[1])
local first = redis.call('lindex', KEYS[3], 0)
if first ~= false then
    redis.call('publish', KEYS[2] .. ':' .. first, ARGV[1])
end
return 1
