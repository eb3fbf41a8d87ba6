#!/usr/bin/env bash
# Runs the image as its users will, with podman: the demo's flows, the health check, an upstream by a name that only
# DNS knows, and one by https under an authority of our own.
#
#   deploy/check.sh [NAME]          default: localhost/taskgate:latest, as deploy/image.sh leaves it
#
# Needs root, podman with netavark and aardvark-dns, runc, nginx, openssl, curl and python3. Containers talk to this
# machine over a bridge that is made for the run; everything is taken away at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
IMAGE=${1:-localhost/taskgate:latest}
WORK=$(mktemp -d)
NET=taskgate-check-$$
STARTED=()

cleanup() {
  podman rm -f -v -t 1 "$NET-back" "$NET-front" "$NET-tls" >/dev/null 2>&1 || true
  for pid in "${STARTED[@]}"; do kill "$pid" 2>/dev/null || true; done
  podman network rm -f "$NET" >/dev/null 2>&1 || true
  rm -rf "$WORK"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
fail() {
  echo "FAIL     $*" >&2
  for name in back front tls; do podman logs "$NET-$name" 2>&1 | tail -n 5 >&2 || true; done
  exit 1
}
ok() { echo "ok       $*"; }

# What this run asks of podman is said here, not in the machine's settings. runc: crun refuses mixed cgroup trees.
cat >"$WORK/containers.conf" <<CONF
[network]
network_backend = "netavark"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
CONF
export CONTAINERS_CONF=$WORK/containers.conf
# The limits: where raising them is not allowed, podman's own do not start a container. The image's health check is
# asked by hand below: podman leaves it to systemd, which may not be there.
# A read-only image has no place for a store but a volume; here one that goes with its container.
run() { podman run -v /var/lib/taskgate --ulimit nofile=4096:4096 --ulimit nproc=1024:1024 --no-healthcheck --read-only "$@"; }

[ "$(podman image inspect --format '{{.Config.User}}' "$IMAGE")" = 65532:65532 ] || fail "the image does not say its user"
if run --rm --network none --entrypoint /bin/sh "$IMAGE" -c true >/dev/null 2>&1; then fail "there is a shell"; fi
ok "not root, no shell"

# Once as Docker runs it, without a /tmp, which podman adds to a read-only image; once with.
for tmp in false true; do
  timeout 120 podman run --rm --ulimit nofile=4096:4096 --ulimit nproc=1024:1024 --no-healthcheck --read-only \
    --read-only-tmpfs=$tmp --network none "$IMAGE" demo --once >"$WORK/demo.log" 2>&1 ||
    { tail -n 20 "$WORK/demo.log"; fail "demo --once, with a /tmp: $tmp"; }
  if grep -q "kept in memory" "$WORK/demo.log"; then kept=memory; else kept="a file"; fi
  ok "demo --once, with a /tmp: $tmp, tasks in $kept"
done

podman network create "$NET" >/dev/null
GATEWAY=$(podman network inspect "$NET" | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["subnets"][0]["gateway"])')

# handshake PORT: initialize through a published port.
handshake() {
  curl -sS --max-time 5 "http://127.0.0.1:$1/mcp" -H 'Content-Type: application/json' \
    -H 'Accept: application/json, text/event-stream' -d '{"jsonrpc":"2.0","id":7,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"check","version":"1"}}}'
}
answers() {
  for _ in $(seq 50); do
    handshake "$1" 2>/dev/null | grep -q '"protocolVersion"' && return 0
    sleep 0.2
  done
  handshake "$1"
  return 1
}
read -r BACK FRONT TLS HTTP HTTPS < <(python3 -c '
import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(5)]
print(*(s.getsockname()[1] for s in held))')

# The first container starts the bridge, whose address the upstream then listens on.
run -d --name "$NET-back" --network "$NET" -p "127.0.0.1:$BACK:8080" \
  -e TASKGATE_UPSTREAM="http://$GATEWAY:$HTTP/mcp" "$IMAGE" >/dev/null
python3 benches/memory_upstream.py "$HTTP" "$GATEWAY" >"$WORK/upstream.log" 2>&1 &
STARTED+=("$!")
answers "$BACK" || fail "an upstream by address"
ok "an upstream by address"
podman exec "$NET-back" /usr/bin/taskgate healthcheck || fail "the health check"
ok "the health check"

run -d --name "$NET-front" --network "$NET" -p "127.0.0.1:$FRONT:8080" \
  -e TASKGATE_UPSTREAM="http://$NET-back:8080/mcp" "$IMAGE" >/dev/null
answers "$FRONT" || fail "an upstream by DNS name"
ok "an upstream by DNS name"

openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj "/CN=check authority" \
  -keyout "$WORK/ca.key" -out "$WORK/ca.pem" 2>/dev/null
openssl req -newkey rsa:2048 -nodes -subj "/CN=check" -keyout "$WORK/tls.key" -out "$WORK/tls.csr" 2>/dev/null
openssl x509 -req -in "$WORK/tls.csr" -CA "$WORK/ca.pem" -CAkey "$WORK/ca.key" -CAcreateserial -days 2 \
  -extfile <(printf 'basicConstraints=CA:FALSE\nsubjectAltName=DNS:host.containers.internal') -out "$WORK/tls.pem" 2>/dev/null
chmod 755 "$WORK"
chmod 644 "$WORK/ca.pem"
cat >"$WORK/nginx.conf" <<CONF
daemon off;
pid $WORK/nginx.pid;
error_log $WORK/nginx.log;
events {}
http {
  access_log off;
  client_body_temp_path $WORK/body;
  proxy_temp_path $WORK/proxy;
  fastcgi_temp_path $WORK/fastcgi;
  uwsgi_temp_path $WORK/uwsgi;
  scgi_temp_path $WORK/scgi;
  server {
    listen $GATEWAY:$HTTPS ssl;
    ssl_certificate $WORK/tls.pem;
    ssl_certificate_key $WORK/tls.key;
    location / { proxy_pass http://$GATEWAY:$HTTP; }
  }
}
CONF
nginx -e "$WORK/nginx.log" -c "$WORK/nginx.conf" &
STARTED+=("$!")
run -d --name "$NET-tls" --network "$NET" -p "127.0.0.1:$TLS:8080" -v "$WORK/ca.pem:/ca.pem:ro" -e SSL_CERT_FILE=/ca.pem \
  -e TASKGATE_UPSTREAM="https://host.containers.internal:$HTTPS/mcp" "$IMAGE" >/dev/null
answers "$TLS" || fail "an upstream by https"
ok "an upstream by https, under SSL_CERT_FILE"
