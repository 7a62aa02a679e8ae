-- RDelayedQueue: the delayed elements in the order of insertion.
-- KEYS: queue.
local elements = {}
for _, packed in ipairs(redis.call('lrange', KEYS[1], 0, -1)) do
    local _, element = struct.unpack('Bc0Lc0', packed)
    table.insert(elements, element)
end
return elements
