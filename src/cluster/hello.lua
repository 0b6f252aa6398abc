-- Says that a gateway is there, agrees on the secret of the clients' fingerprints, and proves that
-- the store takes writes.
--
-- KEYS[1]  the gateways that were seen, each with the microsecond in which it is forgotten
-- KEYS[2]  the secret
-- KEYS[3]  a number that is another one after each change by an operator
-- ARGV     the gateway's name, how long it is remembered in microseconds, a secret of its own
--
-- Returns how many gateways there are, the secret of all, 1 if this gateway was not among them (then
-- the others may not be, either), the secret's key if it held none and was written anew, or '', and
-- the number, or ''.

local rewritten = ''

-- A gateway that has used a secret proposes it again, so that a store that lost it learns the same
-- one. Before all else: a store without memory refuses this write, but none that follows one it has
-- let through.
redis.call('SET', KEYS[2], ARGV[3], 'NX')
local secret = redis.pcall('GET', KEYS[2])
if type(secret) ~= 'string' or #secret ~= 32 or string.find(secret, '%X') then
  -- Else no gateway could use the store until it is mended by hand.
  redis.call('SET', KEYS[2], ARGV[3])
  secret, rewritten = ARGV[3], KEYS[2]
end
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
local added = redis.call('ZADD', KEYS[1], string.format('%.0f', now + ARGV[2]), ARGV[1])
local millis = math.floor(ARGV[2] / 1000) + 1
-- Others may be remembered for longer, as while the setting is rolled out.
if redis.call('PTTL', KEYS[1]) < millis then
  redis.call('PEXPIRE', KEYS[1], string.format('%.0f', millis))
end
-- A month without gateways ends every state, too.
redis.call('PEXPIRE', KEYS[2], '2678400000')
return { redis.call('ZCARD', KEYS[1]), secret, added, rewritten, redis.call('GET', KEYS[3]) or '' }
