from __future__ import annotations

from typing import Any

import pytest

from varvite.changelog.operator_state.backend import OperatorStateBackend
from varvite.spark_integration.functions.checkpointed import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedStateCheckpointOutputStream,
    OperatorStateCheckpointOutputStream,
    checkpointed_in,
    refuse_checkpointed,
)
from varvite.spark_integration.functions.connected import KeyedCoMap
from varvite.spark_integration.functions.keyed_operations import KeyedMap
from varvite.spark_integration.functions.pickling import pickle_step
from varvite.spark_integration.functions.stateless import MapFunction
from varvite.storage.errors import InvalidRequestError


class Counting(MapFunction[Any, Any], CheckpointedFunction):
    """A map function with state."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.context = context

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        del context

    def map(self, value: Any) -> Any:
        return value


class TestRawStreams:
    def test_operator_streams_are_those_that_were_started(self) -> None:
        out = OperatorStateCheckpointOutputStream()
        assert (out.get_number_of_partitions(), out.streams) == (0, [])
        out.write(b"a")
        out.write(b"b")
        out.start_new_partition()
        out.start_new_partition()
        out.write(b"c")
        assert (out.get_number_of_partitions(), out.streams) == (3, [b"ab", b"", b"c"])

    def test_key_groups_have_a_stream_each_and_come_ascending(self) -> None:
        out = KeyedStateCheckpointOutputStream(range(4, 8))
        assert list(out.get_key_group_list()) == [4, 5, 6, 7]
        out.start_new_key_group(6)
        out.write(b"six")
        out.start_new_key_group(4)
        out.write(b"4a")
        out.write(b"4b")
        assert out.streams == [(4, b"4a4b"), (6, b"six")]

    def test_a_stream_of_another_instances_key_group_or_of_none_is_refused(self) -> None:
        out = KeyedStateCheckpointOutputStream(range(4, 8))
        with pytest.raises(InvalidRequestError, match="start_new_key_group"):
            out.write(b"x")
        with pytest.raises(InvalidRequestError, match="8 is not one of"):
            out.start_new_key_group(8)
        out.start_new_key_group(4)
        with pytest.raises(InvalidRequestError, match="4 was started before"):
            out.start_new_key_group(4)


class TestContexts:
    def test_the_initialization_context_tells_what_was_restored(self) -> None:
        states = OperatorStateBackend("op")
        states.set_raw_streams([b"one", b"two"], [(3, b"three")])
        keyed: Any = object()
        context = FunctionInitializationContext(states, keyed, 7)
        assert (context.is_restored(), context.get_restored_checkpoint_id()) == (True, 7)
        assert context.get_operator_state_store() is states
        assert context.get_keyed_state_store() is keyed
        assert [one.get_stream().read() for one in context.get_raw_operator_state_inputs()] == [b"one", b"two"]
        (group,) = context.get_raw_keyed_state_inputs()
        assert (group.get_key_group_id(), group.get_stream().read(2)) == (3, b"th")

    def test_before_the_first_checkpoint_nothing_was_restored(self) -> None:
        context = FunctionInitializationContext(OperatorStateBackend("op"), None, None)  # type: ignore[arg-type]
        assert (context.is_restored(), context.get_restored_checkpoint_id()) == (False, None)
        assert (context.get_raw_operator_state_inputs(), context.get_raw_keyed_state_inputs()) == ([], [])

    def test_the_snapshot_context_tells_checkpoint_and_time(self) -> None:
        context = FunctionSnapshotContext(9, 1234, range(2))
        assert (context.get_checkpoint_id(), context.get_checkpoint_timestamp()) == (9, 1234)
        context.get_raw_operator_state_output().write(b"x")
        assert context.get_raw_operator_state_output().streams == [b"x"]


class TestWhereItMayBe:
    def test_it_is_found_in_the_adapters_of_keyed_streams(self) -> None:
        function = Counting()
        assert checkpointed_in(function) is function
        assert checkpointed_in(KeyedMap(function)) is function
        assert checkpointed_in(KeyedCoMap(function)) is function
        assert checkpointed_in(KeyedMap(lambda value: value)) is None
        assert checkpointed_in(object()) is None

    def test_elsewhere_it_is_refused_with_what_to_do(self) -> None:
        with pytest.raises(InvalidRequestError, match=r"map: Counting is a CheckpointedFunction.*after key_by"):
            pickle_step(Counting(), "map")
        with pytest.raises(InvalidRequestError, match="a window: Counting"):
            refuse_checkpointed([None, Counting()], "a window")
        refuse_checkpointed([None, len], "map")
