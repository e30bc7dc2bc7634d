-- Creates plants with sequential ids. The argument keeps rounds apart.
local next_id

function init(args)
  next_id = tonumber(args[1]) * 10000000
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  wrk.headers["Authorization"] = "Bearer " .. args[2]
end

function request()
  next_id = next_id + 1
  local body = string.format('{"id":%d,"name":"Monstera deliciosa","tag":"tropical"}', next_id)
  return wrk.format(nil, "/plants", nil, body)
end
