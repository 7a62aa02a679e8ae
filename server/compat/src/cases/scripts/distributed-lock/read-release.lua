redis.call('srem', KEYS[1], ARGV[1])
