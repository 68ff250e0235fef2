local id, lease, step, progress, body = ARGV[3], ARGV[4], ARGV[5], ARGV[6] == '1', ARGV[7]
local there = redis.call('HGET', key('steps', id), step)
local seq = there and string.match(there, '^(%d+) ' .. token .. '$')
if seq then return tonumber(seq) end
local j = fence(id, lease)
if not j then return 0 end
if there then return -1 end
local n = redis.call('RPUSH', key('entries', id), int(now) .. ' ' .. body)
redis.call('HSET', key('steps', id), step, int(n) .. ' ' .. token)
if progress then redis.call('HSET', key('job', id), 'stepped', j.attempt) end
return n
