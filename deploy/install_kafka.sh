#!/usr/bin/env bash
# Put the jars of a Kafka broker and of Spark's Kafka connector, for the tests, below a directory: DIR/broker and
# DIR/connector. Needs Maven, which it installs where that may be done (root, apt).
# Nothing is started. Ends with 0 if the jars are there, with 3 if they cannot be had on this system.
# usage: install_kafka.sh DIR
set -euo pipefail

readonly KAFKA=4.4.0     # the broker
readonly CONNECTOR=4.2.0 # spark-sql-kafka-0-10; runs with PySpark 4.2 and 4.3
readonly TARGET=${1:?usage: install_kafka.sh DIR}
readonly STAMP="kafka $KAFKA, connector $CONNECTOR"

if [ "$(cat "$TARGET/versions" 2>/dev/null || true)" = "$STAMP" ]; then
    exit 0
fi
if ! "$(dirname "${BASH_SOURCE[0]}")/ensure_maven.sh"; then
    echo "The tests that need Kafka will be skipped." >&2
    exit 3
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# pom NAME GROUP:ARTIFACT:VERSION...
pom() {
    local dependencies='' coordinates group artifact version
    for coordinates in "${@:2}"; do
        IFS=: read -r group artifact version <<<"$coordinates"
        dependencies+="<dependency><groupId>$group</groupId><artifactId>$artifact</artifactId>"
        dependencies+="<version>$version</version></dependency>"
    done
    mkdir -p "$work/$1"
    cat >"$work/$1/pom.xml" <<END
<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>varvite.fixture</groupId><artifactId>$1</artifactId><version>1</version><packaging>pom</packaging>
<dependencies>$dependencies</dependencies></project>
END
}

# A local repository of its own, thrown away: poms without jars in the user's one make Spark's --packages fail later.
copy() {
    (cd "$work/$1" && mvn -q -B -ntp "-Dmaven.repo.local=$work/repository" dependency:copy-dependencies \
        -DincludeScope=runtime "-DoutputDirectory=$work/out/$1" "${@:2}")
}

pom broker "org.apache.kafka:kafka_2.13:$KAFKA" org.slf4j:slf4j-simple:1.7.36
pom connector "org.apache.spark:spark-sql-kafka-0-10_2.13:$CONNECTOR"
copy broker
# Whatever else the connector names is among PySpark's own jars, in newer versions.
copy connector \
    -DincludeArtifactIds=spark-sql-kafka-0-10_2.13,spark-token-provider-kafka-0-10_2.13,kafka-clients,commons-pool2
mkdir -p "$TARGET"
rm -rf "$TARGET/broker" "$TARGET/connector" "$TARGET/versions"
mv "$work/out/broker" "$work/out/connector" "$TARGET/"
echo "$STAMP" >"$TARGET/versions"
