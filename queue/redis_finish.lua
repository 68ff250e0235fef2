local seen, state, cause = tonumber(ARGV[5]), ARGV[6], ARGV[7]
local j = fence(ARGV[3], ARGV[4])
if not j then return again(ARGV[3]) and 1 or 0 end
release(j)
if recalled(j, seen) then
  set(j, 'state', 'queued', 'retries', '0', 'crashes', '0', 'verdict', '', 'judged', '0', 'updated', int(now))
  enqueue(j)
else
  close(j, state, cause)
end
set(j, 'settled', token)
ring(j.kind)
return 1
