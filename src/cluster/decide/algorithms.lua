-- The algorithms of shared rules, for the scripts that come behind this text.
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

-- The most that a count may become: the halves of a product are exact below it.
local most_used = 4503599627370495

-- Returns a count with a cost, which may be settled and exceed the limit.
local function plus(used, cost)
  return math.min(used + cost, most_used)
end

-- Returns a count without a part that is given back.
local function minus(used, cost)
  return math.max(used - cost, 0)
end

-- By the word of an algorithm: `check` returns whether the request passes, the state before it and
-- whether that was stale, and charges nothing; `charge` charges the request, whether it passes or
-- not. `give_back` takes a part of an earlier charge, made at `t.at`, from the window or the bucket
-- that was charged, if that still counts.
local algorithms = {}

-- Whether a bucket's state is stale. One with a debt may be further ahead than two sizes, and says when it
-- was written.
local function is_stale_bucket(state, size)
  if state[5] then
    return state[5] > now + size
  end
  return (state[1] or 0) > now + 2 * size + 1
end

-- Writes a bucket's state. Only one with a debt is further ahead than its size.
local function write_bucket(key, tat, tat_parts, size, size_parts)
  local state = { tat, tat_parts, size, size_parts }
  if tat > now + size then
    state[5] = now
  end
  write(key, state, math.max(tat - now + 1, 1))
end

-- token_bucket and leaky_bucket. The state is TAT and the bucket's size; with a debt also the microsecond
-- in which it was written.
-- terms: m, parts of a nanosecond, capacity, cost, each as a pair
algorithms.bucket = {
  check = function(key, t)
    local state = read(key)
    local at, at_parts = now, nanos * t[2]
    local tat, tat_parts = state[1] or 0, state[2] or 0
    local size, size_parts = state[3] or t[3], state[4] or t[4]
    local is_stale = is_stale_bucket(state, size)
    if #state == 0 or is_stale then
      state, tat, tat_parts = {}, 0, 0
    else
      tat, tat_parts = resize(tat, tat_parts, size, size_parts, t[3], t[4], at_parts, t[1])
      state = { tat, tat_parts }
      if size ~= t[3] or size_parts ~= t[4] then
        write_bucket(key, tat, tat_parts, t[3], t[4])
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
    write_bucket(key, t.after, t.after_parts, t[3], t[4])
  end,
  -- An excess keeps the size of the state, which the first request of another size changes.
  excess = function(key, t)
    local state = read(key)
    if #state > 2 and not is_stale_bucket(state, state[3]) then
      t[3], t[4] = state[3], state[4]
    end
    algorithms.bucket.check(key, t)
    -- As long as can be added to an instant.
    t.after = math.min(t.after, now + 4503599627370496)
    algorithms.bucket.charge(key, t)
  end,
  give_back = function(key, t)
    local state = read(key)
    local size, size_parts = state[3] or t[3], state[4] or t[4]
    if #state == 0 or is_stale_bucket(state, size) then
      return
    end
    local cost, cost_parts = t[5], t[6]
    if size ~= t[3] or size_parts ~= t[4] then
      -- The same share of the size, to the microsecond.
      local share = (cost + cost_parts / t[1]) / (t[3] + t[4] / t[1])
      cost, cost_parts = math.floor(share * (size + size_parts / t[1])), 0
    end
    local tat, tat_parts = state[1] - cost, state[2] - cost_parts
    if tat_parts < 0 then
      tat, tat_parts = tat - 1, tat_parts + t[1]
    end
    if exceeds(tat, tat_parts, now, nanos * t[2]) then
      write_bucket(key, tat, tat_parts, size, size_parts)
    else
      redis.call('DEL', key)
    end
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
-- calendar, when this one ends and the next one does; to give back, also when that of the charge ends
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
    write(key, { finish, finish_nanos, plus(used, t.cost) }, finish - now + 1)
  end,
  give_back = function(key, t)
    local state = read(key)
    local is_stale = #state == 3 and state[1] > now + 2 * t[2] + 1
    if #state < 3 or is_stale or not exceeds(state[1], state[2], now, nanos) then
      return
    end
    local finish, finish_nanos, used = state[1], state[2], state[3]
    local is_charged
    if t[6] then
      is_charged = finish == t[6]
    else
      is_charged = not exceeds(finish - t[2], finish_nanos, t.at, t.at_nanos)
        and exceeds(finish, finish_nanos, t.at, t.at_nanos)
    end
    if is_charged then
      write(key, { finish, finish_nanos, minus(used, t.cost) }, finish - now + 1)
    end
  end,
}

-- sliding_counter. The state is the latest window's number, what the one before had, and what it has.
-- terms: the limit, the window
-- Returns a counter's state at this time: the window's number, what the one before had and what it has,
-- the microseconds and nanoseconds that are gone of it, the state as it was read, and whether that was stale.
local function counter_state(key, window)
  local state = read(key)
  local index, gone = divide(now, window)
  local beyond = nanos
  local is_stale = (state[1] or 0) > index + 1
  if is_stale then
    state = {}
  end
  local it = { index = index, gone = gone, beyond = beyond, state = state, is_stale = is_stale }
  local seen = state[1] or 0
  it.before, it.current = state[2] or 0, state[3] or 0
  if index < seen then
    -- A clock that stepped back stands still until it has caught up.
    it.index, it.gone, it.beyond = seen, 0, 0
  elseif index == seen + 1 then
    it.before, it.current = it.current, 0
  elseif index > seen then
    it.before, it.current = 0, 0
  end
  return it
end

algorithms.counter = {
  check = function(key, t)
    local it = counter_state(key, t[2])
    t.index, t.before, t.current, t.gone = it.index, it.before, it.current, it.gone
    local room = t[1] - t.cost - it.current
    if room < 0 then
      return false, it.state, it.is_stale
    end
    -- before · sight ≤ room · window, where what is in sight lacks the nanoseconds beyond.
    local left, left_low = product(it.before, t[2] - it.gone)
    local right, right_low = product(room, t[2])
    local carry, low = divide(right_low + divide(it.before * it.beyond, 1000), 4503599627370496)
    return not exceeds(left, left_low, right + carry, low), it.state, it.is_stale
  end,
  charge = function(key, t)
    write(key, { t.index, t.before, plus(t.current, t.cost) }, 2 * t[2] - t.gone)
  end,
  give_back = function(key, t)
    local it = counter_state(key, t[2])
    local charged = divide(t.at, t[2])
    if charged == it.index then
      it.current = minus(it.current, t.cost)
    elseif charged + 1 == it.index then
      it.before = minus(it.before, t.cost)
    else
      return
    end
    if #it.state > 0 then
      write(key, { it.index, it.before, it.current }, 2 * t[2] - it.gone)
    end
  end,
}

-- sliding_window. The state is the latest bucket's number, then what is in it and in those before.
-- terms: the limit, the window, buckets in it, buckets that count

-- Returns the number of the bucket of an instant.
local function bucket_of(micros, rest, t)
  local windows, gone = divide(micros, t[2])
  return windows * t[3] + divide(gone * t[3] + divide(rest * t[3], 1000), t[2])
end

-- Writes the state of a sliding window without buckets at its end that have nothing.
local function write_sliding(key, state, t)
  while #state > 1 and state[#state] == 0 do
    state[#state] = nil
  end
  write(key, state, math.ceil(t[2] / t[3]) * t[4])
end

algorithms.sliding = {
  check = function(key, t)
    local state = read(key)
    local index = bucket_of(now, nanos, t)
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
    t.buckets[1] = plus(t.buckets[1], t.cost)
    for at = 1, t[4] do
      state[at + 1] = t.buckets[at]
    end
    write_sliding(key, state, t)
  end,
  give_back = function(key, t)
    local state = read(key)
    if (state[1] or 0) > bucket_of(now, nanos, t) + t[3] then
      return
    end
    local at = (state[1] or 0) - bucket_of(t.at, t.at_nanos, t) + 2
    if at >= 2 and at <= t[4] + 1 and state[at] then
      state[at] = minus(state[at], t.cost)
      write_sliding(key, state, t)
    end
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

