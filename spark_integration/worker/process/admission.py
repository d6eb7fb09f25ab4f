"""Admission of requests to a state worker: execute, refuse, or drop an older one for a newer one. Pure.

Invariants: I3 (a newer attempt supersedes an older one as a whole), I6 (nothing of an older run is executed after a
newer one was seen). A cancelled task's pump stays connected for seconds, so old and new requests overlap. Requests of
different operators in one attempt of a batch do not compete: they take turns.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from varvite.spark_integration.messages.protocol import TaskRequest


class AttemptNumber(NamedTuple):
    """Orders the driver's attempts of batches; a later one is greater."""

    epoch: int
    slot: int
    attempt: int


@dataclass(frozen=True)
class Seen:
    """A worker's memory of the requests that it has admitted."""

    newest: AttemptNumber | None = None
    run: str = ""
    """Of `newest`, see `BatchRequest.run`."""
    task_attempts: Mapping[str, int] = field(default_factory=dict[str, int])
    """By operator: the highest task attempt within `newest`."""


class Verdict(NamedTuple):
    """The decision on a request."""

    seen: Seen
    """The memory from now on."""
    refused: str | None
    """The reason of a refusal; None if the request is executed."""


def number_of(task: TaskRequest) -> AttemptNumber:
    """The driver's attempt that a request belongs to."""
    return AttemptNumber(task.batch.epoch, task.batch.slot, task.batch.attempt)


def judge(seen: Seen, task: TaskRequest) -> Verdict:
    """Decide on a request that arrives now."""
    number, operator = number_of(task), task.batch.operator.operator
    if seen.newest is not None and number < seen.newest:
        return Verdict(seen, _late(number, seen.newest))
    if number != seen.newest:
        return Verdict(Seen(number, task.batch.run, {operator: task.task_attempt}), None)
    highest = seen.task_attempts.get(operator, -1)
    if task.task_attempt < highest:
        return Verdict(seen, f"task attempt {task.task_attempt} is late: task attempt {highest} has taken its place")
    return Verdict(replace(seen, task_attempts={**seen.task_attempts, operator: task.task_attempt}), None)


def is_doubtful(seen: Seen, task: TaskRequest) -> bool:
    """May a request have been refused for a run that its chain does not have?

    That happens when an older copy of the storage, or another one, takes its place while the worker lives: epochs
    begin again where the copy ends. Only the chain can tell that from a run that was fenced off.
    """
    return seen.newest is not None and task.batch.epoch <= seen.newest.epoch and task.batch.run != seen.run


def supersedes(newer: TaskRequest, older: TaskRequest) -> bool:
    """Does an admitted request make an earlier admitted one pointless?"""
    if number_of(newer) != number_of(older):
        return number_of(newer) > number_of(older)
    return newer.batch.operator.operator == older.batch.operator.operator


def _late(number: AttemptNumber, newest: AttemptNumber) -> str:
    if number.epoch < newest.epoch:
        return (
            f"the request is of epoch {number.epoch}, but a newer run (epoch {newest.epoch}) already uses this worker: "
            "stop the older run"
        )
    return (
        f"the request is for slot {number.slot}, attempt {number.attempt}, but the worker has already seen slot "
        f"{newest.slot}, attempt {newest.attempt}: it comes from a task that was given up"
    )
