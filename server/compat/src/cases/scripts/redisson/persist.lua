-- RExpirable: removes the deadlines of all keys. 1: a key had one.
-- KEYS: any number.
local found = 0
for i = 1, #KEYS, 1 do
    found = redis.call('persist', KEYS[i]) + found
end
if found > 0 then
    return 1
end
return 0
