local j = fence(ARGV[3], ARGV[4])
if not j then return {0} end
local ends = int(now + tonumber(ARGV[5]))
redis.call('ZADD', key('leases', j.kind), ends, j.id)
set(j, 'until', ends)
return {1, ends, redis.call('LRANGE', key('signals', j.id), ARGV[6], '-1')}
