-- A part of moveToFinished. KEYS: active, completed, set of stalled jobs, the job.
-- ARGV: job's id, time, token.
local call = redis.call
local function remove_lock()
    local lock = KEYS[4] .. ':lock'
    local owner = call('GET', lock)
    if owner == ARGV[3] then
        call('DEL', lock)
        call('SREM', KEYS[3], ARGV[1])
        return 0
    elseif owner then
        return -6
    else
        return -2
    end
end
if call('EXISTS', KEYS[4]) == 0 then
    return -1
end
local problem = remove_lock()
if problem < 0 then
    return problem
end
if call('LREM', KEYS[1], -1, ARGV[1]) < 1 then
    return -3
end
call('ZADD', KEYS[2], ARGV[2], ARGV[1])
call('HSET', KEYS[4], 'finishedOn', ARGV[2])
return 0
