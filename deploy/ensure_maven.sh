#!/usr/bin/env bash
# Install Maven where that may be done (root, apt). Ends with 0 if it is there, with 3 if not.
# usage: ensure_maven.sh
set -euo pipefail

if ! command -v mvn >/dev/null 2>&1 && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o Acquire::Retries=3 maven
fi
if ! command -v mvn >/dev/null 2>&1; then
    echo "There is no mvn to get jars with; it is installed here only as root with apt." >&2
    exit 3
fi
