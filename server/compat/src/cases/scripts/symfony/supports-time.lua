local now = redis.call('TIME')
redis.call('SET', KEYS[1], '1', 'PX', 1)
return 1
