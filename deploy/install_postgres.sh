#!/usr/bin/env bash
# Install the PostgreSQL programs that the tests start themselves (a real server); needs apt and root.
# No service is started. Ends with 0 if the programs are there, with 3 if they cannot be installed on this system.
# usage: install_postgres.sh
set -euo pipefail

readonly POLICY=/usr/sbin/policy-rc.d

is_there() {
    command -v initdb >/dev/null 2>&1 || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null
}

if is_there; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "PostgreSQL is not installed, and this script installs it only as root with apt." >&2
    echo "The tests that need it will be skipped." >&2
    exit 3
fi

# Debian's package starts its service unless a policy forbids it; the tests start their own server.
if [ ! -e "$POLICY" ]; then
    trap 'rm -f "$POLICY"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$POLICY"
    chmod 755 "$POLICY"
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o Acquire::Retries=3 postgresql
if ! is_there; then
    echo "apt-get ended well, but initdb is still missing" >&2
    exit 1
fi
