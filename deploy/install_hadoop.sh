#!/usr/bin/env bash
# Put the jar of Hadoop's NameNode and DataNode, for the tests, below a directory; the other jars that they need are
# among PySpark's. Needs Maven, which it installs where that may be done (root, apt).
# Nothing is started. Ends with 0 if the jar is there, with 3 if it cannot be had on this system.
# usage: install_hadoop.sh DIR
set -euo pipefail

readonly HADOOP=3.5.0 # as in PySpark 4.3
readonly TARGET=${1:?usage: install_hadoop.sh DIR}

if [ "$(cat "$TARGET/version" 2>/dev/null || true)" = "$HADOOP" ]; then
    exit 0
fi
if ! "$(dirname "${BASH_SOURCE[0]}")/ensure_maven.sh"; then
    echo "The tests that need Hadoop will be skipped." >&2
    exit 3
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A local repository of its own, as in install_kafka.sh.
mvn -q -B -ntp "-Dmaven.repo.local=$work/repository" dependency:copy \
    "-Dartifact=org.apache.hadoop:hadoop-client-minicluster:$HADOOP" "-DoutputDirectory=$work/out"
mkdir -p "$TARGET"
rm -f "$TARGET"/*.jar "$TARGET/version"
mv "$work/out"/*.jar "$TARGET/"
echo "$HADOOP" >"$TARGET/version"
