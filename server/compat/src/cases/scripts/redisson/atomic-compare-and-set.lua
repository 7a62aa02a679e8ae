-- RAtomicLong: sets the number if it has the expected value; a missing key is zero. 1: set.
-- KEYS: number. ARGV: expected, new.
local value = redis.call('get', KEYS[1])
if (value == false and tonumber(ARGV[1]) == 0) or tonumber(value) == tonumber(ARGV[1]) then
    redis.call('set', KEYS[1], ARGV[2])
    return 1
end
return 0
