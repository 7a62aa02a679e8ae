// The usual scripts that release and renew a lock made with SET NX PX.

export const DELETE_IF_MINE = `
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end
`;

export const EXPIRE_IF_MINE = `
if redis.call('get', KEYS[1]) == ARGV[1] then
  return redis.call('pexpire', KEYS[1], ARGV[2])
else
  return 0
end
`;
