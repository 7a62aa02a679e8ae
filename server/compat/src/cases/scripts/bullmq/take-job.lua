-- A part of moveToActive. KEYS: wait, active, events, marker.
-- ARGV: prefix of the jobs' keys, time, packed {token, lockDuration, name}.
local call = redis.call
local options = cmsgpack.unpack(ARGV[3])
local job_id = call('RPOPLPUSH', KEYS[1], KEYS[2])
if not job_id then
    return {0, 0, 0, 0}
end
local job = ARGV[1] .. job_id
if options['token'] ~= '0' then
    call('SET', job .. ':lock', options['token'], 'PX', options['lockDuration'])
end
local more = {}
if options['name'] then
    table.insert(more, 'pb')
    table.insert(more, options['name'])
end
call('XADD', KEYS[3], '*', 'event', 'active', 'jobId', job_id, 'prev', 'waiting')
call('HMSET', job, 'processedOn', ARGV[2], unpack(more))
call('HINCRBY', job, 'ats', 1)
call('ZADD', KEYS[4], 0, '0')
return {call('HGETALL', job), job_id, 0, 0}
