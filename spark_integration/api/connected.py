"""`ConnectedStreams`: two keyed streams that one stateful operator reads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StringType, StructField, StructType

from varvite.spark_integration.functions.connected import (
    CoFlatMapFunction,
    CoMapFunction,
    KeyedCoFlatMap,
    KeyedCoMap,
    KeyedCoProcess,
    KeyedCoProcessFunction,
)
from varvite.spark_integration.functions.stateless import check_function
from varvite.spark_integration.messages.protocol import KEY_COLUMN
from varvite.spark_integration.plan.operator import UNNAMED, check_uid, elements_of, plan_operator
from varvite.spark_integration.plan.transformations import KeyedTransformation
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.types.factory import TypeLike
    from varvite.spark_integration.api.stream import DataStream
    from varvite.spark_integration.functions.keyed_operations import KeyedFunction


class ConnectedStreams:
    """Two streams whose elements of one key meet in one function; `DataStream.connect` makes it."""

    def __init__(self, first: DataStream, second: DataStream) -> None:
        self._first = first
        self._second = second

    def key_by(self, key1: Any, key2: Any, key_type: TypeLike | None = None) -> ConnectedStreams:
        """Divide both streams by key; elements with equal keys meet.

        Args:
            key1: Key of the first stream: a key function or a column's name, or a list of columns' names.
            key2: Key of the second stream.
            key_type: Of keys that functions give; see `DataStream.key_by`.

        Raises:
            InvalidRequestError: See `DataStream.key_by`.
        """
        keyed = [
            stream.key_by(*(key if isinstance(key, (list, tuple)) else (key,)), key_type=key_type)
            for stream, key in ((self._first, key1), (self._second, key2))
        ]
        return ConnectedStreams(*keyed)

    def process(
        self,
        func: KeyedCoProcessFunction[Any, Any, Any, Any],
        output_type: Any = None,
        uid: str | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Call a function for the elements of both streams, with the state of the element's key.

        Args:
            func: An instance; it is copied (pickled) now.
            output_type: What it yields; see `KeyedStream.process`.
            uid: Names the operator's state for ever; see `KeyedStream.process`.
            name: For people.

        Raises (as do the others):
            InvalidRequestError: Any of these cannot be right, or the streams are not keyed by the same type.
        """
        check_function(func, KeyedCoProcessFunction, "process", callables=False)
        if isinstance(output_type, (str, StructType)):
            check_uid(uid)
        has_timers = type(func).on_timer is not KeyedCoProcessFunction.on_timer
        made = self._operator("co_process", KeyedCoProcess(func), output_type, uid, has_timers=has_timers)
        return made if name is None else made.name(name)

    def map(self, func: CoMapFunction[Any, Any, Any], output_type: Any = None) -> DataStream:
        """One element for each element of either stream; the function may keep state."""
        check_function(func, CoMapFunction, "map", callables=False)
        return self._operator("co_map", KeyedCoMap(func), output_type)

    def flat_map(self, func: CoFlatMapFunction[Any, Any, Any], output_type: Any = None) -> DataStream:
        """Any number of elements for each element of either stream; the function may keep state."""
        check_function(func, CoFlatMapFunction, "flat_map", callables=False)
        return self._operator("co_flat_map", KeyedCoFlatMap(func), output_type)

    def _operator(
        self, kind: str, func: KeyedFunction, output_type: Any, uid: str | None = None, *, has_timers: bool = False
    ) -> DataStream:
        first, second = self._first, self._second
        keys = (first.stream_key(), second.stream_key())
        types = [key.key_type.type_string() for key in keys]
        if types[0] != types[1]:
            raise InvalidRequestError(
                f"the streams' keys have different types, {types[0]} and {types[1]}, so no two of them are equal; give "
                "key functions and one key_type"
            )
        elements = elements_of(output_type, uid)
        schema = StructType([StructField(KEY_COLUMN, StringType())])
        plan = plan_operator(schema, (KEY_COLUMN,), func, elements.schema, uid=UNNAMED if uid is None else uid)
        node = KeyedTransformation(
            kind=kind,
            inputs=(first.transformation, second.transformation),
            elements=elements,
            key=None,
            connected=keys,
            plan=replace(plan, key_type=types[0], has_timers=has_timers),
        )
        made = first.followed_by(node)
        return made if uid is None else made.uid(uid)
