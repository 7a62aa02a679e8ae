-- RSemaphore: takes all permits. Returns their number: an integer if there are none, else a string.
-- KEYS: semaphore.
local available = redis.call('get', KEYS[1])
if available == false then
    return 0
end
redis.call('set', KEYS[1], 0)
return available
