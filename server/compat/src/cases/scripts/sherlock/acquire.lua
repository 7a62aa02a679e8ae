local taken = redis.call('SETNX', KEYS[1], ARGV[1])
-- ARGV[2] is a string, so a lease of -1 is passed to EXPIRE too.
if taken == 1 and ARGV[2] ~= -1 then
    redis.call('EXPIRE', KEYS[1], ARGV[2])
end
return taken
