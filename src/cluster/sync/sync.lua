-- Merges what a gateway has charged into the states of all, once however often it is called, and
-- returns the states that have changed.
--
-- KEYS[1]   the rule's name, under which lies the state of all; another's lies under this name,
--           a colon, and whose it is
-- KEYS[2]   whose states have changed, each with its version: when, in microseconds, but for no
--           two the same
-- KEYS[3]   the number of this gateway's last call that was merged
-- ARGV[1]   the time, as microseconds and nanoseconds beyond; empty: the store's own clock
-- ARGV[2]   the algorithm, and its own numbers
-- ARGV[3]   the number of the call, the latest version that the gateway knows, the most states
--           in the answer, and how late a delta may arrive, in microseconds. The number 0 is of a
--           call that changes nothing when it is repeated
-- ARGV[4…]  what it has charged: whose state, `-` for that of all, and the numbers of the delta; then,
--           behind `/`, those of what it has given back, if anything. Without numbers: the state is
--           reset
--
-- Returns { microseconds, nanoseconds, the latest version in this answer, 1 if there are more and 2 more if
-- the clock was set back by more than a window, then whose state and how that is written for each }.
--
-- A state or a delta that is further ahead than a window is stale, as in decide.lua: it is dropped.

local number, known, most, late = string.match(ARGV[3], '(%d+) (%d+) (%d+) (%d+)')
number, known, late = tonumber(number), tonumber(known), tonumber(late)

local algorithm, terms = string.match(ARGV[2], '(%S+)(.*)')
terms = numbers(terms)

-- How far ahead of the clock that wrote it a state may be, in microseconds. Gateways may let too much
-- pass, so that a bucket's TAT may be further ahead: its state says when it was written.
local window = algorithm == 'bucket' and terms[2] or terms[1]

-- By the word of an algorithm: returns the state that comes of a state and a delta, and for how many
-- microseconds it decides anything; nothing if it never does, or is the state.
local merge = {}

-- Returns the TAT of a bucket's state, in one of this call's size.
local function tat_of(state, t)
  local from, from_parts = state[3] or t[2], state[4] or t[3]
  local at_parts = nanos * t[1] / 1000
  return resize(state[1], state[2], from, from_parts, t[2], t[3], at_parts, t[1])
end

-- By the word of an algorithm: returns the state without what a gateway has given back, and for how long
-- it decides anything; nothing if that state has none of it. It comes after the merge with its delta.
local give_back = {}

-- Returns a cost that was charged to a bucket of the delta's size, in one of this call's size: resized
-- as what is missing now.
local function resized(cost, cost_parts, t, delta)
  if delta[5] == t[2] and delta[6] == t[3] then
    return cost, cost_parts
  end
  local m, at_parts = t[1], nanos * t[1] / 1000
  local missing, parts = add(now, at_parts, cost, cost_parts, m)
  missing = resize(missing, parts, delta[5], delta[6], t[2], t[3], at_parts, m)
  return missing - now, 0
end

-- Returns the TAT of a bucket that was full before a delta. It lacks no more than was charged, unless a
-- clock was ahead.
local function full_of(t, delta)
  local cost, cost_parts = resized(delta[1], delta[2], t, delta)
  local full, full_parts = tat_of({ delta[3], delta[4], delta[5], delta[6] }, t)
  local most, most_parts = add(now, nanos * t[1] / 1000, cost, cost_parts, t[1])
  if exceeds(full, full_parts, most, most_parts) then
    return most, most_parts
  end
  return full, full_parts
end

-- token_bucket and leaky_bucket. The state is TAT, the bucket's size and the microsecond in which it
-- was written.
-- t: m, capacity as a pair; delta: what the cost comes to, the TAT of a bucket that was full, and the
-- capacity when they arrived, each a pair
merge.bucket = function(state, t, delta)
  local m, at_parts = t[1], nanos * t[1] / 1000
  local tat, tat_parts = 0, 0
  if #state > 0 and (state[5] or 0) <= now + window then
    tat, tat_parts = tat_of(state, t)
  end
  local cost, cost_parts = resized(delta[1], delta[2], t, delta)
  local after, parts = add(tat, tat_parts, cost, cost_parts, m)
  local full, full_parts = full_of(t, delta)
  if exceeds(full, full_parts, after, parts) then
    after, parts = full, full_parts
  end
  -- As long as can be added to an instant, whatever comes on top.
  after = math.min(after, now + 4503599627370496)
  -- It drained while others charged what has not arrived yet.
  return { after, parts, t[2], t[3], now }, after - now + late
end

-- given: what the cost comes to, a pair
give_back.bucket = function(state, t, given, delta)
  local cost, cost_parts = resized(given[1], given[2], t, delta)
  local tat, tat_parts = state[1] - cost, state[2] - cost_parts
  if tat_parts < 0 then
    tat, tat_parts = tat - 1, tat_parts + t[1]
  end
  local full, full_parts = full_of(t, delta)
  if exceeds(full, full_parts, tat, tat_parts) then
    tat, tat_parts = full, full_parts
  end
  -- Also a state that decides nothing any more replaces the one before it, which may still reject.
  return { math.max(tat, 0), tat_parts, t[2], t[3], now }, math.max(tat - now, 0) + late
end

-- fixed_window. The state is when the window ends, as a pair, and what is used in it. While it has
-- not ended, that of the delta is the same if it has not ended either: then a gateway's clock is ahead.
-- t: the window, 1 if it begins with its first request; delta: a state
merge.fixed = function(state, t, delta)
  if delta[1] > now + 2 * window or delta[3] == 0 then
    return
  end
  if #state == 3 and (state[1] > now + 2 * window or state[3] == 0) then
    state = {}
  end
  local finish, finish_nanos, used = delta[1], delta[2], delta[3]
  if #state == 3 and exceeds(state[1], state[2], now, nanos) then
    local overlaps = t[2] == 1 and math.abs(state[1] - finish) < t[1]
    if not overlaps and not exceeds(finish, finish_nanos, now, nanos) then
      return
    end
    finish, finish_nanos, used = state[1], state[2], state[3] + used
  end
  return { finish, finish_nanos, used }, finish - now + 1
end

-- given: a state
give_back.fixed = function(state, t, given)
  local is_same = state[1] == given[1] and state[2] == given[2]
  local overlaps = t[2] == 1 and math.abs(state[1] - given[1]) < t[1]
  if is_same or overlaps then
    return { state[1], state[2], math.max(state[3] - given[3], 0) }, state[1] - now + 1
  end
end

-- sliding_counter. The state is the latest window's number, what the one before had, and what it has.
-- t: the window; delta: a state
merge.counter = function(state, t, delta)
  local latest_index = math.floor(now / window) + 1
  if delta[1] > latest_index then
    return
  end
  if (state[1] or 0) > latest_index then
    state = {}
  end
  local index = math.max(state[1] or 0, delta[1])
  local before, current = 0, 0
  for _, it in ipairs({ state, delta }) do
    if it[1] == index then
      before, current = before + it[2], current + it[3]
    elseif it[1] == index - 1 then
      before = before + it[3]
    end
  end
  return { index, before, current }, (index + 2) * t[1] - now
end

-- given: a state
give_back.counter = function(state, t, given)
  local before, current = state[2], state[3]
  if given[1] == state[1] then
    before, current = before - given[2], current - given[3]
  elseif given[1] + 1 == state[1] then
    before = before - given[3]
  else
    return
  end
  return { state[1], math.max(before, 0), math.max(current, 0) }, (state[1] + 2) * t[1] - now
end

-- sliding_window. The state is the latest bucket's number, then what is in it and in those before.
-- t: the window, buckets in it, buckets that count; delta: a state
merge.sliding = function(state, t, delta)
  local latest_head = (math.floor(now / window) + 2) * t[2] - 1
  if delta[1] > latest_head then
    return
  end
  if (state[1] or 0) > latest_head then
    state = {}
  end
  local head = math.max(state[1] or 0, delta[1])
  local merged = { head }
  for at = 1, t[3] do
    merged[at + 1] = 0
  end
  for _, it in ipairs({ state, delta }) do
    for at = 2, #it do
      local to = at + head - it[1]
      if to <= t[3] + 1 then
        merged[to] = merged[to] + it[at]
      end
    end
  end
  while merged[#merged] == 0 do
    merged[#merged] = nil
  end
  return merged, (head + t[3] + 1) * math.ceil(t[1] / t[2]) - now
end

-- given: a state
give_back.sliding = function(state, t, given)
  for at = 2, #given do
    local to = at + state[1] - given[1]
    if to >= 2 and to <= #state then
      state[to] = math.max(state[to] - given[at], 0)
    end
  end
  while #state > 1 and state[#state] == 0 do
    state[#state] = nil
  end
  return state, (state[1] + t[3] + 1) * math.ceil(t[1] / t[2]) - now
end

-- By the word of an algorithm: returns a state with nothing used.
local unused = {}

unused.bucket = function(t)
  return { now, 0, t[2], t[3], now }
end

unused.fixed = function()
  return { now, 0, 0 }
end

unused.counter = function()
  return { math.floor(now / window), 0, 0 }
end

unused.sliding = function(t)
  return { math.floor(now / window) * t[2] }
end

-- Returns the state after an operator's reset, and for how long gateways must learn it: until no
-- gateway's state from before decides anything.
local function reset()
  return unused[algorithm](terms), 3 * window + late
end

local function key_of(whose)
  return whose == '-' and KEYS[1] or KEYS[1] .. ':' .. whose
end

-- Reads the states of several, as they are written: false where there is none.
local function read_all(whose)
  local keys = {}
  for at, it in ipairs(whose) do
    keys[at] = key_of(it)
  end
  return #keys > 0 and redis.call('MGET', unpack(keys)) or {}
end

local latest = tonumber(redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or 0)
-- Then no gateway gets the list again: gateways drop what they counted by that clock, too.
local is_set_back = latest > now + window
if is_set_back then
  redis.call('DEL', KEYS[2])
  latest = 0
end

-- Takes these from the list.
local function forget(whose)
  if #whose > 0 then
    redis.call('ZREM', KEYS[2], unpack(whose))
  end
end

-- Takes those that have expired from the list, and returns how many they were.
local function forget_expired(whose)
  local expired = {}
  for _, it in ipairs(whose) do
    if redis.call('EXISTS', key_of(it)) == 0 then
      expired[#expired + 1] = it
    end
  end
  forget(expired)
  return #expired
end

-- Returns the state that comes of a state, a delta and what was given back, and for how long it decides
-- anything; nothing if it is the state.
local function merge_one(state, delta, given)
  -- A window of which all was given back is followed by the one that the next request began.
  local gives_first = algorithm == 'fixed' and (given[1] ~= delta[1] or given[2] ~= delta[2])
  local merged, ttl
  if gives_first and #given > 0 and #state > 0 then
    merged, ttl = give_back[algorithm](state, terms, given, delta)
  end
  local after, after_ttl = merge[algorithm](merged or state, terms, delta)
  if after then
    merged, ttl = after, after_ttl
  end
  if not gives_first and #given > 0 and #(merged or state) > 0 then
    after, after_ttl = give_back[algorithm](merged or state, terms, given, delta)
    if after then
      merged, ttl = after, after_ttl
    end
  end
  return merged, ttl
end

-- Merges all deltas.
local function merge_all()
  local whose, deltas, given, changed, longest = {}, {}, {}, {}, 0
  for at = 4, #ARGV do
    local name, delta, less = string.match(ARGV[at], '(%S+)([^/]*)(.*)')
    whose[#whose + 1], deltas[#deltas + 1], given[#given + 1] = name, numbers(delta), numbers(less)
  end
  for at, state in ipairs(read_all(whose)) do
    local merged, ttl
    if #deltas[at] == 0 then
      merged, ttl = reset()
    else
      merged, ttl = merge_one(numbers(state or ''), deltas[at], given[at])
    end
    if merged and ttl > 0 then
      write(key_of(whose[at]), merged, ttl)
      latest = math.max(now, latest + 1)
      changed[#changed + 1] = digits(latest)
      changed[#changed + 1] = whose[at]
      longest = math.max(longest, ttl)
    end
  end
  if #changed > 0 then
    redis.call('ZADD', KEYS[2], unpack(changed))
  end
  -- One more than are added go: first of those that have not changed for as long as these last.
  -- Others may last longer, or less long: where too few of them go, of twice as many from anywhere.
  local most = #whose + 1
  local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', digits(now - longest), 'LIMIT', 0, most)
  local rest = most - forget_expired(old)
  if rest > 0 then
    local from = now % math.max(redis.call('ZCARD', KEYS[2]), 1)
    forget_expired(redis.call('ZRANGE', KEYS[2], from, from + 2 * rest - 1))
  end
  if redis.call('PTTL', KEYS[2]) < longest / 1000 + 1 then
    redis.call('PEXPIRE', KEYS[2], millis(longest))
  end
  -- A day, after which no gateway repeats a call.
  if number > 0 then
    redis.call('SET', KEYS[3], digits(number), 'PX', '86400000')
  end
end

if #ARGV > 3 and (number == 0 or number > tonumber(redis.call('GET', KEYS[3]) or 0)) then
  merge_all()
end

-- A store that forgot its states begins again.
if known > math.max(latest, now) then
  known = 0
end
local moved = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. digits(known), '+inf', 'WITHSCORES', 'LIMIT', 0, most)
local flags = (#moved == 2 * most and 1 or 0) + (is_set_back and 2 or 0)
local answer = { now, nanos, known, flags }
local whose = {}
for at = 1, #moved, 2 do
  whose[#whose + 1] = moved[at]
  answer[3] = tonumber(moved[at + 1])
end
-- Returns a bucket's state as a gateway takes it: TAT in a bucket of this call's size.
local function bucket_state(name, state)
  state = numbers(state)
  local tat, tat_parts = tat_of(state, terms)
  if state[3] ~= terms[2] or state[4] ~= terms[3] then
    write(key_of(name), { tat, tat_parts, terms[2], terms[3], now }, tat - now + late)
  end
  return digits(tat) .. ' ' .. digits(tat_parts)
end

-- Whoever comes next need not read what has expired.
local expired = {}
for at, state in ipairs(read_all(whose)) do
  if state then
    answer[#answer + 1] = whose[at]
    answer[#answer + 1] = algorithm == 'bucket' and bucket_state(whose[at], state) or state
  else
    expired[#expired + 1] = whose[at]
  end
end
forget(expired)
return answer
