-- KEYS: digest, queued, primed, locked, info, digests. ARGV: job, lease, limit, time.
local digest, queued, primed, locked, info, digests = unpack(KEYS)
local job, lease, limit = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call('HEXISTS', locked, job) == 1 then
    redis.call('LREM', queued, -1, job)
    redis.call('LREM', primed, 1, job)
    return job
end
if not (limit > redis.call('HLEN', locked)) then
    return nil
end
redis.call('ZADD', digests, tonumber(ARGV[4]), digest)
redis.call('HSET', locked, job, tonumber(ARGV[4]))
redis.call('LREM', primed, 1, job)
redis.call('LREM', queued, -1, job)
if lease and lease > 0 then
    redis.call('PEXPIRE', digest, lease)
    redis.call('PEXPIRE', locked, lease)
    redis.call('PEXPIRE', info, lease)
end
redis.call('UNLINK', queued, primed)
return job
