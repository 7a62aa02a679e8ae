local last = tonumber(redis.call('get', KEYS[1]))
local wanted = tonumber(ARGV[1])
if last == nil or last < wanted then
    redis.call('set', KEYS[1], wanted)
    return wanted
else
    return nil
end
