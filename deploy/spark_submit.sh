#!/usr/bin/env bash
# Submit a job with the changelog on, and run the materializer beside it as a process of its own.
set -euo pipefail

usage() {
    cat <<'END'
usage: spark_submit.sh --storage URL --job JOB [--interval DURATION] -- SPARK_SUBMIT_ARGUMENTS

Runs   spark-submit --conf spark.varvite.state.changelog.enabled=true
                    --conf spark.varvite.execution.checkpointing.dir=URL
                    --conf spark.varvite.materializer.mode=sidecar
                    SPARK_SUBMIT_ARGUMENTS
and, beside it,   varvite materialize --storage URL --job JOB [--interval DURATION].
Ends with spark-submit's exit code; the sidecar is ended first with SIGTERM, then with SIGKILL.
A sidecar that fails is started again; it never ends the job.

options
  --storage URL          root of the storage, such as s3://bucket/varvite or file:///var/lib/varvite
  --job JOB              the job: the streaming query's name
  --interval DURATION    time between two materializations, such as 30s (default: the materializer's own)

environment
  SPARK_SUBMIT           spark-submit to run (default: spark-submit)
  VARVITE                  the varvite command (default: varvite)
  VARVITE_RESTART_S        seconds before a failed sidecar is started again (default: 5)
  VARVITE_MATERIALIZE_...  further options of the sidecar, see docs/operate/materializer.md, such as
                         VARVITE_MATERIALIZE_STORAGE_OPTION=endpoint_url=https://s3.example.com
  VARVITE_STOP_S           seconds that the sidecar has for its end (default: 30)

example
  deploy/spark_submit.sh --storage s3://bucket/varvite --job orders -- --master yarn --py-files varvite.zip orders.py
END
}

fail() {
    echo "spark_submit.sh: $1" >&2
    usage >&2
    exit 2
}

storage='' job='' interval=''
while [ $# -gt 0 ]; do
    case $1 in
        --storage) storage=${2:-}; shift ;;
        --job) job=${2:-}; shift ;;
        --interval) interval=${2:-}; shift ;;
        -h | --help) usage; exit 0 ;;
        --) shift; break ;;
        *) fail "unknown argument $1; spark-submit's own arguments come after --" ;;
    esac
    shift || fail "the last option has no value"
done
[ -n "$storage" ] || fail "--storage is missing"
[ -n "$job" ] || fail "--job is missing"
[ $# -gt 0 ] || fail "nothing to submit: give spark-submit's arguments after --"

spark_submit=${SPARK_SUBMIT:-spark-submit}
varvite=${VARVITE:-varvite}
restart_s=${VARVITE_RESTART_S:-5}
stop_s=${VARVITE_STOP_S:-30}

# The sidecar's keeper: a subshell that starts the sidecar, starts it again after a failure, and passes SIGTERM on.
keep_sidecar() {
    local sidecar='' pause=''
    stop_sidecar() {
        local tenths=$((stop_s * 10))
        [ -z "$sidecar" ] || kill -TERM "$sidecar" 2>/dev/null || sidecar=''
        while [ -n "$sidecar" ] && kill -0 "$sidecar" 2>/dev/null; do
            if [ "$tenths" -eq 0 ]; then
                kill -KILL "$sidecar" 2>/dev/null || true
            fi
            tenths=$((tenths - 1))
            sleep 0.1
        done
        [ -z "$pause" ] || kill "$pause" 2>/dev/null || true
        exit 0
    }
    trap stop_sidecar TERM
    trap '' INT HUP
    while true; do
        "$varvite" materialize --storage "$storage" --job "$job" ${interval:+--interval "$interval"} &
        sidecar=$!
        local code=0
        wait "$sidecar" || code=$?
        sidecar=''
        echo "spark_submit.sh: the materializer ended with $code; starting it again in $restart_s s" >&2
        sleep "$restart_s" &
        pause=$!
        wait "$pause" || true
        pause=''
    done
}

keeper='' spark=''
end_keeper() {
    if [ -n "$keeper" ]; then
        kill -TERM "$keeper" 2>/dev/null || true
        wait "$keeper" 2>/dev/null || true
    fi
}
forward() {
    if [ -n "$spark" ]; then
        kill "-$1" "$spark" 2>/dev/null || true
    fi
}
trap end_keeper EXIT
# Not INT: a shell without job control starts its background programs with SIGINT ignored.
trap 'forward TERM' TERM INT
trap 'forward HUP' HUP

keep_sidecar &
keeper=$!

"$spark_submit" \
    --conf spark.varvite.state.changelog.enabled=true \
    --conf "spark.varvite.execution.checkpointing.dir=$storage" \
    --conf spark.varvite.materializer.mode=sidecar \
    "$@" &
spark=$!

# A forwarded signal interrupts `wait`; wait again until spark-submit itself has ended.
code=0
while true; do
    code=0
    wait "$spark" || code=$?
    kill -0 "$spark" 2>/dev/null || break
done
exit "$code"
