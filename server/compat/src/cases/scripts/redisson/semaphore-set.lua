-- RSemaphore: sets the number of permits, once. 1: set.
-- KEYS: semaphore, channel. ARGV: permits, publish command.
local available = redis.call('get', KEYS[1])
if available == false then
    redis.call('set', KEYS[1], ARGV[1])
    redis.call(ARGV[2], KEYS[2], ARGV[1])
    return 1
end
return 0
