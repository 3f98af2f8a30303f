#!/usr/bin/env bash
# Sees to it that the tests of the page can have a Chromium: MUSTER_CHROMIUM, one that is installed,
# or the system's package, which is installed here when that is possible.
set -euo pipefail
if [ -n "${MUSTER_CHROMIUM:-}" ]; then exit 0; fi
for name in chromium chromium-browser google-chrome-stable google-chrome; do
    if command -v "$name" >/dev/null 2>&1; then exit 0; fi
done
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "tests: installing chromium"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq || true
    apt-get install -y -qq --no-install-recommends chromium >/dev/null
    exit 0
fi
echo "tests: a Chromium is needed for the live page: install the package chromium" >&2
echo "       (as root: apt-get install chromium), or set MUSTER_CHROMIUM to one" >&2
exit 1
