-- RLock: releases the lock of any holder. 1: it was held.
-- KEYS: lock, channel. ARGV: message, publish command.
if redis.call('del', KEYS[1]) == 1 then
    redis.call(ARGV[2], KEYS[2], ARGV[1])
    return 1
end
return 0
