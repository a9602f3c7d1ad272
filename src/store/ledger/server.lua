-- What the server knows of itself: its time, its process, which reign of it this is (another one if it was a replica
-- meanwhile), and whether it may decide.
local wall, run, reign, refusal
do
  -- A replica whose last word is so many seconds old still counts: `split` of whoever calls is longer.
  local LAG = 1
  local time, info = redis.call('TIME'), redis.call('INFO', 'server', 'replication')
  wall = tonumber(time[1]) * 1000000 + tonumber(time[2])
  run, reign = string.match(info, 'run_id:(%x+)'), string.match(info, 'master_replid:(%x+)')
  -- `needs` is of how many replicas it has to hear, 'cluster' if it is to be part of one, or nothing.
  function refusal(needs)
    if needs ~= 'cluster' and string.find(info, 'redis_mode:cluster', 1, true) then return { 'clustered' } end
    -- Without a majority it may have been replaced. Counted here, since a server counts once a second only.
    local near = 0
    for lag in string.gmatch(info, 'state=online,[^\r\n]-lag=(%d+)') do
      if tonumber(lag) <= LAG then near = near + 1 end
    end
    if near < (tonumber(needs) or 0) then return { 'alone', tostring(near) } end
  end
end
