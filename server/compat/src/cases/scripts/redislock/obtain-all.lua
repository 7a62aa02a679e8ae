-- Takes several keys at once, as later releases do. ARGV: token, its length, lease.
local pairs_to_set = {}
for _, key in ipairs(KEYS) do
    table.insert(pairs_to_set, key)
    table.insert(pairs_to_set, ARGV[1])
end
if redis.call('msetnx', unpack(pairs_to_set)) ~= 1 then
    local length = tonumber(ARGV[2])
    for _, key in ipairs(KEYS) do
        if redis.call('getrange', key, 0, length - 1) ~= string.sub(ARGV[1], 1, length) then
            return false
        end
    end
    redis.call('mset', unpack(pairs_to_set))
end
for _, key in ipairs(KEYS) do
    redis.call('pexpire', key, ARGV[3])
end
return redis.status_reply('OK')
