-- KEYS: readers, writer. ARGV: id, lease.
local writer = redis.call('get', KEYS[2])
if writer == false or writer == ARGV[1] .. '_WRITERWAITING' then
    if redis.call('scard', KEYS[1]) == 0 then
        redis.call('set', KEYS[2], ARGV[1], 'px', ARGV[2])
        return 1
    end
    if writer ~= false then
        redis.call('pexpire', KEYS[2], ARGV[2])
    end
end
return 0
