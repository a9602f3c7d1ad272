-- One call of a member: src/fleet_model/lib.rs in Lua, and a test holds both to the same replies. Comes after server.lua.
--
-- KEYS[1]  the ledger: one hash without an expiry, so that the epoch and the tokens are lost together or not at all
-- KEYS[2]  members by the end of their leases. What is beside the ledger may be lost: tokens then move later, never twice.
-- ARGV     1 member, 2 seq, 3 epoch's counter or '', 4 its id, 5 leased, 6 basis' seq or '', 7 its age, 8 lease, 9 split,
--          10 nonce, 11 extent, 12 time or '', 13 run or '', 14 how it divides what is not lent, 15 the last change of pauses
--          that it knows, 16 of how many replicas the server has to hear, or 'cluster' if it is to be part of one, 17 how many
--          pauses it tells of; for each of these: name, time that is left, cause; then for each entry: pool, limit, per,
--          settle, holds, want, cost, need, demand, ends or '', word
-- Returns  a word, and what belongs to it. Times are microseconds. Members bring their own scripts: what another one does not
--          know of it leaves in place.
local UNKNOWN, ON_THE_WAY, GUARD, LATEST, SOME = 400000, 100000, 500000, 2000000, 8
local PATIENCE, FEW, MANY, AMOUNTS, SIZES = 300000, 20, 4, 8, 66
local ROOT = 0.70710678118654752440
local LONGEST_PAUSE, MOST_PAUSES = 86400000000, 500

local ledger, leases = KEYS[1], KEYS[2]
local prefix = string.sub(ledger, 1, -7)
local member, seq = ARGV[1], tonumber(ARGV[2])
local known = ARGV[3] ~= '' and { counter = tonumber(ARGV[3]), id = tonumber(ARGV[4]) } or nil
local leased, extent, division = ARGV[5] == '1', ARGV[11], ARGV[14]
local lease, split, nonce = tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10])

local function stretched(time) return time + math.floor(time / 4000) + 1 end

-- What was read, and what is to be written: all in one step at the end, because a script that fails undoes nothing.
local cache, written = {}, {}
local function get(field)
  if cache[field] == nil then
    local packed = redis.call('HGET', ledger, field)
    cache[field] = packed and cmsgpack.unpack(packed) or false
  end
  return cache[field] or nil
end
local function put(field, value)
  cache[field] = value or false
  written[field] = true
end
local function finish(reply)
  local set, gone = {}, {}
  for field in pairs(written) do
    if cache[field] then
      set[#set + 1] = field
      set[#set + 1] = cmsgpack.pack(cache[field])
    else
      gone[#gone + 1] = field
    end
  end
  -- In portions: Lua's stack is bounded.
  for from = 1, #gone, 1000 do redis.call('HDEL', ledger, unpack(gone, from, math.min(from + 999, #gone))) end
  if #set > 0 and #set <= 4000 then redis.call('HSET', ledger, unpack(set)) end
  if #set > 4000 then
    for from = 1, #set, 4000 do redis.call('HSET', ledger, unpack(set, from, math.min(from + 3999, #set))) end
  end
  return reply
end

if ARGV[12] ~= '' then wall, run, reign = tonumber(ARGV[12]), ARGV[13], nil end
do
  local refused = refusal(ARGV[16])
  if refused then return refused end
end

-- Begins an epoch if there is none, if another process has taken over, or if this one was a replica meanwhile: what its
-- primary did last may not have come.
-- A call that comes late may begin an epoch more than once: these differ by the time.
local id = (nonce + wall) % 2 ^ 32
local f = get('f')
if not f or f.run ~= run or f.reign and f.reign ~= reign then
  local counter = math.max(f and f.counter or 0, leased and known and known.counter or 0) + 1
  redis.call('DEL', ledger, leases)
  cache, written = {}, {}
  local begins = split > 0 and stretched(split) + GUARD or 0
  f = { counter = counter, id = id, run = run, time = 0, wall = wall, resets = 0, lease = lease, lines = nonce, divisions = {},
        begins = begins, claims = begins + stretched(lease) + GUARD }
end
f.reign = reign
put('f', f)
if f.lease ~= lease then return finish({ 'disagreed', tostring(f.lease) }) end

-- The server's clock may be set: the store's time goes on by no more than a member has seen pass. What it has not gone on by
-- is never made up for: leases that were noted meanwhile would end too early.
f.lost = f.lost or 0
local row = get('m:' .. member)
do
  local passed = wall - f.wall
  f.wall = wall
  if passed < 0 then
    passed = 0
    f.resets = f.resets + 1
  end
  local most = UNKNOWN
  if row and ARGV[6] ~= '' and row.seq == tonumber(ARGV[6]) and row.resets == f.resets and seq > row.seq then
    most = row.at + stretched(tonumber(ARGV[7])) + ON_THE_WAY - f.time - (f.lost - (row.lost or 0))
  end
  local goes_on = math.min(passed, math.max(most, 0))
  f.time = f.time + goes_on
  f.lost = f.lost + passed - goes_on
end
-- Up to then the server whose place this one has taken may answer, and lend what this one would.
local left = (f.begins or 0) - f.time
if left > 0 then return finish({ 'not-yet', string.format('%.0f', left) }) end
if known and leased and known.counter > f.counter then
  if f.time >= f.claims then return finish({ 'deposed' }) end
  f.counter, f.id = known.counter + 1, id
end
local now = f.time

local function row_of(name, pool) return 'r:' .. name .. ':' .. pool end
-- What is beside the ledger: of another ledger's lines none is mistaken for one of this, and what nobody uses goes.
local function line(kind, pool) return prefix .. kind .. ':' .. f.lines .. ':' .. pool end
local function keep(key) redis.call('EXPIRE', key, 86400) end

local function size(demand)
  local part, power = math.frexp(demand)
  return 2 * power + (part >= ROOT and 1 or 0)
end
local function count(pool, demand, by)
  local size = size(demand)
  local entry = pool.demands[size] or { 0, 0 }
  entry = { entry[1] + by * demand, entry[2] + by }
  pool.demands[size] = entry[2] > 0 and entry or nil
end
local function limit_of(pool)
  local least
  for limit in pairs(pool.limits) do if not least or limit < least then least = limit end end
  return least or pool.limit
end
local function is_open(pool) return now >= f.claims + stretched(pool.per) + LATEST end
local function supply(pool)
  local limit = limit_of(pool)
  return is_open(pool) and limit or math.min(pool.claimed, limit)
end
local function withheld(pool)
  local sum = 0
  for _, amount in ipairs(pool.withheld) do sum = sum + amount[1] end
  return sum
end
local function free(pool) return supply(pool) - pool.lent - withheld(pool) end
local function withhold(pool, units, at)
  if units == 0 then return end
  local last = pool.withheld[#pool.withheld]
  if #pool.withheld >= AMOUNTS then
    last[1], last[2] = last[1] + units, math.max(last[2], at)
  else
    pool.withheld[#pool.withheld + 1] = { units, at }
  end
end
local function forget_of(pool, row)
  local members = (pool.limits[row.limit] or 1) - 1
  pool.limits[row.limit] = members > 0 and members or nil
  count(pool, row.demand, -1)
  if row.cost > 0 then pool.waiting = pool.waiting - 1 end
end
local function drop_row(name, pool_name, pool)
  local row = get(row_of(name, pool_name))
  if not row then return end
  forget_of(pool, row)
  pool.lent, pool.rows = pool.lent - row.holds, pool.rows - 1
  if row.hungry then redis.call('ZREM', line('hungry', pool_name), name) end
  if row.more then redis.call('ZREM', line('more', pool_name), name) end
  put(row_of(name, pool_name), nil)
  return row
end

-- How many members divide what is not lent in each way.
f.divisions = f.divisions or {}
local function divides(how, by)
  local members = math.max((f.divisions[how] or 0) + by, 0)
  f.divisions[how] = members > 0 and members or nil
end

-- A member is no more: what it still had may be counted by the API for a while.
local function dismiss(name)
  redis.call('ZREM', leases, name)
  local gone = get('m:' .. name)
  if not gone then return end
  if gone.division then divides(gone.division, -1) end
  put('m:' .. name, nil)
  local pools = line('member', name)
  for _, pool_name in ipairs(redis.call('SMEMBERS', pools)) do
    local pool = get('p:' .. pool_name)
    local row = pool and drop_row(name, pool_name, pool)
    if row then
      local at = now + stretched(pool.per) + row.settle + GUARD
      local opens = f.claims + stretched(pool.per) + LATEST
      withhold(pool, row.holds, now < opens and math.max(at, opens) or at)
      put('p:' .. pool_name, pool)
    end
  end
  redis.call('DEL', pools)
end
for _ = 1, SOME do
  local first = redis.call('ZRANGE', leases, 0, 0, 'WITHSCORES')
  if not first[1] or tonumber(first[2]) + GUARD >= now then break end
  dismiss(first[1])
end

-- What may be said, and by whom.
row = get('m:' .. member)
local entries, new, unknown = {}, not known, false
for at = 18 + 3 * tonumber(ARGV[17]), #ARGV, 11 do
  local entry = { pool = ARGV[at], limit = tonumber(ARGV[at + 1]), per = tonumber(ARGV[at + 2]),
    settle = tonumber(ARGV[at + 3]), holds = tonumber(ARGV[at + 4]), want = tonumber(ARGV[at + 5]),
    cost = tonumber(ARGV[at + 6]), need = tonumber(ARGV[at + 7]), demand = tonumber(ARGV[at + 8]),
    ends = tonumber(ARGV[at + 9]), word = ARGV[at + 10] }
  entries[#entries + 1] = entry
  if entry.holds > 0 then
    new = false
    unknown = unknown or not get(row_of(member, entry.pool))
  end
end
local same = known and known.counter == f.counter and known.id == f.id
local claims = known and not same and leased and now < f.claims
if row and seq <= row.seq or not row and extent == 'leaving' then return finish({ 'ignored' }) end
if not (claims or new or same and row) then return finish({ 'reset' }) end
if claims and extent == 'some' then return finish({ 'report' }) end
if not claims and unknown then return finish({ 'reset' }) end

if row and row.division then divides(row.division, -1) end
divides(division, 1)
row = { seq = seq, at = now, resets = f.resets, lost = f.lost, lease_end = now + f.lease, division = division }
put('m:' .. member, row)
redis.call('ZADD', leases, string.format('%.0f', row.lease_end), member)

local hints = {}
local function hint(to, pool_name)
  hints[#hints + 1] = to
  hints[#hints + 1] = pool_name
  redis.call('PUBLISH', to == '*' and prefix .. 'hints' or prefix .. 'hint:' .. to, pool_name)
end

-- The pauses that APIs have asked members for: first what this one does not know, because what it says itself is no news for
-- it. What is over is remembered for as long as a member may not have called.
f.pauses = f.pauses or 0
local news = {}
do
  local known, told, changed = same and tonumber(ARGV[15]) or 0, tonumber(ARGV[17]), false
  local pauses = (known < f.pauses or told > 0) and get('pauses') or {}
  if known < f.pauses then
    for name, pause in pairs(pauses) do
      if pause.number > known and (pause.ended or pause.ends > now) then
        news[#news + 1] = { name, pause.ended and 0 or pause.ends - now, pause.cause, pause.number }
      end
    end
    table.sort(news, function(a, b) return a[4] < b[4] end)
  end
  local count = 0
  if told > 0 then
    for name, pause in pairs(pauses) do
      if pause.ends + lease > now then count = count + 1 else pauses[name] = nil end
    end
  end
  for at = 18, 15 + 3 * told, 3 do
    local name, left = ARGV[at], tonumber(ARGV[at + 1])
    local before = pauses[name]
    local runs = before and not before.ended and before.ends > now
    local ends, ended = now + math.min(math.max(left, 0), LONGEST_PAUSE), left <= 0
    local longer = not runs or before.ends < ends
    if not ended and not longer then ends = before.ends end
    -- What is not longer is news all the same: the store's time may lag, and others end earlier what they have heard.
    if (not ended or runs) and (before or count < MOST_PAUSES) then
      if not before then count = count + 1 end
      f.pauses, changed = f.pauses + 1, changed or ended or longer
      pauses[name] = { ends = ends, cause = ARGV[at + 2], number = f.pauses, ended = ended }
    end
  end
  if told > 0 then put('pauses', pauses) end
  if changed then
    hints[1], hints[2] = 'pauses', ''
    redis.call('PUBLISH', prefix .. 'pauses', member)
  end
end

-- Takes up what a member says; a claim is believed.
local function hear(entry, pool)
  -- Of an in-flight limit this is how long answers last: members may have other opinions.
  pool.per = math.max(pool.per, entry.per)
  pool.limit = entry.limit
  if entry.word ~= '' then pool.word = entry.word end
  local before = get(row_of(member, entry.pool))
  local held = before and before.holds or 0
  local holds = claims and entry.holds or math.min(entry.holds, held)
  if claims then pool.claimed = pool.claimed + entry.holds - held end
  pool.lent = pool.lent + holds - held
  if before then forget_of(pool, before) else pool.rows = pool.rows + 1 end
  pool.limits[entry.limit] = (pool.limits[entry.limit] or 0) + 1
  count(pool, entry.demand, 1)
  if entry.cost > 0 then pool.waiting = pool.waiting + 1 end
  local row = { holds = holds, demand = entry.demand, cost = entry.cost, need = entry.need, settle = entry.settle,
    limit = entry.limit, hungry = before and before.hungry, more = before and before.more }
  put(row_of(member, entry.pool), row)
  return row
end

-- The first in a line, and whose turn that is; entries without a row are what a lost reply has left.
local function head_of(kind, pool_name)
  while true do
    local first = redis.call('ZRANGE', line(kind, pool_name), 0, 0, 'WITHSCORES')
    if not first[1] then return end
    local row = get(row_of(first[1], pool_name))
    if row then return first[1], row, tonumber(first[2]) end
    redis.call('ZREM', line(kind, pool_name), first[1])
  end
end
-- Puts the member into a line if it stands there, and takes it out if not. It keeps its place, given by since when it has
-- stood there, unless it begins anew. Returns since when it stands there.
local function stand(kind, pool_name, since, stands, anew)
  local key = line(kind, pool_name)
  if since and (anew or not stands) then
    redis.call('ZREM', key, member)
    since = nil
  end
  if stands then
    since = since or now
    redis.call('ZADD', key, string.format('%.0f', since), member)
    keep(key)
  end
  return since
end
local function others(kind, pool_name)
  for _, name in ipairs(redis.call('ZRANGE', line(kind, pool_name), 0, 1)) do
    if name ~= member then return name end
  end
end

-- Of those that want more than their share, one to which this many tokens are of use.
local function fitting(pool_name, free)
  for _, name in ipairs(redis.call('ZRANGE', line('more', pool_name), 0, MANY - 1)) do
    local row = get(row_of(name, pool_name))
    if not row then redis.call('ZREM', line('more', pool_name), name) end
    if row and name ~= member and free >= row.need then return name, row end
  end
end

-- What the first in line has to hold for its next request, if that is more than an equal share.
local function due_to(first, pool)
  local equal = (supply(pool) - withheld(pool)) / math.max(pool.rows, 1)
  local due = first.need > 1 and first.holds + first.need or first.cost
  if due > equal and (first.need > 1 or first.holds < first.cost) then return due end
end
-- The fair share of a member; what is due to the first in line comes before that.
local function fair(pool, own, first, due)
  local supply = supply(pool) - withheld(pool)
  local taken_size, taken
  if due then
    taken_size, taken = size(first.demand), first.demand
    supply = supply - due
  end
  if supply <= 0 then return 0 end
  local wanted, members = 0, 0
  for _, demand in pairs(pool.demands) do wanted, members = wanted + demand[1], members + demand[2] end
  if taken then wanted, members = wanted - taken, members - 1 end
  if members == 0 then return supply end
  if wanted <= supply then return own.demand + (supply - wanted) / members end
  local below, rest = 0, members
  for size = 0, SIZES - 1 do
    local demand = pool.demands[size]
    if demand then
      local sum, members = demand[1], demand[2]
      if size == taken_size then sum, members = sum - taken, members - 1 end
      if members > 0 then
        local level = (supply - below) / rest
        if level * members < sum or rest <= members then return math.min(own.demand, math.max(level, 0)) end
        below, rest = below + sum, rest - members
      end
    end
  end
  return math.min(own.demand, supply)
end

-- What a member may keep.
local function target(entry, pool, own)
  local head, first = head_of('hungry', entry.pool)
  local due = head and due_to(first, pool)
  if due and head == member then return due end
  return fair(pool, own, first, due)
end

local function call_all(pool, pool_name)
  if not pool.called or now > pool.called + PATIENCE then
    pool.called = now
    hint('*', pool_name)
  end
end

-- Grants what is due to the member, or puts it into the line.
local function serve(entry, pool, own)
  while true do
    local head, first = head_of('hungry', entry.pool)
    if not head or head == member or not first.hinted or now <= first.hinted + PATIENCE then break end
    first.hungry, first.hinted = nil, nil
    put(row_of(head, entry.pool), first)
    redis.call('ZREM', line('hungry', entry.pool), head)
  end
  local target = target(entry, pool, own)
  local head, first, since = head_of('hungry', entry.pool)
  local before = head and head ~= member and (not own.hungry or since <= own.hungry)
  local lacks = entry.want
  if others('hungry', entry.pool) then
    lacks = target < FEW and math.ceil(target - own.holds - 1e-9) or math.floor(target - own.holds)
    if not before then lacks = math.max(lacks, entry.need) end
  end
  local granted = math.max(math.min(entry.want, free(pool) - (before and first.need or 0), lacks), 0)
  -- All or nothing: what does not suffice would lie idle until more comes.
  if granted < entry.need then granted = 0 end
  pool.lent = pool.lent + granted
  own.holds = own.holds + granted
  own.need = math.max(granted < entry.need and entry.need or 1, 1)

  -- Who is first in line stays there for its fair share, and not for what is due to it because it is the first.
  head, first = head_of('hungry', entry.pool)
  local fair, below = head == member and fair(pool, own) or target, nil
  if entry.need > 1 then
    below = own.holds + entry.need / 2 <= fair
  elseif fair < FEW then
    below = own.holds < fair - 1e-9
  else
    below = own.holds <= fair - 1
  end
  local lacking = entry.want > granted
  local hungry = lacking and (own.holds < entry.cost or below)
  own.hungry = stand('hungry', entry.pool, own.hungry, hungry, granted > 0)
  own.more = stand('more', entry.pool, own.more, lacking and not hungry, false)

  head, first = head_of('hungry', entry.pool)
  if not head then
    local other, theirs = fitting(entry.pool, free(pool))
    if other then
      redis.call('ZREM', line('more', entry.pool), other)
      theirs.more = nil
      put(row_of(other, entry.pool), theirs)
      hint(other, entry.pool)
    elseif free(pool) < 0 then
      call_all(pool, entry.pool)
    end
  elseif head ~= member and free(pool) >= first.need and not first.hinted then
    first.hinted = now
    put(row_of(head, entry.pool), first)
    hint(head, entry.pool)
  elseif not first.hinted then
    call_all(pool, entry.pool)
  end

  local wanted = 0
  for _, demand in pairs(pool.demands) do wanted = wanted + demand[1] end
  return { own.holds, string.format('%.17g', target),
    (head or free(pool) < 0 or wanted > supply(pool)) and 1 or 0, free(pool) < 0 and 1 or 0, own.hungry and 1 or 0,
    limit_of(pool), string.format('%.17g', supply(pool) / math.max(pool.waiting, 1)), pool.word or '' }
end

local left = extent == 'leaving' and 1 or 0
local members = redis.call('ZCARD', leases) - left
local reply = { 'done', f.counter, string.format('%.0f', f.id), string.format('%.0f', math.max(f.claims - now, 0)), members,
  math.max(members - f.divisions[division] + left, 0), #entries }
local function answer(values) for _, value in ipairs(values) do reply[#reply + 1] = tostring(value) end end
for _, entry in ipairs(entries) do
  local name = 'p:' .. entry.pool
  local pool = get(name) or { per = entry.per, lent = 0, claimed = 0, withheld = {}, limits = {}, limit = 0,
    demands = {}, waiting = 0, rows = 0 }
  local kept = {}
  for _, amount in ipairs(pool.withheld) do if amount[2] > now then kept[#kept + 1] = amount end end
  pool.withheld = kept
  local own = hear(entry, pool)
  if entry.ends then
    redis.call('SREM', line('member', member), entry.pool)
    local held = drop_row(member, entry.pool, pool).holds
    withhold(pool, held, now + stretched(entry.ends) + GUARD)
    put(name, (pool.rows > 0 or #pool.withheld > 0) and pool or nil)
    answer({ 0, 0, 0, 0, 0, 0, 0, '' })
  else
    redis.call('SADD', line('member', member), entry.pool)
    answer(serve(entry, pool, own))
    put(row_of(member, entry.pool), own)
    put(name, pool)
  end
end
reply[#reply + 1], reply[#reply + 2] = f.pauses, #news
for _, pause in ipairs(news) do answer({ pause[1], string.format('%.0f', pause[2]), pause[3] }) end
if extent == 'leaving' then dismiss(member) else keep(line('member', member)) end
for at, value in ipairs(reply) do reply[at] = tostring(value) end
for _, value in ipairs(hints) do reply[#reply + 1] = value end
return finish(reply)
