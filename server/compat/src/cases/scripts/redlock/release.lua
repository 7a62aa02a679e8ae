local freed = 0
for i, key in ipairs(KEYS) do
    if redis.call('get', key) == ARGV[1] then
        redis.pcall('del', key)
        freed = freed + 1
    end
end
return freed
