if redis.call('get', KEYS[1]) == ARGV[1] then
    local left = redis.call('pttl', KEYS[1])
    return (left > 0) and left or 0
else
    return 0
end
