-- KEYS: digest, queued, primed, locked, changelog. ARGV: job, lease, kind, limit, time, history.
local digest, queued, primed, locked, changelog = unpack(KEYS)
local job, lease, kind, limit = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local function note(message)
    redis.log(redis.LOG_DEBUG, 'queue - ' .. message)
    local entry = cjson.encode({digest = digest, job_id = job, message = message, time = tonumber(ARGV[5])})
    redis.call('ZADD', changelog, ARGV[5], entry)
    redis.call('ZCARD', changelog)
    redis.call('ZREMRANGEBYRANK', changelog, 0, -1 * tonumber(ARGV[6]))
    redis.call('PUBLISH', changelog, entry)
end
local waiting = redis.call('LLEN', queued)
local held = redis.call('HLEN', locked)
if redis.call('HEXISTS', locked, job) == 1 then
    note('Duplicate')
    return job
end
local before = redis.call('GET', digest)
if not before or before == false then
    redis.call('SET', digest, job)
elseif before == job then
    note('Duplicate')
    return job
elseif limit > held and waiting < limit then
    redis.call('SET', digest, job)
else
    note('Limit exceeded')
    return before
end
redis.call('LPUSH', queued, job)
if kind == 'until_expired' and lease > 0 then
    redis.call('PEXPIRE', digest, lease)
    redis.call('PEXPIRE', queued, lease)
end
note('Queued')
return job
