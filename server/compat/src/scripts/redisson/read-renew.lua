-- The watchdog of readers: renews locks and their entries. A list of 1 (renewed) and 0 (lost).
-- KEYS: pairs of a lock and the prefix of its entries.
-- ARGV: lease ms, then for each lock how many readers, and these.
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
            -- The count is a text: the loop reads it as a number.
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
