"""The Python of Spark's workers in local mode: the driver's own, or an error that says what to type."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from varvite.spark_integration.api.environment import StreamExecutionEnvironment
from varvite.spark_integration.api.session import check_worker_python, use_this_python
from varvite.storage.errors import InvalidRequestError

OURS = f"{sys.version_info[0]}.{sys.version_info[1]}"


def session(python: str, master: str = "local[2]", includes: tuple[str, ...] = ()) -> Any:
    """The three attributes of a session that are read."""
    return SimpleNamespace(
        sparkContext=SimpleNamespace(master=master, pythonExec=python, _python_includes=list(includes))
    )


@pytest.fixture
def python_that(tmp_path: Path) -> Any:
    """Makes a program that answers as some Python would."""

    def make(*commands: str) -> str:
        program = tmp_path / "python3"
        program.write_text("\n".join(["#!/bin/sh", *commands]))
        program.chmod(0o755)
        return str(program)

    return make


def test_workers_run_the_drivers_python_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    local, cluster = session("python3"), session("python3", "spark://host:7077")
    for spark in (local, cluster):
        use_this_python(spark)
    assert (local.sparkContext.pythonExec, cluster.sparkContext.pythonExec) == (sys.executable, "python3")
    check_worker_python(local)
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    named = session("/opt/python")
    use_this_python(named)
    assert named.sparkContext.pythonExec == "/opt/python"


def test_a_python_that_cannot_run_the_job_is_one_error_that_says_what_to_type(python_that: Any) -> None:
    advice = f"export PYSPARK_PYTHON={sys.executable}"
    for program, reason in (
        (lambda: python_that("echo 2.7"), f"is Python 2.7, and the driver is {OURS}"),
        (
            lambda: python_that(
                f"echo {OURS}", "echo \"ModuleNotFoundError: No module named 'varvite'\" >&2", "exit 1"
            ),
            "fails: ModuleNotFoundError: No module named 'varvite'",
        ),
        (lambda: python_that("exit 3"), "fails: exit code 3"),
        (lambda: "/nowhere/python3", "No such file"),
    ):
        with pytest.raises(InvalidRequestError) as caught:
            check_worker_python(session(program()))
        assert reason in str(caught.value)
        assert advice in str(caught.value)


def test_a_python_that_can_is_taken(python_that: Any) -> None:
    check_worker_python(session(python_that(f"echo {OURS}")))
    check_worker_python(session("/nowhere/python3", master="yarn"))


def test_code_that_comes_with_the_job_is_not_looked_for_in_the_python(python_that: Any) -> None:
    without_varvite = f'case "$2" in *varvite*) exit 1;; esac; echo {OURS}'
    check_worker_python(session(python_that(without_varvite), includes=("job.zip",)))
    with pytest.raises(InvalidRequestError):
        check_worker_python(session(python_that(without_varvite)))


@pytest.mark.parametrize(
    ("master", "conf", "expected"),
    [
        ("local[6]", {}, 6),
        ("local[6]", {"spark.sql.shuffle.partitions": "50"}, 50),
        ("local[6]", {"spark.varvite.parallelism.default": "9"}, 9),
        ("local[6]", {"spark.varvite.pipeline.max-parallelism": "4"}, 4),
        ("spark://host:7077", {}, 128),
    ],
)
def test_the_default_parallelism_is_that_of_the_cores_in_local_mode(
    master: str, conf: dict[str, str], expected: int
) -> None:
    """It was 128 processes on a laptop, for 12 rows."""
    spark: Any = SimpleNamespace(
        conf=SimpleNamespace(getAll=conf, get=lambda key, default="200": conf.get(key, default)),
        sparkContext=SimpleNamespace(master=master, defaultParallelism=6),
    )
    assert StreamExecutionEnvironment(spark).get_parallelism() == expected
