local id, signal, reopen, body = ARGV[3], ARGV[4], ARGV[5] == '1', ARGV[6]
local j = load(id)
if not j then return 'unknown' end
if redis.call('SISMEMBER', key('sent', id), signal) == 1 then return 'sent' end
if finished(j) then
  if not reopen then return 'finished' end
  if j.once ~= '' and redis.call('HEXISTS', key('taken'), j.once) == 1 then return 'open' end
  if j.once ~= '' then redis.call('HSET', key('taken'), j.once, id) end
  redis.call('ZADD', key('open'), j.n, id)
  redis.call('ZREM', key('handled'), id)
  -- With its old counters it might be buried again at once.
  set(j, 'state', 'queued', 'not_before', '0', 'retries', '0', 'crashes', '0', 'cause', '', 'updated', int(now))
  enqueue(j)
elseif reopen then
  lift(j)
end
if j.state == 'parked' then
  set(j, 'state', 'queued', 'not_before', '0', 'updated', int(now))
  enqueue(j)
end
redis.call('SADD', key('sent', id), signal)
local n = redis.call('RPUSH', key('signals', id), int(now) .. ' ' .. body)
if reopen then set(j, 'recalled', int(n)) end
ring(j.kind)
ring('signals:' .. id)
return 'sent'
