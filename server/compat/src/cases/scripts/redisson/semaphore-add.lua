-- RSemaphore: adds permits, or removes some if the number is negative.
-- KEYS: semaphore, channel. ARGV: permits, publish command.
local available = redis.call('get', KEYS[1])
if available == false then
    available = 0
end
-- Two strings: Lua converts both to numbers.
redis.call('set', KEYS[1], available + ARGV[1])
redis.call(ARGV[2], KEYS[2], available + ARGV[1])
