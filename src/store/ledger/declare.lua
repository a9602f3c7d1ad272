-- Somebody vouches that no member holds anything: a ledger that has been there for ever, if there is none.
-- KEYS[1] the ledger; ARGV: lease, nonce. Returns 1, or 0 if there is one.
local time = redis.call('TIME')
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
local packed = redis.call('HGET', KEYS[1], 'f')
if packed and cmsgpack.unpack(packed).run == run then return 0 end
local nonce = tonumber(ARGV[2])
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'f', cmsgpack.pack({
  counter = 1, id = nonce, run = run, time = 0, wall = tonumber(time[1]) * 1000000 + tonumber(time[2]), resets = 0,
  lease = tonumber(ARGV[1]), lines = nonce, claims = -2 ^ 50,
}))
return 1
