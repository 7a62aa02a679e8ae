-- RExpirable: no key ends any more. 1: any would have ended.
-- KEYS: any number.
local found = 0
for i = 1, #KEYS, 1 do
    found = redis.call('persist', KEYS[i]) + found
end
if found > 0 then
    return 1
end
return 0
