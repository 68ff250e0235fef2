-- The leases of a worker whose process is gone end now.
local kinds = {}
for _, id in ipairs(redis.call('SMEMBERS', key('held', ARGV[3], ARGV[4]))) do
  local j = load(id)
  redis.call('ZADD', key('leases', j.kind), '1', id)
  set(j, 'until', '1')
  kinds[j.kind] = true
end
for kind in pairs(kinds) do ring(kind) end
return 1
