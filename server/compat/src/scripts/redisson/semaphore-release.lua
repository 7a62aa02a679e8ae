-- RSemaphore: gives permits back; the message is how many there are now.
-- KEYS: semaphore, channel. ARGV: permits, publish command.
local available = redis.call('incrby', KEYS[1], ARGV[1])
redis.call(ARGV[2], KEYS[2], available)
