"""Lines that user code writes in a state worker reach the pump's output; a worker that ends says how, with the last."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle

from tests.workers.echo_state_worker import facts_of
from tests.workers.state_worker_setup import Executor
from varvite.changelog.working_stores.options import BackendSettings
from varvite.spark_integration.functions.pickling import ShippedFunction
from varvite.spark_integration.transport.home import log_tail
from varvite.spark_integration.worker.process.output import LINE_BYTES_MAX
from varvite.storage.errors import DidNotHappenError

if TYPE_CHECKING:
    from collections.abc import Callable


def called(executor: Executor, function: Callable[[], float], task_attempt: int = 0) -> float:
    """Answer of the function in the worker."""
    name = f"{function.__name__}-{task_attempt}"
    shipped = ShippedFunction(name, cloudpickle.dumps(function), {})
    task = executor.task(
        task_attempt=task_attempt, function_hash=name, backend_options=BackendSettings(factory={"call": True})
    )
    return facts_of(executor.run(task, function=shipped)[1])["called"]


def talk() -> float:
    import logging
    import threading
    import warnings

    sys.stdout.write("two\nlines and a ")
    sys.stdout.flush()
    sys.stdout.write("half")
    thread = threading.Thread(target=sys.stderr.write, args=("of a thread\n",))
    thread.start()
    thread.join()
    log = logging.getLogger("mine")
    log.info("not shown: the level is WARNING, as in Spark's Python workers")
    log.warning("careful %d", 7)
    logging.basicConfig(level=logging.DEBUG, format="%(name)s %(message)s")  # as a program of Spark may do it
    log.debug("details \udce4")
    logging.getLogger("varvite.x").info("of varvite")
    logging.getLogger("varvite.x").warning("of varvite, too")
    warnings.simplefilter("always")
    warnings.warn("in a file", stacklevel=1)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.stdout.buffer.write(b"bytes \xc3\xa4 \xff\n")
    sys.stderr.write("x" * (LINE_BYTES_MAX + 1))
    return 1.0


def test_print_logging_and_warnings_reach_the_log_of_the_executor_line_by_line(
    executor: Executor, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found as output that appeared nowhere but in a file that is deleted with the application."""
    assert called(executor, talk) == 1.0
    written = capsys.readouterr().err
    lines = written.splitlines()
    expected = [
        "two",
        "of a thread",
        "careful 7",
        "mine details \\udce4",
        "WARNING varvite.x: of varvite, too",
        "lines and a halfbytes ä \\xff",
        "x" * (LINE_BYTES_MAX + 1),
    ]
    beside = [line for line in lines if "UserWarning: in a file" in line or "warnings.warn(" in line]
    assert beside
    assert sorted(set(lines) - set(beside)) == sorted(f"[count 0] {line}" for line in expected)
    in_file = log_tail(executor.home, 1 << 20)
    assert all(f"[count 0] {line}\n" in in_file for line in expected if "varvite" not in line)
    assert "INFO varvite.x: of varvite\n" in in_file


def fork() -> float:
    import multiprocessing

    context = multiprocessing.get_context("fork")
    sys.stdout.write("begun ")
    child = context.Process(target=sys.stdout.write, args=("in a child\n",))
    child.start()
    child.join()
    sys.stdout.write("and ended\n")
    return float(child.exitcode or 0)


def test_a_process_that_user_code_forks_writes_to_the_file_alone(
    executor: Executor, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(executor, fork) == 0.0
    assert capsys.readouterr().err == "[count 0] begun and ended\n"
    assert "[count 0] in a child\n" in log_tail(executor.home)


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (3, "ended with exit code 3"),
        (0, "ended with exit code 0"),
        (-signal.SIGKILL, "killed by SIGKILL, as a system that is out of memory does; raise spark.executor.memoryOv"),
        (-signal.SIGSEGV, "ended by SIGSEGV"),
        (-signal.SIGABRT, "ended by SIGABRT"),
    ],
)
def test_a_worker_that_ends_says_how_with_its_last_lines(
    executor: Executor, capsys: pytest.CaptureFixture[str], end: int, words: str
) -> None:
    """Found as "the state worker ended, or a newer attempt took its place"."""

    def ends() -> float:
        import os
        import resource

        sys.stdout.write("the last line\n")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if end >= 0:
            os._exit(end)
        os.kill(os.getpid(), -end)
        return 0.0

    with pytest.raises(DidNotHappenError, match=words) as raised:
        called(executor, ends)
    assert "\n[count 0] the last line\n" in raised.value.__notes__[0]
    assert capsys.readouterr().err == "[count 0] the last line\n"
