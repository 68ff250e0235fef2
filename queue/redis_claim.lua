local worker, home, lease, most, keep = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local kinds = {}
for i = 8, #ARGV do kinds[#kinds + 1] = ARGV[i] end

local before = redis.call('GET', key('call', token))
if before then return {redis.call('HGET', key('job', before), 'claimed') == token and 1 or 0, view(before)} end

-- forget drops a delivery that was handled long ago.
local function forget(id)
  local j = load(id)
  redis.call('ZREM', key('handled'), id)
  redis.call('ZREM', key('jobs'), id)
  redis.call('ZREM', key('class', class(j.kind)), id)
  if j.key ~= '' then redis.call('ZREM', key('key', j.key), id) end
  if j.once ~= '' then redis.call('ZREM', key('once', j.once), id) end
  for _, of in ipairs({'job', 'payload', 'signals', 'sent', 'entries', 'steps'}) do redis.call('DEL', key(of, id)) end
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('handled'), '-inf', '(' .. int(now - keep), 'LIMIT', '0', '10')) do forget(id) end

for _, id in ipairs(redis.call('ZRANGEBYSCORE', key('due'), '-inf', int(now))) do
  local j = load(id)
  set(j, 'state', 'queued')
  enqueue(j)
end

-- take writes a lease.
local function take(j, crashes)
  local running = score(j.kind, j.tenant)
  running = running - running % LANE
  if j.state == 'running' then
    redis.call('SREM', key('held', j.home, j.worker), j.id)
  else
    redis.call('ZREM', key('ready', j.kind, j.tenant), member(j))
    running = running + LANE
  end
  if j.key ~= '' then redis.call('HSET', key('busy'), pair(j.kind, j.key), j.id) end
  redis.call('ZADD', key('leases', j.kind), int(now + lease), j.id)
  if class(j.kind) == j.kind then redis.call('SADD', key('kinds'), j.kind) end -- another kind is its one worker's
  redis.call('SADD', key('held', home, worker), j.id)
  redis.call('SET', key('call', token), j.id, 'EX', '60')
  set(j, 'state', 'running', 'not_before', '0', 'attempt', int(tonumber(j.attempt) + 1), 'crashes', int(crashes), 'cause', '',
    'worker', worker, 'home', home, 'until', int(now + lease), 'heard', int(redis.call('LLEN', key('signals', j.id))),
    'updated', int(now), 'claimed', token)
  place(j.kind, j.tenant, running + redis.call('INCR', key('served')))
  return {1, view(j.id)}
end

-- Abandoned leases first, the longest abandoned before the others. Until they
-- are taken over their jobs stay running: the worker may yet come back.
local abandoned = {}
for _, kind in ipairs(kinds) do
  local over = redis.call('ZRANGEBYSCORE', key('leases', kind), '-inf', int(now), 'WITHSCORES')
  for i = 1, #over, 2 do abandoned[#abandoned + 1] = {id = over[i], ended = tonumber(over[i + 1])} end
end
table.sort(abandoned, function(a, b) return a.ended < b.ended end)
for _, a in ipairs(abandoned) do
  local j = load(a.id)
  local crashes = tonumber(j.crashes) + 1
  if j.stepped == j.attempt then crashes = 0 end
  if crashes <= most then return take(j, crashes) end
  release(j)
  close(j, 'buried', 'its worker ended without a word ' .. int(crashes) .. ' times in a row, and no step was recorded in between')
end

-- head returns the first job of a tenant whose key is free.
local function head(tenant)
  local best
  for _, kind in ipairs(kinds) do
    local from, found = 0, false
    repeat
      local page = redis.call('ZRANGE', key('ready', kind, tenant), int(from), int(from + 31), 'WITHSCORES')
      for i = 1, #page, 2 do
        local id = string.sub(page[i], 17)
        local jobkey = redis.call('HGET', key('job', id), 'key')
        if jobkey == '' or redis.call('HEXISTS', key('busy'), pair(kind, jobkey)) == 0 then
          local rank = tonumber(page[i + 1])
          if not best or rank < best.rank or rank == best.rank and page[i] < best.member then
            best = {id = id, rank = rank, member = page[i]}
          end
          found = true
          break
        end
      end
      from = from + 32
    until found or #page < 64
  end
  return best
end

-- everyone orders the waiting tenants of several kinds, whose lanes are added
-- up. Numbers are sorted, not tenants: a comparison in Lua would cost the most.
local function everyone()
  local running, served = {}, {}
  for _, kind in ipairs(kinds) do
    local all = redis.call('ZRANGE', key('lanes', kind), '0', '-1', 'WITHSCORES')
    for i = 1, #all, 2 do
      local tenant, s = all[i], tonumber(all[i + 1])
      running[tenant] = (running[tenant] or 0) + s - s % LANE
      served[tenant] = math.max(served[tenant] or 0, s % LANE)
    end
  end
  local sums, of, seen = {}, {}, {}
  for _, kind in ipairs(kinds) do
    for _, tenant in ipairs(redis.call('ZRANGE', key('turn', kind), '0', '-1')) do
      if not seen[tenant] then
        seen[tenant] = true
        local sum = running[tenant] + served[tenant]
        if not of[sum] then
          of[sum] = {}
          sums[#sums + 1] = sum
        end
        of[sum][#of[sum] + 1] = tenant
      end
    end
  end
  table.sort(sums)
  local order = {}
  for _, sum in ipairs(sums) do
    table.sort(of[sum])
    for _, tenant in ipairs(of[sum]) do order[#order + 1] = tenant end
  end
  return order
end

local from, page = 0, nil
repeat
  if #kinds > 1 then
    page, from = everyone(), nil
  else
    page = redis.call('ZRANGE', key('turn', kinds[1]), int(from), int(from + 15))
    from = #page == 16 and from + 16 or nil
  end
  for _, tenant in ipairs(page) do
    local best = head(tenant)
    if best then
      local j = load(best.id)
      return take(j, tonumber(j.crashes))
    end
  end
until not from
return {0}
