local owner = redis.call('get', KEYS[1])
if not owner then
    return redis.error_reply('ERROR')
elseif owner == ARGV[1] then
    return redis.call('TTL', KEYS[1])
else
    return redis.error_reply('ERROR')
end
