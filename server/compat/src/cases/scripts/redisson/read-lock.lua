-- RReadWriteLock: takes the read lock, also as the writer. Each entry has its own key with its
-- lease. Nil: taken.
-- KEYS: lock, prefix of the entries. ARGV: lease ms, reader, the same client as a writer.
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
    redis.call('hset', KEYS[1], 'mode', 'read')
    redis.call('hset', KEYS[1], ARGV[2], 1)
    redis.call('set', KEYS[2] .. ':1', 1)
    redis.call('pexpire', KEYS[2] .. ':1', ARGV[1])
    redis.call('pexpire', KEYS[1], ARGV[1])
    return nil
end
if mode == 'read' or (mode == 'write' and redis.call('hexists', KEYS[1], ARGV[3]) == 1) then
    local count = redis.call('hincrby', KEYS[1], ARGV[2], 1)
    local entry = KEYS[2] .. ':' .. count
    redis.call('set', entry, 1)
    redis.call('pexpire', entry, ARGV[1])
    local remaining = redis.call('pttl', KEYS[1])
    -- A number and a string: Lua converts the string to a number.
    redis.call('pexpire', KEYS[1], math.max(remaining, ARGV[1]))
    return nil
end
return redis.call('pttl', KEYS[1])
