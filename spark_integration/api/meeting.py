"""Streams that meet, as methods of a stream: `union`, `connect`, `broadcast`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, overload

from varvite.spark_integration.api.broadcast import BroadcastConnectedStream, BroadcastStream
from varvite.spark_integration.api.connected import ConnectedStreams
from varvite.spark_integration.elements.types import united_elements
from varvite.spark_integration.plan.branches import check_can_meet
from varvite.spark_integration.plan.transformations import UnionTransformation
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from varvite.changelog.api.descriptors import MapStateDescriptor
    from varvite.spark_integration.api.environment import StreamExecutionEnvironment
    from varvite.spark_integration.api.stream import DataStream
    from varvite.spark_integration.plan.transformations import StreamKey, Transformation


class StreamMeeting:
    """See the module; every stream is one."""

    _environment: StreamExecutionEnvironment
    _transformation: Transformation

    @property
    def is_keyed(self) -> bool:
        """Whether the stream is divided by key."""
        return False

    def stream_key(self) -> StreamKey:
        """How the stream is divided, for an operator that reads it beside another.

        Raises:
            InvalidRequestError: It is not.
        """
        raise InvalidRequestError(
            "connected streams need keys, by which their elements meet: connect(...).key_by(key1, key2), or key both "
            "before"
        )

    def union(self, *streams: DataStream) -> DataStream:
        """The elements of this stream and of others with the same type; possible before the first stateful operator.

        Raises:
            InvalidRequestError: Elements of another type or columns, another environment, or a stateful operator's
                output.
        """
        this = cast("DataStream", self)
        inputs = [self._with(stream, "union") for stream in (this, *streams)]
        elements = inputs[0].elements
        for other in inputs[1:]:
            elements = united_elements(elements, other.elements)
        return this.followed_by(UnionTransformation(inputs=tuple(inputs), elements=elements))

    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams: ...

    def connect(self, ds: DataStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """This stream beside another of any type, or a broadcast one, to be read by one function.

        Possible before the first stateful operator.

        Raises:
            InvalidRequestError: See `union`.
        """
        this = cast("DataStream", self)
        for stream in (this, ds.input_stream if isinstance(ds, BroadcastStream) else ds):
            self._with(stream, "connect")
        return BroadcastConnectedStream(this, ds) if isinstance(ds, BroadcastStream) else ConnectedStreams(this, ds)

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> BroadcastStream:
        """This stream, for `connect`: every instance of the function there gets all its elements.

        Args:
            broadcast_state_descriptor: Of the state that the elements change.
            *other_broadcast_state_descriptors: Of more such states.

        Raises:
            InvalidRequestError: None, not a `MapStateDescriptor`, one with a time to live, or two of one name.
        """
        if broadcast_state_descriptor is None:
            raise InvalidRequestError(
                "broadcast needs a MapStateDescriptor, and connect a function that keeps what was broadcast: other "
                "functions cannot get every element in every instance"
            )
        this = cast("DataStream", self)
        return BroadcastStream(this, broadcast_state_descriptor, *other_broadcast_state_descriptors)

    def _with(self, stream: DataStream, caller: str) -> Transformation:
        if not isinstance(stream, StreamMeeting):
            raise InvalidRequestError(f"{caller} takes streams, not {type(stream).__name__}")
        if stream.get_execution_environment() is not self._environment:
            raise InvalidRequestError(f"{caller}: the streams are of different environments; make all with one")
        check_can_meet(stream.transformation)
        return stream.transformation
