-- RReliableTopic: adds a message for all groups. Returns the number of groups.
-- KEYS: stream. ARGV: message.
redis.call('xadd', KEYS[1], '*', 'm', ARGV[1])
local groups = redis.call('xinfo', 'groups', KEYS[1])
return #groups
