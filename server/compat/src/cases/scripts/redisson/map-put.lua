-- RMapCache: sets an entry that expires by age or by idle time; returns the old value. A value is
-- packed: its idle time as a double, its length, its bytes.
-- KEYS: map, deadlines by age, by idle time, created channel, updated channel, last accesses,
-- removed channel, options.
-- ARGV: now, deadline by age, by idle time, idle ms, field, value, publish command.
local old = redis.call('hget', KEYS[1], ARGV[5])
local fresh = false
if old == false then
    fresh = true
else
    local idle = struct.unpack('dLc0', old)
    local ends = 92233720368547758
    local by_age = redis.call('zscore', KEYS[2], ARGV[5])
    if by_age ~= false then
        ends = tonumber(by_age)
    end
    if idle ~= 0 then
        local by_idleness = redis.call('zscore', KEYS[3], ARGV[5])
        if by_idleness ~= false then
            ends = math.min(ends, tonumber(by_idleness))
        end
    end
    if ends <= tonumber(ARGV[1]) then
        fresh = true
    end
end
if tonumber(ARGV[2]) > 0 then
    redis.call('zadd', KEYS[2], ARGV[2], ARGV[5])
else
    redis.call('zrem', KEYS[2], ARGV[5])
end
if tonumber(ARGV[3]) > 0 then
    redis.call('zadd', KEYS[3], ARGV[3], ARGV[5])
else
    redis.call('zrem', KEYS[3], ARGV[5])
end
local has_listeners = redis.call('hget', KEYS[8], 'has-listeners')
local size_max = tonumber(redis.call('hget', KEYS[8], 'max-size'))
if size_max ~= nil and size_max ~= 0 then
    local mode = redis.call('hget', KEYS[8], 'mode')
    if mode == false or mode == 'LRU' then
        redis.call('zadd', KEYS[6], tonumber(ARGV[1]), ARGV[5])
    end
    local size = tonumber(redis.call('hlen', KEYS[1]))
    if size >= size_max then
        for _, field in ipairs(redis.call('zrange', KEYS[6], 0, size - size_max)) do
            if field ~= ARGV[5] then
                local packed = redis.call('hget', KEYS[1], field)
                redis.call('hdel', KEYS[1], field)
                redis.call('zrem', KEYS[2], field)
                redis.call('zrem', KEYS[3], field)
                redis.call('zrem', KEYS[6], field)
                if packed ~= false and has_listeners ~= false then
                    local _, value = struct.unpack('dLc0', packed)
                    local removed = struct.pack(
                        'Lc0Lc0',
                        string.len(field), field, string.len(value), value
                    )
                    redis.call(ARGV[7], KEYS[7], removed)
                end
            end
        end
    end
    if mode == 'LFU' then
        redis.call('zincrby', KEYS[6], 1, ARGV[5])
    end
end
local packed = struct.pack('dLc0', ARGV[4], string.len(ARGV[6]), ARGV[6])
redis.call('hset', KEYS[1], ARGV[5], packed)
if fresh then
    if has_listeners ~= false then
        local message = struct.pack(
            'Lc0Lc0',
            string.len(ARGV[5]), ARGV[5], string.len(ARGV[6]), ARGV[6]
        )
        redis.call(ARGV[7], KEYS[4], message)
    end
    return nil
end
local _, value = struct.unpack('dLc0', old)
if has_listeners ~= false then
    local message = struct.pack(
        'Lc0Lc0Lc0',
        string.len(ARGV[5]), ARGV[5], string.len(ARGV[6]), ARGV[6], string.len(value), value
    )
    redis.call(ARGV[7], KEYS[5], message)
end
return value
