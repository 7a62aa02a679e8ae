-- RSemaphore: takes all there are. How many: a number if none, else the text that was there.
-- KEYS: semaphore.
local available = redis.call('get', KEYS[1])
if available == false then
    return 0
end
redis.call('set', KEYS[1], 0)
return available
