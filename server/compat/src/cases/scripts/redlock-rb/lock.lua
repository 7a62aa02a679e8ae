-- ARGV: token, lease, "yes" if a free lock may be taken and not only extended.
if (redis.call('exists', KEYS[1]) == 0 and ARGV[3] == 'yes') or redis.call('get', KEYS[1]) == ARGV[1] then
    return redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
end
