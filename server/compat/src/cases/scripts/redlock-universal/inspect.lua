local owner = redis.call('GET', KEYS[1])
if not owner then
    return nil
end
local left = redis.call('PTTL', KEYS[1])
return {owner, left}
