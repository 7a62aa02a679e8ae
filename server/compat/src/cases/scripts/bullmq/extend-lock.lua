-- KEYS: lock, set of stalled jobs. ARGV: token, lease, job's id.
local call = redis.call
if call('GET', KEYS[1]) == ARGV[1] then
    if call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) then
        call('SREM', KEYS[2], ARGV[3])
        return 1
    end
end
return 0
