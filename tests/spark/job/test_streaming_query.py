"""The query handle over a real Spark query: errors that can be read, a stop between batches, resources released."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from varvite.spark_integration.api.query import (
    CANCEL_TIMEOUT_S,
    STOP_TIMEOUT_S,
    BatchFunction,
    LaunchedQuery,
    VarviteStreamingQuery,
    stop_timeout_s,
)
from varvite.spark_integration.driver.coordinator import StopRequestedError
from varvite.spark_integration.driver.monitoring.statistics import StatisticsLog
from varvite.storage.errors import FencedError, InvalidRequestError

pytestmark = pytest.mark.spark


class Run:
    """A run without state: what the query handle needs of a coordinator, with its promise about stopping."""

    def __init__(self, batch: Callable[[DataFrame, int], None], *, breaks: bool = False) -> None:
        self.statistics = StatisticsLog()
        self.metrics_port: int | None = None
        self.released = 0
        self.cancelled = ""
        self._batch = batch
        self._breaks = breaks
        self._stopping = threading.Event()
        self._in_batch = threading.Lock()

    def process_batch(self, rows: DataFrame, batch: int) -> None:
        with self._in_batch:
            if self._stopping.is_set():
                raise StopRequestedError("the query is being stopped", batch=batch)
            self._batch(rows, batch)

    def request_stop(self, timeout_s: float) -> bool:
        self._stopping.set()
        ended = self._in_batch.acquire(timeout=timeout_s)
        if ended:
            self._in_batch.release()
        return ended

    def cancel(self, run_id: str) -> None:
        self.cancelled = run_id

    def stop(self) -> None:
        self.released += 1
        if self._breaks:
            raise RuntimeError("Spark has ended")

    def has_moved_watermark(self) -> bool:
        return False

    def is_caught_up(self) -> bool:
        return True


@pytest.fixture
def start(rows_of_k: Any, tmp_path: Path) -> Callable[..., tuple[VarviteStreamingQuery, Run]]:
    def started(
        batch: Callable[[DataFrame, int], None],
        at_end: Sequence[Callable[[bool], None]] = (),
        *,
        breaks: bool = False,
        stop_timeout_s: float = 60,
        **trigger: Any,
    ) -> tuple[VarviteStreamingQuery, Run]:
        run = Run(batch, breaks=breaks)
        function = BatchFunction(run.process_batch)
        writer = rows_of_k.read().writeStream.foreachBatch(function).queryName("handle")
        writer = writer.option("checkpointLocation", str(tmp_path / "c"))
        query = (writer.trigger(**trigger) if trigger else writer).start()
        return VarviteStreamingQuery(LaunchedQuery(query, run, function), at_end, stop_timeout_s=stop_timeout_s), run

    return started


def test_a_query_that_ends_by_itself_releases_its_resources(start: Any) -> None:
    batches: list[int] = []
    query, run = start(lambda rows, batch: batches.append(batch), availableNow=True)
    assert isinstance(query, StreamingQuery)
    assert query.awaitTermination() is None
    assert (run.released, batches, query.exception(), query.isActive) == (1, [0, 1, 2], None, False)
    assert query.checkpoint_statistics is run.statistics
    assert query.name == "handle"


def test_resources_are_released_although_nobody_waits(start: Any) -> None:
    query, run = start(lambda rows, batch: None, availableNow=True)
    deadline = time.monotonic() + 30
    while run.released == 0 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert run.released == 1
    assert not query.isActive


def test_all_that_was_to_be_done_at_the_end_is_done_whatever_fails(start: Any) -> None:
    ended: list[tuple[str, bool]] = []

    def failing(complete: bool) -> None:
        ended.append(("failing", complete))
        raise OSError("disk full")

    query, run = start(
        lambda rows, batch: None,
        [failing, lambda complete: ended.append(("last", complete))],
        breaks=True,
        availableNow=True,
    )
    query.awaitTermination()
    assert run.released == 1
    assert ended == [("failing", True), ("last", True)]


def test_an_error_of_varvite_arrives_itself(start: Any) -> None:
    fenced = FencedError("another run took over", job="handle", epoch=7)

    def batch(rows: DataFrame, number: int) -> None:
        raise fenced

    query, run = start(batch, availableNow=True)
    with pytest.raises(FencedError) as caught:
        query.awaitTermination()
    assert caught.value is fenced
    assert query.exception() is fenced
    assert run.released == 1
    with pytest.raises(FencedError):
        query.processAllAvailable()


def test_an_error_that_is_none_of_varvite_is_the_cause_of_sparks(start: Any) -> None:
    def batch(rows: DataFrame, number: int) -> None:
        raise ValueError("disk full")

    query, _ = start(batch, availableNow=True)
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination()
    assert isinstance(caught.value.__cause__, ValueError)
    assert "disk full" in str(caught.value)


def test_waiting_for_a_while_says_whether_the_query_has_ended(start: Any) -> None:
    query, run = start(lambda rows, batch: None)
    query.processAllAvailable()
    assert query.awaitTermination(1) is False
    query.stop()
    assert query.awaitTermination(1) is True
    assert run.released == 1


def test_stop_lets_the_running_batch_end(start: Any) -> None:
    entered, ended = threading.Event(), threading.Event()

    def batch(rows: DataFrame, number: int) -> None:
        entered.set()
        time.sleep(0.5)
        assert rows.count() == 2
        ended.set()

    query, run = start(batch)
    assert entered.wait(30)
    query.stop()
    assert ended.is_set()
    assert (query.isActive, run.released, query.exception()) == (False, 1, None)
    assert query.awaitTermination() is None


def test_stop_does_not_wait_for_ever_for_a_sink(start: Any) -> None:
    """Found as a stop that did not return; only killing the driver helped."""
    entered, let_go = threading.Event(), threading.Event()

    def batch(rows: DataFrame, number: int) -> None:
        entered.set()
        let_go.wait()

    query, run = start(batch, stop_timeout_s=0.2)
    assert entered.wait(30)
    started_s = time.monotonic()
    query.stop()
    assert time.monotonic() - started_s < CANCEL_TIMEOUT_S + 20
    assert (query.isActive, run.released, run.cancelled) == (False, 1, str(query.runId))
    assert query.exception() is None
    query.awaitTermination()
    let_go.set()


@pytest.mark.parametrize(("text", "seconds"), [("0", STOP_TIMEOUT_S), ("1500", 1.5), ("2min", 120)])
def test_the_time_that_stop_leaves_a_batch_is_sparks(spark: SparkSession, text: str, seconds: float) -> None:
    before = spark.conf.get("spark.sql.streaming.stopTimeout", "0") or "0"
    spark.conf.set("spark.sql.streaming.stopTimeout", text)
    assert stop_timeout_s(spark) == seconds
    spark.conf.set("spark.sql.streaming.stopTimeout", before)


def test_a_query_cannot_be_stopped_from_inside_its_batch(start: Any) -> None:
    handle: list[VarviteStreamingQuery] = []
    ready, refused = threading.Event(), threading.Event()

    def batch(rows: DataFrame, number: int) -> None:
        ready.wait(30)
        with pytest.raises(InvalidRequestError, match="inside"):
            handle[0].stop()
        refused.set()

    query, _ = start(batch, availableNow=True)
    handle.append(query)
    ready.set()
    query.awaitTermination()
    assert refused.is_set()


def test_the_session_does_not_know_the_query_any_more(start: Any, spark: SparkSession) -> None:
    query, _ = start(lambda rows, batch: None)
    query.stop()
    assert spark.streams.get(query.id) is None
