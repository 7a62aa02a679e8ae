-- RSpinLock: releases the lock of any holder. 1: it was held.
-- KEYS: lock.
if redis.call('del', KEYS[1]) == 1 then
    return 1
end
return 0
