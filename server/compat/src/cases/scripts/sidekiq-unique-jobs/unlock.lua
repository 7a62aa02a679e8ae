-- KEYS: digest, queued, primed, locked, info, digests. ARGV: job.
local digest, queued, primed, locked, info, digests = unpack(KEYS)
local job = ARGV[1]
local holds = redis.call('HEXISTS', locked, job) == 1
if not holds then
    redis.call('LREM', queued, -1, job)
    redis.call('LREM', primed, -1, job)
    local others = redis.call('LLEN', queued) + redis.call('LLEN', primed) + redis.call('HLEN', locked)
    if others > 0 then
        return nil
    end
end
redis.call('HDEL', locked, job)
redis.call('UNLINK', digest, info, locked, primed)
redis.call('ZREM', digests, digest)
redis.call('LPUSH', queued, '1')
redis.call('PEXPIRE', queued, 5000)
return job
