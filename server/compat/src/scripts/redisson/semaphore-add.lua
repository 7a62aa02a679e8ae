-- RSemaphore: more permits, or fewer if the number is negative.
-- KEYS: semaphore, channel. ARGV: permits, publish command.
local available = redis.call('get', KEYS[1])
if available == false then
    available = 0
end
-- Two texts: each is read as a number.
redis.call('set', KEYS[1], available + ARGV[1])
redis.call(ARGV[2], KEYS[2], available + ARGV[1])
