"""`CheckpointedFunction`, with Flink's names (PyFlink lacks it): a function that is called at every checkpoint.

It reaches the instance's non-keyed state, managed and raw; see docs/guide/operator-state.md. Raw streams are written
whole at each checkpoint: what a call of `snapshot_state` does not write is lost.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from varvite.spark_integration.functions.keyed_operations import KeyedFunction
from varvite.storage.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from varvite.changelog.api.operator_state import OperatorStateStore
    from varvite.changelog.operator_state.backend import OperatorStateBackend
    from varvite.spark_integration.functions.keyed import KeyedStateStore


class StatePartitionStreamProvider:
    """One raw stream of a checkpoint."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def get_stream(self) -> io.BytesIO:
        """The written bytes, from their beginning."""
        return io.BytesIO(self._data)


class KeyGroupStatePartitionStreamProvider(StatePartitionStreamProvider):
    """The raw stream of one key group."""

    def __init__(self, key_group: int, data: bytes) -> None:
        super().__init__(data)
        self._key_group = key_group

    def get_key_group_id(self) -> int:
        """The key group."""
        return self._key_group


class OperatorStateCheckpointOutputStream:
    """Takes the raw state of an instance: any number of streams, which are redistributed at another parallelism."""

    def __init__(self) -> None:
        self._streams: list[bytearray] = []

    def start_new_partition(self) -> None:
        """Start a new stream for the bytes that are written next."""
        self._streams.append(bytearray())

    def write(self, data: bytes) -> None:
        """Add bytes to the current stream; the first one is started by itself."""
        if not self._streams:
            self.start_new_partition()
        self._streams[-1] += data

    def get_number_of_partitions(self) -> int:
        """Streams that were started."""
        return len(self._streams)

    @property
    def streams(self) -> list[bytes]:
        """In the order in which they were started."""
        return [bytes(stream) for stream in self._streams]


class KeyedStateCheckpointOutputStream:
    """Takes the raw state of the instance's key groups: a stream for each of them that has any.

    Args:
        key_groups: Those of the instance.
    """

    def __init__(self, key_groups: range) -> None:
        self._key_groups = key_groups
        self._streams: dict[int, bytearray] = {}
        self._current: bytearray | None = None

    def get_key_group_list(self) -> range:
        """The key groups of the instance."""
        return self._key_groups

    def start_new_key_group(self, key_group_id: int) -> None:
        """Start the stream of a key group for the bytes that are written next.

        Raises `InvalidRequestError` if it is not one of the instance's, or was started before.
        """
        if key_group_id not in self._key_groups:
            raise InvalidRequestError(f"key group {key_group_id} is not one of this instance's, {self._key_groups}")
        if key_group_id in self._streams:
            raise InvalidRequestError(f"key group {key_group_id} was started before; write each one at a time")
        self._current = self._streams[key_group_id] = bytearray()

    def write(self, data: bytes) -> None:
        """Add bytes to the current key group. Raises `InvalidRequestError` if none was started."""
        if self._current is None:
            raise InvalidRequestError("call start_new_key_group before write: raw keyed state belongs to a key group")
        self._current += data

    @property
    def streams(self) -> list[tuple[int, bytes]]:
        """Key group and bytes, ascending."""
        return [(key_group, bytes(stream)) for key_group, stream in sorted(self._streams.items())]


class FunctionInitializationContext:
    """The argument of `initialize_state`; valid only during the call, except the two stores."""

    def __init__(
        self, operator_states: OperatorStateBackend, keyed_states: KeyedStateStore, restored_checkpoint_id: int | None
    ) -> None:
        self._operator_states = operator_states
        self._keyed_states = keyed_states
        self._restored_checkpoint_id = restored_checkpoint_id

    def is_restored(self) -> bool:
        """True if the job has a checkpoint before this batch; False only before its very first one."""
        return self._restored_checkpoint_id is not None

    def get_restored_checkpoint_id(self) -> int | None:
        """The checkpoint's place in the chain; None if there is none."""
        return self._restored_checkpoint_id

    def get_operator_state_store(self) -> OperatorStateStore:
        """The store of the instance's non-keyed state."""
        return self._operator_states

    def get_keyed_state_store(self) -> KeyedStateStore:
        """The store of keyed state, as in `open`."""
        return self._keyed_states

    def get_raw_operator_state_inputs(self) -> list[StatePartitionStreamProvider]:
        """The raw streams that this instance begins with."""
        return [StatePartitionStreamProvider(data) for data in self._operator_states.raw_operator_streams]

    def get_raw_keyed_state_inputs(self) -> list[KeyGroupStatePartitionStreamProvider]:
        """The raw streams of the instance's key groups, ascending; key groups without one are missing."""
        streams = self._operator_states.raw_keyed_streams
        return [KeyGroupStatePartitionStreamProvider(key_group, data) for key_group, data in streams]


class FunctionSnapshotContext:
    """The argument of `snapshot_state`; valid only during the call."""

    def __init__(self, checkpoint_id: int, checkpoint_timestamp: int, key_groups: range) -> None:
        self._checkpoint_id = checkpoint_id
        self._checkpoint_timestamp = checkpoint_timestamp
        self._raw_operator = OperatorStateCheckpointOutputStream()
        self._raw_keyed = KeyedStateCheckpointOutputStream(key_groups)

    def get_checkpoint_id(self) -> int:
        """The checkpoint's place in the chain. A batch that is executed again may have another one."""
        return self._checkpoint_id

    def get_checkpoint_timestamp(self) -> int:
        """Time of the batch, milliseconds since the epoch."""
        return self._checkpoint_timestamp

    def get_raw_operator_state_output(self) -> OperatorStateCheckpointOutputStream:
        """The output of the instance's raw state; the same at every call."""
        return self._raw_operator

    def get_raw_keyed_operator_state_output(self) -> KeyedStateCheckpointOutputStream:
        """The output of the raw state of key groups; the same at every call."""
        return self._raw_keyed


class CheckpointedFunction(ABC):
    """Mixed into a function on a keyed stream: `class Buffer(KeyedProcessFunction, CheckpointedFunction)`."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Called once per instance, before `open`: get handles of state and read restored state here."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Called at the end of every batch, after its rows and timers: bring the state up to date.

        No key is current, so keyed state cannot be accessed.
        """


def checkpointed_in(function: Any) -> CheckpointedFunction | None:
    """The `CheckpointedFunction` that a keyed function is or carries; None if there is none."""
    while not isinstance(function, CheckpointedFunction):
        if not isinstance(function, KeyedFunction):
            return None
        function = function.function
    return function


def refuse_checkpointed(functions: Sequence[Any], caller: str) -> None:
    """Raises `InvalidRequestError` if one is a `CheckpointedFunction`: `caller` would never call its methods."""
    refused = next((function for function in functions if isinstance(function, CheckpointedFunction)), None)
    if refused is not None:
        raise InvalidRequestError(
            f"{caller}: {type(refused).__name__} is a CheckpointedFunction, whose state has no place here; use it in "
            "process, map, flat_map, filter or reduce after key_by, or in process, map or flat_map of connected keyed "
            "streams"
        )
