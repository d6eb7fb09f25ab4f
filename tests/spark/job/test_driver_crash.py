"""Drivers killed with SIGKILL, or stopped, at every step between the tasks' answer and Spark's acknowledgement."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from benchmarks.harness.servers.ceph import ACCESS_KEY, SECRET_KEY, running_ceph
from tests.spark.keyed_jobs import SumsModel, in_order
from tests.spark.rate_jobs import ROWS, expected_rows
from tests.stores.s3_servers import BUCKET, S3Server, skip_without_ceph

pytestmark = [pytest.mark.long, pytest.mark.spark]
ROOT = Path(__file__).parents[3]
POINTS = ("driver.before_commit", "driver.after_commit", "driver.in_sink", "driver.after_sink")
"""Fail points of a driver, in the order of a batch."""


def write_files(directory: Path, files: int) -> list[tuple[object, ...]]:
    """Input files, and the output rows that they must give."""
    (directory / "input").mkdir()
    model, expected = SumsModel(), []
    for number in range(files):
        rows = [(f"key-{i % 3}", number * 10 + i) for i in range(6)]
        path = directory / "input" / f"{number:05d}.json"
        path.write_text("".join(json.dumps({"k": k, "v": v}) + "\n" for k, v in rows))
        os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        expected += [model.add(k, v) for k, v in rows]
    return expected


def run_driver(
    directory: Path, point: str | None, *arguments: str, module: str = "crash_driver", number: int = 2
) -> int:
    """One run of the driver; its exit code, negative for a signal."""
    process = start_driver(directory, point, *arguments, module=module, number=number)
    try:
        return process.wait(240)
    finally:
        process.kill()
        process.wait()


def start_driver(
    directory: Path, point: str | None, *arguments: str, module: str = "crash_driver", number: int = 2
) -> subprocess.Popen[bytes]:
    """A driver process, armed at a fail point if one is named, which it must reach so many times."""
    path = os.pathsep.join(p for p in (str(ROOT), os.environ.get("PYTHONPATH", "")) if p)
    environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}
    environment.pop("VARVITE_FAIL_POINT", None)
    environment["XDG_CACHE_HOME"] = str(directory / "cache")
    if point is not None:
        environment["VARVITE_FAIL_POINT"] = f"{point}:{number}:{directory / point}"
    command = [sys.executable, "-m", f"tests.spark.drivers.{module}", str(directory), *arguments]
    with (directory / "driver.log").open("ab") as log:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def output(directory: Path) -> list[tuple[object, ...]]:
    """The rows in the output files."""
    table = ds.dataset(directory / "out", format="parquet", partitioning="hive", ignore_prefixes=["_", "."]).to_table()
    return in_order((r["k"], r["n"], r["total"], r["seen"]) for r in table.to_pylist())


def delta_rows(directory: Path) -> list[tuple[object, ...]]:
    """The rows in the output table."""
    table = DeltaTable(str(directory / "out")).to_pyarrow_table()
    return in_order((r["k"], r["n"], r["total"], r["seen"]) for r in table.to_pylist())


@pytest.mark.parametrize(
    ("sink", "points"),
    # The protocol of tables has trials with more kills, in tests/integration/tables.
    [("parquet", POINTS), pytest.param("delta", POINTS[1:3], marks=pytest.mark.rare)],
)
def test_a_driver_killed_before_and_after_the_commit_and_after_the_sink_loses_and_doubles_nothing(
    tmp_path: Path, sink: str, points: Sequence[str]
) -> None:
    expected, arguments = write_files(tmp_path, 9), ("local[2,4]", sink)
    for point in points:
        assert run_driver(tmp_path, point, *arguments) == -signal.SIGKILL, (tmp_path / "driver.log").read_text()[-2000:]
        assert (tmp_path / point).exists()
    assert run_driver(tmp_path, None, *arguments) == 0, (tmp_path / "driver.log").read_text()[-2000:]
    rows = output(tmp_path) if sink == "parquet" else delta_rows(tmp_path)
    assert rows == in_order(expected)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kills",
    [
        pytest.param([(1, POINTS[3]), (3, POINTS[1]), (3, POINTS[2])], id="some"),
        pytest.param([(n, point) for n in (1, 3) for point in POINTS], id="all", marks=pytest.mark.rare),
    ],
)
def test_a_killed_driver_without_a_checkpoint_location_loses_and_doubles_nothing(
    tmp_path: Path, kills: list[tuple[int, str]]
) -> None:
    """Its location, and all else that it has kept on its machine, is deleted before each start.

    Kills are in the first batch of a run, which is often one that is executed again, and in a later one.
    """
    for number, point in kills:
        (tmp_path / point).unlink(missing_ok=True)
        assert run_driver(tmp_path, point, "1000", module="chain_driver", number=number) == -signal.SIGKILL, (
            tmp_path / "driver.log"
        ).read_text()[-2000:]
        assert (tmp_path / point).exists()
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    assert run_driver(tmp_path, None, "30", module="chain_driver") == 0, (tmp_path / "driver.log").read_text()[-2000:]
    check_output_of_rates(tmp_path, 30)


@pytest.mark.s3
@pytest.mark.fixed_storage  # it has one of its own
@pytest.mark.parametrize(
    ("kills", "batches"),
    [
        pytest.param(2, 24, marks=pytest.mark.timeout(600)),
        pytest.param(50, 1_000, marks=[pytest.mark.rare, pytest.mark.timeout(3_600)]),
    ],
)
def test_a_job_on_s3_with_one_url_is_exact_after_kills_at_any_moment(tmp_path: Path, kills: int, batches: int) -> None:
    """It names no location, and nothing that a killed driver has kept on its machine is there after it."""
    skip_without_ceph()
    rng = random.Random(kills)
    with running_ceph() as cluster:
        server = S3Server("ceph", cluster.endpoint_url, ACCESS_KEY, SECRET_KEY)
        cluster.make_bucket(BUCKET)
        conf = server.job_conf(server.new_location())
        storage = conf.pop("execution.checkpointing.dir")
        for _ in range(kills):
            before = batches_in_output(tmp_path)
            driver = start_driver(tmp_path, None, str(10 * batches), storage, json.dumps(conf), module="chain_driver")
            try:
                deadline_s = time.monotonic() + 240
                enough = before + rng.randint(1, 2 * batches // kills)
                while batches_in_output(tmp_path) < enough:
                    assert driver.poll() is None, (tmp_path / "driver.log").read_text()[-2000:]
                    assert time.monotonic() < deadline_s
                    time.sleep(0.02)
                time.sleep(rng.random() / 4)
            finally:
                driver.kill()
                driver.wait()
            for name in ("cache", "local"):
                shutil.rmtree(tmp_path / name, ignore_errors=True)
            for path in tmp_path.glob("out/batch_id=*/*/[!._]*.parquet"):
                pq.read_metadata(path)  # whoever reads all files meets none in part
        batches = max(batches, batches_in_output(tmp_path)) + 5  # more, so that what a killed driver has left is gone
        end = (str(batches), storage, json.dumps(conf))
        code = run_driver(tmp_path, None, *end, module="chain_driver")
        assert code == 0, (tmp_path / "driver.log").read_text()[-2000:]
    check_output_of_rates(tmp_path, batches)


def batches_in_output(directory: Path) -> int:
    return len(list(directory.glob("out/batch_id=*")))


def check_output_of_rates(directory: Path, batches: int) -> None:
    """Each row of at least so many batches is there once."""
    table = ds.dataset(directory / "out", format="parquet", partitioning="hive", ignore_prefixes=["_", "."]).to_table()
    rows = sorted((row["k"], row["n"], row["v"]) for row in table.to_pylist())
    assert len(rows) >= batches * ROWS
    assert rows == expected_rows(len(rows) // ROWS)


@pytest.mark.parametrize(
    "end", [signal.SIGCONT, pytest.param(signal.SIGKILL, marks=pytest.mark.rare)], ids=["wakes up", "is killed"]
)
def test_a_driver_that_stands_still_while_it_writes_output_doubles_nothing(tmp_path: Path, end: signal.Signals) -> None:
    """Another one takes over and processes everything; whoever reads all files sees each row once."""
    expected = write_files(tmp_path, 5)
    stalled = start_driver(tmp_path, "driver.in_sink@stop")
    try:
        deadline_s = time.monotonic() + 120
        while Path(f"/proc/{stalled.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < deadline_s, (tmp_path / "driver.log").read_text()[-2000:]
            time.sleep(0.1)
        assert run_driver(tmp_path, None) == 0, (tmp_path / "driver.log").read_text()[-2000:]
        stalled.send_signal(end)
        assert stalled.wait(120) != 0
    finally:
        stalled.kill()
        stalled.wait()
    if end == signal.SIGCONT:
        assert "FencedError" in (tmp_path / "driver.log").read_text()
    assert output(tmp_path) == in_order(expected)


def test_on_a_local_cluster_state_follows_partitions_from_executor_to_executor(tmp_path: Path) -> None:
    expected = write_files(tmp_path, 6)
    assert run_driver(tmp_path, None, "local-cluster[2,1,1024]") == 0, (tmp_path / "driver.log").read_text()[-2000:]
    assert output(tmp_path) == in_order(expected)
