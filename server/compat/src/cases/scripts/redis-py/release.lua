local held_by = redis.call('get', KEYS[1])
if not held_by or held_by ~= ARGV[1] then
    return 0
end
redis.call('del', KEYS[1])
return 1
