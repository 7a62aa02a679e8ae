-- RMapCache: returns a value that has not expired, and extends its deadline by idle time.
-- KEYS: map, deadlines by age, by idle time, last accesses, options. ARGV: now, field.
local packed = redis.call('hget', KEYS[1], ARGV[2])
if packed == false then
    return nil
end
local idle, value = struct.unpack('dLc0', packed)
local ends = 92233720368547758
local by_age = redis.call('zscore', KEYS[2], ARGV[2])
if by_age ~= false then
    ends = tonumber(by_age)
end
if idle ~= 0 then
    local by_idleness = redis.call('zscore', KEYS[3], ARGV[2])
    if by_idleness ~= false then
        if tonumber(by_idleness) > tonumber(ARGV[1]) then
            redis.call('zadd', KEYS[3], idle + tonumber(ARGV[1]), ARGV[2])
        end
        ends = math.min(ends, tonumber(by_idleness))
    end
end
if ends <= tonumber(ARGV[1]) then
    return nil
end
local size_max = tonumber(redis.call('hget', KEYS[5], 'max-size'))
if size_max ~= nil and size_max ~= 0 then
    local mode = redis.call('hget', KEYS[5], 'mode')
    if mode == false or mode == 'LRU' then
        redis.call('zadd', KEYS[4], tonumber(ARGV[1]), ARGV[2])
    else
        redis.call('zincrby', KEYS[4], 1, ARGV[2])
    end
end
return value
