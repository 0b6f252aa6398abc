-- States and their numbers, for the scripts that come behind this text.
--
-- Every number is a whole one below 2^53, which a double holds exactly: the sender ensures it
-- (src/flow/limiter/stored.rs). An instant is a pair: whole microseconds, and the rest in parts of
-- which `m` make a microsecond; so no interval between two requests is ever rounded.
--
-- ARGV[1] is the time, as microseconds and nanoseconds beyond; empty: the store's own clock.

local now, nanos, ttl_at_least
if ARGV[1] == '' then
  local time = redis.call('TIME')
  now, nanos, ttl_at_least = time[1] * 1000000 + time[2], 0, 0
else
  -- A recorded time does not pass as fast as that by which keys expire.
  local micros, rest = string.match(ARGV[1], '(%d+) (%d+)')
  now, nanos, ttl_at_least = tonumber(micros), tonumber(rest), 3600000000
end

-- Returns a whole number in digits.
local function digits(number)
  return string.format('%.0f', number)
end

-- Returns the whole milliseconds after which what is needed for `ttl` microseconds may go.
local function millis(ttl)
  return digits(math.floor(math.max(ttl, ttl_at_least) / 1000) + 1)
end

-- Returns the whole numbers in a text.
local function numbers(text)
  local all = {}
  for word in string.gmatch(text, '%d+') do
    all[#all + 1] = tonumber(word)
  end
  return all
end

-- Reads the state under `key`: whole numbers, none if there is no state.
local function read(key)
  return numbers(redis.call('GET', key) or '')
end

-- Writes a state that decides as none does after `ttl` microseconds.
local function write(key, state, ttl)
  local words = {}
  for at, number in ipairs(state) do
    words[at] = digits(number)
  end
  redis.call('SET', key, table.concat(words, ' '), 'PX', millis(ttl))
end

-- Adds two pairs.
local function add(a, a_parts, b, b_parts, m)
  local parts = a_parts + b_parts
  if parts >= m then
    return a + b + 1, parts - m
  end
  return a + b, parts
end

-- Whether one pair is more than another.
local function exceeds(a, a_parts, b, b_parts)
  return a > b or (a == b and a_parts > b_parts)
end

-- A bucket's state is when it will be full again (TAT), then how long an empty one takes to fill, its
-- size. Both are pairs. The first call with another size, after an edit of `burst`, resizes the state:
-- from then on it fills as fast as one of that size.

-- Returns the TAT of a bucket of size `to` that lacks the same share as one of size `from` does which
-- is full at `tat`, to the microsecond. `at_parts` are those of now.
local function resize(tat, tat_parts, from, from_parts, to, to_parts, at_parts, m)
  if (from == to and from_parts == to_parts) or exceeds(now, at_parts, tat, tat_parts) then
    return tat, tat_parts
  end
  local missing = tat - now + (tat_parts - at_parts) / m
  local ratio = (to + to_parts / m) / (from + from_parts / m)
  return now + math.floor(missing * ratio), at_parts
end

