"""`BroadcastStream`: a stream whose elements go to every instance of a function, and what is connected to it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StringType, StructField, StructType

from varvite.changelog.api.descriptors import MapStateDescriptor
from varvite.spark_integration.functions.broadcast import (
    BaseBroadcastProcessFunction,
    BroadcastFunction,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
)
from varvite.spark_integration.functions.stateless import check_function
from varvite.spark_integration.messages.protocol import KEY_COLUMN
from varvite.spark_integration.plan.broadcast_input import BroadcastInput
from varvite.spark_integration.plan.operator import UNNAMED, check_uid, elements_of, plan_operator
from varvite.spark_integration.plan.transformations import KeyedTransformation, StreamKey
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.spark_integration.api.stream import DataStream


class BroadcastStream:
    """A stream for `connect`, with the states that its elements change; `DataStream.broadcast` makes it."""

    def __init__(self, input_stream: DataStream, *broadcast_state_descriptors: MapStateDescriptor) -> None:
        """See `DataStream.broadcast`. Raises `InvalidRequestError`."""
        wrong = [d for d in broadcast_state_descriptors if not isinstance(d, MapStateDescriptor)]
        if wrong or not broadcast_state_descriptors:
            given = f"not {wrong[0]!r}" if wrong else "at least one"
            raise InvalidRequestError(
                f"broadcast takes MapStateDescriptors, {given}: those of the states that hold what was broadcast"
            )
        ttl = next(
            (d for d in broadcast_state_descriptors if (config := d.get_ttl_config()) and config.is_enabled()), None
        )
        if ttl is not None:
            raise InvalidRequestError(
                f"broadcast state {ttl.get_name()!r} has a time to live, which only keyed state can have; remove it"
            )
        names = [descriptor.get_name() for descriptor in broadcast_state_descriptors]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise InvalidRequestError(f"broadcast has several states named {doubled}; give each its own name")
        self.input_stream = input_stream
        self.broadcast_state_descriptors = broadcast_state_descriptors


class BroadcastConnectedStream:
    """A stream, keyed or not, beside a broadcast stream; `connect` with a `BroadcastStream` makes it."""

    def __init__(self, non_broadcast_stream: DataStream, broadcast_stream: BroadcastStream) -> None:
        self._stream = non_broadcast_stream
        self._broadcast = broadcast_stream

    def process(
        self,
        func: BroadcastProcessFunction[Any, Any, Any] | KeyedBroadcastProcessFunction[Any, Any, Any, Any],
        output_type: Any = None,
        uid: str | None = None,
        name: str | None = None,
    ) -> DataStream:
        """Call a function for every element of the stream, and in every instance for every broadcast element.

        Args:
            func: A `KeyedBroadcastProcessFunction` if the stream is keyed, else a `BroadcastProcessFunction`; copied
                (pickled) now.
            output_type: What it yields; see `KeyedStream.process`.
            uid: Names the operator's state for ever; see `KeyedStream.process`.
            name: For people.

        Raises:
            InvalidRequestError: Any of these cannot be right.
        """
        check_function(func, BaseBroadcastProcessFunction, "process", callables=False)
        keyed = self._stream.is_keyed
        wanted = KeyedBroadcastProcessFunction if keyed else BroadcastProcessFunction
        if not isinstance(func, wanted):
            raise InvalidRequestError(
                f"a stream {'with' if keyed else 'without'} keys takes a {wanted.__name__}, not {type(func).__name__}"
            )
        if isinstance(output_type, (str, StructType)):
            check_uid(uid)
        made = self._operator(func, output_type, uid)
        return made if name is None else made.name(name)

    def _operator(self, func: Any, output_type: Any, uid: str | None) -> DataStream:
        stream, broadcast, keyed = self._stream, self._broadcast, self._stream.is_keyed
        key = stream.stream_key() if keyed else StreamKey.of_none()
        elements = elements_of(output_type, uid)
        schema = StructType([StructField(KEY_COLUMN, StringType())])
        function = BroadcastFunction(func, broadcast.broadcast_state_descriptors)
        plan = plan_operator(schema, (KEY_COLUMN,), function, elements.schema, uid=UNNAMED if uid is None else uid)
        has_timers = isinstance(func, KeyedBroadcastProcessFunction) and (
            type(func).on_timer is not KeyedBroadcastProcessFunction.on_timer
        )
        inputs = stream.transformation, broadcast.input_stream.transformation
        node = KeyedTransformation(
            kind="keyed_broadcast_process" if keyed else "broadcast_process",
            inputs=inputs,
            elements=elements,
            key=None,
            connected=(key, StreamKey((), None, key.key_type)),
            plan=replace(
                plan,
                key_type=key.key_type.type_string(),
                has_timers=has_timers,
                broadcast=BroadcastInput(keyed=keyed, rows=inputs[0].elements.schema),
            ),
        )
        made = stream.followed_by(node)
        return made if uid is None else made.uid(uid)
