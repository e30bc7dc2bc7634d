-- The load for every contender. Arguments:
--   work      create, paced (creates, 22 ms apart on each connection), get, list or mixed
--   ids       sequential or random
--   first     the number of the first plant to create
--   preloaded how many random plants are in the store
--   path      the path of the plants
--   token
--   dialect   plain, or pocketbase, where ids are strings and lists have other parameters
local bit = require("bit")

local work, ids, next_plant, preloaded, path, dialect
local calls = 0

-- Each thread creates plants of its own.
local threads = 0
function setup(thread)
  thread:set("index", threads)
  threads = threads + 1
end

function init(args)
  work, ids = args[1], args[2]
  if work == "paced" then
    delay = function() return 22 end
  end
  next_plant, preloaded = tonumber(args[3]) + index * 100000000, tonumber(args[4])
  path, dialect = args[5], args[7]
  wrk.headers["Authorization"] = "Bearer " .. args[6]
end

-- scatter maps the number of a plant to a random id of 63 bits (splitmix64), like
-- scatter in ids.go.
local function scatter(n)
  local z = (n + 1ULL) * 0x9E3779B97F4A7C15ULL
  z = bit.bxor(z, bit.rshift(z, 30)) * 0xBF58476D1CE4E5B9ULL
  z = bit.bxor(z, bit.rshift(z, 27)) * 0x94D049BB133111EBULL
  z = bit.rshift(bit.bxor(z, bit.rshift(z, 31)), 1)
  local high = tonumber(z / 1000000000ULL)
  if high == 0 then
    return string.format("%d", tonumber(z))
  end
  return string.format("%d%09d", high, tonumber(z % 1000000000ULL))
end

local function create()
  local n = next_plant
  next_plant = n + 1
  local id = ids == "random" and scatter(n) or string.format("%d", n)
  if dialect == "pocketbase" then
    id = '"' .. id .. '"'
  end
  local body = string.format('{"id":%s,"name":"Monstera deliciosa %d","tag":"tropical %d"}', id, n, n % 20)
  return wrk.format("POST", path, { ["Content-Type"] = "application/json", ["Authorization"] = wrk.headers["Authorization"] }, body)
end

-- some returns the id of a plant in the store.
local function some()
  return scatter((calls * 7919) % preloaded)
end

local function get()
  return wrk.format("GET", path .. "/" .. some())
end

local function list()
  if dialect == "pocketbase" then
    return wrk.format("GET", path .. "?perPage=100&skipTotal=1&sort=id&filter=(id%3E'" .. some() .. "')")
  end
  return wrk.format("GET", path .. "?limit=100&after=" .. some())
end

function request()
  calls = calls + 1
  if work == "create" or work == "paced" then
    return create()
  elseif work == "get" then
    return get()
  elseif work == "list" then
    return list()
  elseif calls % 10 == 0 then
    return create()
  elseif calls % 100 == 5 then
    return list()
  end
  return get()
end

function done(summary, latency)
  local e = summary.errors
  print(string.format(
    'RESULT {"requests":%d,"micros":%d,"p50":%d,"p99":%d,"max":%d,"errors":%d}',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), latency.max,
    e.connect + e.read + e.write + e.status + e.timeout))
end
