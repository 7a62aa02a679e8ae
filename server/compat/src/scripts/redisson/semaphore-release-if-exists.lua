-- RSemaphore: gives permits back if there is such a semaphore. 1: there was.
-- KEYS: semaphore, channel. ARGV: permits, publish command.
if redis.call('exists', KEYS[1]) == 1 then
    local available = redis.call('incrby', KEYS[1], ARGV[1])
    redis.call(ARGV[2], KEYS[2], available)
    return 1
end
return 0
