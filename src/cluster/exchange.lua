-- Merges what a gateway has charged into the states of all, once however often it is called, and
-- tells which states have changed.
--
-- KEYS[1]   the rule's name, under which lies the state of all; another's lies under this name,
--           a colon, and whose it is
-- KEYS[2]   whose states have changed, each with its version: when, in microseconds, but for no
--           two the same
-- KEYS[3]   the number of this gateway's last call that was merged
-- ARGV[1]   the time, as microseconds and nanoseconds beyond; empty: the store's own clock
-- ARGV[2]   the algorithm, and its own numbers
-- ARGV[3]   the number of the call, the latest version that the gateway knows, the most states
--           that it is told, and how late a delta may be told, in microseconds
-- ARGV[4…]  what it has charged: whose state, `-` for that of all, and the numbers of the delta
--
-- Returns { microseconds, nanoseconds, the latest version told, 1 if there are more, then whose
-- state and its numbers for each }.

local number, known, most, late = string.match(ARGV[3], '(%d+) (%d+) (%d+) (%d+)')
number, known, late = tonumber(number), tonumber(known), tonumber(late)

-- By the word of an algorithm: merges a delta into the state under `key`, and returns for how many
-- microseconds that decides anything; nothing if it never does.
local merge = {}

-- token_bucket and leaky_bucket. The state is when the bucket will be full again: TAT.
-- t: m; delta: what the cost comes to, and the TAT of a bucket that was full, each a pair
merge.bucket = function(key, t, delta)
  local state = read(key)
  local after, parts = add(state[1] or 0, state[2] or 0, delta[1], delta[2], t[1])
  if exceeds(delta[3], delta[4], after, parts) then
    after, parts = delta[3], delta[4]
  end
  -- As long as can be added to an instant, whatever comes on top.
  after = math.min(after, now + 4503599627370496)
  -- It drained while others charged what they have not told yet.
  local ttl = after - now + late
  if ttl > 0 then
    write(key, { after, parts }, ttl)
    return ttl
  end
end

-- fixed_window. The state is when the window ends, as a pair, and what is used in it.
-- t: the window, 1 if it begins with its first request; delta: a state
merge.fixed = function(key, t, delta)
  local state = read(key)
  local finish, finish_nanos, used = delta[1], delta[2], delta[3]
  if #state == 3 and exceeds(state[1], state[2], now, nanos) then
    local is_same = state[1] == finish and state[2] == finish_nanos
    if is_same or (t[2] == 1 and math.abs(state[1] - finish) < t[1]) then
      finish, finish_nanos, used = state[1], state[2], state[3] + used
    elseif exceeds(state[1], state[2], finish, finish_nanos) then
      return
    end
  end
  if exceeds(finish, finish_nanos, now, nanos) then
    write(key, { finish, finish_nanos, used }, finish - now + 1)
    return finish - now + 1
  end
end

-- sliding_counter. The state is the latest window's number, what the one before had, and what it has.
-- t: the window; delta: a state
merge.counter = function(key, t, delta)
  local state = read(key)
  local index = math.max(state[1] or 0, delta[1])
  local before, current = 0, 0
  for _, it in ipairs({ state, delta }) do
    if it[1] == index then
      before, current = before + it[2], current + it[3]
    elseif it[1] == index - 1 then
      before = before + it[3]
    end
  end
  local ttl = (index + 2) * t[1] - now
  if ttl > 0 then
    write(key, { index, before, current }, ttl)
    return ttl
  end
end

-- sliding_window. The state is the latest bucket's number, then what is in it and in those before.
-- t: the window, buckets in it, buckets that count; delta: a state
merge.sliding = function(key, t, delta)
  local state = read(key)
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
  local length = math.ceil(t[1] / t[2])
  local ttl = (head + t[3] + 1) * length - now
  if ttl > 0 then
    write(key, merged, ttl)
    return ttl
  end
end

local function key_of(whose)
  return whose == '-' and KEYS[1] or KEYS[1] .. ':' .. whose
end

-- Returns the words of a line, those from the second on as numbers.
local function words(line)
  local first, rest = string.match(line, '(%S+)(.*)')
  local numbers = {}
  for word in string.gmatch(rest, '%d+') do
    numbers[#numbers + 1] = tonumber(word)
  end
  return first, numbers
end

local algorithm, terms = words(ARGV[2])
local latest = tonumber(redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or 0)

if #ARGV > 3 and number > tonumber(redis.call('GET', KEYS[3]) or 0) then
  local longest = 0
  for at = 4, #ARGV do
    local whose, delta = words(ARGV[at])
    local ttl = merge[algorithm](key_of(whose), terms, delta)
    if ttl then
      latest = math.max(now, latest + 1)
      redis.call('ZADD', KEYS[2], digits(latest), whose)
      longest = math.max(longest, ttl)
    end
  end
  -- No more may be added than is removed of what has expired.
  for _, whose in ipairs(redis.call('ZRANGE', KEYS[2], 0, #ARGV - 3)) do
    if redis.call('EXISTS', key_of(whose)) == 0 then
      redis.call('ZREM', KEYS[2], whose)
    end
  end
  if redis.call('PTTL', KEYS[2]) < longest / 1000 + 1 then
    redis.call('PEXPIRE', KEYS[2], millis(longest))
  end
  -- A day, after which nobody repeats a call.
  redis.call('SET', KEYS[3], digits(number), 'PX', '86400000')
end

-- A store that forgot what it told begins again.
if known > math.max(latest, now) then
  known = 0
end
local moved = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. digits(known), '+inf', 'WITHSCORES', 'LIMIT', 0, most)
local answer = { now, nanos, known, #moved == 2 * most and 1 or 0 }
for at = 1, #moved, 2 do
  local state = read(key_of(moved[at]))
  if #state > 0 then
    answer[#answer + 1] = { moved[at], unpack(state) }
  end
  answer[3] = tonumber(moved[at + 1])
end
return answer
