#!/usr/bin/env bash
# Install the Ceph programs that the S3 tests start themselves (a real server); needs apt and root.
# No service is started. Ends with 0 if the programs are there, with 3 if they cannot be installed on this system.
# usage: install_ceph.sh
set -euo pipefail

readonly PROGRAMS="ceph-mon ceph-osd radosgw radosgw-admin monmaptool ceph"
readonly POLICY=/usr/sbin/policy-rc.d

missing() {
    local program
    for program in $PROGRAMS; do
        command -v "$program" >/dev/null 2>&1 || printf '%s ' "$program"
    done
}

if [ -z "$(missing)" ]; then
    exit 0
fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "Ceph is not installed (missing: $(missing)), and this script installs it only as root with apt." >&2
    echo "The tests that need it will be skipped." >&2
    exit 3
fi

# Debian's packages start their services unless a policy forbids it; the tests start their own cluster.
if [ ! -e "$POLICY" ]; then
    trap 'rm -f "$POLICY"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$POLICY"
    chmod 755 "$POLICY"
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    -o Acquire::Retries=3 ceph-mon ceph-osd radosgw ceph-common
if [ -n "$(missing)" ]; then
    echo "apt-get ended well, but these programs are still missing: $(missing)" >&2
    exit 1
fi
