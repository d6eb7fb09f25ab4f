"""User code that forks in a state worker: a pool of processes, a child that lives on, one that comes back."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle

from tests.workers.echo_state_worker import facts_of
from tests.workers.probe import kill_worker
from tests.workers.state_worker_setup import Executor, alive, eventually
from varvite.changelog.working_stores.options import BackendSettings
from varvite.spark_integration.functions.pickling import ShippedFunction
from varvite.spark_integration.processes import EXIT_FORKED, keep_from_forks
from varvite.storage.errors import DidNotHappenError

if TYPE_CHECKING:
    from collections.abc import Callable

CHILD_LIVES_S = 120
PROMPTLY_S = 60


def called(executor: Executor, function: Callable[[], float], task_attempt: int) -> dict[str, float]:
    """Answer of the worker after it has called the function."""
    name = f"{function.__name__}-{task_attempt}"
    shipped = ShippedFunction(name, cloudpickle.dumps(function), {})
    task = executor.task(
        task_attempt=task_attempt, function_hash=name, backend_options=BackendSettings(factory={"call": True})
    )
    return facts_of(executor.run(task, function=shipped)[1])


def in_a_pool() -> float:
    import multiprocessing

    with multiprocessing.get_context("fork").Pool(2) as pool:  # ended with SIGTERM
        return float(sum(pool.map(abs, [-1, -2])))


def keep_a_pool() -> float:
    import builtins
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    pool = ProcessPoolExecutor(2, multiprocessing.get_context("fork"))
    builtins.kept_pool = pool  # type: ignore[attr-defined]  as a field of the function would keep it
    return float(pool.submit(os.getpid).result())


def leave_a_child() -> float:
    child = os.fork()
    if child == 0:
        time.sleep(CHILD_LIVES_S)
        os._exit(0)
    return float(child)


def leave_a_child_and_die() -> float:
    leave_a_child()
    os.kill(os.getpid(), signal.SIGKILL)
    return 0.0


def fork_and_exit() -> float:
    child = os.fork()
    if child == 0:
        sys.exit(0)
    return float(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def fork_and_return() -> float:
    child = os.fork()
    return 0.0 if child == 0 else float(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


class SigtermAtOnce:
    """A resource that the child closes before it has signal handlers of its own."""

    def close(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)


def fork_and_terminate() -> float:
    resource = SigtermAtOnce()
    keep_from_forks(resource)
    child = os.fork()
    if child == 0:
        time.sleep(CHILD_LIVES_S)
        os._exit(0)
    return float(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def test_a_child_that_is_terminated_before_it_has_run_ends(executor: Executor) -> None:
    """The signal was lost between the fork and the child's handler: a pool that was ended at once waited for ever."""
    assert called(executor, fork_and_terminate, 1)["called"] == -signal.SIGTERM


def test_the_end_of_a_pool_of_processes_does_not_end_the_worker(executor: Executor) -> None:
    """`multiprocessing` ends a pool with SIGTERM, and the worker's handler told the worker to end."""
    first = called(executor, in_a_pool, 1)
    second = called(executor, in_a_pool, 2)
    assert (first["called"], second["called"]) == (3.0, 3.0)
    assert first["pid"] == second["pid"]


def test_a_child_that_outlives_its_worker_keeps_neither_the_pump_nor_the_next_worker(executor: Executor) -> None:
    """It held the pump's connection and the worker's lock for as long as it lived."""
    started_s = time.monotonic()
    with pytest.raises(DidNotHappenError, match="the state worker was killed by SIGKILL"):
        called(executor, leave_a_child_and_die, 1)
    assert executor.run(executor.task(task_attempt=2))[0] == []
    assert time.monotonic() - started_s < PROMPTLY_S


def test_a_pool_of_a_worker_that_was_killed_ends_with_it(executor: Executor) -> None:
    """Its processes waited for work for ever: each of them holds the other end of the pipe that it reads."""
    child = int(called(executor, keep_a_pool, 1)["called"])
    assert alive(child)
    kill_worker(executor.home, executor.worker)
    assert eventually(lambda: not alive(child), 30)


def test_a_child_may_outlive_the_function_that_forked_it(executor: Executor) -> None:
    child = int(called(executor, leave_a_child, 1)["called"])
    assert alive(child)
    os.kill(child, signal.SIGTERM)  # not ignored, and not the worker's
    assert eventually(lambda: not alive(child), 30)
    assert executor.run(executor.task(task_attempt=2))[0] == []


@pytest.mark.parametrize("function", [fork_and_exit, fork_and_return])
def test_a_child_that_comes_back_from_the_function_ends(executor: Executor, function: Callable[[], float]) -> None:
    """It went on as a second worker: it answered in the other's place, and waited for requests."""
    facts = called(executor, function, 1)
    assert facts["called"] == EXIT_FORKED
    assert called(executor, function, 2)["pid"] == facts["pid"]
