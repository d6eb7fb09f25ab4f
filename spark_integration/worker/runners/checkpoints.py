"""Calls `initialize_state` and `snapshot_state` of a `CheckpointedFunction`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from varvite.changelog.chain.tiles import key_range
from varvite.spark_integration.functions.checkpointed import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    checkpointed_in,
)

if TYPE_CHECKING:
    from varvite.changelog.operator_state.backend import OperatorStateBackend
    from varvite.spark_integration.functions.keyed import KeyedStateStore
    from varvite.spark_integration.messages.protocol import OperatorRequest


class FunctionCheckpoint:
    """Calls a `CheckpointedFunction`, if the instance is one.

    Args:
        states: The instance's non-keyed state.
        request: The operator.
        partition: The instance's partition.
        restored_checkpoint: Seq of the commit that the instance begins on; None if there is none.
    """

    def __init__(
        self, states: OperatorStateBackend, request: OperatorRequest, partition: int, restored_checkpoint: int | None
    ) -> None:
        self._states = states
        self._key_groups = range(*key_range(partition, request.parallelism, request.max_parallelism))
        self._restored_checkpoint = restored_checkpoint
        self._function: CheckpointedFunction | None = None

    def initialize(self, function: Any, keyed_states: KeyedStateStore) -> None:
        """Before `open`; whatever the function raises passes through."""
        self._function = checkpointed_in(function)
        if self._function is not None:
            context = FunctionInitializationContext(self._states, keyed_states, self._restored_checkpoint)
            self._function.initialize_state(context)

    def snapshot(self, checkpoint_id: int, time_ms: int) -> None:
        """At a batch's end, while no key is current; whatever the function raises passes through.

        Args:
            checkpoint_id: Seq of the commit that the batch will have.
            time_ms: Time of the batch.
        """
        if self._function is None:
            return
        context = FunctionSnapshotContext(checkpoint_id, time_ms, self._key_groups)
        self._function.snapshot_state(context)
        raw_operator, raw_keyed = context.get_raw_operator_state_output(), context.get_raw_keyed_operator_state_output()
        self._states.set_raw_streams(raw_operator.streams, raw_keyed.streams)
