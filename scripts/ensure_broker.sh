#!/usr/bin/env bash
# Sees to it that the tests can have a RabbitMQ broker: RABBITMQ_URL, a Docker engine, or Debian's
# rabbitmq-server, which is installed here when that is possible. It is never started as a service.
set -euo pipefail
server=/usr/lib/rabbitmq/bin/rabbitmq-server
if [ -n "${RABBITMQ_URL:-}" ] || [ -x "$server" ]; then exit 0; fi
if command -v docker >/dev/null 2>&1 && timeout 5 docker info >/dev/null 2>&1; then exit 0; fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "tests: installing rabbitmq-server"
    export DEBIAN_FRONTEND=noninteractive
    policy=/usr/sbin/policy-rc.d
    made=
    if [ ! -e "$policy" ]; then # installing must not start a broker on the default port
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy" && made=1
    fi
    apt-get update -qq || true
    apt-get install -y -qq --no-install-recommends rabbitmq-server >/dev/null
    [ -z "$made" ] || rm -f "$policy"
    exit 0
fi
echo "tests: a RabbitMQ broker is needed: set RABBITMQ_URL, start a Docker engine, or install" >&2
echo "       the package rabbitmq-server (as root: apt-get install rabbitmq-server)" >&2
exit 1
