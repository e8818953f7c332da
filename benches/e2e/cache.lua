-- A cache keyed by method and parameters, without expiry, verification or handling of reorgs.
local cjson = require "cjson"
local answers = ngx.shared.answers

-- Returns the text of the result, which is the last member of the reply.
local function cut(reply)
  local at = reply:find('"result":', 1, true)
  local last = #reply
  while last > 0 and reply:byte(last) ~= 125 do
    last = last - 1
  end
  return at and reply:sub(at + 9, last - 1)
end

local function fetch(body)
  local reply = ngx.location.capture("/node", { method = ngx.HTTP_POST, body = body })
  return reply.body
end

local function key(call)
  return call.method .. cjson.encode(call.params)
end

ngx.req.read_body()
local body = ngx.req.get_body_data()
local packet = cjson.decode(body)

local out, length = {}, 0
local function write(piece)
  out[#out + 1] = piece
  length = length + #piece
end

local function answer(call, own)
  local name = key(call)
  local result = answers:get(name)
  if not result then
    local reply = fetch(own or cjson.encode(call))
    result = cut(reply)
    if not result then
      write(reply)
      return
    end
    answers:set(name, result)
  end
  write('{"jsonrpc":"2.0","id":')
  write(cjson.encode(call.id))
  write(',"result":')
  write(result)
  write("}")
end

if packet[1] then
  for at, call in ipairs(packet) do
    write(at == 1 and "[" or ",")
    answer(call)
  end
  write("]")
else
  answer(packet, body)
end
ngx.header["Content-Length"] = length
ngx.print(out)
