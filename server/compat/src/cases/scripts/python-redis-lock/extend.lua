if redis.call('get', KEYS[1]) ~= ARGV[1] then
    return 1
elseif redis.call('ttl', KEYS[1]) < 0 then
    return 2
end
redis.call('expire', KEYS[1], ARGV[2])
return 0
