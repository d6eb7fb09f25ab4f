"""`ConnectedStreams`: two streams, both keyed or none, that one operator reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varvite.spark_integration.functions.connected import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoFlatMap,
    KeyedCoMap,
    KeyedCoProcess,
    KeyedCoProcessFunction,
    UnkeyedCoFunction,
)
from varvite.spark_integration.functions.stateless import check_function
from varvite.spark_integration.plan.keyed import connected_operator, output_elements
from varvite.spark_integration.plan.operator import elements_of

if TYPE_CHECKING:
    from varvite.changelog.types.factory import TypeLike
    from varvite.spark_integration.api.stream import DataStream
    from varvite.spark_integration.elements.types import ElementType
    from varvite.spark_integration.functions.keyed_operations import KeyedFunction


class ConnectedStreams:
    """Two streams whose elements of one key meet in one function; `DataStream.connect` makes it.

    Without keys all elements meet: one instance of the function gets them, whatever the parallelism.
    """

    def __init__(self, first: DataStream, second: DataStream) -> None:
        self._first = first
        self._second = second

    def key_by(self, key_selector1: Any, key_selector2: Any, key_type: TypeLike | None = None) -> ConnectedStreams:
        """Divide both streams by key; elements with equal keys meet.

        Args:
            key_selector1: Key of the first stream: a key function or a column's name, or a list of columns' names.
            key_selector2: Key of the second stream.
            key_type: Of keys that functions give; see `DataStream.key_by`.

        Raises:
            InvalidRequestError: As in `DataStream.key_by`.
        """
        keyed = [
            stream.key_by(*(key if isinstance(key, (list, tuple)) else (key,)), key_type=key_type)
            for stream, key in ((self._first, key_selector1), (self._second, key_selector2))
        ]
        return ConnectedStreams(*keyed)

    def process(
        self,
        func: KeyedCoProcessFunction[Any, Any, Any, Any] | CoProcessFunction[Any, Any, Any],
        output_type: Any = None,
        uid: str | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Call a function for the elements of both streams, with the state of the element's key.

        Args:
            func: An instance; it is copied (pickled) now.
            output_type: Type of what it yields; see `KeyedStream.process`.
            uid: Names the operator's state for ever; see `KeyedStream.process`.
            name: For people.

        Raises (as do the others):
            InvalidRequestError: Any of these cannot be right, or the streams are not keyed by the same type.
        """
        kind = CoProcessFunction if self._is_unkeyed else KeyedCoProcessFunction
        check_function(func, kind, f"process of connected streams with{'out' * self._is_unkeyed} keys", callables=False)
        return self._followed_by("co_process", KeyedCoProcess, func, output_elements(output_type, uid), uid, name)

    def map(self, func: CoMapFunction[Any, Any, Any], output_type: Any = None) -> DataStream:
        """One element for each element of either stream; the function may keep state."""
        check_function(func, CoMapFunction, "map", callables=False)
        return self._followed_by("co_map", KeyedCoMap, func, elements_of(output_type))

    def flat_map(self, func: CoFlatMapFunction[Any, Any, Any], output_type: Any = None) -> DataStream:
        """Any number of elements for each element of either stream; the function may keep state."""
        check_function(func, CoFlatMapFunction, "flat_map", callables=False)
        return self._followed_by("co_flat_map", KeyedCoFlatMap, func, elements_of(output_type))

    @property
    def _is_unkeyed(self) -> bool:
        return self._first.key is None and self._second.key is None

    def _followed_by(
        self,
        kind: str,
        pairs: type[KeyedFunction],
        function: Any,
        elements: ElementType,
        uid: str | None = None,
        name: str | None = None,
    ) -> DataStream:
        first, second = self._first, self._second
        func = UnkeyedCoFunction(function, pairs) if self._is_unkeyed else pairs(function)
        inputs = first.transformation, second.transformation
        node = connected_operator(inputs, (first.key, second.key), kind, func, elements, uid)
        return first.followed_by(node, uid, name)
