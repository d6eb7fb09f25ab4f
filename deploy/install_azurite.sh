#!/usr/bin/env bash
# Put Azurite, the emulator of Azure Blob Storage that the tests start themselves, below a directory; needs npm.
# Nothing is started. Ends with 0 if it is there, with 3 if it cannot be had on this system.
# usage: install_azurite.sh DIR
set -euo pipefail

readonly AZURITE=3.37.0
readonly TARGET=${1:?usage: install_azurite.sh DIR}

if [ "$(cat "$TARGET/version" 2>/dev/null || true)" = "$AZURITE" ]; then
    exit 0
fi
if ! command -v npm >/dev/null 2>&1; then
    echo "Azurite is not there, and there is no npm to get it with." >&2
    echo "The tests that need it will be skipped." >&2
    exit 3
fi
mkdir -p "$TARGET"
npm install --prefix "$TARGET" --no-audit --no-fund --ignore-scripts --loglevel=error "azurite@$AZURITE"
echo "$AZURITE" >"$TARGET/version"
