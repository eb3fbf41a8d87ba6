-- The bench's upstream: answers every tools/call with the same 1 KiB result under the caller's id.
-- Fixed work per request, so that what differs between two runs is what stands in front of it.

local TEXT = string.rep("0123456789abcdef", 56)
local CALLED = '{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"' .. TEXT .. '"}],"isError":false}}'
local HELLO = '{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},'
  .. '"serverInfo":{"name":"bench","version":"1"}}}'
local LISTED = '{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"work","inputSchema":{"type":"object"}}]}}'

local M = {}

function M.answer()
  ngx.req.read_body()
  local body = ngx.req.get_body_data() or ""
  local id = string.match(body, '"id":([^,}]+)')
  if not id then
    ngx.status = 202
    return ngx.exit(202)
  end
  local shape = CALLED
  if string.find(body, '"initialize"', 1, true) then
    shape = HELLO
    ngx.header["Mcp-Session-Id"] = ngx.var.request_id
  elseif string.find(body, '"tools/list"', 1, true) then
    shape = LISTED
  end
  local answer = string.format(shape, id)
  ngx.header["Content-Length"] = #answer
  ngx.print(answer)
end

return M
