-- Settles costs of requests that were charged before.
--
-- KEYS     what the settlements name
-- ARGV[1]  the time, as microseconds and nanoseconds beyond; empty: the store's own clock
-- ARGV[2…] the settlements, as settle.lua has them
--
-- Returns the numbers of those that cannot be applied, because a key has another type or is no state.
-- Each of them would fail again. An error of the store itself fails the call, which may be repeated.

-- What errors of the store itself have in their texts: it has no memory, may not write, serves no such
-- slot, forbids a command, or ends the script.
local passing = {
  'OOM ', 'READONLY', 'MISCONF', 'NOREPLICAS', 'NOPERM', 'NOAUTH', 'MASTERDOWN', 'BUSY', 'LOADING',
  'CLUSTERDOWN', 'TRYAGAIN', 'MOVED', 'ASK ', 'CROSSSLOT', 'non local key', "can't run this command",
  'Script killed',
}

local function is_of_store(text)
  for _, part in ipairs(passing) do
    if string.find(text, part, 1, true) then
      return true
    end
  end
  return false
end

local rejected = {}
for at = 2, #ARGV do
  local done, failure = pcall(settle, ARGV[at])
  if not done then
    local text = type(failure) == 'table' and failure.err or tostring(failure)
    if is_of_store(text) then
      error(failure)
    end
    rejected[#rejected + 1] = tonumber(string.match(ARGV[at], '%d+'))
  end
end
return rejected
