for i, key in ipairs(KEYS) do
    if redis.call('exists', key) == 1 then
        return 0
    end
end
for i, key in ipairs(KEYS) do
    redis.call('set', key, ARGV[1], 'PX', ARGV[2])
end
return #KEYS
