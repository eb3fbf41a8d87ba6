#!/usr/bin/env bash
# Servers and clients of the official SDKs with taskgate between them: one line for each combination.
#
#   tests/interop/run.sh                       all of them
#   tests/interop/run.sh --quick               each server, each client and each kind of play once or twice
#   tests/interop/run.sh python-v1 typescript  only combinations whose line has every one of these words
#
# What is played: `job` and `fast` for clients without tasks, `task` for those of the extension, `core` and `stream` for
# those of 2025-11-25, `cancel`, `elicit…` for a question in the middle, `required` for a tool that the server itself
# runs only as a task; `modern…` the same for clients that find out the era by themselves and end in the one of
# 2026-07-28, with the extension, and `modern-job` for those of them that do not know it.
#
# TASKGATE_BIN (default target/release/taskgate) is the binary. setup.sh installs the SDKs; what is missing is skipped
# and said to be. Loopback only, on free ports; ends what it started and nothing else.
set -euo pipefail
shopt -s extglob
cd "$(dirname "$0")"
ROOT=$(cd ../.. && pwd)
PLACE=$ROOT/target/interop
TASKGATE_BIN=${TASKGATE_BIN:-$ROOT/target/release/taskgate}
[ -x "$TASKGATE_BIN" ] || { echo "no binary at $TASKGATE_BIN: cargo build --release, or set TASKGATE_BIN" >&2; exit 2; }
export PYTHONDONTWRITEBYTECODE=1
# What is played stands beside the packages it imports: Node.js looks for them in the folders above a file only.
mkdir -p "$PLACE/played"
cp -R clients servers "$PLACE/played/"
cd "$PLACE/played"
QUICK=
if [ "${1:-}" = --quick ]; then QUICK=1; shift; fi
ONLY=("$@")
LOGS=$(mktemp -d "${TMPDIR:-/tmp}/taskgate-interop.XXXXXX")
. "$ROOT/tests/processes.sh"
PASSED=0 FAILED=0 SKIPPED=0
trap 'end_started; rm -rf "$LOGS"' EXIT
trap 'exit 130' INT TERM

NODE=$(node_new "$PLACE" || true)
export NODE

# Below those that the system hands to whoever asks for any: some servers take seconds to start, and would find theirs
# taken by such a one.
free_ports() {
  python3 -c '
import random, socket
held = []
while len(held) < 3:
    try:
        held.append(socket.create_server(("127.0.0.1", random.randrange(20000, 32000))))
    except OSError:
        pass
print(*(s.getsockname()[1] for s in held))'
}

wait_port() {
  for _ in $(seq 200); do
    (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return 0
    kill -0 "$2" 2>/dev/null || return 1
    sleep 0.1
  done
  return 1
}

# The commands, by the names that the lines show. An empty answer means that it is not installed.
server_command() {
  case $1 in
    python-v1-server) [ -e "$PLACE/python-v1/installed" ] && echo "$PLACE/python-v1/bin/python servers/python_sdk.py $2" ;;
    fastmcp-server) [ -e "$PLACE/fastmcp/installed" ] && echo "$PLACE/fastmcp/bin/python servers/fastmcp_server.py $2" ;;
    typescript-sse-server) [ -e node_modules/.installed ] && echo "node servers/typescript.mjs $2 sse" ;;
    typescript-json-server) [ -e node_modules/.installed ] && echo "node servers/typescript.mjs $2 json" ;;
    typescript-tasks-server) [ -e node_modules/.installed ] && echo "node servers/typescript_tasks.mjs $2" ;;
    typescript-stateless-server) [ -e node_modules/.installed ] && echo "node servers/typescript_stateless.mjs $2" ;;
  esac
}
client_command() {
  case $1 in
    python-v1) [ -e "$PLACE/python-v1/installed" ] && echo "$PLACE/python-v1/bin/python clients/python_v1.py" ;;
    python-v2) [ -e "$PLACE/python-v2/installed" ] && echo "$PLACE/python-v2/bin/python clients/python_v2.py" ;;
    fastmcp) [ -e "$PLACE/fastmcp/installed" ] && echo "$PLACE/fastmcp/bin/python clients/fastmcp_client.py" ;;
    fastmcp-v3) [ -e "$PLACE/fastmcp-v3/installed" ] && echo "$PLACE/fastmcp-v3/bin/python clients/fastmcp_v3_client.py" ;;
    fastmcp-tasks) [ -e "$PLACE/fastmcp-tasks/installed" ] && echo "$PLACE/fastmcp-tasks/bin/python clients/fastmcp_tasks_client.py" ;;
    openai-agents | pydantic-ai) [ -e "$PLACE/agents/installed" ] && echo "$PLACE/agents/bin/python clients/agent_packages.py $1" ;;
    typescript) [ -e node_modules/.installed ] && echo "node clients/typescript.mjs" ;;
    typescript-v2) [ -e node_modules/.installed ] && [ -n "$NODE" ] && echo "$NODE clients/typescript_v2.mjs" ;;
    inspector) [ -e node_modules/.installed ] && [ -n "$NODE" ] && echo "bash clients/inspector.sh" ;;
  esac
}

# wanted SERVER CLIENT KIND
wanted() {
  local word
  if [ -n "$QUICK" ]; then
    case "$*" in
      'python-v1-server typescript '@(core|stream|cancel|elicit*) | 'python-v1-server python-v1 '@(core|elicit)) ;;
      'python-v1-server typescript-v2 elicit' | 'typescript-tasks-server typescript required') ;;
      'python-v1-server typescript-v2 '@(modern|modern-elicit) | 'python-v1-server python-v2 modern-elicit') ;;
      'python-v1-server fastmcp-tasks modern-cancel' | 'python-v1-server '@(openai-agents|pydantic-ai)' job') ;;
      'typescript-stateless-server typescript-v2 modern' | 'typescript-stateless-server openai-agents modern-job') ;;
      'typescript-stateless-server typescript core' | 'typescript-stateless-server python-v1 elicit-job') ;;
      'typescript-stateless-server typescript job') return 1 ;;
      python-v1-server*' task' | *'-server typescript job' | *'-server python-v1 job' | 'fastmcp-server python-v2 fast') ;;
      *) return 1 ;;
    esac
  fi
  for word in "${ONLY[@]}"; do [[ " $* " == *" $word "* ]] || return 1; done
}

line() { printf '%-8s %-23s %-13s %-13s %s\n' "$@"; }

skip() {
  line SKIPPED "$1" "$2" "$3" "($4)"
  SKIPPED=$((SKIPPED + 1))
}

# combination SERVER CLIENT KIND URL
combination() {
  local command out
  wanted "$1" "$2" "$3" || return 0
  command=$(client_command "$2" || true)
  if [ -z "$command" ]; then skip "$1" "$2" "$3" "not installed: setup.sh"; return 0; fi
  # shellcheck disable=SC2086  # the command is words, none of which has spaces of its own
  if out=$(timeout 90 $command "$4" "$3" 2>"$LOGS/client.err"); then
    line ok "$1" "$2" "$3" "$out"
    PASSED=$((PASSED + 1))
  else
    line FAIL "$1" "$2" "$3" "$out"
    tail -n 5 "$LOGS/client.err"
    tail -n 5 "$LOGS/taskgate.log"
    FAILED=$((FAILED + 1))
  fi
}

# What every server gets: jobs, tasks of the extension, tasks of 2025-11-25, and calls too fast for either.
CLIENTS=(
  "typescript job" "python-v1 job" "python-v2 job" "fastmcp job"
  "typescript task" "python-v1 task" "python-v2 task" "fastmcp task" "inspector task"
  "typescript core" "typescript-v2 core" "python-v1 core" "fastmcp-v3 core"
  "python-v2 fast" "fastmcp fast"
)
# What servers get as well that can be asked to stop, and that ask: these need a stream for each call.
LIVELY=(
  "typescript stream" "typescript cancel" "typescript-v2 cancel" "python-v1 cancel" "fastmcp-v3 cancel"
  "typescript elicit" "typescript-v2 elicit" "python-v1 elicit" "fastmcp-v3 elicit"
  "typescript elicit-ext" "python-v1 elicit-ext"
  "typescript elicit-job" "python-v1 elicit-job" "python-v2 elicit-job" "fastmcp elicit-job"
)
# What a server with sessions alone gets from clients of the newest revision: those that have tasks are joined to it,
# those that have none fall back to a session.
JOINED=(
  "typescript-v2 modern" "typescript-v2 modern-cancel" "typescript-v2 modern-elicit"
  "python-v2 modern" "python-v2 modern-cancel" "python-v2 modern-elicit"
  "fastmcp-tasks modern" "fastmcp-tasks modern-cancel" "fastmcp-tasks modern-elicit"
  "openai-agents job" "pydantic-ai job"
)
# What a server gets from them that speaks it itself.
MODERN=(
  "typescript-v2 modern" "python-v2 modern" "fastmcp-tasks modern" "openai-agents modern-job" "pydantic-ai modern-job"
)
# What it gets as well that can be asked to stop, and that asks.
MODERN_LIVELY=(
  "typescript-v2 modern-cancel" "typescript-v2 modern-elicit"
  "python-v2 modern-cancel" "python-v2 modern-elicit" "fastmcp-tasks modern-cancel" "fastmcp-tasks modern-elicit"
)
# What a server gets that speaks tasks itself.
OWN_TASKS=(
  "typescript core" "typescript stream" "typescript cancel" "typescript elicit"
  "typescript-v2 core" "typescript-v2 cancel"
  "python-v1 core" "python-v1 cancel" "python-v1 elicit" "fastmcp-v3 core" "fastmcp-v3 cancel"
  "typescript required" "python-v1 required" "python-v2 required" "fastmcp required"
)

# pairs SERVER: the clients that it gets, each with the kind of play.
pairs() {
  case $1 in
    typescript-tasks-server) printf '%s\n' "${OWN_TASKS[@]}" ;;
    python-v1-server | typescript-sse-server) printf '%s\n' "${CLIENTS[@]}" "${LIVELY[@]}" "${JOINED[@]}" ;;
    typescript-stateless-server) printf '%s\n' "${CLIENTS[@]}" "${LIVELY[@]}" "${MODERN[@]}" "${MODERN_LIVELY[@]}" ;;
    fastmcp-server) printf '%s\n' "${CLIENTS[@]}" "${MODERN[@]}" ;;
    *) printf '%s\n' "${CLIENTS[@]}" ;;
  esac
}

against() {
  local server=$1 upstream gate admin command pair any='' list
  mapfile -t list < <(pairs "$server")
  export SERVER_PROGRESS=yes
  if [ "$server" = typescript-json-server ]; then SERVER_PROGRESS=no; fi
  for pair in "${list[@]}"; do
    # shellcheck disable=SC2086
    wanted "$server" $pair && any=1
  done
  [ -n "$any" ] || return 0
  read -r upstream gate admin < <(free_ports)
  command=$(server_command "$server" "$upstream" || true)
  if [ -z "$command" ]; then skip "$server" - - "not installed: setup.sh"; return 0; fi
  $command >"$LOGS/server.log" 2>&1 &
  STARTED+=("$!")
  if ! wait_port "$upstream" "$!"; then
    line FAIL "$server" - - "does not start"
    tail -n 5 "$LOGS/server.log"
    FAILED=$((FAILED + 1))
    end_started
    return 0
  fi
  "$TASKGATE_BIN" run --upstream "http://127.0.0.1:$upstream/mcp" --listen "127.0.0.1:$gate" \
    --admin-listen "127.0.0.1:$admin" --threshold 1s --store memory >"$LOGS/taskgate.log" 2>&1 &
  STARTED+=("$!")
  if wait_port "$gate" "$!"; then
    # shellcheck disable=SC2086
    for pair in "${list[@]}"; do combination "$server" $pair "http://127.0.0.1:$gate/mcp"; done
  else
    line FAIL "$server" - - "taskgate does not start"
    tail -n 5 "$LOGS/taskgate.log"
    FAILED=$((FAILED + 1))
  fi
  end_started
}

for server in {python-v1,typescript-sse,typescript-json,typescript-tasks,fastmcp,typescript-stateless}-server; do
  against "$server"
done
echo "interop: $PASSED ok, $FAILED failed, $SKIPPED skipped"
[ "$FAILED" = 0 ]
