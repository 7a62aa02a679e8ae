local owner = redis.call('GET', KEYS[1])
if owner == ARGV[1] then
    return redis.call('DEL', KEYS[1])
elseif owner == false then
    return -1
else
    return 0
end
