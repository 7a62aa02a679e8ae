-- ARGV: time with microseconds, time in seconds, length of a window, calls in a window.
-- Returns {granted, end of the window, remaining calls}. Values are compared unconverted.
local now, second, length, calls = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local function begin()
    redis.call('HMSET', KEYS[1], 'start', second, 'end', second + length, 'count', 1)
    local granted = redis.call('EXPIRE', KEYS[1], length * 2)
    return {granted, second + length, calls - 1}
end
if redis.call('EXISTS', KEYS[1]) == 0 then
    return begin()
end
local inside = now >= redis.call('HGET', KEYS[1], 'start')
inside = inside and now <= redis.call('HGET', KEYS[1], 'end')
if not inside then
    return begin()
end
local granted = tonumber(redis.call('HINCRBY', KEYS[1], 'count', 1)) <= tonumber(calls)
local ends = redis.call('HGET', KEYS[1], 'end')
return {granted, ends, calls - redis.call('HGET', KEYS[1], 'count')}
