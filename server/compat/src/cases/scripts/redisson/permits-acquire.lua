-- RPermitExpirableSemaphore: takes permits with a deadline, after the return of expired ones.
-- OK: taken; `:time` at which the next permit expires; nil: none expires.
-- KEYS: semaphore, deadlines, channel.
-- ARGV: permits, deadline, now, deadline of no expiry, publish command, an id for each permit.
local ended = redis.call('zrangebyscore', KEYS[2], 0, ARGV[3], 'limit', 0, ARGV[1])
if #ended > 0 then
    redis.call('zrem', KEYS[2], unpack(ended))
    local available = redis.call('incrby', KEYS[1], #ended)
    if tonumber(available) > 0 then
        redis.call(ARGV[5], KEYS[3], available)
    end
end
local available = redis.call('get', KEYS[1])
if available ~= false and tonumber(available) >= tonumber(ARGV[1]) then
    redis.call('decrby', KEYS[1], ARGV[1])
    for i = 6, #ARGV, 1 do
        redis.call('zadd', KEYS[2], ARGV[2], ARGV[i])
    end
    local ttl = redis.call('pttl', KEYS[1])
    if ttl > 0 then
        redis.call('pexpire', KEYS[2], ttl)
    end
    return 'OK'
end
local next = redis.call('zrange', KEYS[2], 0, 0, 'WITHSCORES')
if next[1] ~= nil and next[2] ~= ARGV[4] then
    return ':' .. tostring(next[2])
end
return nil
