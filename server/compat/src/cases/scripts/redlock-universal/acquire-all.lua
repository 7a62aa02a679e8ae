-- ARGV: a token for each key, then the lease.
for i = 1, #KEYS do
    if redis.call('EXISTS', KEYS[i]) == 1 then
        return {0, i, KEYS[i]}
    end
end
local lease = tonumber(ARGV[#ARGV])
for i = 1, #KEYS do
    redis.call('SET', KEYS[i], ARGV[i], 'PX', lease)
end
return {1, #KEYS}
