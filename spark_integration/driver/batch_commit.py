"""Makes the requests of a batch and its commit, without Spark; serves the coordinator and the operator harness.

Invariants: I2 (what is committed is the summaries, one per partition; their tags are the winners), I3 (every attempt of
a batch has the same base), I10 (the work is in proportion to the partitions of the batch, not to those of the log).
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import asdict

from varvite.changelog.chain.view_slices import slices_of
from varvite.changelog.commit.batch_result import BatchFacts, by_operator
from varvite.changelog.working_stores.timer_form import held_ms
from varvite.spark_integration.driver.operator_requests import operator_layout, with_states
from varvite.spark_integration.messages.protocol import BatchRequest, BatchSpec
from varvite.spark_integration.plan.input_watermarks import InputWatermarks
from varvite.storage.format.records import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from varvite.changelog.commit.run import Acknowledged, AdoptionSource, JobRun
    from varvite.spark_integration.messages.operator_summaries import OperatorSummaries
    from varvite.spark_integration.messages.protocol import OperatorRequest
    from varvite.spark_integration.plan.job import JobPlan
    from varvite.storage.format.records import Commit, InputPosition


class ExecutedBatch(NamedTuple):
    """A batch that is ready to be committed."""

    facts: BatchFacts
    token: str
    """Token of the commit."""
    inputs: InputWatermarks
    """Progress of the inputs, this batch included."""


class BatchCommitter:
    """Makes the requests of a run's batches and commits what their tasks answer; one batch at a time."""

    def __init__(self, run: JobRun, plan: JobPlan, operators: Sequence[OperatorRequest]) -> None:
        """Call `start` once the run has a base.

        Args:
            run: The run.
            plan: The job.
            operators: Requests of the plan's operators, in order.
        """
        self._run = run
        self._plan = plan
        self.operators = tuple(operators)
        """Requests of the operators, in order."""
        self.watermark_ms: int | None = None
        """The watermark that the next batch begins with."""
        self._query_id = ""
        self._first_base = ORIGIN
        """The commit that the run's first batch is executed on."""
        self._winners: dict[str, tuple[str, ...]] = {}
        """By operator: the winning tag of each partition at the base."""
        self._inputs = InputWatermarks.before_the_first_batch(plan.input_delays)

    def start(self, query_id: str) -> None:
        """Begin with the base that the run has chosen."""
        base = self._run.state.base
        self._query_id = query_id
        self.operators = tuple(with_states(operator, base) for operator in self.operators)
        self.watermark_ms = _held(base.watermark_ms) if base else None
        self._winners = winners_of(base)
        self._first_base = self._run.state.view.base

    def spec(self, batch: int, *, attempt: int, time_ms: int, commit_token: str) -> BatchSpec:
        """An attempt of the next batch on the run's base.

        Args:
            batch: Spark's number of it.
            attempt: Counts the attempts at this slot.
            time_ms: The batch's time.
            commit_token: A new token, which the commit will have.
        """
        fence, state, ends = self._run.fence, self._run.state, self._plan.input_ends
        late_watermark_ms = state.base.watermark_before_ms if state.base else None
        return BatchSpec(
            batch=batch,
            epoch=fence.epoch,
            run=fence.token,
            slot=state.slot,
            commit_token=commit_token,
            attempt=attempt,
            base=state.view.base,
            time_ms=time_ms,
            # What an earlier run has seen of its collection says nothing about the one that begins and ends here.
            watermark_ms=None if ends else self.watermark_ms,
            late_watermark_ms=None if ends else _held(late_watermark_ms),
            is_first=state.view.base == self._first_base,
            input_ends=ends,
        )

    def requests(self, spec: BatchSpec) -> list[BatchRequest]:
        """The requests of the operators, in order."""
        view = self._run.state.view
        with_images = {image.operator for image in view.images}
        is_sent = spec.is_first and view.base != ORIGIN
        return [
            BatchRequest(
                **asdict(spec),
                operator=operator,
                confirmed=self._winners.get(operator.operator, ()),
                has_images=operator.operator in with_images,
                base_view=slices_of(view, operator.operator, operator.parallelism) if is_sent else None,
            )
            for operator in self.operators
        ]

    def executed(
        self,
        spec: BatchSpec,
        source_hash: str,
        summaries: Sequence[OperatorSummaries],
        latest_ms: Mapping[int, int],
        spark_watermark_ms: int | None = None,
        *,
        position: InputPosition | None = None,
    ) -> ExecutedBatch:
        """The batch with what its tasks answered.

        Args:
            spec: The attempt.
            source_hash: Hash of the batch's end offsets, see `Commit.source_hash`.
            summaries: Those of the operators, in order.
            latest_ms: The largest event time of each input of the job, if it has several.
            spark_watermark_ms: Spark's watermark after the batch, if Spark computes it and has one.
            position: The end of the batch's input, if its offsets say all.

        Raises:
            IncompatibleError: the partitions do not agree about a state's schema.
        """
        inputs = self._inputs.after(latest_ms, spec.time_ms)
        facts = BatchFacts(
            batch=spec.batch,
            query_id=self._query_id,
            source_hash=source_hash,
            time_ms=spec.time_ms,
            watermark_ms=next_watermark(self.watermark_ms, self._plan, summaries, inputs, spark_watermark_ms),
            watermark_before_ms=self.watermark_ms,
            operators=tuple(map(operator_layout, self.operators, summaries)),
            results=tuple(chain.from_iterable(operator.summaries for operator in summaries)),
            position=position,
            dropped=self._dropped(),
        )
        return ExecutedBatch(facts, spec.commit_token, inputs)

    def commit(self, batch: ExecutedBatch, adoption: AdoptionSource) -> Acknowledged:
        """Make the batch durable, and its commit the base of the next one. Raises as `JobRun.commit`."""
        acknowledged = self._run.commit(batch.facts, batch.token, adoption)
        self._inputs, self.watermark_ms = batch.inputs, acknowledged.commit.watermark_ms
        self._winners = winners_of(acknowledged.commit)
        return acknowledged

    def _dropped(self) -> frozenset[str]:
        """Operators whose state is given up on purpose: the job does not have them any more."""
        base = self._run.state.base
        if base is None or not self._plan.config.ignore_unclaimed_state:
            return frozenset()
        return frozenset(o.uid for o in base.operators).difference(o.uid for o in self._plan.operators)


def winners_of(commit: Commit | None) -> dict[str, tuple[str, ...]]:
    """By operator: the tag that won in each partition, in order; workers confirm by it (I4)."""
    by_uid = by_operator(commit.parts) if commit else {}
    return {operator: tuple([partition.tag for partition in partitions]) for operator, partitions in by_uid.items()}


def _held(watermark_ms: int | None) -> int | None:
    """A watermark of a commit, which may be from before the time when it was held within 64 bits."""
    return None if watermark_ms is None else held_ms(watermark_ms)


def next_watermark(
    before_ms: int | None,
    plan: JobPlan,
    summaries: Sequence[OperatorSummaries],
    inputs: InputWatermarks,
    spark_watermark_ms: int | None = None,
) -> int | None:
    """The watermark of the next batch: behind the largest event time of the job's input; it never goes back (I5).

    Where Spark computes a watermark it is that. Of several inputs the one that is least far counts. `summaries` are
    those of the plan's operators, in order.
    """
    if not plan.operators or plan.input_ends:
        return before_ms
    if plan.is_spark_watermark:
        reached_ms = spark_watermark_ms
    elif plan.input_delays:
        reached_ms = inputs.watermark_ms
    else:
        latest_ms, delay_ms = summaries[0].largest("event_time_max_ms"), plan.watermark_delay_ms
        reached_ms = None if delay_ms is None or latest_ms is None else held_ms(latest_ms - delay_ms)
    return max((time for time in (before_ms, reached_ms) if time is not None), default=None)
