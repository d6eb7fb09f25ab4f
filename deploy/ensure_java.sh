#!/usr/bin/env bash
# See that Spark will find a Java >= 17; install one where that may be done (root, apt), else say what to type.
# Looks where Spark looks: $JAVA_HOME/bin/java if JAVA_HOME is set, else java on the PATH.
# usage: ensure_java.sh
set -euo pipefail

readonly OLDEST=17
# Java versions that Spark 4 runs on, as Debian and Ubuntu package them; the first that exists is taken.
readonly APT_PACKAGES="openjdk-17-jre-headless openjdk-21-jre-headless"

# Prints the major version of a java program, or nothing if it does not run ("1.8.0_292" -> 1, "17.0.15" -> 17).
major_version() {
    "$1" -version 2>&1 | sed -n 's/^.* version "\([0-9][0-9]*\).*$/\1/p' | head -n 1
}

is_new_enough() {
    local major
    major=$(major_version "$1" || true)
    [ -n "$major" ] && [ "$major" -ge "$OLDEST" ]
}

say_what_to_type() {
    cat >&2 <<END
Spark needs a Java >= $OLDEST, and none was found. Type the line for your system and try again:
    apt:   sudo apt-get update && sudo apt-get install -y openjdk-17-jre-headless
    dnf:   sudo dnf install -y java-17-openjdk-headless
    brew:  brew install openjdk@17 && export JAVA_HOME="\$(brew --prefix openjdk@17)"
If one is installed elsewhere, set JAVA_HOME to its directory.
END
}

if [ -n "${JAVA_HOME:-}" ]; then
    if is_new_enough "$JAVA_HOME/bin/java"; then
        exit 0
    fi
    echo "JAVA_HOME is $JAVA_HOME, but $JAVA_HOME/bin/java is no Java >= $OLDEST, and Spark would use it." >&2
    echo "Set JAVA_HOME to a newer one, or unset it." >&2
    exit 1
fi

if is_new_enough java; then
    exit 0
fi

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    say_what_to_type
    exit 1
fi

echo "Spark needs a Java >= $OLDEST: installing one."
apt-get update -qq
for package in $APT_PACKAGES; do
    # A package without an installation candidate has no "Candidate: <version>" line.
    if apt-cache policy "$package" | grep -q '^ *Candidate: [0-9]'; then
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package"
        break
    fi
done
if ! is_new_enough java; then
    say_what_to_type
    exit 1
fi
