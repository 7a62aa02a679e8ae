local owner = redis.call('get', KEYS[1])
if not owner then
    return redis.status_reply('OK')
elseif owner == ARGV[1] then
    return redis.call('del', KEYS[1])
else
    return redis.error_reply('ERROR')
end
