-- RReliableTopic: creates a group for a subscriber, with the time until which it counts as alive.
-- KEYS: stream, timeouts. ARGV: first id, group, time.
redis.call('zadd', KEYS[2], ARGV[3], ARGV[2])
redis.call('xgroup', 'create', KEYS[1], ARGV[2], ARGV[1], 'MKSTREAM')
