local owners = redis.call('mget', unpack(KEYS))
for _, owner in ipairs(owners) do
    if owner ~= ARGV[1] then
        return false
    end
end
redis.call('del', unpack(KEYS))
return redis.status_reply('OK')
