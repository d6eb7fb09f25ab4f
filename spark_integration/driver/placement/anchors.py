"""The anchors of a run: one per parallelism, made anew when executors come or go.

Placement is a matter of speed alone: an error of Spark's internals switches it off for the run, with a warning.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from varvite.spark_integration.driver.placement.anchor import Anchor
from varvite.spark_integration.driver.placement.decision import (
    REDUCE_LOCALITY,
    JoinForm,
    Placement,
    is_one_process,
    join_form,
    next_placement,
)
from varvite.spark_integration.driver.placement.spark_internals import LiveExecutors
from varvite.spark_integration.driver.placement.standbys import NO_COPIES
from varvite.storage.errors import InvariantError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from varvite.spark_integration.driver.placement.decision import Executor
    from varvite.spark_integration.driver.placement.standbys import StandbyCopies

_log: Final = logging.getLogger(__name__)
MERGE_SETTINGS: Final = {
    # Else a partition's rows stay in the heap while they are joined, however many they are.
    "spark.sql.sortMergeJoinExec.buffer.in.memory.threshold": "4096",
}
"""Settings of the stream's session in the merge form, unless the user has made them."""
# The last: what py4j raises when a class that Spark should have is not there.
_NOT_AS_KNOWN: Final = (Py4JError, PySparkException, InvariantError, TypeError)


class Anchors:
    """The anchors of one run. Used by one thread at a time."""

    def __init__(
        self,
        session: SparkSession,
        job: str,
        executors: LiveExecutors,
        form: JoinForm,
        copies: Callable[[], StandbyCopies] = lambda: NO_COPIES,
    ) -> None:
        """Use `create`."""
        self._session = session
        self._job = job
        self._live = executors
        self._form = form
        self._copies = copies
        self._executors: frozenset[Executor] = frozenset()
        self._placements: dict[int, Placement] = {}
        self._anchors: dict[int, Anchor] = {}
        self._is_off = False

    @classmethod
    def create(cls, session: SparkSession, job: str, copies: Callable[[], StandbyCopies]) -> Anchors | None:
        """The anchors of a job's run; None where there is only one place for tasks.

        Args:
            session: That of the stream's rows.
            job: Its name.
            copies: Returns the copies that standbys have; called whenever partitions are placed.
        """
        context = session.sparkContext
        if is_one_process(context.master or ""):
            return None
        form = join_form(session.conf.get(REDUCE_LOCALITY, "true") or "true")
        try:
            anchors = cls(session, job, LiveExecutors(context), form, copies)
        except _NOT_AS_KNOWN as error:
            _log.warning("job %s: partitions are not placed: %s", job, error)
            return None
        if form is JoinForm.MERGE:
            _log.info(
                "job %s: %s=false would make placement cheaper; see docs/operate/cluster.md", job, REDUCE_LOCALITY
            )
            for key, value in MERGE_SETTINGS.items():
                if session.conf.get(key, None) is None:
                    session.conf.set(key, value)
        return anchors

    def refresh(self) -> None:
        """Read the executors that there are; before each attempt of a batch."""
        if self._is_off:
            return
        try:
            self._executors = self._live.usable()
        except _NOT_AS_KNOWN as error:
            self._switch_off(error)

    def of(self, parallelism: int) -> Anchor | None:
        """The anchor for operators with so many partitions; None if there is nothing to choose."""
        if self._is_off:
            return None
        before = self._placements.get(parallelism, Placement())
        placement = next_placement(before, parallelism, self._executors, self._job, self._copies())
        self._placements[parallelism] = placement
        if not placement.needs_anchor:
            self._anchors.pop(parallelism, None)
            return None
        anchor = self._anchors.get(parallelism)
        if anchor is None or anchor.by_partition != placement.by_partition:
            try:
                anchor = self._anchors[parallelism] = Anchor(self._session, placement.by_partition, self._form)
            except _NOT_AS_KNOWN as error:
                self._switch_off(error)
                return None
            _log.info(
                "job %s: %d partitions are placed on %d executors", self._job, parallelism, len(placement.executors)
            )
        return anchor

    def _switch_off(self, error: Exception) -> None:
        self._is_off = True
        self._anchors.clear()
        _log.warning("job %s: partitions are not placed any more: %s", self._job, error)
