#!/usr/bin/env bash
# Builds the static binary and the image's runtime stage with buildah (no engine, no base image), and prints its size.
#
#   deploy/image.sh [NAME]          default: localhost/taskgate:latest
#
# TASKGATE_BIN names a static binary built before, and saves the build.
set -euo pipefail
cd "$(dirname "$0")/.."
NAME=${1:-localhost/taskgate:latest}
LIMIT=$((25 * 1024 * 1024))
for tool in buildah podman; do
  command -v "$tool" >/dev/null || { echo "$tool is not installed" >&2; exit 1; }
done

if [ -z "${TASKGATE_BIN:-}" ]; then
  TARGET=$(uname -m)-unknown-linux-gnu
  RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --profile dist --bin taskgate --target "$TARGET"
  TASKGATE_BIN=target/$TARGET/dist/taskgate
fi
if ldd "$TASKGATE_BIN" 2>/dev/null | grep -q '=>'; then
  echo "$TASKGATE_BIN is not static" >&2
  exit 1
fi

BUILT=$(mktemp -d)
trap 'rm -rf "$BUILT"' EXIT
mkdir "$BUILT/state"
cp "$TASKGATE_BIN" "$BUILT/taskgate"
# The format of Docker's images is the one that has a health check.
buildah bud --quiet --isolation chroot --format docker -f deploy/Dockerfile \
  --ignorefile deploy/Dockerfile.dockerignore --target runtime --build-context "build=$BUILT" -t "$NAME" . >/dev/null
SIZE=$(podman image inspect --format "{{.Size}}" "$NAME")
awk -v name="$NAME" -v size="$SIZE" 'BEGIN { printf "%s: %.1f MiB\n", name, size / 1048576 }'
[ "$SIZE" -le "$LIMIT" ] || { echo "over 25 MiB" >&2; exit 1; }
