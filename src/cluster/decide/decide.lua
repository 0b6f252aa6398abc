-- Decides about one request under all of its rules that gateways share: all or nothing.
--
-- KEYS      one key a rule: where the state lies that the request counts under; then those that the
--           settlements name
-- ARGV[1]   the time, as microseconds and nanoseconds beyond; empty: the store's own clock
-- ARGV[2…]  one line of words a rule: the algorithm, `1` for a dry run, the cost, the name of the
--           lease and how long it runs if there is one, and the algorithm's own numbers; of a
--           concurrency limit also the leases that have ended. Then settlements of earlier requests,
--           as settle.lua has them: they are applied first
--
-- Returns { microseconds, nanoseconds, admitted, then a list a rule: the verdict and the state
-- before the request }. A verdict is 1 if the request passes, else 0; 2 more if the state was stale,
-- and 4 more if the rule would reject it and an operator's grant is in force.

-- Where the rest of a grant for this state lies, which expires with the grant.
local function grant_of(key)
  return key .. ':grant'
end

-- Takes a cost from the grant, and nothing from the state.
local function spend(key, rest)
  local grant = grant_of(key)
  local ttl = redis.call('PTTL', grant)
  if rest > 0 and ttl > 0 then
    redis.call('SET', grant, digits(rest), 'PX', digits(ttl))
  else
    redis.call('DEL', grant)
  end
end

-- The gateway also sends them by a call of their own, which reports what cannot be applied.
local last = #ARGV
while string.sub(ARGV[last], 1, 7) == 'settle ' do
  last = last - 1
end
for at = last + 1, #ARGV do
  pcall(settle, ARGV[at])
end

local answer = { now, nanos, 1 }
local asked = {}
for at = 1, last - 1 do
  local key, words = KEYS[at], {}
  for word in string.gmatch(ARGV[at + 1], '%S+') do
    words[#words + 1] = word
  end
  local algorithm, is_dry = algorithms[words[1]], words[2] == '1'
  local t = { cost = tonumber(words[3]), id = words[4], ttl = tonumber(words[5]), words = words }
  for i = 6, #words do
    t[i - 5] = tonumber(words[i])
  end
  local passes, state, is_stale = algorithm.check(key, t)
  -- What costs nothing passes and is not charged.
  passes = passes or t.cost == 0
  local charged = passes and t.cost > 0
  local left = not passes and tonumber(redis.call('GET', grant_of(key)) or '')
  local rest = left and left >= t.cost and left - t.cost or nil
  passes = passes or rest ~= nil
  if not passes and not is_dry then
    answer[3] = 0
  end
  asked[at] = { algorithm = algorithm, terms = t, state = state, charged = charged, rest = rest }
  local verdict = (passes and 1 or 0) + (is_stale and 2 or 0) + (left and 4 or 0)
  answer[at + 3] = { verdict, unpack(state) }
end
if answer[3] == 1 then
  for at, it in ipairs(asked) do
    if it.charged then
      it.algorithm.charge(KEYS[at], it.terms, it.state)
    elseif it.rest then
      spend(KEYS[at], it.rest)
    end
  end
end
return answer
