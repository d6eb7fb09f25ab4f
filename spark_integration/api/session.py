"""The session of a program that has none, and the Python of Spark's workers.

Spark starts its workers with the first `python3` of the PATH unless `PYSPARK_PYTHON` names another. In local mode they
are started with the driver's own Python, which has what the job needs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from varvite.spark_integration.driver.placement.decision import REDUCE_LOCALITY
from varvite.storage.errors import InvalidRequestError

_PYTHON: Final = "PYSPARK_PYTHON"
_PROGRESS: Final = "spark.ui.showConsoleProgress"
_CHECK: Final = "import sys; print('%d.%d' % sys.version_info[:2])"
_CHECK_S: Final = 60.0


def local_session() -> SparkSession:
    """A session for a program that has none, with the settings of `spark-submit` and the configuration files."""
    os.environ.setdefault(_PYTHON, sys.executable)
    builder = SparkSession.builder
    if SparkContext._active_spark_context is None:  # noqa: SLF001  there is no other way
        SparkContext._ensure_initialized()  # noqa: SLF001  SparkConf then sees what spark-submit has set
        conf = SparkConf().setIfMissing(REDUCE_LOCALITY, "false").setIfMissing(_PROGRESS, "false")
        if "PYSPARK_GATEWAY_PORT" not in os.environ and _PROGRESS not in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
            # Without spark-submit the program counts as a shell, for which Spark switches it on.
            conf.set(_PROGRESS, "false")
        builder = builder.config(conf=conf)
    return builder.getOrCreate()


def is_one_machine(spark: SparkSession) -> bool:
    """True if driver and executors share a machine."""
    return (spark.sparkContext.master or "").startswith("local")


def use_this_python(spark: SparkSession) -> None:
    """Let Spark start workers with this Python in local mode, unless `PYSPARK_PYTHON` names another."""
    if is_one_machine(spark) and _PYTHON not in os.environ:
        context: Any = spark.sparkContext
        context.pythonExec = sys.executable


def check_worker_python(spark: SparkSession) -> None:
    """Check, in local mode, that Spark's workers can run the job.

    Raises:
        InvalidRequestError: Their Python cannot be started, has another version, or lacks varvite.
    """
    context: Any = spark.sparkContext
    program = str(context.pythonExec)
    if not is_one_machine(spark) or shutil.which(program) == sys.executable:
        return
    # What is packaged and added with the job is found by workers only.
    check = _CHECK if context._python_includes else f"{_CHECK}; import varvite"  # noqa: SLF001  it has no getter
    try:
        done = subprocess.run(  # noqa: S603  what Spark would start
            [program, "-c", check], capture_output=True, text=True, timeout=_CHECK_S, check=False
        )
        code, version, problem = (
            done.returncode,
            done.stdout.strip(),
            (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        code, version, problem = 1, "", [str(error)]
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if version == ours and code == 0:
        return
    reason = f"is Python {version}, and the driver is {ours}" if version not in {"", ours} else f"fails: {problem[-1]}"
    raise InvalidRequestError(
        f"Spark's workers would run {program}, which {reason}. Remove {_PYTHON} from the environment, or type: "
        f"export {_PYTHON}={sys.executable}"
    )
