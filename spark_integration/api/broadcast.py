"""`BroadcastStream`: a stream whose elements go to every instance of a function, and streams connected to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varvite.changelog.api.descriptors import MapStateDescriptor
from varvite.spark_integration.functions.broadcast import (
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
)
from varvite.spark_integration.functions.stateless import check_function
from varvite.spark_integration.plan.keyed import broadcast_operator, output_elements
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.spark_integration.api.stream import DataStream


class BroadcastStream:
    """A stream for `connect`, with the states that its elements change; `DataStream.broadcast` makes it."""

    def __init__(self, input_stream: DataStream, *broadcast_state_descriptors: MapStateDescriptor) -> None:
        """Raises `InvalidRequestError` for states that `DataStream.broadcast` refuses."""
        wrong = [d for d in broadcast_state_descriptors if not isinstance(d, MapStateDescriptor)]
        if wrong or not broadcast_state_descriptors:
            problem = f"not {wrong[0]!r}" if wrong else "at least one"
            raise InvalidRequestError(
                f"broadcast takes MapStateDescriptors, {problem}: those of the states that hold what was broadcast"
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
            output_type: Type of what it yields; see `KeyedStream.process`.
            uid: Names the operator's state for ever; see `KeyedStream.process`.
            name: For people.

        Raises:
            InvalidRequestError: Any of these cannot be right.
        """
        check_function(func, BaseBroadcastProcessFunction, "process", callables=False)
        stream, broadcast = self._stream, self._broadcast
        is_keyed = stream.key is not None
        kind = KeyedBroadcastProcessFunction if is_keyed else BroadcastProcessFunction
        if not isinstance(func, kind):
            raise InvalidRequestError(
                f"a stream {'with' if is_keyed else 'without'} keys takes a {kind.__name__}, not {type(func).__name__}"
            )
        node = broadcast_operator(
            (stream.transformation, broadcast.input_stream.transformation),
            stream.key,
            func,
            broadcast.broadcast_state_descriptors,
            output_elements(output_type, uid),
            uid,
        )
        return stream.followed_by(node, uid, name)
