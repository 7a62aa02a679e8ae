-- RSemaphore: sets the number of permits, once, with a lease. 1: set.
-- KEYS: semaphore, channel. ARGV: permits, publish command, lease ms.
local available = redis.call('get', KEYS[1])
if available == false then
    redis.call('set', KEYS[1], ARGV[1], 'px', ARGV[3])
    redis.call(ARGV[2], KEYS[2], ARGV[1])
    return 1
end
return 0
