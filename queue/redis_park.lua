local seen, ends, charge, cause, verdict = tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7]), ARGV[8], ARGV[9]
local j = fence(ARGV[3], ARGV[4])
if not j then return again(ARGV[3]) and 1 or 0 end
release(j)
set(j, 'retries', int(tonumber(j.retries) + charge), 'crashes', '0', 'cause', cause, 'updated', int(now), 'settled', token)
if verdict ~= '' then
  if recalled(j, seen) then
    lift(j)
  elseif (j.verdict or '') == '' then
    set(j, 'verdict', verdict, 'judged', int(now))
  end
end
local unread = redis.call('LLEN', key('signals', j.id)) > seen
if unread or ends ~= '0' and tonumber(ends) <= now then
  set(j, 'state', 'queued', 'not_before', '0')
  enqueue(j)
else
  set(j, 'state', 'parked', 'not_before', ends)
  if ends ~= '0' then redis.call('ZADD', key('due'), ends, j.id) end
end
ring(j.kind) -- it may have freed its key
return 1
