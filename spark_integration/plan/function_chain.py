"""A chain of stateless functions that run as one step, a batch of elements at a time: `FunctionChain`.

Each function processes every element of a batch before the next one begins. Timestamps are kept beside the elements:
the output for an element has the element's timestamp, as in Flink. An exception of a function becomes a `StepError`,
which names the step and the element.

The functions must be deterministic: Spark may execute a step again for a task that it repeats.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, Literal

from pyspark import cloudpickle

from varvite.changelog.api.functions import Function
from varvite.changelog.working_stores.timer_form import held_ms
from varvite.spark_integration.functions.async_io import AsyncWait, ElementError
from varvite.spark_integration.functions.keyed import MIN_WATERMARK, NoKeyedState, OperatorRuntimeContext
from varvite.spark_integration.functions.output_tag import is_tagged, untagged
from varvite.spark_integration.functions.returned import returned
from varvite.spark_integration.functions.stateless import (
    FilterFunction,
    FlatMapFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
    method_of,
)
from varvite.spark_integration.functions.timers import UnkeyedTimerService
from varvite.spark_integration.messages.user_errors import user_code_raises
from varvite.storage.clock import SystemClock
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from varvite.changelog.types.wire import WireType
    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.functions.metrics import MetricRegistry

StepKind = Literal["map", "flat_map", "filter", "process", "timestamps", "async_wait"]
Stamps = list[int | None] | None
"""Event times, one for each element, milliseconds; None if the stream has none."""
_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 160


class StepError(Exception):
    """A function of the chain raised its cause."""

    def __init__(self, step: str, element: str | None, cause: BaseException) -> None:
        super().__init__(step, element, cause)
        self.step = step
        self.element = element
        self.cause = cause

    @property
    def where(self) -> str:
        """The step, and the element if there is one, for people."""
        return f"in step {self.step}" + ("" if self.element is None else f", at element {self.element}")


@dataclass(frozen=True, slots=True)
class Step:
    """One function of a chain, pickled for the workers."""

    kind: StepKind
    name: str
    """For people."""
    function: bytes = field(repr=False)
    """Pickled by cloudpickle: a function object of PyFlink's kind, or a callable."""
    output: ElementType | None = None
    """Type to which the output is converted, if another function follows; else None."""


@dataclass(frozen=True, slots=True)
class KeyStep:
    """The key function of the elements that leave the chain."""

    function: bytes = field(repr=False)
    key_type: WireType
    partitions: int | None = None
    """The function is a `PartitionSelector` that chooses one of so many partitions; None: it is a key function."""

    @property
    def name(self) -> str:
        """The step, for people."""
        return "key_by" if self.partitions is None else "partition_custom"


@dataclass(frozen=True, slots=True)
class ChainPlace:
    """The place of a chain in a job, which its functions read from their `RuntimeContext`."""

    partition: int
    parallelism: int
    max_parallelism: int
    job_parameters: dict[str, str] = field(repr=False)


class FunctionChain:
    """A running chain: opened once, then run for any number of batches, then closed."""

    def __init__(
        self, steps: Sequence[Step], key: KeyStep | None, place: ChainPlace, metrics: MetricRegistry | None = None
    ) -> None:
        """Keep the functions.

        Args:
            steps: In order.
            key: The key function of what leaves the last one.
            place: Of the chain.
            metrics: Of its functions; None: nobody sees them.
        """
        self._steps = steps
        self._key = key
        self._place = place
        self._metrics = metrics
        self._functions: list[Any] = []
        self._runs: list[Callable[[list[Any], Stamps], tuple[list[Any], Stamps]]] = []
        self._key_of: Callable[[Any], Any] | None = None

    def open(self) -> None:
        """Load the functions and open them. Raises `StepError`."""
        for step in self._steps:
            function = self._load(step.name, step.function)
            self._runs.append(_RUNS[step.kind](function, step.name))
            if step.output is not None:
                self._runs.append(_conform(step.output, step.name))
        if self._key is not None:
            function = self._load(self._key.name, self._key.function)
            if self._key.partitions is not None:
                function.partitions = self._key.partitions
            self._key_of = method_of(function, KeySelector, "get_key")

    def _load(self, name: str, pickled: bytes) -> Any:
        try:
            function = cloudpickle.loads(pickled)
            self._functions.append(function)
            if isinstance(function, Function):
                state: Any = NoKeyedState()
                at = self._place
                parameters = at.job_parameters
                context = OperatorRuntimeContext(
                    state,
                    name,
                    at.partition,
                    at.parallelism,
                    at.max_parallelism,
                    job_parameters=parameters,
                    metrics=self._metrics,
                )
                function.open(context)
        except user_code_raises() as error:
            raise StepError(name, None, error) from error
        return function

    def run(self, elements: list[Any], stamps: Stamps = None) -> tuple[list[Any], Stamps]:
        """The output for these elements, with timestamps. Raises `StepError`."""
        for run in self._runs:
            elements, stamps = run(elements, stamps)
        return elements, stamps

    def keys(self, elements: list[Any]) -> pa.Array:
        """The key column of elements that `run` returned. Raises `StepError`."""
        key_of, key = self._key_of, self._key
        if key_of is None or key is None:
            raise InvalidRequestError("the chain has no key function")
        freeze = key.key_type.freeze
        stored: list[Any] = []
        element: Any = None
        try:
            for element in elements:
                value = key_of(element)
                stored.append(None if value is None else freeze(value))
        except user_code_raises() as error:
            raise StepError(key.name, _SHORT.repr(element), error) from error
        return key.key_type.to_arrow(stored)

    def close(self) -> None:
        """Close the functions. Raises `StepError` for the first that raises, after all were closed."""
        failed: StepError | None = None
        while self._functions:
            function = self._functions.pop(0)
            if isinstance(function, Function):
                try:
                    function.close()
                except user_code_raises() as error:
                    failed = failed or StepError(f"{type(function).__name__}.close", None, error)
        if failed is not None:
            raise failed from failed.cause


def _conform(output: ElementType, name: str) -> Any:
    def run(elements: list[Any], stamps: Stamps) -> tuple[list[Any], Stamps]:
        try:
            return output.conform(elements), stamps
        except InvalidRequestError as error:
            raise StepError(name, None, error) from error

    return run


def _map(function: Any, name: str) -> Any:
    call = method_of(function, MapFunction, "map")

    def run(elements: list[Any], stamps: Stamps) -> tuple[list[Any], Stamps]:
        output: list[Any] = []
        append, element = output.append, None
        try:
            for element in elements:
                append(call(element))
        except user_code_raises() as error:
            raise StepError(name, _SHORT.repr(element), error) from error
        return output, stamps

    return run


def _filter(function: Any, name: str) -> Any:
    call = method_of(function, FilterFunction, "filter")

    def run(elements: list[Any], stamps: Stamps) -> tuple[list[Any], Stamps]:
        kept: list[Any] = []
        element = None
        try:
            for element in elements:
                kept.append(bool(call(element)))
        except user_code_raises() as error:
            raise StepError(name, _SHORT.repr(element), error) from error
        if stamps is not None:
            stamps = [stamp for stamp, keep in zip(stamps, kept, strict=True) if keep]
        return [element for element, keep in zip(elements, kept, strict=True) if keep], stamps

    return run


def _flat_map(function: Any, name: str) -> Any:
    call = method_of(function, FlatMapFunction, "flat_map")
    return _spread(lambda element, _: call(element), name)


def _process(function: Any, name: str) -> Any:
    context = _ElementContext()
    call = function.process_element

    def process(element: Any, stamp: int | None) -> Any:
        context.element_timestamp = stamp
        return call(element, context)

    return _without_tagged(_spread(process, name))


def _without_tagged(process: Any) -> Any:
    """The main output of a process function: its side outputs are read by steps of their own."""

    def run(elements: list[Any], stamps: Stamps) -> tuple[list[Any], Stamps]:
        output, stamps = process(elements, stamps)
        if not any(map(is_tagged, output)):
            return output, stamps
        if stamps is not None:
            stamps = [stamp for element, stamp in zip(output, stamps, strict=True) if not is_tagged(element)]
        return untagged(output), stamps

    return run


def _spread(call: Callable[[Any, int | None], Any], name: str) -> Any:
    """A step that yields any number of elements for each."""

    def run(elements: list[Any], stamps: Stamps) -> tuple[list[Any], Stamps]:
        output: list[Any] = []
        ends: list[int] = []
        element = None
        try:
            for element, stamp in zip(elements, stamps or [None] * len(elements), strict=True):
                result = call(element, stamp)
                if result is not None:
                    output.extend(result if type(result) is GeneratorType else returned(result))
                ends.append(len(output))
        except user_code_raises() as error:
            raise StepError(name, _SHORT.repr(element), error) from error
        if stamps is not None:
            spread: list[int | None] = []
            for stamp, end in zip(stamps, ends, strict=True):
                spread.extend([stamp] * (end - len(spread)))
            stamps = spread
        return output, stamps

    return run


def _async_wait(wait: AsyncWait, name: str) -> Any:
    def run(elements: list[Any], stamps: Stamps) -> tuple[list[Any], Stamps]:
        try:
            results = wait.results(elements)
        except ElementError as failed:
            raise StepError(name, _SHORT.repr(elements[failed.position]), failed.cause) from failed.cause
        except user_code_raises() as error:
            raise StepError(name, None, error) from error
        if stamps is not None:
            stamps = [stamps[position] for position, result in results for _ in result]
        return [element for _, result in results for element in result], stamps

    return run


def _timestamps(assigner: Any, name: str) -> Any:
    call = assigner.extract_timestamp

    def run(elements: list[Any], stamps: Stamps) -> tuple[list[Any], Stamps]:
        assigned: list[int | None] = []
        element = None
        try:
            for element, stamp in zip(elements, stamps or [None] * len(elements), strict=True):
                time_ms = int(call(element, MIN_WATERMARK if stamp is None else stamp))
                if time_ms != held_ms(time_ms):
                    raise InvalidRequestError(
                        f"the TimestampAssigner gave {time_ms}; give milliseconds since 1970, which have 64 bits"
                    )
                assigned.append(time_ms)
        except user_code_raises() as error:
            raise StepError(name, _SHORT.repr(element), error) from error
        return elements, assigned

    return run


class _ElementContext(ProcessFunction.Context):
    """The context that a process function gets for every element."""

    def __init__(self) -> None:
        self.element_timestamp: int | None = None
        self._timers = UnkeyedTimerService(SystemClock())

    def timestamp(self) -> int | None:
        return self.element_timestamp

    def timer_service(self) -> UnkeyedTimerService:
        return self._timers


_RUNS: Final[dict[StepKind, Callable[[Any, str], Any]]] = {
    "map": _map,
    "flat_map": _flat_map,
    "filter": _filter,
    "process": _process,
    "timestamps": _timestamps,
    "async_wait": _async_wait,
}
