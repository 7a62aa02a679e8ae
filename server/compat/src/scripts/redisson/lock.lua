-- RLock, RSpinLock: takes a free lock or enters it again. Nil: it is held; else for how many
-- milliseconds another holds it.
-- KEYS: lock. ARGV: lease ms, owner.
local free = redis.call('exists', KEYS[1]) == 0
if free or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
    redis.call('hincrby', KEYS[1], ARGV[2], 1)
    redis.call('pexpire', KEYS[1], ARGV[1])
    return nil
end
return redis.call('pttl', KEYS[1])
