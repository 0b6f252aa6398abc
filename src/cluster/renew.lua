-- Renews leases of concurrency limits, and takes again those that the store has lost: whatever
-- became of them there, what they stand for is still in flight.
--
-- KEYS     where they are kept
-- ARGV[1]  how long they run, in microseconds
-- ARGV[2…] one lease a key: its name and its cost, as in `a-7:1`
--
-- Returns how many had been lost, or the first error: of one key, it keeps no other from being renewed.

local time = redis.call('TIME')
local ends = string.format('%.0f', time[1] * 1000000 + time[2] + ARGV[1])
local millis = string.format('%.0f', math.floor(ARGV[1] / 1000) + 1)
local lost, failed = 0
for at, key in ipairs(KEYS) do
  local lease = ARGV[at + 1]
  local added = redis.pcall('ZADD', key, ends, lease)
  if type(added) == 'table' then
    failed = failed or added
  else
    if added == 1 then
      lost = lost + 1
      redis.call('ZINCRBY', key, '-' .. string.match(lease, ':(%d+)$'), 'used')
    end
    -- Others' leases may be longer, as while the setting is rolled out.
    if redis.call('PTTL', key) < tonumber(millis) then
      redis.call('PEXPIRE', key, millis)
    end
  end
end
return failed or lost
