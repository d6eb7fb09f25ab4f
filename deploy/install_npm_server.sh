#!/usr/bin/env bash
# Put a server that tests start themselves below a directory; needs npm. Nothing is started.
#   azurite: the emulator of Azure Blob Storage
#   s3rver: an S3 server that ignores conditions, which is what it is for here
# Ends with 0 if it is there, with 3 if it cannot be had on this system.
# usage: install_npm_server.sh azurite|s3rver DIR
set -euo pipefail

readonly USAGE='usage: install_npm_server.sh azurite|s3rver DIR'
readonly SERVER=${1:?$USAGE} TARGET=${2:?$USAGE}
case $SERVER in
    azurite) version=3.37.0 ;;
    s3rver) version=3.7.1 ;;
    *) echo "$USAGE" >&2; exit 2 ;;
esac

if [ "$(cat "$TARGET/version" 2>/dev/null || true)" = "$version" ]; then
    exit 0
fi
if ! command -v npm >/dev/null 2>&1; then
    echo "$SERVER is not there, and there is no npm to get it with." >&2
    echo "The tests that need it will be skipped." >&2
    exit 3
fi
mkdir -p "$TARGET"
npm install --prefix "$TARGET" --no-audit --no-fund --ignore-scripts --loglevel=error "$SERVER@$version"
echo "$version" >"$TARGET/version"
