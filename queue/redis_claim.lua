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

-- together returns what names, call by call, the waiting tenants of several kinds,
-- whose lanes are added up. It looks for the least each time: nearly always the
-- first has a job to give, and to sort them all would cost more than that.
local function together()
  local lanes, sums = {}, {}
  for i, kind in ipairs(kinds) do
    local all = redis.call('ZRANGE', key('turn', kind), '0', '-1', 'WITHSCORES')
    lanes[i] = {}
    for k = 1, #all, 2 do
      lanes[i][all[k]] = tonumber(all[k + 1])
      sums[all[k]] = 0
    end
  end
  for tenant in pairs(sums) do
    local running, served = 0, 0
    for i, kind in ipairs(kinds) do
      local s = lanes[i][tenant] or score(kind, tenant)
      running, served = running + s - s % LANE, math.max(served, s % LANE)
    end
    sums[tenant] = running + served
  end
  return function()
    local first, least = nil, math.huge
    for tenant, sum in pairs(sums) do
      if sum < least or sum == least and tenant < first then first, least = tenant, sum end
    end
    if first then sums[first] = nil end
    return first
  end
end

-- alone does the same for one kind, whose lanes are in order.
local function alone()
  local page, i, from = {}, 0, 0
  return function()
    i = i + 1
    if i > #page then
      page, i, from = redis.call('ZRANGE', key('turn', kinds[1]), int(from), int(from + 15)), 1, from + 16
    end
    return page[i]
  end
end

for tenant in #kinds > 1 and together() or alone() do
  local best = head(tenant)
  if best then
    local j = load(best.id)
    return take(j, tonumber(j.crashes))
  end
end
return {0}
