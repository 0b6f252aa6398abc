-- Settles costs of requests that were charged before.
--
-- KEYS     what the settlements name
-- ARGV[1]  the time, as microseconds and nanoseconds beyond; empty: the store's own clock
-- ARGV[2…] the settlements, as settle.lua has them
--
-- Returns the numbers of those that cannot be applied, because a key has another type. Any other
-- error fails the call, which may be repeated.

local rejected = {}
for at = 2, #ARGV do
  local done, failure = pcall(settle, ARGV[at])
  if not done then
    local text = type(failure) == 'table' and failure.err or tostring(failure)
    if not string.find(text, 'WRONGTYPE', 1, true) then
      error(failure)
    end
    rejected[#rejected + 1] = tonumber(string.match(ARGV[at], '%d+'))
  end
end
return rejected
