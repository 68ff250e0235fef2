-- A list is read in pages, from the newest job back: nobody else is served meanwhile.
-- ARGV[8] is the number below which this page begins. It answers with the one below
-- which the next begins, 0 for none, and the jobs.
local limit, unfinished, once, jobkey = tonumber(ARGV[3]), ARGV[4] == '1', ARGV[5], ARGV[6]
local ids, kinds = {}, {}
local count, below, PAGE = tonumber(ARGV[7]), ARGV[8], 200
for i = 9, 8 + count do ids[#ids + 1] = ARGV[i] end
for i = 9 + count, #ARGV do kinds[#kinds + 1] = ARGV[i] end

local function ofKind(kind)
  if #kinds == 0 then return true end
  for _, k in ipairs(kinds) do
    if kind == k or string.sub(k, -1) == '/' and string.sub(kind, 1, string.len(k)) == k then return true end
  end
  return false
end

local found, rest = {}, 0
local function consider(id)
  local f = redis.call('HMGET', key('job', id), 'kind', 'key', 'once', 'state', 'n')
  if not f[1] or not ofKind(f[1]) or jobkey ~= '' and f[2] ~= jobkey or once ~= '' and f[3] ~= once then return end
  if unfinished and finished({state = f[4]}) then return end
  found[#found + 1] = {id = id, n = tonumber(f[5])}
end

-- scan looks through a page of a set.
local function scan(among)
  local from = below == '0' and '+inf' or '(' .. below
  local page = redis.call('ZREVRANGEBYSCORE', among, from, '-inf', 'WITHSCORES', 'LIMIT', '0', int(PAGE))
  for i = 1, #page, 2 do consider(page[i]) end
  if #page == 2 * PAGE then rest = math.max(rest, tonumber(page[#page])) end
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
local out = {int(rest)}
for _, f in ipairs(found) do
  if #out > limit or f.n < rest then break end -- an older one may have been missed in another set
  out[#out + 1] = view(f.id)
end
return out
