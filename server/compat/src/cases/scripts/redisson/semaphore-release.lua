-- RSemaphore: releases permits; the message is the number of free ones.
-- KEYS: semaphore, channel. ARGV: permits, publish command.
local available = redis.call('incrby', KEYS[1], ARGV[1])
redis.call(ARGV[2], KEYS[2], available)
