#!/usr/bin/env bash
# 1,000 concurrent 3 s calls from 1,000 sessions through one taskgate: 1,000 handles, 1,000 right results, and
# no more than 60 MiB of memory above idle.
#
#   benches/memory.sh             1,000 calls
#   benches/memory.sh --quick     50 calls of 1.5 s
#
# CALLS and TASKGATE_BIN may be set. Needs python3 only. Fails when a handle or a result is missing or wrong, when
# the upstream saw a call twice or not at all, or when memory went over the limit.
set -euo pipefail
cd "$(dirname "$0")"
ROOT=$(cd .. && pwd)
. ./common.sh

CALLS=${CALLS:-1000} SECONDS_EACH=3
case ${1:-} in
  '') ;;
  --quick) CALLS=50 SECONDS_EACH=1.5 ;;
  *) die "unknown option $1" ;;
esac

# Two sockets a call in the proxy, and some room.
NEEDED=$((CALLS * 4 + 256))
[ "$(ulimit -n)" = unlimited ] || [ "$(ulimit -n)" -ge "$NEEDED" ] || ulimit -n "$NEEDED" ||
  die "needs $NEEDED open files: raise ulimit -n"
need_taskgate
read -r UPSTREAM GATE ADMIN < <(free_ports 3)

start upstream python3 memory_upstream.py "$UPSTREAM"
wait_port upstream "$UPSTREAM"
start_taskgate "http://127.0.0.1:$UPSTREAM/mcp" "$GATE" "$ADMIN"
GATE_PID=$PID
wait_port taskgate "$GATE"
timeout 120 python3 memory_load.py --port "$GATE" --pid "$GATE_PID" --calls "$CALLS" --seconds "$SECONDS_EACH"
