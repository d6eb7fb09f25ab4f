#!/usr/bin/env bash
# Make a virtual environment with the newest Python >= 3.11 that is found.
# usage: make_venv.sh DIRECTORY
# PYTHON3 names the interpreter to use instead of looking for one.
set -euo pipefail

if [ $# -ne 1 ]; then
    echo "usage: $0 DIRECTORY" >&2
    exit 2
fi
venv=$1

# What stands there is replaced, so it must be an environment.
if [ -e "$venv" ] && [ ! -f "$venv/pyvenv.cfg" ] && [ -n "$(ls -A "$venv")" ]; then
    echo "$venv is there and is no virtual environment; name another directory." >&2
    exit 1
fi

# Runs the candidate: a name on the PATH may be a launcher without an interpreter behind it.
is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

can_make_venv() {
    "$1" -c 'import ensurepip, venv' >/dev/null 2>&1
}

python=
without_venv=
for candidate in ${PYTHON3:-python3.13 python3.12 python3.11 python3}; do
    is_new_enough "$candidate" || continue
    if can_make_venv "$candidate"; then
        python=$candidate
        break
    fi
    without_venv=${without_venv:-$candidate}
done

if [ -z "$python" ] && [ -n "$without_venv" ]; then
    # Debian and Ubuntu put the venv module into a package of its own.
    package=$("$without_venv" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "Installing $package."
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package"
        python=$without_venv
    else
        echo "$without_venv cannot make virtual environments. Type this and try again:" >&2
        echo "    sudo apt-get install $package" >&2
        exit 1
    fi
fi

if [ -z "$python" ]; then
    cat >&2 <<'END'
No Python >= 3.11 was found. Type the line for your system and try again:
    apt:   sudo apt-get install python3 python3-venv      (Debian 12, Ubuntu 24.04 or newer)
    dnf:   sudo dnf install python3.12
    brew:  brew install python@3.12
Or name an interpreter: make test PYTHON3=/path/to/python3
END
    exit 1
fi

# A half-made environment must not look like a whole one.
trap 'rm -rf "$venv"' ERR INT TERM
rm -rf "$venv"
echo "Making $venv with $("$python" --version)."
"$python" -m venv "$venv"
