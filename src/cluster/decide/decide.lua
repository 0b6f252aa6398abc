-- Decides about one request under all of its rules that gateways share: all or nothing.
--
-- KEYS      one key a rule: where the state lies that the request counts under
-- ARGV[1]   the time, as microseconds and nanoseconds beyond; empty: the store's own clock
-- ARGV[2…]  one line of words a rule: the algorithm, `1` for a dry run, the cost, the name of the
--           lease and how long it runs if there is one, and the algorithm's own numbers; of a
--           concurrency limit also the leases that have ended
--
-- Returns { microseconds, nanoseconds, admitted, then a list a rule: the verdict and the state
-- before the request }. A verdict is 1 if the request passes, else 0; 2 more if the state was stale,
-- and 4 more if the rule would reject it and an operator's grant is in force.
--
-- A state is stale if it is further ahead, by a window, than a clock that runs forward can leave it:
-- the clock was set back by more than that. It is dropped, or it would reject for as long.

-- Returns how many whole `length`s `a` holds, and what is left. (The quotient of two doubles may
-- round up to the next whole number; that of a multiple does not.)
local function divide(a, length)
  local rest = math.fmod(a, length)
  return (a - rest) / length, rest
end

-- Returns a product of two numbers below 2^52 in two halves, each below 2^52.
local function product(a, b)
  local a_high, a_low = divide(a, 67108864)
  local b_high, b_low = divide(b, 67108864)
  local middle, middle_low = divide(a_high * b_low + a_low * b_high, 67108864)
  local carry, low = divide(middle_low * 67108864 + a_low * b_low, 4503599627370496)
  return a_high * b_high + middle + carry, low
end

-- By the word of an algorithm: `check` returns whether the request passes, the state before it and
-- whether that was stale, and charges nothing; `charge` charges the request.
local algorithms = {}

-- token_bucket and leaky_bucket. The state is TAT and the bucket's size.
-- terms: m, parts of a nanosecond, capacity, cost, each as a pair
algorithms.bucket = {
  check = function(key, t)
    local state = read(key)
    local at, at_parts = now, nanos * t[2]
    local tat, tat_parts = state[1] or 0, state[2] or 0
    local size, size_parts = state[3] or t[3], state[4] or t[4]
    local is_stale = tat > at + 2 * size + 1
    if #state == 0 or is_stale then
      state, tat, tat_parts = {}, 0, 0
    else
      tat, tat_parts = resize(tat, tat_parts, size, size_parts, t[3], t[4], at_parts, t[1])
      state = { tat, tat_parts }
      if size ~= t[3] or size_parts ~= t[4] then
        write(key, { tat, tat_parts, t[3], t[4] }, tat - now + 1)
      end
    end
    if exceeds(at, at_parts, tat, tat_parts) then
      tat, tat_parts = at, at_parts
    end
    t.after, t.after_parts = add(tat, tat_parts, t[5], t[6], t[1])
    local most, most_parts = add(at, at_parts, t[3], t[4], t[1])
    return not exceeds(t.after, t.after_parts, most, most_parts), state, is_stale
  end,
  charge = function(key, t)
    write(key, { t.after, t.after_parts, t[3], t[4] }, t.after - now + 1)
  end,
}

-- pacing. The state is the earliest next start, and how many microseconds ahead that could be by the
-- terms then.
-- terms: m, parts of a nanosecond, the longest wait, the length of the queue, the cost, as pairs
algorithms.pacing = {
  check = function(key, t)
    local state = read(key)
    local at, at_parts = now, nanos * t[2]
    local start, start_parts = state[1] or 0, state[2] or 0
    local passes = true
    local is_stale = start > at + 2 * (state[3] or 0) + 1
    if is_stale then
      state, start, start_parts = {}, 0, 0
    end
    if exceeds(start, start_parts, at, at_parts) then
      local wait, wait_parts = add(at, at_parts, t[3], t[4], t[1])
      local full, full_parts = add(at, at_parts, t[5], t[6], t[1])
      passes = not exceeds(start, start_parts, wait, wait_parts)
        and not exceeds(start, start_parts, full, full_parts)
    else
      start, start_parts = at, at_parts
    end
    t.after, t.after_parts = add(start, start_parts, t[7], t[8], t[1])
    return passes, { state[1], state[2] }, is_stale
  end,
  charge = function(key, t)
    local most = math.min(t[3], t[5]) + t[7] + 2
    write(key, { t.after, t.after_parts, most }, t.after - now + 1)
  end,
}

-- fixed_window. The state is when the window ends, as a pair, and what is used in it.
-- terms: the limit, the window, 1 if it begins with its first request; and where windows follow a
-- calendar, when this one ends and the next one does
algorithms.fixed = {
  check = function(key, t)
    local state = read(key)
    local is_stale = #state == 3 and state[1] > now + 2 * t[2] + 1
    if #state < 3 or is_stale or not exceeds(state[1], state[2], now, nanos) then
      state = {}
    end
    return (state[3] or 0) + t.cost <= t[1], state, is_stale
  end,
  charge = function(key, t, state)
    local finish, finish_nanos, used = state[1], state[2], state[3] or 0
    if used == 0 then
      finish_nanos = 0
      if t[4] then
        -- The gateway may be on the other side of the boundary, or its clock wrong.
        finish = math.min(now < t[4] and t[4] or math.max(t[5], now + 1), now + 2 * t[2])
      elseif t[3] == 1 and now >= t[2] then
        finish, finish_nanos = now + t[2], nanos
      else
        -- The first window of all begins with the clock, too.
        finish = now - math.fmod(now, t[2]) + t[2]
      end
    end
    write(key, { finish, finish_nanos, used + t.cost }, finish - now + 1)
  end,
}

-- sliding_counter. The state is the latest window's number, what the one before had, and what it has.
-- terms: the limit, the window
algorithms.counter = {
  check = function(key, t)
    local state = read(key)
    local index, gone = divide(now, t[2])
    local beyond = nanos
    local is_stale = (state[1] or 0) > index + 1
    if is_stale then
      state = {}
    end
    local seen, before, current = state[1] or 0, state[2] or 0, state[3] or 0
    if index < seen then
      -- A clock that stepped back stands still until it has caught up.
      index, gone, beyond = seen, 0, 0
    elseif index == seen + 1 then
      before, current = current, 0
    elseif index > seen then
      before, current = 0, 0
    end
    t.index, t.before, t.current, t.gone = index, before, current, gone
    local room = t[1] - t.cost - current
    if room < 0 then
      return false, state, is_stale
    end
    -- before · sight ≤ room · window, where what is in sight lacks the nanoseconds beyond.
    local left, left_low = product(before, t[2] - gone)
    local right, right_low = product(room, t[2])
    local carry, low = divide(right_low + divide(before * beyond, 1000), 4503599627370496)
    return not exceeds(left, left_low, right + carry, low), state, is_stale
  end,
  charge = function(key, t)
    write(key, { t.index, t.before, t.current + t.cost }, 2 * t[2] - t.gone)
  end,
}

-- sliding_window. The state is the latest bucket's number, then what is in it and in those before.
-- terms: the limit, the window, buckets in it, buckets that count
algorithms.sliding = {
  check = function(key, t)
    local state = read(key)
    local windows, gone = divide(now, t[2])
    local index = windows * t[3] + divide(gone * t[3] + divide(nanos * t[3], 1000), t[2])
    local is_stale = (state[1] or 0) > index + t[3]
    if is_stale then
      state = {}
    end
    t.index = math.max(index, state[1] or 0)
    local shift = t.index - (state[1] or 0)
    local buckets, used = {}, 0
    for at = 1, t[4] - math.min(shift, t[4]) do
      buckets[at + shift] = state[at + 1] or 0
      used = used + (state[at + 1] or 0)
    end
    for at = 1, math.min(shift, t[4]) do
      buckets[at] = 0
    end
    t.buckets = buckets
    return used + t.cost <= t[1], state, is_stale
  end,
  charge = function(key, t)
    local state = { t.index }
    t.buckets[1] = t.buckets[1] + t.cost
    for at = 1, t[4] do
      state[at + 1] = t.buckets[at]
    end
    while state[#state] == 0 do
      state[#state] = nil
    end
    local length = math.ceil(t[2] / t[3])
    write(key, state, length * t[4])
  end,
}

-- concurrency. A sorted set of leases, `id:cost`, each with the microsecond in which it runs out.
-- The member `used` has what they cost together, as a score below zero.
-- terms: the limit
-- Gives back first what has run out, and what has ended at this gateway. The gateway also gives back
-- the latter by a call of its own, which may come later.
algorithms.leases = {
  check = function(key, t)
    local gone = redis.call('ZRANGEBYSCORE', key, 1, digits(now))
    for at = 7, #t.words do
      gone[#gone + 1] = t.words[at]
    end
    for _, lease in ipairs(gone) do
      if redis.call('ZREM', key, lease) == 1 then
        redis.call('ZINCRBY', key, string.match(lease, ':(%d+)$'), 'used')
      end
    end
    local used = -(redis.call('ZSCORE', key, 'used') or 0)
    return used + t.cost <= t[1], { used }
  end,
  charge = function(key, t)
    -- A lease that is there has been charged: `used` moves with the leases alone, so that it cannot
    -- come to differ from their sum.
    if redis.call('ZADD', key, digits(now + t.ttl), t.id .. ':' .. digits(t.cost)) == 1 then
      redis.call('ZINCRBY', key, digits(-t.cost), 'used')
    end
    -- Others' leases may be longer, as while the setting is rolled out.
    if redis.call('PTTL', key) < tonumber(millis(t.ttl)) then
      redis.call('PEXPIRE', key, millis(t.ttl))
    end
  end,
}

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

local answer = { now, nanos, 1 }
local asked = {}
for at, key in ipairs(KEYS) do
  local words = {}
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
