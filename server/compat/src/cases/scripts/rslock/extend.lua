if redis.call('get', KEYS[1]) ~= ARGV[1] then
    return 0
else
    if redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2]) ~= nil then
        return 1
    else
        return 0
    end
end
