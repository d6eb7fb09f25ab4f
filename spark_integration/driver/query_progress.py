"""Spark's progress of a query, kept in step with the chain: before the start, at each batch, and at the end.

Where the offsets of the sources say all that a batch reads, each commit has the position of its input, and Spark's
checkpoint location is a cache that each start makes from the chain. Spark then writes its own logs rarely or never.
Elsewhere the location is what it is in Spark, and a start goes by it.

Invariants: I9 (the location is a cache), I11 (a location that is not the state's is an error).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from varvite.materializer.options.driver import PROGRESS
from varvite.materializer.restore.location_content import LocationTarget, change_of, choose_commit, decide_target
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, LineageError
from varvite.storage.format.records import InputPosition

if TYPE_CHECKING:
    from varvite.changelog.commit.base_decision import SinkCommit, SparkProgress
    from varvite.changelog.commit.ownership import ChainOwner
    from varvite.materializer.restore.location_content import LocationTarget
    from varvite.spark_integration.connectors.kafka.source_check import SourceCheck
    from varvite.spark_integration.connectors.running_query import RunningQuery
    from varvite.spark_integration.connectors.sink_note import SinkNote
    from varvite.spark_integration.connectors.spark_progress import SparkCheckpoint
    from varvite.storage.format.records import Commit, SourceFile

_log: Final = logging.getLogger(__name__)


class BatchInput(NamedTuple):
    """The input of a batch, as Spark has planned it."""

    source_hash: str
    """The identity of the input, as in `Commit`."""
    position: InputPosition | None = None
    """Without Spark's watermark, which is known after the batch."""


class QueryProgress:
    """The progress of one run of a query."""

    def __init__(
        self,
        checkpoint: SparkCheckpoint,
        query: RunningQuery,
        note: SinkNote,
        *,
        is_private: bool = False,
        has_spark_state: bool = False,
        sources: SourceCheck | None = None,
    ) -> None:
        """The location is of one run.

        Args:
            checkpoint: Spark's checkpoint location.
            query: Spark's query, once it runs.
            note: The note of the last commit whose sink is done.
            is_private: The user has named no location, so each run has a new one.
            has_spark_state: Operators of Spark keep state in the location, which is then more than a cache.
            sources: The Kafka sources of the query.
        """
        self.sources = sources
        """The Kafka sources of the query."""
        self.checkpoint = checkpoint
        """Spark's checkpoint location."""
        self.query = query
        """Spark's query, once it runs."""
        self._note = note
        self._is_private = is_private
        self._has_spark_state = has_spark_state
        self._target: LocationTarget | None = None
        self._files: tuple[SourceFile, ...] | None = None
        self.is_in_chain: bool | None = None
        """Does Spark write its logs rarely, so that progress is in the chain alone? None before the first batch."""

    def settle(self, chain: ChainOwner, sink: SinkCommit | None) -> None:
        """Make the location say what the chain says; after the chain was taken over, before the query starts.

        Args:
            chain: The chain, which this run owns.
            sink: The commit that the output holds; None if the sink does not say.

        Raises:
            LineageError: The location is of another query than the state, or empty and cannot be made.
            InvalidRequestError: Rows that were not read yet are gone.
            VarviteError: The storage or the location failed; start the query again.
        """
        newest, restore = chain.newest(), chain.restore_request()
        ahead = restore.commit if restore is not None and restore.ahead else None
        candidate = ahead or newest
        if newest is None or candidate is None or candidate.position is None:
            return
        state = self.checkpoint.state(candidate.batch, is_private=self._is_private)
        commit = choose_commit(newest, state, restore)
        if commit is None:
            return
        target = decide_target(
            commit,
            chain.find_parent(commit),
            state,
            is_newest=commit.link == newest.link,
            sink=sink,
            noted=self._note.read(),
        )
        if target is None:
            chain.parent_of(commit)  # raises, if reading it has failed
            if state.query_id is None:
                raise LineageError(
                    f"Spark's checkpoint location is empty, and batch {commit.batch} (seq {commit.seq}) may have to be "
                    "executed again, from a position that an older version has not kept; bring the location back, or "
                    "choose the checkpoint before with `varvite restore`",
                    batch=commit.batch,
                )
            return
        begin = target.parent if target.is_open else commit
        if self.sources is not None and begin is not None:
            self.sources.check(begin)
        change = change_of(target, state)
        if change.write:
            _log.info(
                "batch %d comes next: Spark's checkpoint location is made from commit %d", target.next_batch, commit.seq
            )
            self.checkpoint.change(change)
        self._target = target

    def first(self, batch: int) -> SparkProgress:
        """The input of the choice of a base, for the batch that Spark begins with; after `input_of`.

        Raises:
            DidNotHappenError: Spark begins with another batch than the location said when the query was started.
            VarviteError: As `SparkCheckpoint.progress`.
        """
        if self._target is not None and self._target.next_batch != batch:
            raise DidNotHappenError(
                f"Spark begins with batch {batch}, and its checkpoint location was made for batch "
                f"{self._target.next_batch}: another run has written there meanwhile. End that run, and start the "
                "query again",
                batch=batch,
            )
        return self.checkpoint.progress(batch)

    def input_of(self, batch: int) -> BatchInput:
        """The input of the batch that runs.

        Raises:
            DidNotHappenError: Spark's query cannot be asked.
            InvalidRequestError: Spark writes its logs rarely, and offsets do not say all that a source has read.
            VarviteError: As `SparkCheckpoint.source_hash`.
        """
        offsets = self.query.offsets(batch)
        if offsets is not None:
            self.checkpoint.hold_offsets(batch, offsets)
            if self.sources is not None:
                self.sources.look(offsets, batch)
        source_hash = self.checkpoint.source_hash(batch)
        if self.is_in_chain is None:
            if not self._has_spark_state:
                self._files = self._noted(self.checkpoint.source_files(batch), offsets, batch)
            self.is_in_chain = self.query.writes_rarely()
        if offsets is None or self._files is None:
            if self.is_in_chain:  # then nothing would say where a start after this batch goes on
                raise InvalidRequestError(
                    f"a source of the query keeps more than its offsets in {self.checkpoint.url('sources')}, so that "
                    f"its progress cannot be in the checkpoints alone; set {PROGRESS.key} to auto or spark",
                    batch=batch,
                )
            return BatchInput(source_hash)
        position = InputPosition(offsets=offsets.decode(), files=self._files, is_in_spark_log=not self.is_in_chain)
        return BatchInput(source_hash, position)

    def _noted(
        self, files: tuple[SourceFile, ...] | None, offsets: bytes | None, batch: int
    ) -> tuple[SourceFile, ...] | None:
        """The files of a position, with the note of the topics that are read."""
        if files is None or offsets is None or self.sources is None:
            return files
        note = self.sources.note(offsets, batch)
        return files if note is None else (*files, note)

    def sink_done(self, commit: Commit) -> None:
        """The sink has the rows of a commit."""
        if commit.position is not None:
            self._note.done(commit.link)

    def close(self) -> None:
        """The run ends. May be called twice."""
        self._note.close()
        if self.sources is not None:
            self.sources.close()


def with_watermark(position: InputPosition | None, watermark_ms: int) -> InputPosition | None:
    """The position with Spark's watermark after the batch; 0: Spark has none."""
    return None if position is None else replace(position, watermark_ms=watermark_ms)
