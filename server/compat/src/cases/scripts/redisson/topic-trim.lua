-- RReliableTopic: removes groups of dead subscribers, then entries that all others have read.
-- The last read id of a group is the eighth element of its description. 1: the group exists.
-- KEYS: stream, timeouts. ARGV: group, now.
local gone = redis.call('zrangebyscore', KEYS[2], 0, tonumber(ARGV[2]) - 1)
for _, group in ipairs(gone) do
    redis.call('xgroup', 'destroy', KEYS[1], group)
    redis.call('zrem', KEYS[2], group)
end
local known = redis.call('zscore', KEYS[2], ARGV[1])
local least = 92233720368547758
for _, group in ipairs(redis.call('xinfo', 'groups', KEYS[1])) do
    local time = string.match(group[8], '(.*)%-(.*)')
    least = math.min(tonumber(time), least)
end
least = tostring(least) .. '-0'
local unread = redis.call('xrange', KEYS[1], least, '+')
if #unread == 0 or (#unread == 1 and unread[1][1] == least) then
    redis.call('xtrim', KEYS[1], 'maxlen', 0)
else
    redis.call('xtrim', KEYS[1], 'maxlen', #unread)
end
return known ~= false
