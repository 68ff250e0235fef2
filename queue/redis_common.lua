-- What every script begins with. KEYS[1] is the store's prefix with its hash
-- tag: every key is made from it by key(), so that all lie in one slot.
-- ARGV[1] moves the clock, in tests, and ARGV[2] names this call: a client that
-- lost the answer sends the same call again, and it must not count twice.
--
-- Times are microseconds since 1970, 0 for none. A job is a hash; that it is
-- claimable, due, leased, unfinished or listed is said by the sets beside it.
local prefix, token = KEYS[1], ARGV[2]

-- int writes a whole number out, which tostring does not do beyond 14 digits.
local function int(x) return string.format('%.0f', x) end

local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2]) + tonumber(ARGV[1])

-- pair joins two texts so that no two pairs are equal.
local function pair(a, b) return string.len(a) .. ':' .. a .. ':' .. b end

local function key(name, a, b)
  if b then a = pair(a, b) end
  return prefix .. name .. ':' .. (a or '')
end

-- class is what jobs are listed by: the kind, or its part up to the first slash.
local function class(kind) return string.match(kind, '^[^/]*/') or kind end

local function load(id)
  local flat = redis.call('HGETALL', key('job', id))
  if #flat == 0 then return nil end
  local j = {}
  for i = 1, #flat, 2 do j[flat[i]] = flat[i + 1] end
  return j
end

-- set changes fields of a job: name, value, name, value, …
local function set(j, ...)
  redis.call('HSET', key('job', j.id), ...)
  local fields = {...}
  for i = 1, #fields, 2 do j[fields[i]] = fields[i + 1] end
end

-- view is a job as the client reads it.
local function view(id)
  return {redis.call('HGETALL', key('job', id)), redis.call('GET', key('payload', id)) or ''}
end

local function ring(topic) redis.call('PUBLISH', prefix .. 'bell', topic) end

local function finished(j) return j.state == 'done' or j.state == 'buried' end

-- A lane is what one tenant has of one kind. Its score is the number of its
-- running jobs and, in the lower digits, when a job of it was last claimed:
-- the lowest is next. The set "turn" holds the lanes where a job waits.
local LANE = 1099511627776

local function score(kind, tenant)
  return tonumber(redis.call('ZSCORE', key('lanes', kind), tenant) or 0)
end

local function place(kind, tenant, to)
  local waiting = redis.call('EXISTS', key('ready', kind, tenant)) == 1
  if to < LANE and not waiting and string.sub(kind, 1, 6) == 'local/' then
    redis.call('ZREM', key('lanes', kind), tenant) -- a kind of one job, which may come back
  else
    redis.call('ZADD', key('lanes', kind), int(to), tenant)
  end
  if waiting then
    redis.call('ZADD', key('turn', kind), int(to), tenant)
  else
    redis.call('ZREM', key('turn', kind), tenant)
  end
end

-- A member of "ready" sorts by age where the priority is the same.
local function member(j) return string.format('%016d', tonumber(j.n)) .. j.id end

local function enqueue(j)
  redis.call('ZREM', key('due'), j.id)
  redis.call('ZADD', key('ready', j.kind, j.tenant), int(0 - tonumber(j.priority)), member(j))
  place(j.kind, j.tenant, score(j.kind, j.tenant))
end

-- release ends the lease of a running job.
local function release(j)
  redis.call('ZREM', key('leases', j.kind), j.id)
  redis.call('SREM', key('held', j.home, j.worker), j.id)
  if j.key ~= '' then redis.call('HDEL', key('busy'), pair(j.kind, j.key)) end
  place(j.kind, j.tenant, score(j.kind, j.tenant) - LANE)
  set(j, 'worker', '', 'home', '', 'until', '0')
end

-- lift takes a verdict back, and what led to it.
local function lift(j)
  if (j.verdict or '') ~= '' then set(j, 'verdict', '', 'judged', '0', 'retries', '0', 'crashes', '0') end
end

-- recalled reports whether a reopening signal came too late for a lease that has
-- seen so many: whoever sent it was told that the job would go on.
local function recalled(j, seen) return tonumber(j.recalled) > math.max(seen, tonumber(j.heard)) end

-- close ends a job.
local function close(j, state, cause)
  redis.call('ZREM', key('open'), j.id)
  if j.once ~= '' then redis.call('HDEL', key('taken'), j.once) end
  if j.kind == 'delivery' then redis.call('ZADD', key('handled'), int(now), j.id) end
  set(j, 'state', state, 'crashes', '0', 'verdict', '', 'judged', '0', 'cause', cause, 'updated', int(now))
end

-- fence returns the job if the lease is its newest, else nil. A lease is an
-- attempt and the token of its claim: where a fail-over lost a claim, another
-- one gets the same attempt.
local function fence(id, lease)
  local j = load(id)
  if j and j.state == 'running' and j.attempt .. ' ' .. j.claimed == lease then return j end
  return nil
end

-- Where nobody was heard for so long, Redis or the way to it was away, or every
-- worker is gone. Leases could not be renewed then, so whoever is heard first, be
-- it a worker that wants an abandoned job, first gives all of them time for a
-- heartbeat or two. It is Redis' own clock that tells, which no test moves.
local QUIET, GRACE = 9000000, 10000000
local awake = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local heard = tonumber(redis.call('GET', key('heard')) or awake)
if awake - heard > QUIET then
  for _, kind in ipairs(redis.call('SMEMBERS', key('kinds'))) do
    local over = redis.call('ZRANGEBYSCORE', key('leases', kind), '2', int(now + GRACE)) -- 1: its process is gone
    for _, id in ipairs(over) do redis.call('ZADD', key('leases', kind), int(now + GRACE), id) end
  end
end
if awake - heard > 1000000 or awake == heard then redis.call('SET', key('heard'), int(awake)) end

-- again reports whether this very call has settled the job already.
local function again(id) return redis.call('HGET', key('job', id), 'settled') == token end
