-- KEYS: set of stalled jobs, wait, active, the check's own lock, events.
-- ARGV: prefix of the jobs' keys, time, lease of the check.
local call = redis.call
if call('EXISTS', KEYS[4]) == 1 then
    return {}
end
call('SET', KEYS[4], ARGV[2], 'PX', ARGV[3])
local suspects = call('SMEMBERS', KEYS[1])
local stalled = {}
if #suspects > 0 then
    call('DEL', KEYS[1])
    for i, id in ipairs(suspects) do
        local job = ARGV[1] .. id
        if call('EXISTS', job .. ':lock') == 0 and call('LREM', KEYS[3], 1, id) > 0 then
            call('HINCRBY', job, 'stc', 1)
            call('RPUSH', KEYS[2], id)
            call('XADD', KEYS[5], '*', 'event', 'stalled', 'jobId', id)
            table.insert(stalled, id)
        end
    end
end
local active = call('LRANGE', KEYS[3], 0, -1)
if #active > 0 then
    call('SADD', KEYS[1], unpack(active, 1, #active))
end
return stalled
