#!/usr/bin/env bash
# Inline throughput and CPU of taskgate beside nginx and a direct connection, in interleaved rounds.
#
#   benches/compare.sh            5 rounds of 3 s, without and with sessions
#   benches/compare.sh --quick    1 round of 1 s: does it run at all
#   benches/compare.sh --judge    fails below 0.7 of nginx's throughput or above 1.5 of its CPU per call
#
# ROUNDS, SECONDS_EACH and TASKGATE_BIN (default: the dist profile, built if need be) may be set. Needs nginx with its Lua module, wrk, curl and python3.
#
# The upstream is nginx with one worker and a fixed 1 KiB answer under the caller's id; the load is wrk with 64
# connections that POST 1 KiB tools/calls. nginx as the proxy is tuned as its users would: two workers, upstream
# connections kept, buffering as it comes, one access line a request to a file, as taskgate writes one too.
# Everything shares the machine's cores: read the ratios, not the absolute figures.
set -euo pipefail
cd "$(dirname "$0")"
ROOT=$(cd .. && pwd)
. ./common.sh

ROUNDS=${ROUNDS:-5} SECONDS_EACH=${SECONDS_EACH:-3} JUDGE=
for argument in "$@"; do
  case $argument in
    --quick) ROUNDS=1 SECONDS_EACH=1 ;;
    --judge) JUDGE=1 ;;
    *) die "unknown option $argument" ;;
  esac
done

CONNECTIONS=64
HERTZ=$(getconf CLK_TCK)
MODULES=${NGINX_MODULES:-/usr/lib/nginx/modules}
command -v wrk >/dev/null || die "wrk is not installed"
[ -e "$MODULES/ngx_http_lua_module.so" ] || die "nginx's Lua module is not in $MODULES (libnginx-mod-http-lua)"
need_taskgate
read -r UPSTREAM NGINX GATE ADMIN < <(free_ports 4)

# nginx_conf NAME WORKERS HTTP_BLOCK: writes a configuration that touches nothing outside $WORK.
nginx_conf() {
  local user=
  [ "$(id -u)" = 0 ] && user='user root;'
  cat >"$WORK/$1.conf" <<CONF
$user
worker_processes $2;
daemon off;
pid $WORK/$1.pid;
error_log $WORK/$1.error.log warn;
$4
events { worker_connections 4096; }
http {
  client_body_temp_path $WORK/$1.body;
  proxy_temp_path $WORK/$1.proxy;
  fastcgi_temp_path $WORK/$1.fastcgi;
  uwsgi_temp_path $WORK/$1.uwsgi;
  scgi_temp_path $WORK/$1.scgi;
  keepalive_requests 100000000;
  tcp_nodelay on;
  $3
}
CONF
}

nginx_conf upstream 1 "
  access_log off;
  lua_package_path '$PWD/?.lua;/usr/share/lua/5.1/?.lua;;';
  client_body_buffer_size 64k;
  client_body_in_single_buffer on;
  server {
    listen 127.0.0.1:$UPSTREAM;
    location /mcp { default_type application/json; content_by_lua_block { require('upstream').answer() } }
  }" "load_module $MODULES/ndk_http_module.so;
load_module $MODULES/ngx_http_lua_module.so;"

nginx_conf nginx 2 "
  access_log $WORK/nginx.access.log;
  upstream bench { server 127.0.0.1:$UPSTREAM; keepalive $CONNECTIONS; keepalive_requests 100000000; }
  server {
    listen 127.0.0.1:$NGINX;
    location /mcp { proxy_pass http://bench; proxy_http_version 1.1; proxy_set_header Connection ''; }
  }" ""

start upstream nginx -p "$WORK" -e "$WORK/upstream.error.log" -c "$WORK/upstream.conf"
start nginx nginx -p "$WORK" -e "$WORK/nginx.error.log" -c "$WORK/nginx.conf"
NGINX_PID=$PID
start_taskgate "http://127.0.0.1:$UPSTREAM/mcp" "$GATE" "$ADMIN"
GATE_PID=$PID
wait_port upstream "$UPSTREAM"
wait_port nginx "$NGINX"
wait_port taskgate "$GATE"

declare -A PORT=([direct]=$UPSTREAM [nginx]=$NGINX [taskgate]=$GATE)
declare -A OWNER=([direct]=$NGINX_PID [nginx]=$NGINX_PID [taskgate]=$GATE_PID)

post() {
  curl -sS --max-time 10 "http://127.0.0.1:$1/mcp" -H 'Content-Type: application/json' \
    -H 'Accept: application/json, text/event-stream' "${@:2}"
}

# open_session PORT: a handshake as a client makes it; prints the session's id.
open_session() {
  local id
  id=$(post "$1" -o /dev/null -D - -d '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}' |
    tr -d '\r' | awk 'tolower($1) == "mcp-session-id:" { print $2 }')
  [ -n "$id" ] || die "no session from port $1"
  post "$1" -o /dev/null -H "Mcp-Session-Id: $id" -d '{"jsonrpc":"2.0","method":"notifications/initialized"}'
  echo "$id"
}

# probe SUBJECT: one call whose answer is looked at, so that what is measured is known to be right.
probe() {
  post "${PORT[$1]}" -d '{"jsonrpc":"2.0","id":"probe-7","method":"tools/call","params":{"name":"work","arguments":{}}}' |
    python3 -c 'import json,sys; a=json.load(sys.stdin); assert a["id"]=="probe-7" and len(a["result"]["content"][0]["text"])==896, a' ||
    die "$1 gives a wrong answer"
}

# measure SERIES SUBJECT SECONDS: appends "series subject requests/s cpu/1000 p50 p99" to the figures.
measure() {
  local threads=2 sessions=
  if [ "$1" = sessions ]; then threads=$CONNECTIONS sessions=$WORK/sessions.$2; fi
  local before after line
  before=$(cpu_ticks "${OWNER[$2]}")
  line=$(SESSIONS=$sessions wrk -t "$threads" -c "$CONNECTIONS" -d "${3}s" --timeout 10s -s load.lua \
    "http://127.0.0.1:${PORT[$2]}/mcp" | grep '^RESULT ') || die "wrk failed against $2"
  after=$(cpu_ticks "${OWNER[$2]}")
  echo "$line" | awk -v series="$1" -v subject="$2" -v ticks=$((after - before)) -v hertz="$HERTZ" '{
    if ($4 > 0 || $2 == 0) { print subject ": " $4 " errors in " $2 " requests" > "/dev/stderr"; exit 1 }
    cpu = subject == "direct" ? 0 : ticks / hertz * 1000 / $2
    printf "%s %s %.0f %.4f %.2f %.2f\n", series, subject, $2 * 1e6 / $3, cpu, $5 / 1000, $6 / 1000
  }' | tee -a "$WORK/figures" |
    awk '{ printf "%-9s %-9s %8d requests/s  %8s CPU s per 1,000  p50 %6.2f ms  p99 %6.2f ms\n", $1, $2, $3, ($4 > 0 ? $4 : "-"), $5, $6 }'
}

: >"$WORK/figures"
for subject in direct nginx taskgate; do
  probe "$subject"
  for _ in $(seq "$CONNECTIONS"); do open_session "${PORT[$subject]}"; done >"$WORK/sessions.$subject"
  SESSIONS='' wrk -t 2 -c "$CONNECTIONS" -d 1s -s load.lua "http://127.0.0.1:${PORT[$subject]}/mcp" >/dev/null
done
for series in plain sessions; do
  for _ in $(seq "$ROUNDS"); do
    for subject in direct nginx taskgate; do measure "$series" "$subject" "$SECONDS_EACH"; done
  done
done
for subject in direct nginx taskgate; do probe "$subject"; done

python3 - "$WORK/figures" "$JUDGE" <<'PY'
import statistics, sys

rows = [line.split() for line in open(sys.argv[1])]
failed = False
for series in ("plain", "sessions"):
    rate, cpu = {}, {}
    for name, subject, requests, seconds, *_ in rows:
        if name == series:
            rate.setdefault(subject, []).append(float(requests))
            cpu.setdefault(subject, []).append(float(seconds))
    ratio = lambda table, a, b: statistics.median(x / y for x, y in zip(table[a], table[b]) if y)
    throughput, cost = ratio(rate, "taskgate", "nginx"), ratio(cpu, "taskgate", "nginx")
    print(f"{series}: medians of {len(rate['nginx'])} rounds: throughput taskgate/nginx {throughput:.2f}, "
          f"taskgate/direct {ratio(rate, 'taskgate', 'direct'):.2f}, nginx/direct {ratio(rate, 'nginx', 'direct'):.2f}; "
          f"CPU per call taskgate/nginx {cost:.2f}")
    failed |= throughput < 0.7 or cost > 1.5
if sys.argv[2] and failed:
    sys.exit("below the floor: 0.7 of nginx's throughput, 1.5 of its CPU per call")
PY
