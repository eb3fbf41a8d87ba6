#!/usr/bin/env bash
# The official conformance suite: against a server directly, and against taskgate in front of it.
#
#   tests/conformance/run.sh                every part
#   tests/conformance/run.sh --handshake    2025-06-18 and 2025-11-25, of a server that speaks them
#   tests/conformance/run.sh --stateless    2026-07-28, of a server that speaks it as well
#   tests/conformance/run.sh --bridged      each revision, of a server that speaks the other era only
#   tests/conformance/run.sh --tasks        the tasks extension (SEP-2663), of servers that know nothing of it
#   tests/conformance/run.sh --write        writes the table to docs/conformance.md as well, if nothing is unexpected
#
# The server is upstream/. Each check of the suite that it passes directly must pass through taskgate, too. What cannot
# is in expected.txt, with the reason. Anything else that fails, and anything listed that passes, fails the run.
#
# TASKGATE_BIN (default target/release/taskgate) is the binary. setup.sh installs the suite. Loopback only, on free ports;
# ends what it started and nothing else.
set -euo pipefail
cd "$(dirname "$0")"
ROOT=$(cd ../.. && pwd)
PLACE=$ROOT/target/conformance
TASKGATE_BIN=${TASKGATE_BIN:-$ROOT/target/release/taskgate}
[ -x "$TASKGATE_BIN" ] || { echo "no binary at $TASKGATE_BIN: cargo build --release, or set TASKGATE_BIN" >&2; exit 2; }
SUITE=$PLACE/node_modules/@modelcontextprotocol/conformance/dist/index.js
[ -e "$SUITE" ] || { echo "the suite is not installed: tests/conformance/setup.sh" >&2; exit 2; }
export PYTHONDONTWRITEBYTECODE=1 NO_COLOR=1

PARTS=() WRITE=
for argument in "$@"; do
  case $argument in
    --handshake | --stateless | --bridged | --tasks) PARTS+=("${argument#--}") ;;
    --write) WRITE=1 ;;
    *) echo "what is $argument?" >&2; exit 2 ;;
  esac
done
[ "${#PARTS[@]}" -gt 0 ] || PARTS=(handshake stateless bridged tasks)

RUN=$(mktemp -d "${TMPDIR:-/tmp}/taskgate-conformance.XXXXXX")
. "$ROOT/tests/processes.sh"
trap 'end_started; rm -rf "$RUN"' EXIT
trap 'exit 130' INT TERM

NODE=$(node_new "$PLACE")

(cd "$ROOT" && cargo build --quiet --locked --example conformance-upstream)

# told FILE PATTERN PID: the first match in what a process says, once it has said it.
told() {
  for _ in $(seq 200); do
    grep -m1 -oE "$2" "$1" && return 0
    kill -0 "$3" 2>/dev/null || break
    sleep 0.05
  done
  echo "it does not start:" >&2
  tail -n 5 "$1" >&2
  return 1
}

# start OLDEST NEWEST [FLAG…]: sets DIRECT to the URL of a server that speaks these revisions, THROUGH to that of
# taskgate, with these flags, in front of it.
start() {
  local oldest=$1 newest=$2 address
  shift 2
  end_started
  # Not the addresses of the last ones.
  rm -f "$RUN/server.log" "$RUN/taskgate.log"
  touch "$RUN/server.log" "$RUN/taskgate.log"
  "$ROOT/target/debug/examples/conformance-upstream" --oldest "$oldest" --newest "$newest" >"$RUN/server.log" 2>&1 &
  STARTED+=("$!")
  DIRECT=$(told "$RUN/server.log" 'http://[0-9.:]+/mcp' "$!")
  "$TASKGATE_BIN" run --config taskgate.toml --upstream "$DIRECT" "$@" >"$RUN/taskgate.log" 2>&1 &
  STARTED+=("$!")
  address=$(told "$RUN/taskgate.log" 'addr=[0-9.:]+' "$!")
  THROUGH=http://${address#addr=}/mcp
}

# scenarios PATTERN [ARGUMENT…]: the names of those of servers whose lines match; the lines tell revisions as well.
scenarios() {
  local pattern=$1
  shift
  "$NODE" "$SUITE" list --server "$@" | grep -E "$pattern" | sed -n 's/^  - \([a-z0-9-]*\).*/\1/p'
}

# wanted COLUMN REVISION: notes which scenarios are to be found there; the names are read from the input.
wanted() {
  mkdir -p "$RUN/$1/$2"
  cat >>"$RUN/$1/$2/wanted"
}

# suite COLUMN REVISION URL [ARGUMENT…]: what the suite finds, as files in $RUN/COLUMN/REVISION. The table judges.
suite() {
  local column=$1 revision=$2 url=$3
  shift 3
  "$NODE" "$SUITE" server --url "$url" --output-dir "$RUN/$column/$revision" "$@" >>"$RUN/suite.log" 2>&1 || true
}

# each COLUMN REVISION URL PATTERN: the scenarios of extensions, each by itself, as the suite has no group of them.
each() {
  local scenario names
  names=$(scenarios "$4")
  for scenario in $names; do
    echo "$scenario" | wanted "$1" "$2"
    suite "$1" "$2" "$3" --scenario "$scenario"
  done
}

# compare COLUMN REVISION URL: every scenario of this revision, save those of tasks.
compare() {
  scenarios . --spec-version "$2" | wanted "$1" "$2"
  suite "$1" "$2" "$3" --suite all --spec-version "$2"
  if [ "$2" = "$STATELESS" ]; then each "$@" '^  - sep-.*\[extension\]'; fi
}

FIRST=2024-11-05 LAST_HANDSHAKE=2025-11-25 STATELESS=2026-07-28
# No call is to become a task here, and one whose answer is lost is to be missed.
PATIENT=(--threshold 1m)

# The suite's client asks for the newest revision of its era, so the server must know no newer one.
part_handshake() {
  local revision
  for revision in 2025-06-18 "$LAST_HANDSHAKE"; do
    start "$FIRST" "$revision" "${PATIENT[@]}"
    compare direct "$revision" "$DIRECT"
    compare through "$revision" "$THROUGH"
  done
}

part_stateless() {
  start "$FIRST" "$STATELESS" "${PATIENT[@]}"
  compare direct "$STATELESS" "$DIRECT"
  compare through "$STATELESS" "$THROUGH"
}

part_bridged() {
  start "$STATELESS" "$STATELESS" "${PATIENT[@]}"
  compare bridged 2025-06-18 "$THROUGH"
  compare bridged "$LAST_HANDSHAKE" "$THROUGH"
  start "$FIRST" "$LAST_HANDSHAKE" "${PATIENT[@]}"
  compare bridged "$STATELESS" "$THROUGH"
}

# The server knows nothing of tasks, so there is nothing to compare with.
part_tasks() {
  start "$FIRST" "$STATELESS"
  each through "$STATELESS" "$THROUGH" '^  - tasks-'
  start "$FIRST" "$LAST_HANDSHAKE"
  each bridged "$STATELESS" "$THROUGH" '^  - tasks-'
}

for part in "${PARTS[@]}"; do "part_$part"; done
python3 table.py "$RUN" expected.txt ${WRITE:+"$ROOT/docs/conformance.md"}
