"""The summaries of an operator's partitions in a batch, and what they say in columns; pure.

With thousands of partitions the driver looks at their numbers together and decodes what they say alike once.

Invariants: I2 (one summary per partition, in order), I10 (the work per partition is a few entries of columns).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from varvite.spark_integration.messages.summary import Summary, WorkerNote, decode_note
from varvite.spark_integration.messages.worker_figures import COUNTS, PHASES, UNKNOWN, LogRead

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Numbers: TypeAlias = np.ndarray[Any, Any]
_NUMBERS: Final = np.dtype([*((name, "<i8") for name in COUNTS), *((phase, "<f8") for phase in PHASES)])
"""As `AttemptFigures` are packed."""


@dataclass(frozen=True, slots=True, eq=False)
class OperatorSummaries:
    """The summaries of one operator; one element per partition in each column, which must not be changed."""

    operator: str
    summaries: tuple[Summary, ...]
    """In order of partition."""
    numbers: Numbers
    """Structured: a field for each of `COUNTS` and `PHASES`."""
    notes: tuple[WorkerNote, ...]
    """Each that a partition has, once."""
    note_codes: Numbers
    """Positions in `notes`."""

    @staticmethod
    def of(operator: str, summaries: Sequence[Summary]) -> OperatorSummaries:
        """The columns of these summaries, which are all of that operator and in order of partition."""
        numbers = np.frombuffer(b"".join([summary.figures for summary in summaries]), _NUMBERS)
        codes: dict[bytes, int] = {}
        note_codes = [codes.setdefault(summary.note, len(codes)) for summary in summaries]
        notes = tuple(map(decode_note, codes))
        return OperatorSummaries(operator, tuple(summaries), numbers, notes, np.array(note_codes, np.int64))

    def total(self, count: str) -> int:
        """The sum of one of `COUNTS` over the partitions that know it."""
        return int(self._known(count).sum())

    def largest(self, count: str) -> int | None:
        """The largest of one of `COUNTS`; None if no partition knows it."""
        numbers = self._known(count)
        return int(numbers.max()) if len(numbers) else None

    def total_if_known(self, count: str) -> int | None:
        """The sum of one of `COUNTS`; None if some partition does not know it, or there is none."""
        numbers = self._known(count)
        return int(numbers.sum()) if len(numbers) and len(numbers) == len(self.numbers) else None

    def mutations(self) -> int:
        """Changes of keyed state."""
        return sum([summary.mutations for summary in self.summaries])

    def log_read(self) -> LogRead:
        """The log that all workers together read to come to the base."""
        return LogRead(self.total("log_segments"), self.total("log_bytes"))

    def total_ms(self) -> dict[str, float]:
        """Time of all partitions together, by phase; phases that no partition had are missing."""
        return {phase: float(spent_ms.sum()) for phase, spent_ms in self._phases()}

    def slowest_ms(self) -> dict[str, float]:
        """Time of the slowest partition in each phase."""
        return {phase: float(spent_ms.max()) for phase, spent_ms in self._phases()}

    def restored(self) -> Counter[str]:
        """Number of partitions by the worker's way to the base."""
        return self._counted("restored")

    def executors(self) -> Counter[str]:
        """Executor → number of partitions."""
        return self._counted("executor")

    def executor_of(self) -> list[str]:
        """The executor of each partition."""
        names = [note.executor for note in self.notes]
        return [names[code] for code in self.note_codes.tolist()]

    def with_note(self, has: Iterable[bool]) -> list[int]:
        """The partitions' positions whose note, of `notes` in order, has something."""
        is_selected = np.fromiter(has, bool, len(self.notes))
        positions: list[int] = np.flatnonzero(is_selected[self.note_codes]).tolist() if len(is_selected) else []
        return positions

    def _known(self, count: str) -> Numbers:
        column: Numbers = self.numbers[count]
        return column[column != UNKNOWN]

    def _phases(self) -> list[tuple[str, Numbers]]:
        columns = [(phase, self.numbers[phase]) for phase in PHASES]
        present = [(phase, column[~np.isnan(column)]) for phase, column in columns]
        return [(phase, spent_ms) for phase, spent_ms in present if len(spent_ms)]

    def _counted(self, field: str) -> Counter[str]:
        partitions: Counter[str] = Counter()
        counts: list[int] = np.bincount(self.note_codes, minlength=len(self.notes)).tolist()
        for note, count in zip(self.notes, counts, strict=True):
            partitions[getattr(note, field)] += count
        return partitions
