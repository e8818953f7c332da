-- Load for wrk. Arguments: mode, seed, header line or "-", file of bodies, second file of bodies or nothing.
--
-- A line of a file is a body; each "@" in it is a placeholder for the id, which differs in every request.
-- Modes: "same" (always the first body with one id), "random", "cycle" (in order, so that a small LRU
-- cache always misses), "mix" (nine random bodies of the first file, then the next one of the second).

local head, bodies, others, id
local mode, at, other = "random", 0, 0

local function read(path)
  local all = {}
  for line in io.lines(path) do
    local pieces, from = {}, 1
    while true do
      local found = line:find("@", from, true)
      pieces[#pieces + 1] = line:sub(from, (found or 0) - 1)
      if not found then break end
      from = found + 1
    end
    all[#all + 1] = pieces
  end
  return all
end

local function packed(pieces)
  id = id + 1
  local own = tostring(id)
  local body = #pieces == 2 and pieces[1] .. own .. pieces[2] or table.concat(pieces, own)
  return head .. #body .. "\r\n\r\n" .. body
end

function init(args)
  mode = args[1]
  local seed = tonumber(args[2])
  math.randomseed(seed)
  -- No two runs share an id, and all ids fit into 53 bits and print without an exponent.
  id = seed * 100000000
  local header = args[3] == "-" and "" or args[3] .. "\r\n"
  head = "POST " .. wrk.path .. " HTTP/1.1\r\nHost: " .. wrk.host .. ":" .. wrk.port
    .. "\r\nContent-Type: application/json\r\n" .. header .. "Content-Length: "
  bodies = read(args[4])
  others = args[5] and read(args[5])
  at = math.random(#bodies)
  -- Starts at a random place, so that few bodies are still cached from the last run.
  other = others and math.random(#others) or 0
  if mode == "same" then
    id = 0
    local whole = packed(bodies[1])
    request = function() return whole end
  end
end

function request()
  if mode == "random" then return packed(bodies[math.random(#bodies)]) end
  at = at + 1
  if mode == "cycle" then return packed(bodies[at % #bodies + 1]) end
  if at % 10 == 0 then
    other = other + 1
    return packed(others[other % #others + 1])
  end
  return packed(bodies[math.random(#bodies)])
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    'RESULT {"micros":%d,"requests":%d,"bytes":%d,"p50":%d,"p99":%d,"failed":%d}\n',
    summary.duration, summary.requests, summary.bytes, latency:percentile(50), latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
