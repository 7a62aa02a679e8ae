-- The library's own pattern is `lock:*`. Here it is an argument, so that other locks stay.
local found = redis.call('keys', ARGV[1])
local signal
for _, lock in pairs(found) do
    signal = lock .. ':signal:' .. string.sub(lock, 1, 4)
    redis.call('del', signal)
    redis.call('lpush', signal, 1)
    redis.call('expire', signal, 1)
    redis.call('del', lock)
end
return #found
