-- RReliableTopic: a group for a subscriber, and until when it may be believed to be alive.
-- KEYS: stream, timeouts. ARGV: first id, group, time.
redis.call('zadd', KEYS[2], ARGV[3], ARGV[2])
redis.call('xgroup', 'create', KEYS[1], ARGV[2], ARGV[1], 'MKSTREAM')
