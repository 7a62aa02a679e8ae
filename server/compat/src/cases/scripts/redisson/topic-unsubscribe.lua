-- RReliableTopic: removes a group.
-- KEYS: stream, timeouts. ARGV: group.
redis.call('xgroup', 'destroy', KEYS[1], ARGV[1])
redis.call('zrem', KEYS[2], ARGV[1])
