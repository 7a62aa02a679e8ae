-- RExpirable: sets the deadline of all keys, in milliseconds. 1: a key existed.
-- KEYS: any number. ARGV: ms, NX, XX, GT, LT or an empty string.
local found = 0
for i = 1, #KEYS, 1 do
    if ARGV[2] ~= '' then
        found = redis.call('pexpireat', KEYS[i], ARGV[1], ARGV[2]) + found
    else
        found = redis.call('pexpireat', KEYS[i], ARGV[1]) + found
    end
end
if found > 0 then
    return 1
end
return 0
