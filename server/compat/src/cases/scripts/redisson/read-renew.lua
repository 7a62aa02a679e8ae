-- The watchdog of readers: renews locks and their entries. Returns 1 (renewed) or 0 (lost) for each.
-- KEYS: pairs of a lock and the prefix of its entries.
-- ARGV: lease ms, then for each lock the number of readers and the readers.
local renewed = {}
local at = 2
for i = 1, #KEYS, 2 do
    local alive = false
    local readers = tonumber(ARGV[at])
    at = at + 1
    for _ = 1, readers do
        local count = redis.call('hget', KEYS[i], ARGV[at])
        if count ~= false then
            alive = true
            -- The count is a string: the loop converts it to a number.
            for entry = count, 1, -1 do
                local key = KEYS[i + 1] .. ':' .. ARGV[at] .. ':rwlock_timeout:' .. entry
                redis.call('pexpire', key, ARGV[1])
            end
        end
        at = at + 1
    end
    if alive then
        redis.call('pexpire', KEYS[i], ARGV[1])
        table.insert(renewed, 1)
    else
        table.insert(renewed, 0)
    end
end
return renewed
