-- The watchdog: renews up to a hundred locks at once. Returns 1 (renewed) or 0 (lost) for each.
-- KEYS: locks. ARGV: lease ms, an owner for each lock.
local renewed = {}
for i = 1, #KEYS, 1 do
    if redis.call('hexists', KEYS[i], ARGV[i + 1]) == 1 then
        redis.call('pexpire', KEYS[i], ARGV[1])
        table.insert(renewed, 1)
    else
        table.insert(renewed, 0)
    end
end
return renewed
