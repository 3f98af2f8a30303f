#!/usr/bin/env bash
# Makes .venv and installs what requirements.lock says, with hashes. Safe to run again.
#   scripts/setup.sh            everything: to run, test and change Muster
#   scripts/setup.sh runtime    what Muster runs with, no test tool
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

quietly() { # command: its output is shown only if it fails
    local said
    said=$("$@" 2>&1) || {
        echo "$said" >&2
        return 1
    }
}

apt_install() { # package, what for: only as root, with the system's package manager
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "setup: installing $1 ($2)"
        DEBIAN_FRONTEND=noninteractive quietly apt-get update -qq || true
        DEBIAN_FRONTEND=noninteractive quietly apt-get install -y -qq "$1"
    else
        echo "setup: the package $1 is needed ($2); as root: apt-get install $1" >&2
        exit 1
    fi
}

pip_install() {
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input "$@"
}

python=$(find_python)
if [ ! -x .venv/bin/python ] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    rm -rf .venv
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        apt_install "python$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv" \
            "Python's own tool for the environment .venv"
    fi
    quietly "$python" -m venv .venv
fi
lock=requirements.lock
what="what Muster runs with and is tested with"
if [ "${1:-}" = runtime ]; then
    lock=$(mktemp)
    trap 'rm -f "$lock"' EXIT
    .venv/bin/python scripts/runtime_lock.py >"$lock"
    what="what Muster runs with"
fi
echo "setup: installing $what into .venv: $(grep -c '^[A-Za-z0-9]' "$lock") packages, a minute or two"
pip_install --require-hashes -r "$lock"
pip_install --no-deps --no-build-isolation -e .
