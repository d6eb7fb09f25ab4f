"""Functions on streams with PyFlink's names: `MapFunction`, `FilterFunction`, `KeySelector` and the like.

Instead of any of these except a `ProcessFunction`, a stream also takes a callable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from operator import index
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyspark import cloudpickle

from varvite.changelog.api.functions import Function
from varvite.spark_integration.functions.output_tag import is_tagged
from varvite.spark_integration.functions.returned import returned
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from varvite.spark_integration.functions.keyed import RuntimeContext
    from varvite.spark_integration.functions.timers import TimerService

IN = TypeVar("IN")
OUT = TypeVar("OUT")


class MapFunction(Function, Generic[IN, OUT]):
    """One element out for each element in."""

    @abstractmethod
    def map(self, value: IN) -> OUT:
        """The element that takes the place of this one."""


class FlatMapFunction(Function, Generic[IN, OUT]):
    """Any number of elements out for each element in."""

    @abstractmethod
    def flat_map(self, value: IN) -> Iterable[OUT] | None:
        """The elements that take the place of this one; None for no element."""


class FilterFunction(Function, Generic[IN]):
    """Keeps some elements."""

    @abstractmethod
    def filter(self, value: IN) -> bool:
        """True if this element stays."""


class KeySelector(Function, Generic[IN, OUT]):
    """Computes the key of an element."""

    @abstractmethod
    def get_key(self, value: IN) -> OUT:
        """The element's key; the same for the same element every time."""


class Partitioner(Function):
    """Chooses the partition of an element, for `DataStream.partition_custom`."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """The partition of a key, from 0."""


class PartitionSelector(KeySelector[Any, int]):
    """Takes the partition that a partitioner chooses for the key of an element."""

    partitions = 1
    """Number of partitions; set before the first element."""

    def __init__(self, partitioner: Partitioner | Callable[[Any, int], int], key_selector: Any) -> None:
        self._partitioner = partitioner
        self._key_selector = key_selector

    def open(self, runtime_context: RuntimeContext) -> None:
        partitioner, key_selector = self._partitioner, self._key_selector
        for function in (partitioner, key_selector):
            if isinstance(function, Function):
                function.open(runtime_context)
        self._partition: Any = method_of(partitioner, Partitioner, "partition")
        self._key = method_of(key_selector, KeySelector, "get_key")

    def get_key(self, value: Any) -> int:
        key, partitions = self._key(value), self.partitions
        partition = self._partition(key, partitions)
        try:
            number = index(partition)
        except TypeError:
            number = -1
        if not 0 <= number < partitions:
            raise InvalidRequestError(
                f"the partitioner gave {partition!r} for the key {key!r} and {partitions} partitions: give an int from "
                f"0 to {partitions - 1}"
            )
        return number

    def close(self) -> None:
        for function in (self._partitioner, self._key_selector):
            if isinstance(function, Function):
                function.close()


class ProcessFunction(Function, Generic[IN, OUT]):
    """A function on a stream that is not keyed: no state, any number of elements out."""

    class Context(ABC):
        """About the element being processed; valid only during the call, the same object every time."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """The element's event time, milliseconds since the epoch; None if none was assigned."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """The machine's time. Timers and the watermark raise `InvalidRequestError`: they need keys."""

    @abstractmethod
    def process_element(self, value: IN, ctx: ProcessFunction.Context) -> Iterable[OUT] | None:
        """The elements that take the place of this one, usually by `yield`; None for no element."""


class SideOutputOf(ProcessFunction[Any, Any]):
    """The side output of a process function: what it yields with a tag, and nothing else."""

    def __init__(self, function: bytes, tag_id: str) -> None:
        """Take the place of a function.

        Args:
            function: The function, pickled.
            tag_id: Id of the side output.
        """
        self._pickled = function
        self._tag_id = tag_id

    def open(self, runtime_context: RuntimeContext) -> None:
        # The user's own class, which came with the function.
        self._function = cloudpickle.loads(self._pickled)
        self._function.open(runtime_context)

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yielded = self._function.process_element(value, ctx)
        tagged = () if yielded is None else filter(is_tagged, returned(yielded))
        return (element for tag, element in tagged if tag.tag_id == self._tag_id)

    def close(self) -> None:
        self._function.close()


def method_of(function: Any, kind: type[Function], method: str) -> Callable[[Any], Any]:
    """The method of a function object, or the callable itself."""
    return getattr(function, method) if isinstance(function, kind) else function


def check_function(function: Any, kind: type[Function], caller: str, *, callables: bool = True) -> None:
    """Check that `caller` can call a function.

    Raises:
        InvalidRequestError: A class instead of an instance, or something that cannot be called.
    """
    if isinstance(function, type) and issubclass(function, Function):
        raise InvalidRequestError(f"{caller} takes an instance: {function.__name__}(), not {function.__name__}")
    if not isinstance(function, kind) and not (callables and callable(function)):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        takes = f"{article} {kind.__name__}{' or a callable' if callables else ''}"
        raise InvalidRequestError(f"{caller} takes {takes}, not {type(function).__name__}")
