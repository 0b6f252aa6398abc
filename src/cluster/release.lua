-- Gives back leases of concurrency limits.
--
-- KEYS  where they are kept
-- ARGV  one lease a key: its name and its cost, as in `a-7:1`
--
-- Returns how many were still there: a lease that has run out was given back by that.
-- Or the first error: of one key, it keeps no other from being given back.

local found, failed = 0
for at, key in ipairs(KEYS) do
  local removed = redis.pcall('ZREM', key, ARGV[at])
  if type(removed) == 'table' then
    failed = failed or removed
  elseif removed == 1 then
    found = found + 1
    redis.call('ZINCRBY', key, string.match(ARGV[at], ':(%d+)$'), 'used')
    -- Nothing but `used` is left.
    if redis.call('ZCARD', key) == 1 then
      redis.call('DEL', key)
    end
  end
end
return failed or found
