-- RSpinLock: frees it whoever holds it. 1: it was held.
-- KEYS: lock.
if redis.call('del', KEYS[1]) == 1 then
    return 1
end
return 0
