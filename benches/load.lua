-- wrk's script: 1 KiB tools/call POSTs, and one line of figures at the end that a shell can read.
-- SESSIONS names a file with one session id a line: then thread N calls with the Nth (one connection a thread).

local ARGUMENT = string.rep("fedcba9876543210", 57)
local BODY = '{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"work","arguments":{"data":"' .. ARGUMENT .. '"}}}'
local IDS = 256

local threads = 0

function setup(thread)
  thread:set("number", threads)
  threads = threads + 1
end

function init()
  local headers = {
    ["Content-Type"] = "application/json",
    ["Accept"] = "application/json, text/event-stream",
    ["MCP-Protocol-Version"] = "2025-06-18",
  }
  local file = os.getenv("SESSIONS")
  if file and file ~= "" then
    local line = 0
    for session in io.lines(file) do
      if line == number then headers["Mcp-Session-Id"] = session end
      line = line + 1
    end
  end
  prepared = {}
  for i = 0, IDS - 1 do
    prepared[i] = wrk.format("POST", nil, headers, string.format(BODY, number * IDS + i))
  end
  following = 0
end

function request()
  following = (following + 1) % IDS
  return prepared[following]
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format("RESULT %d %d %d %d %d\n", summary.requests, summary.duration,
    e.connect + e.read + e.write + e.timeout + e.status, latency:percentile(50), latency:percentile(99)))
end
