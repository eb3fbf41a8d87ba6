# shellcheck shell=bash
# What the bench scripts share: free ports, starting and ending what they start, CPU and memory of a process tree.
# Sourced, not run: each script keeps its own options, this file keeps the promise that nothing is left behind.

WORK=$(mktemp -d "${TMPDIR:-/tmp}/taskgate-bench.XXXXXX")
STARTED=()

end_all() {
  local pid
  for pid in "${STARTED[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${STARTED[@]}"; do
    for _ in $(seq 50); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$WORK"
}
trap end_all EXIT
trap 'exit 130' INT TERM

die() { echo "$*" >&2; exit 1; }

# free_ports N: N loopback ports that nobody listens on.
free_ports() {
  python3 - "$1" <<'PY'
import socket, sys
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(int(sys.argv[1]))]
print(*(s.getsockname()[1] for s in held))
PY
}

# start NAME COMMAND…: runs it in the background with its output in $WORK/NAME.log; its pid is in $PID.
start() {
  local name=$1
  shift
  "$@" >"$WORK/$name.log" 2>&1 &
  PID=$!
  STARTED+=("$PID")
}

# start_taskgate UPSTREAM PORT ADMIN_PORT: the binary under test as a user would start it; its pid is in $PID.
start_taskgate() {
  start taskgate "$TASKGATE_BIN" run --upstream "$1" --listen "127.0.0.1:$2" --admin-listen "127.0.0.1:$3" \
    --threshold 1s --store memory
}

# What is measured is what releases and the image are built with; cargo builds it only if something has changed.
need_taskgate() {
  if [ -z "${TASKGATE_BIN:-}" ]; then
    (cd "$ROOT" && cargo build --locked --profile dist --bin taskgate)
    TASKGATE_BIN=$ROOT/target/dist/taskgate
  fi
  [ -x "$TASKGATE_BIN" ] || die "no binary at $TASKGATE_BIN: build one, or set TASKGATE_BIN"
}

# wait_port NAME PORT: until somebody listens there, at most 15 s.
wait_port() {
  for _ in $(seq 150); do
    (exec 3<>"/dev/tcp/127.0.0.1/$2") 2>/dev/null && return 0
    sleep 0.1
  done
  cat "$WORK/$1.log" >&2
  die "$1 does not listen on port $2"
}

# tree PID: the process and its descendants.
tree() {
  local child
  echo "$1"
  for child in $(pgrep -P "$1" || true); do tree "$child"; done
}

# cpu_ticks PID: user and system clock ticks of the process tree, ended children included.
cpu_ticks() {
  local pid
  for pid in $(tree "$1"); do cat "/proc/$pid/stat" 2>/dev/null || true; done |
    sed 's/.*) //' | awk '{ n += $12 + $13 + $14 + $15 } END { print n + 0 }'
}
