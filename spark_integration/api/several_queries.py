"""`SeveralQueries`: the queries of a program that writes several streams, as one handle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from varvite.spark_integration.api.job_client import JobClient
from varvite.storage.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.spark_integration.api.query import VarviteStreamingQuery

POLL_S = 0.05


class SeveralQueries(JobClient):
    """Ends when all its queries have ended. One that fails ends the others."""

    def __init__(self, queries: Sequence[VarviteStreamingQuery]) -> None:
        self.begin()
        self.queries = tuple(queries)
        """In the order of the program's sinks."""
        self._is_stopping = False

    @property
    def name(self) -> str:
        """The name of the program."""
        return self.queries[0].name or ""

    @property
    def job_id(self) -> str:
        """The first query's."""
        return self.queries[0].job_id

    @property
    def isActive(self) -> bool:  # noqa: N802  Spark's name
        """True while a query runs."""
        return any(query.isActive for query in self.queries)

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802  Spark's name
        """Wait for the end of all, at most `timeout` seconds; then True if they have ended. Raises as a query does."""
        clock = SystemClock()
        end_s = None if timeout is None else clock.monotonic_s() + timeout
        while self.isActive and self.exception() is None:
            if end_s is not None and clock.monotonic_s() >= end_s:
                return False
            clock.sleep(POLL_S)
        failed = next((query for query in self.queries if query.exception() is not None), None)
        if failed is not None:
            self._stop_all()
            failed.awaitTermination()
        for query in self.queries:
            query.awaitTermination()
        return None if timeout is None else True

    def exception(self) -> Exception | None:
        """The first error of a query; None if there is none."""
        return next((error for query in self.queries if (error := query.exception()) is not None), None)

    def stop(self) -> None:
        """Stop all queries, each after its batch."""
        self._is_stopping = True
        self._stop_all()

    def _stop_all(self) -> None:
        for query in self.queries:
            if query.isActive:
                query.stop()

    def _was_stopped(self) -> bool:
        return self._is_stopping
