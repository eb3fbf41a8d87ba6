#!/usr/bin/env bash
# The official inspector's client code, by its two command lines: it declares the tasks extension at `initialize` by
# itself, so what it reads is the answer that carries both a task and a job.
#
#   NODE=… inspector.sh URL        NODE: a Node.js of 22.19 or newer
#
# Its settings and its background process live in a directory of their own, which goes away with them.
set -euo pipefail
URL=$1
INSPECTOR=$(cd "$(dirname "$0")/.." && pwd)/node_modules/@modelcontextprotocol/inspector/clients
export HOME MCP_INSPECTOR_DAEMON_DIR MCP_INSPECTOR_DAEMON_TOKEN MCP_INSPECTOR_SECRET_STORE=file
HOME=$(mktemp -d)
MCP_INSPECTOR_DAEMON_DIR=$HOME/daemon
MCP_INSPECTOR_DAEMON_TOKEN=$(od -An -tx1 -N16 /dev/urandom | tr -d ' \n')
mkdir -m 700 "$MCP_INSPECTOR_DAEMON_DIR"

once() { timeout 20 "$NODE" "$INSPECTOR/launcher/build/index.js" --cli "$URL" --transport http --format json -q "$@"; }
kept() { timeout 20 "$NODE" "$INSPECTOR/mcpdo/build/mcp-bin.js" --format json "$@"; }
trap 'kept daemon stop >/dev/null 2>&1 || true; rm -rf "$HOME"' EXIT

# json EXPRESSION: evaluates it over standard input, parsed as `a`; `text(n)` is the nth text block.
json() {
  python3 -c '
import json, sys
a = json.load(sys.stdin)
a = a.get("result", a)
text = lambda n: a["content"][n]["text"]
shown = eval(sys.argv[1])
print(shown)
sys.exit(0 if shown else 1)' "$1"
}
fail() { echo "$*"; exit 1; }

once --method tools/list | json '{"slow", "get_job_result"} <= {t["name"] for t in a["tools"]}' >/dev/null ||
  fail "the tools are not listed"
once --method tools/call --tool-name add --tool-arg a=2 b=3 | json 'text(0) == "5"' >/dev/null ||
  fail "a fast call is not answered inline"

TAG=inspector-$$-$RANDOM
kept connect "$URL" --elicit off >/dev/null || fail "mcpdo does not connect"
begun=$(date +%s%N)
handle=$(kept --connection "$URL" tools/call slow --tool-args-json "{\"seconds\":3,\"tag\":\"$TAG\"}") ||
  fail "the handle is not read: $handle"
took=$((($(date +%s%N) - begun) / 1000000))
[ "$took" -lt 2600 ] || fail "the handle took $took ms: $handle"
task=$(json 'a["status"] == "working" and a["taskId"]' <<<"$handle") || fail "the answer is no task: $handle"
job=$(json 'json.loads(text(0))["job_id"]' <<<"$handle") || fail "the answer names no job: $handle"
[ "$task" = "$job" ] || fail "task and job differ: $handle"
for _ in $(seq 20); do
  result=$(kept --connection "$URL" tools/call get_job_result --tool-args-json "{\"job_id\":\"$job\"}") ||
    fail "the result is not read: $result"
  json 'json.loads(text(0))["status"] == "running"' <<<"$result" >/dev/null || break
done
json "text(-1) == 'slow done for $TAG'" <<<"$result" >/dev/null || fail "the result is wrong: $result"
seen=$(kept --connection "$URL" tools/call calls --tool-args-json "{\"tag\":\"$TAG\"}" | json 'text(0)')
[ "$seen" = 1 ] || fail "the server saw $seen calls"
echo "handle read (the whole command took $took ms)"
