#!/usr/bin/env bash
# Makes .venv and installs what requirements.lock says, with hashes. Safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -L .venv ]; then
    echo "setup: .venv is another checkout's, and stays as it is: make setup there" >&2
    exit 0
fi

find_python() {
    local name
    for name in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
        if [ -n "$name" ] && command -v "$name" >/dev/null 2>&1 &&
            "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo "setup: Python 3.11 or newer is needed and none was found; install python3" >&2
    exit 1
}

apt_install() { # package: only as root, with the system's package manager
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        DEBIAN_FRONTEND=noninteractive apt-get update -qq || true
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$1" >/dev/null
    else
        echo "setup: the package $1 is needed; as root: apt-get install $1" >&2
        exit 1
    fi
}

python=$(find_python)
if [ ! -x .venv/bin/python ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    rm -rf .venv
    if ! "$python" -m venv .venv 2>/dev/null; then
        rm -rf .venv
        apt_install "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv"
        "$python" -m venv .venv
    fi
fi
echo "setup: installing into .venv (a minute or two the first time)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
    --require-hashes -r requirements.lock
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
    --no-deps --no-build-isolation -e .
