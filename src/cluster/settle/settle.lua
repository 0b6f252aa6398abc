-- Settles the cost of a request that was charged before: moves the state that was charged by the
-- difference, once however often the settlement is sent.
--
-- A settlement is a line of words: `settle`, its number, the least number of this gateway and hash tag
-- that may be sent again, the places in KEYS of what was settled and of the state, the microsecond of
-- the charge and the nanoseconds beyond, `more` or `less`, the algorithm, the difference, and the
-- algorithm's own numbers with the difference as cost.
--
-- What was settled is a sorted set of numbers. Its member `low` has the least that may be sent again:
-- smaller ones are dropped from it, and a call that comes late with one of them changes nothing.

-- How long it is known what was settled: twice as long as a gateway may repeat a call.
local settled_millis = '7200000'

local function settle(line)
  local words = {}
  for word in string.gmatch(line, '%S+') do
    words[#words + 1] = word
  end
  local number, low = tonumber(words[2]), tonumber(words[3])
  local settled, key = KEYS[tonumber(words[4])], KEYS[tonumber(words[5])]

  local least = tonumber(redis.call('ZSCORE', settled, 'low') or '0')
  if low > least then
    redis.call('ZADD', settled, digits(low), 'low')
    -- An error in what follows leaves it behind.
    redis.call('PEXPIRE', settled, settled_millis)
    redis.call('ZREMRANGEBYSCORE', settled, '-inf', '(' .. digits(low))
    least = low
  end
  if number < least or redis.call('ZSCORE', settled, digits(number)) then
    return
  end

  local algorithm = algorithms[words[9]]
  local t = { cost = tonumber(words[10]), at = tonumber(words[6]), at_nanos = tonumber(words[7]) }
  for i = 11, #words do
    t[i - 10] = tonumber(words[i])
  end
  if words[8] == 'less' then
    algorithm.give_back(key, t)
  elseif algorithm.excess then
    algorithm.excess(key, t)
  else
    local _, state = algorithm.check(key, t)
    algorithm.charge(key, t, state)
  end
  redis.call('ZADD', settled, digits(number), digits(number))
  redis.call('PEXPIRE', settled, settled_millis)
end

