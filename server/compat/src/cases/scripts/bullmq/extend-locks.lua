-- KEYS: set of stalled jobs. ARGV: prefix, packed tokens, packed ids, lease.
local call = redis.call
local tokens = cmsgpack.unpack(ARGV[2])
local ids = cmsgpack.unpack(ARGV[3])
local failed = {}
for i = 1, #ids, 1 do
    local lock = ARGV[1] .. ids[i] .. ':lock'
    local owner = call('GET', lock)
    if owner and owner == tokens[i] and call('SET', lock, tokens[i], 'PX', ARGV[4]) then
        call('SREM', KEYS[1], ids[i])
    else
        table.insert(failed, ids[i])
    end
end
return failed
