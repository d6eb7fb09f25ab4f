"""Summaries of state workers for tests, by the names of what they say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varvite.changelog.commit.batch_result import by_operator
from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
from varvite.spark_integration.messages.summary import Summary, WorkerNote, encode_note
from varvite.spark_integration.messages.worker_figures import AttemptFigures

if TYPE_CHECKING:
    from collections.abc import Iterable

FIGURES = frozenset(AttemptFigures.__dataclass_fields__)
NOTE = frozenset(WorkerNote.__struct_fields__)


def summary(**said: Any) -> Summary:
    """A summary of which these fields are known: its own, those of its figures and those of its note."""
    fields = {"operator": "sums", "partition": 0, "low": 0, "high": 1, "tag": "0" * 32, "slot": 1, **said}
    figures = AttemptFigures(**{name: fields.pop(name) for name in FIGURES & fields.keys()})
    note = WorkerNote(**{name: fields.pop(name) for name in NOTE & fields.keys()})
    return Summary(figures=figures.packed(), note=encode_note(note), **fields)


def grouped(summaries: Iterable[Summary]) -> tuple[OperatorSummaries, ...]:
    """Summaries of several operators, operator by operator as they first come."""
    return tuple(OperatorSummaries.of(operator, own) for operator, own in by_operator(tuple(summaries)).items())
