"""The processes of the state workers, without Spark: a parent, its children, and a process in the JVM's place."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.workers.echo_state_worker import FACTORY, facts_of
from tests.workers.probe import homes, kill_worker, probe
from tests.workers.state_worker_setup import Executor, alive, eventually, opening, rows, split
from varvite.changelog.working_stores.options import BackendSettings
from varvite.spark_integration.functions.pickling import ShippedFunction
from varvite.spark_integration.messages.protocol import Ready, row_tag
from varvite.spark_integration.transport.executor_jvm import find_jvm
from varvite.spark_integration.transport.home import PARENT_SOCKET, connect, log_tail, worker_socket
from varvite.spark_integration.transport.wire import Channel, PeerLostError
from varvite.spark_integration.worker.process import parent as worker_parent
from varvite.storage.clock import SystemTokens
from varvite.storage.errors import CorruptDataError, DidNotHappenError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Executor]:
    yield from living(Executor(tmp_path_factory.mktemp("executor")))


@pytest.fixture
def executor(shared: Executor) -> Executor:
    """An executor for tests that leave its parent alone; each has a job of its own."""
    shared.job_id = SystemTokens().token()
    shared.use(FACTORY)
    return shared


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[Executor]:
    """An executor of the test's own."""
    yield from living(Executor(tmp_path))


def living(executor: Executor) -> Iterator[Executor]:
    yield executor
    report = probe(executor.home) if executor.home.path.exists() else None
    pids = [] if report is None else [report.pid, *(w.pid for w in report.workers)]
    executor.end()
    assert eventually(lambda: not any(alive(p) for p in pids), 30), "a process was left behind"


def test_an_answer_holds_the_rows_with_their_tag_and_one_summary(executor: Executor) -> None:
    task = executor.task()
    answer = list(executor.stream(task, [rows(10), rows(20_000, first=10)]))
    values, summary = split(answer)
    assert values == list(range(20_010))
    assert (summary.tag, summary.attempt_figures().rows_in) == (task.tag, 20_010)
    assert {t for batch in answer for t in batch.column(1).to_pylist()} == {row_tag(task.tag)}


def test_an_empty_partition_gets_a_summary_too(executor: Executor) -> None:
    values, summary = executor.run()
    assert (values, summary.attempt_figures().rows_in) == ([], 0)


def test_a_worker_keeps_its_process_and_gets_the_function_once(executor: Executor) -> None:
    summaries = [executor.run(executor.task(task_attempt=i))[1] for i in range(4)]
    assert len({facts_of(s)["pid"] for s in summaries}) == 1
    assert [facts_of(s)["fetched"] for s in summaries] == [1, 1, 1, 1]
    other = ShippedFunction("another hash", b"another function", {})
    _, summary = executor.run(executor.task(task_attempt=9, function_hash="another hash"), function=other)
    assert facts_of(summary)["fetched"] == 2


def test_the_worker_works_ahead_after_each_answer(executor: Executor) -> None:
    seen = [facts_of(executor.run(executor.task())[1])["idle"]]

    def has_worked_ahead_twice() -> bool:  # it does not if the next request is there already
        seen.append(facts_of(executor.run(executor.task(task_attempt=len(seen)))[1])["idle"])
        return seen[-1] >= 2

    assert eventually(has_worked_ahead_twice, 30)
    assert seen == sorted(seen)
    assert seen[0] == 0


def test_an_execution_is_noted(executor: Executor) -> None:
    notes: list[object] = []
    task = executor.task()
    executor.run(task, note=notes.extend)
    assert notes == [("count", 0, task.tag)]


STARTER = """
import sys
from pathlib import Path
from tests.workers.echo_state_worker import FACTORY
from tests.workers.state_worker_setup import opening, task_request
from varvite.spark_integration.transport.connection import WorkerConnector, WorkerLaunch
from varvite.spark_integration.transport.home import WorkerHome
home, launch = WorkerHome(Path(sys.argv[1])), WorkerLaunch(factory=FACTORY)
connector = WorkerConnector(home, launch, jvm=lambda _: int(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
connector.open(opening(task_request(partition=int(sys.argv[3]))))
"""


def test_racing_starters_start_one_parent(doomed: Executor) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    arguments = [str(doomed.home.path), str(doomed.jvm.pid)]
    starters = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", STARTER, *arguments, str(partition)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for partition in range(4)
    ]
    for starter in starters:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "ready\n"
    for starter in starters:
        assert starter.stdin is not None
        starter.stdin.write("go\n")
        starter.stdin.flush()
    for starter in starters:
        starter.communicate(timeout=60)
        assert starter.returncode == 0
    report = probe(doomed.home)
    assert report is not None
    assert log_tail(doomed.home, 1 << 20).count("parent of workers") == 1
    assert len(report.workers) == 4


def test_the_parent_forks_from_a_single_thread(executor: Executor) -> None:
    executor.run()
    report = probe(executor.home)
    assert report is not None
    assert report.threads == 1


def test_arrow_computes_in_a_forked_worker(executor: Executor) -> None:
    _, summary = executor.run(executor.task(backend_options=BackendSettings(factory={"compute": True})))
    assert facts_of(summary)["computed"] == 200_000


def test_a_killed_worker_is_forked_again(executor: Executor) -> None:
    first = facts_of(executor.run()[1])["pid"]
    assert kill_worker(executor.home, executor.worker) == first
    values, summary = executor.run(executor.task(task_attempt=1), [rows(3)])
    assert values == [0, 1, 2]
    assert facts_of(summary)["pid"] != first


def test_a_worker_killed_in_an_execution_fails_the_task_with_a_retryable_error(executor: Executor) -> None:
    executor.run()

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(3)
        kill_worker(executor.home, executor.worker)
        yield rows(3)

    with pytest.raises(
        DidNotHappenError, match=r"while it has attempts left .*; if it has none, start the query again"
    ):
        executor.run(executor.task(task_attempt=1), batches())
    assert facts_of(executor.run(executor.task(task_attempt=2))[1])["begun"] == 1


def test_a_killed_parent_takes_its_workers_along_and_is_started_again(doomed: Executor) -> None:
    doomed.run()
    before = doomed.pids()
    os.kill(before[0], signal.SIGKILL)
    assert eventually(lambda: not any(alive(p) for p in before), 30)
    assert facts_of(doomed.run(doomed.task(task_attempt=1))[1])["begun"] == 1
    assert not set(doomed.pids()) & set(before)


def test_killing_the_jvm_ends_all_and_removes_their_directory(doomed: Executor) -> None:
    for partition in range(2):
        doomed.run(doomed.task(partition=partition))
    state = doomed.home.state_directory("j", "o", 0, 4)
    state.mkdir(parents=True)
    pids = doomed.pids()
    assert len(pids) == 3
    doomed.jvm.send_signal(signal.SIGKILL)  # not reaped: the JVM may stay a zombie for long
    assert eventually(lambda: not any(alive(p) for p in pids), 30)
    assert eventually(lambda: not doomed.home.path.exists(), 30)
    assert doomed.block_manager.exists()


def test_removing_the_executors_directory_ends_all_while_the_jvm_lives(doomed: Executor) -> None:
    doomed.run()
    pids = doomed.pids()
    shutil.rmtree(doomed.block_manager)
    assert eventually(lambda: not any(alive(p) for p in pids), 30)
    assert alive(doomed.jvm.pid)
    assert not doomed.block_manager.exists()


def test_a_newer_attempt_takes_the_place_of_a_zombie_pump(executor: Executor) -> None:
    released = threading.Event()

    def stalled() -> Iterator[pa.RecordBatch]:
        yield rows(3)
        released.wait(100)
        yield rows(3)

    zombie = executor.stream(executor.task(task_attempt=4), stalled())
    next(zombie)
    values, summary = executor.run(executor.task(task_attempt=5), [rows(5)])
    released.set()
    assert values == [0, 1, 2, 3, 4]
    assert facts_of(summary)["aborted"] == 1
    with pytest.raises(DidNotHappenError):
        list(zombie)


@pytest.mark.parametrize(
    "late",
    [{"epoch": 4, "slot": 99}, {"slot": 6}, {"attempt": 1}, {"task_attempt": 7}],
    ids=["epoch", "slot", "attempt", "task attempt"],
)
def test_a_late_request_is_refused_and_harms_nothing(executor: Executor, late: dict[str, int]) -> None:
    current = {"epoch": 5, "slot": 7, "attempt": 2, "task_attempt": 8}
    executor.run(executor.task(**current))
    with pytest.raises(DidNotHappenError, match="refused"):
        executor.run(executor.task(**{**current, **late}))
    _, summary = executor.run(executor.task(**{**current, "task_attempt": 9}))
    assert (facts_of(summary)["begun"], facts_of(summary)["aborted"]) == (2, 0)


def test_operators_of_one_attempt_take_turns(executor: Executor) -> None:
    """Two operators share the worker; in one attempt of a batch neither makes the other pointless."""
    released = threading.Event()

    def slow() -> Iterator[pa.RecordBatch]:
        yield rows(3)
        released.wait(100)
        yield rows(3)

    first = executor.stream(executor.task(operator="first", task_attempt=1), slow())
    next(first)
    second: list[float] = []
    thread = threading.Thread(
        target=lambda: second.append(
            facts_of(executor.run(executor.task(operator="second", task_attempt=2))[1])["aborted"]
        )
    )
    thread.start()
    thread.join(0.3)
    assert not second
    released.set()
    assert split(first)[1].attempt_figures().rows_in == 6
    thread.join(20)
    assert second == [0]


def test_a_pump_that_leaves_early_aborts_its_attempt(executor: Executor) -> None:
    answer = executor.stream(executor.task(), repeat(rows(3)))  # without end: it could end before the pump leaves
    next(answer)
    answer.close()
    _, summary = executor.run(executor.task(slot=3))
    assert (facts_of(summary)["aborted"], facts_of(summary)["finished"]) == (1, 1)


def test_a_pump_that_leaves_before_it_is_served_is_not_begun(executor: Executor) -> None:
    executor.run()
    released = threading.Event()

    def slow() -> Iterator[pa.RecordBatch]:
        yield rows(3)
        released.wait(100)

    running = executor.stream(executor.task(operator="first", slot=3), slow())
    next(running)
    connection = connect(executor.home, worker_socket(executor.worker))
    assert connection is not None
    channel = Channel(connection)
    channel.send_message(opening(executor.task(operator="second", slot=3)))
    time.sleep(0.1)
    channel.close()
    released.set()
    split(running)
    _, summary = executor.run(executor.task(slot=4))
    assert facts_of(summary)["aborted"] == 0
    assert facts_of(summary)["begun"] - facts_of(summary)["finished"] == 0


def test_an_error_of_the_input_reaches_the_task_and_aborts_the_attempt(executor: Executor) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield rows(3)
        raise ZeroDivisionError("in Spark's input")

    with pytest.raises(ZeroDivisionError, match="in Spark's input"):
        executor.run(executor.task(), broken())
    assert facts_of(executor.run(executor.task(task_attempt=1))[1])["aborted"] == 1


def test_a_varvite_error_of_the_worker_arrives_as_itself(executor: Executor) -> None:
    with pytest.raises(CorruptDataError, match="the base is damaged") as caught:
        executor.run(executor.task(backend_options=BackendSettings(factory={"fail": "begin"})))
    assert caught.value.context["object_name"] == "chain/7"
    assert caught.value.context["operator"] == "count"
    assert "echo_state_worker.py" in caught.value.__notes__[0]
    assert facts_of(executor.run(executor.task(task_attempt=1))[1])["aborted"] == 0


@pytest.mark.parametrize(("point", "name"), [("process", "OSError: no space left"), ("finish", "SystemExit: 3")])
def test_another_error_of_the_worker_is_described_and_aborts_the_attempt(
    executor: Executor, point: str, name: str
) -> None:
    endless = (rows(1000) for _ in range(10_000))
    with pytest.raises(DidNotHappenError, match=name) as caught:
        executor.run(
            executor.task(backend_options=BackendSettings(factory={"fail": point})),
            endless if point == "process" else (),
        )
    assert "Traceback" in caught.value.__notes__[0]
    _, summary = executor.run(executor.task(task_attempt=1))
    assert (facts_of(summary)["begun"], facts_of(summary)["aborted"]) == (2, 1)


def test_a_factory_that_cannot_be_loaded_fails_the_task_with_its_name(executor: Executor) -> None:
    executor.use("tests.workers.echo_state_worker:Missing")
    with pytest.raises(InvalidRequestError, match="Missing"):
        executor.run()


def test_an_idle_worker_ends_in_order_and_is_forked_again(executor: Executor) -> None:
    first = int(facts_of(executor.run(executor.task(idle_timeout_s=0.1))[1])["pid"])
    assert eventually(lambda: not alive(first), 30)
    assert (executor.home.path / f"closed-{first}").exists()
    assert facts_of(executor.run(executor.task(task_attempt=1))[1])["pid"] != first


@pytest.mark.parametrize("whom", ["parent", "worker"])
def test_sigterm_ends_in_order_and_keeps_local_files(doomed: Executor, whom: str) -> None:
    doomed.run()
    pids = doomed.pids()
    os.kill(pids[0 if whom == "parent" else 1], signal.SIGTERM)
    ended = pids if whom == "parent" else pids[1:]
    assert eventually(lambda: not any(alive(p) for p in ended), 30)
    assert (doomed.home.path / f"closed-{pids[1]}").exists()
    assert facts_of(doomed.run(doomed.task(task_attempt=1))[1])["begun"] == 1


def test_sigterm_cuts_off_a_waiting_execution(executor: Executor) -> None:
    released = threading.Event()

    def stalled() -> Iterator[pa.RecordBatch]:
        yield rows(3)
        released.wait(100)

    answer = executor.stream(executor.task(), stalled())
    next(answer)
    pid = kill_worker(executor.home, executor.worker, signal.SIGTERM)
    assert eventually(lambda: not alive(pid), 30)
    released.set()
    with pytest.raises(DidNotHappenError):
        list(answer)


def test_a_worker_that_ends_at_any_moment_before_ready_is_replaced(executor: Executor) -> None:
    """The request is brought to the next process; only what had begun may fail, for the task's own retry."""
    outcomes: list[bool] = []
    for attempt in range(24):
        executor.run(executor.task(slot=2 + attempt))
        number = signal.SIGKILL if attempt % 2 else signal.SIGTERM
        pid = executor.pids()[1]
        killer = threading.Timer(attempt * 0.0002, os.kill, (pid, number))
        killer.start()
        try:
            executor.run(executor.task(slot=2 + attempt, task_attempt=1))
            outcomes.append(True)
        except DidNotHappenError as error:
            outcomes.append("cannot be reached" not in error.message)
        killer.join()
        eventually(lambda pid=pid: not alive(pid), 30)
    assert all(outcomes)


@pytest.mark.parametrize(
    "garbage", [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x01\x05\0\0\0\0\0\0\0wrong", b"\x02" + b"\0" * 8]
)
@pytest.mark.parametrize("whose", ["parent", "worker"])
def test_garbage_on_a_socket_harms_nobody(executor: Executor, garbage: bytes, whose: str) -> None:
    executor.run()
    before = executor.pids()
    connection = connect(executor.home, PARENT_SOCKET if whose == "parent" else worker_socket(executor.worker))
    assert connection is not None
    connection.sendall(garbage)
    connection.shutdown(socket.SHUT_WR)
    with connection, contextlib.suppress(ConnectionResetError):
        while connection.recv(1000):
            pass
    executor.run(executor.task(task_attempt=1))
    assert executor.pids() == before


def test_a_directory_that_is_gone_is_a_clear_error(doomed: Executor) -> None:
    shutil.rmtree(doomed.block_manager)
    with pytest.raises(DidNotHappenError, match="is gone"):
        doomed.run()


def test_a_function_that_the_worker_said_it_has_is_not_asked_for_again(executor: Executor) -> None:
    executor.run()
    with pytest.raises(Exception, match="said it has"):
        executor.run(executor.task(task_attempt=1, backend_options=BackendSettings(factory={"ask again": True})))


def test_the_log_is_cut(doomed: Executor) -> None:
    doomed.run()
    with doomed.home.log_path.open("ab") as log:
        log.write(b"x" * (worker_parent.LOG_BYTES_MAX + 1))
    assert eventually(lambda: doomed.home.log_path.stat().st_size < worker_parent.LOG_BYTES_MAX, 30)
    assert doomed.home.old_log_path.stat().st_size > worker_parent.LOG_BYTES_MAX
    kill_worker(doomed.home, doomed.worker)
    doomed.run(doomed.task(task_attempt=1))
    assert "is process" in log_tail(doomed.home)


def test_homes_are_found_below_the_local_directory(doomed: Executor, tmp_path: Path) -> None:
    doomed.run()
    assert homes(tmp_path) == [doomed.home]


def test_the_jvm_is_the_nearest_java_among_the_ancestors() -> None:
    with pytest.raises(InvalidRequestError, match="no JVM"):
        find_jvm(os.getpid())


def test_a_channel_tells_that_the_peer_is_gone() -> None:
    mine, theirs = socket.socketpair()
    channel = Channel(mine)
    theirs.close()
    with pytest.raises(PeerLostError):
        channel.receive_message(Ready)
    channel.close()
    with pytest.raises(PeerLostError):
        channel.send_end()


def test_no_secret_of_sparks_reaches_the_workers(doomed: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", "secret")
    doomed.run()
    for pid in doomed.pids():
        assert b"PYTHON_WORKER_FACTORY_SECRET" not in Path(f"/proc/{pid}/environ").read_bytes()
