-- RMapCache: removes expired entries and publishes each. Returns how many there were.
-- KEYS: map, deadlines by age, expired channel. ARGV: now, largest number, publish command.
local ended = redis.call('zrangebyscore', KEYS[2], 0, ARGV[1], 'limit', 0, ARGV[2])
for _, field in ipairs(ended) do
    local packed = redis.call('hget', KEYS[1], field)
    if packed ~= false then
        local _, value = struct.unpack('dLc0', packed)
        local message = struct.pack('Lc0Lc0', string.len(field), field, string.len(value), value)
        redis.call(ARGV[3], KEYS[3], message)
    end
end
if #ended > 0 then
    redis.call('zrem', KEYS[2], unpack(ended))
    redis.call('hdel', KEYS[1], unpack(ended))
end
return #ended
