-- RSemaphore: takes permits if there are enough. 1: taken.
-- KEYS: semaphore. ARGV: permits.
local available = redis.call('get', KEYS[1])
if available ~= false and tonumber(available) >= tonumber(ARGV[1]) then
    redis.call('decrby', KEYS[1], ARGV[1])
    return 1
end
return 0
