-- A take is a member "number:units:keep", scored by its time. One of 0 units
-- closes the bucket for as long as it is kept.
local n, longest = tonumber(ARGV[4]), tonumber(ARGV[5])
local bucket = key('takes', ARGV[3])
if redis.call('EXISTS', key('call', token)) == 1 then return 0 end

local taken, keeps, wait = {}, 0, 0
local all = redis.call('ZRANGE', bucket, '0', '-1', 'WITHSCORES')
for i = 1, #all, 2 do
  local units, keep = string.match(all[i], '^%d+:(%d+):(%d+)$')
  if tonumber(keep) <= now then
    redis.call('ZREM', bucket, all[i])
  else
    if units == '0' then wait = math.max(wait, tonumber(keep) - now) end
    taken[#taken + 1] = {member = all[i], at = tonumber(all[i + 1]), units = tonumber(units), keep = tonumber(keep)}
    keeps = math.max(keeps, tonumber(keep))
  end
end

local function add(at, units, keep)
  local number = string.format('%016d', redis.call('INCR', key('last-take')))
  redis.call('ZADD', bucket, int(at), number .. ':' .. int(units) .. ':' .. int(keep))
  redis.call('PEXPIRE', bucket, int(math.ceil((math.max(keep, keeps) - now) / 1000)))
end

if n == 0 then
  if longest == 0 then return wait end
  add(now, 0, now + longest)
  return 0
end

if n < 0 then
  for i = #taken, 1, -1 do
    local t = taken[i]
    if n < 0 and t.units > 0 and t.at <= now - longest then
      redis.call('ZREM', bucket, t.member)
      if t.units + n > 0 then add(t.at, t.units + n, t.keep) end
      n = n + t.units
    end
  end
  redis.call('SET', key('call', token), '', 'EX', '60')
  return 0
end

for i = 6, #ARGV, 2 do
  local most, per = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  local sum = n
  for _, t in ipairs(taken) do
    if t.at > now - per then sum = sum + t.units end
  end
  for _, t in ipairs(taken) do
    if sum <= most then break end
    if t.at > now - per then
      sum = sum - t.units
      wait = math.max(wait, t.at + per - now)
    end
  end
end
if wait > 0 then return wait end
add(now, n, now + longest)
redis.call('SET', key('call', token), '', 'EX', '60')
return 0
