local limit, unfinished, once, jobkey = tonumber(ARGV[3]), ARGV[4] == '1', ARGV[5], ARGV[6]
local ids, kinds = {}, {}
local count = tonumber(ARGV[7])
for i = 8, 7 + count do ids[#ids + 1] = ARGV[i] end
for i = 8 + count, #ARGV do kinds[#kinds + 1] = ARGV[i] end

local function ofKind(kind)
  if #kinds == 0 then return true end
  for _, k in ipairs(kinds) do
    if kind == k or string.sub(k, -1) == '/' and string.sub(kind, 1, string.len(k)) == k then return true end
  end
  return false
end

local found = {}
local function consider(id)
  local f = redis.call('HMGET', key('job', id), 'kind', 'key', 'once', 'state', 'n')
  if not f[1] or not ofKind(f[1]) or jobkey ~= '' and f[2] ~= jobkey or once ~= '' and f[3] ~= once then return false end
  if unfinished and finished({state = f[4]}) then return false end
  found[#found + 1] = {id = id, n = tonumber(f[5])}
  return true
end

-- scan looks through a set from its newest job until there are enough.
local function scan(among)
  local from, enough = 0, 0
  repeat
    local page = redis.call('ZREVRANGE', among, int(from), int(from + 99))
    for _, id in ipairs(page) do
      if enough < limit and consider(id) then enough = enough + 1 end
    end
    from = from + 100
  until enough >= limit or #page < 100
end

if #ids > 0 then
  local seen = {}
  for _, id in ipairs(ids) do
    if not seen[id] then consider(id) end
    seen[id] = true
  end
elseif once ~= '' then scan(key('once', once))
elseif jobkey ~= '' then scan(key('key', jobkey))
elseif unfinished then scan(key('open'))
elseif #kinds > 0 then
  local seen = {}
  for _, k in ipairs(kinds) do
    if not seen[class(k)] then scan(key('class', class(k))) end
    seen[class(k)] = true
  end
else scan(key('jobs'))
end
table.sort(found, function(a, b) return a.n > b.n end)
local out = {}
for i = 1, math.min(limit, #found) do out[i] = view(found[i].id) end
return out
