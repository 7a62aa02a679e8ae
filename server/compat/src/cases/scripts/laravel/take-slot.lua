-- KEYS: slots. ARGV: their common name, lease in seconds, token.
for index, owner in pairs(redis.call('mget', unpack(KEYS))) do
    if not owner then
        redis.call('set', KEYS[index], ARGV[3], 'EX', ARGV[2])
        return ARGV[1] .. index
    end
end
