"""Accumulators of Spark for one attempt at a batch, which go when the attempt is over.

PySpark keeps every accumulator that was ever made, and what it holds, for as long as the driver lives: a registry finds
the accumulator to which what tasks send belongs. An update of one that is not there any more is passed over, so tasks
that are late do no harm.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import accumulators

from varve.spark_integration.plan.chain_task import StepFailures
from varve.spark_integration.plan.input_watermarks import LatestEventTimes
from varve.spark_integration.transport.pump import ExecutionNotes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator

    from varve.spark_integration.plan.chain_task import StepFailure
    from varve.spark_integration.transport.pump import ExecutionNote


class AttemptAccumulators(NamedTuple):
    """What the tasks of an attempt tell the driver beside their rows."""

    executed: Accumulator[list[ExecutionNote]]
    """See `ExecutionNotes`."""
    failures: Accumulator[list[StepFailure]]
    latest: Accumulator[dict[int, int]]
    """See `LatestEventTimes`."""


@contextmanager
def attempt_accumulators(context: SparkContext) -> Iterator[AttemptAccumulators]:
    """New accumulators; to be read inside."""
    made = AttemptAccumulators(
        executed=context.accumulator([], ExecutionNotes()),
        failures=context.accumulator([], StepFailures()),
        latest=context.accumulator({}, LatestEventTimes()),
    )
    try:
        yield made
    finally:
        # A private name of PySpark: a version without it keeps them, as it does everybody's.
        registry: dict[int, Any] = getattr(accumulators, "_accumulatorRegistry", {})
        for accumulator in made:
            registry.pop(accumulator.aid, None)
