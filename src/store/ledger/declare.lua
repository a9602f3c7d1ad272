-- Somebody vouches that no member holds anything: a ledger that has been there for ever, if there is none. Comes after
-- server.lua.
-- KEYS[1] the ledger; ARGV: lease, nonce, what the server has to be. Returns 'new', or 'known' if there is one.
local refused = refusal(ARGV[3])
if refused then return refused end
local packed = redis.call('HGET', KEYS[1], 'f')
local f = packed and cmsgpack.unpack(packed)
if f and f.run == run and (f.reign or reign) == reign then return { 'known' } end
local nonce = tonumber(ARGV[2])
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'f', cmsgpack.pack({
  counter = 1, id = nonce, run = run, reign = reign, time = 0, wall = wall, resets = 0,
  lease = tonumber(ARGV[1]), lines = nonce, claims = -2 ^ 50,
}))
return { 'new' }
