"""A window operator without Spark: over a job's keyed state, batch by batch, as a state worker runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from varvite.changelog.api.functions import AggregateFunction
from varvite.spark_integration.functions.keyed import KeyedProcessContext, OperatorRuntimeContext
from varvite.spark_integration.functions.timers import KeyedTimerService
from varvite.spark_integration.operators.windows.any_trigger_operator import operator_of
from varvite.spark_integration.worker.runners.timers import TimerFiring

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.jobs.keyed_job import KeyedJob
    from varvite.spark_integration.functions.output_tag import OutputTag
    from varvite.spark_integration.operators.windows.assigners import WindowAssigner
    from varvite.spark_integration.operators.windows.contents import ContentsPlan
    from varvite.spark_integration.operators.windows.operator import WindowOperator
    from varvite.spark_integration.operators.windows.trigger import Trigger


class Count(AggregateFunction[Any, int, int]):
    """Counts."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Element(NamedTuple):
    """Input rows."""

    key: str
    value: Any
    time_ms: int | None = None


def window_operator(
    assigner: WindowAssigner,
    contents: ContentsPlan,
    function: Any = None,
    *,
    trigger: Trigger[Any, Any] | None = None,
    lateness_ms: int = 0,
    late_output: OutputTag | None = None,
) -> WindowOperator:
    """The operator that `WindowedStream` would make."""
    return operator_of(assigner, trigger, lateness_ms, contents, function, late_output)


class WindowJob:
    """One operator over the state of a job; `restart` opens the operator anew, as after a crash."""

    def __init__(self, job: KeyedJob, operator: WindowOperator) -> None:
        self.job = job
        self.operator = operator
        self.restart()

    def restart(self) -> None:
        """The operator gets its state from the job's backend."""
        backend = self.job.backend
        self._service = KeyedTimerService(backend)
        self._service.open(getattr(self.operator, "timer_namespaces", None))
        self._context = KeyedProcessContext(self._service)
        self._firing = TimerFiring(backend, self._service, "windows")
        self.operator.open(OperatorRuntimeContext(backend, "windows", 0, 1, 8))

    def batch(
        self, elements: Iterable[Element] = (), *, time_ms: int = 0, watermark_ms: int | None = None
    ) -> list[Any]:
        """Run a batch, and leave its changes pending; what came out, in order."""
        self._context.begin_batch(time_ms, watermark_ms)
        self._service.begin_batch(time_ms, watermark_ms)
        out = self._fire()
        for element in elements:
            self.job.set_key(element.key)
            self._context.key = element.key
            self._context.element_timestamp = element.time_ms
            out.extend(self.operator.process_element(element.value, self._context) or ())
        return out + self._fire()

    def changes(self) -> dict[str, int]:
        """State → its rows that are pending."""
        return {changes.schema.name: len(changes) for changes in self.job.backend.changes()}

    def _fire(self) -> list[Any]:
        def failed(error: Exception, key: Any) -> None:
            raise AssertionError(f"at {key!r}") from error

        return [row for rows in self._firing.fire(self.operator.on_timer, failed) for row in rows]
