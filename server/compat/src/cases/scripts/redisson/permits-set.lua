-- RPermitExpirableSemaphore: sets the number of permits, held ones included. Returns nothing.
-- KEYS: semaphore, channel, deadlines. ARGV: permits, publish command.
local available = redis.call('get', KEYS[1])
if available == false then
    redis.call('set', KEYS[1], ARGV[1])
    redis.call(ARGV[2], KEYS[2], ARGV[1])
    return
end
local acquired = redis.call('zcount', KEYS[3], 0, '+inf')
local total = (acquired == false and 0 or acquired) + tonumber(available)
if total == tonumber(ARGV[1]) then
    return
end
redis.call('incrby', KEYS[1], tonumber(ARGV[1]) - total)
redis.call(ARGV[2], KEYS[2], ARGV[1])
