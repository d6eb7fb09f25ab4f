"""Several sinks of a job: a crash between two of them doubles no row that can be kept from it."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from varvite.changelog.commit.base_decision import RepeatedBatch, SinkCommit, WriteKind, decide_write
from varvite.spark_integration.connectors.several_sinks import OutputSinks, SeveralSinks
from varvite.spark_integration.connectors.sink import ForeachBatchSink, Sink
from varvite.storage.errors import DidNotHappenError, InvalidRequestError, LineageError

ROWS: Any = "rows"


class Memory(Sink):
    """An output in memory, which replaces the rows of a batch or refuses a batch that is there."""

    def __init__(self, repeated_batch: RepeatedBatch, crashes: list[SinkCommit]) -> None:
        self._repeated_batch = repeated_batch
        self._crashes = crashes
        self.rows: list[tuple[int, Any]] = []
        self.last: SinkCommit | None = None

    @property
    def repeated_batch(self) -> RepeatedBatch:
        return self._repeated_batch

    def write(self, df: Any, commit: SinkCommit) -> None:
        if commit in self._crashes:
            raise DidNotHappenError("the driver dies")
        kind = decide_write(self.last, commit)
        if kind is WriteKind.REPLACE:
            if self._repeated_batch is RepeatedBatch.REFUSED:
                raise LineageError("it cannot be replaced")
            self.rows = [row for row in self.rows if row[0] < commit.batch]
        if kind is not WriteKind.NOTHING:
            self.rows.append((commit.batch, df))
            self.last = commit

    def last_committed(self) -> SinkCommit | None:
        return self.last


def function(calls: list[int]) -> Sink:
    return ForeachBatchSink(lambda _, batch: calls.append(batch))


FIRST, AGAIN = SinkCommit(0, 2, "a"), SinkCommit(0, 4, "b")


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("crash", range(3))
def test_a_crash_between_two_sinks_doubles_no_row_of_a_sink_that_notes_its_commit(
    order: tuple[int, ...], crash: int
) -> None:
    """An append-only sink had the rows twice if it stood before another one."""
    calls: list[int] = []
    crashes: list[SinkCommit] = []
    replacing, refusing = Memory(RepeatedBatch.REPLACED, crashes), Memory(RepeatedBatch.REFUSED, crashes)
    sinks: list[Sink] = [function(calls), replacing, refusing]
    several = SeveralSinks(tuple(sinks[i] for i in order))
    if crash < 2:
        one = (replacing, refusing)[crash]
        one._crashes = [FIRST]
        with pytest.raises(DidNotHappenError):
            several.write(ROWS, FIRST)
    else:
        several.write(ROWS, FIRST)
    if several.last_committed() != FIRST:  # as a restart decides
        several.write(ROWS, AGAIN)
    assert replacing.rows == refusing.rows == [(0, ROWS)]
    assert len(calls) == (2 if crash < 2 else 1)
    assert several.last_committed() == (AGAIN if crash < 2 else FIRST)


def test_a_sink_that_knows_nothing_does_not_hide_what_the_others_hold() -> None:
    """It was written before them, so the batch need not be executed again."""
    replacing = Memory(RepeatedBatch.REPLACED, [])
    calls: list[int] = []
    several = OutputSinks(((None, replacing), (0, SeveralSinks((function(calls),)))))
    assert several.last_committed() is None
    replacing.last = FIRST
    assert several.last_committed() == FIRST
    assert SeveralSinks((function(calls),)).last_committed() is None


def test_sinks_that_replace_hold_a_commit_if_all_do() -> None:
    sinks = [Memory(RepeatedBatch.REPLACED, []) for _ in range(2)]
    several = SeveralSinks(tuple(sinks))
    sinks[0].last = FIRST
    assert several.last_committed() is None
    sinks[1].last = FIRST
    assert several.last_committed() == FIRST


def test_two_sinks_that_cannot_replace_and_share_nothing_are_refused() -> None:
    several = SeveralSinks([Memory(RepeatedBatch.REFUSED, []) for _ in range(2)])
    with pytest.raises(InvalidRequestError, match="share a transaction, or give all but one delivery='at-least-once'"):
        several.prepare("job")
