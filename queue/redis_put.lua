local id, kind, jobkey, once, tenant = ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local priority, notbefore, payload = ARGV[8], ARGV[9], ARGV[10]

local there = redis.call('HGET', key('job', id), 'put')
if there then return {there == token and 1 or 0, view(id)} end
local other = once ~= '' and redis.call('HGET', key('taken'), once)
if other then return {0, view(other)} end

local n = int(redis.call('INCR', key('last')))
local j = {id = id}
set(j, 'id', id, 'n', n, 'kind', kind, 'key', jobkey, 'once', once, 'tenant', tenant, 'priority', priority,
  'not_before', notbefore, 'state', 'queued', 'attempt', '0', 'retries', '0', 'crashes', '0', 'cause', '',
  'worker', '', 'home', '', 'until', '0', 'heard', '0', 'recalled', '0', 'stepped', '0',
  'created', int(now), 'updated', int(now), 'put', token)
if payload ~= '' then redis.call('SET', key('payload', id), payload) end
redis.call('ZADD', key('jobs'), n, id)
redis.call('ZADD', key('open'), n, id)
redis.call('ZADD', key('class', class(kind)), n, id)
if jobkey ~= '' then redis.call('ZADD', key('key', jobkey), n, id) end
if once ~= '' then
  redis.call('HSET', key('taken'), once, id)
  redis.call('ZADD', key('once', once), n, id)
end
if tonumber(notbefore) > now then
  redis.call('ZADD', key('due'), notbefore, id)
else
  enqueue(j)
end
ring(kind)
return {1, view(id)}
