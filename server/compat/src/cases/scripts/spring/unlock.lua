local owner = redis.call('GET', KEYS[1])
if owner == ARGV[1] then
    redis.call('UNLINK', KEYS[1])
    return true
end
return false
