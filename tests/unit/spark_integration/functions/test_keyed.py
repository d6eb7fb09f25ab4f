"""Contexts of user functions, and the state backends that a user chooses."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from varvite.changelog.api.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from varvite.changelog.keyed.backend import KeyedStateBackend
from varvite.changelog.types.factory import Types
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.spark_integration.functions.keyed import (
    MIN_WATERMARK,
    KeyedProcessContext,
    KeyedProcessFunction,
    OperatorRuntimeContext,
)
from varvite.spark_integration.functions.timers import KeyedTimerService
from varvite.spark_integration.options.state_backends import EmbeddedRocksDBStateBackend, HashMapStateBackend


def backend_of_strings() -> KeyedStateBackend:
    store = HashMapStore(operator="count", key_type=Types.STRING().type_string(), low=0, high=128)
    return KeyedStateBackend(store, Types.STRING(), "count")


class Count(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[Any, int]]:
        self.count.update((self.count.value() or 0) + 1)
        yield ctx.get_current_key(), self.count.value()


def test_a_function_counts_per_key_through_its_contexts() -> None:
    backend = backend_of_strings()
    function, context = Count(), KeyedProcessContext(KeyedTimerService(backend))
    function.open(OperatorRuntimeContext(backend, "count", 0, 1, 128))
    context.begin_batch(1_000, None)
    out: list[Any] = []
    for key in ("a", "b", "a"):
        backend.set_current_key(0, key)
        context.key = key
        out.extend(function.process_element(None, context))
    assert out == [("a", 1), ("b", 1), ("a", 2)]


def test_a_runtime_context_gives_every_kind_of_state() -> None:
    backend = backend_of_strings()
    context = OperatorRuntimeContext(backend, "count", 0, 1, 128)
    backend.set_current_key(0, "a")
    context.get_list_state(ListStateDescriptor("list", "int")).add(7)
    context.get_map_state(MapStateDescriptor("map", "string", "int")).put("k", 8)
    context.get_reducing_state(ReducingStateDescriptor("sum", lambda a, b: a + b, "int")).add(9)
    assert list(context.get_list_state(ListStateDescriptor("list", "int")).get()) == [7]
    assert context.get_map_state(MapStateDescriptor("map", "string", "int")).get("k") == 8
    assert len(backend.changes()) == 3


def test_a_runtime_context_removes_a_state() -> None:
    backend = backend_of_strings()
    context = OperatorRuntimeContext(backend, "count", 0, 1, 128)
    backend.set_current_key(0, "a")
    context.get_list_state(ListStateDescriptor("list", "int")).add(7)
    context.remove_state("list")
    context.remove_state("never there")
    assert context.get_list_state(ListStateDescriptor("list", "int")).get() == []


def test_a_runtime_context_says_where_it_is() -> None:
    backend = backend_of_strings()
    context = OperatorRuntimeContext(backend, "count", 2, 4, 128, job_parameters={"mode": "fast"})
    assert context.get_task_name() == "count"
    assert context.get_task_name_with_subtasks() == "count (3/4)"
    assert context.get_index_of_this_subtask() == 2
    assert context.get_number_of_parallel_subtasks() == 4
    assert context.get_max_number_of_parallel_subtasks() == 128
    assert context.get_job_parameter("mode", "slow") == "fast"
    assert context.get_job_parameter("other", "slow") == "slow"


def test_a_new_batch_forgets_the_last_row() -> None:
    context = KeyedProcessContext(KeyedTimerService(backend_of_strings()))
    context.begin_batch(1_000, 500)
    context.key, context.element_timestamp = "a", 900
    assert (context.get_current_key(), context.timestamp(), context.current_watermark()) == ("a", 900, 500)
    context.begin_batch(2_000, None)
    assert (context.get_current_key(), context.timestamp()) == (None, None)
    assert (context.current_processing_time(), context.current_watermark()) == (2_000, MIN_WATERMARK)


def test_a_function_without_process_element_cannot_be_made() -> None:
    class Nothing(KeyedProcessFunction):
        pass

    with pytest.raises(TypeError):
        Nothing()  # type: ignore[abstract]


def test_state_backends_are_values() -> None:
    for backend in (HashMapStateBackend(), EmbeddedRocksDBStateBackend(), EmbeddedRocksDBStateBackend(True)):
        assert pickle.loads(pickle.dumps(backend)) == backend
    assert HashMapStateBackend().configuration() == {"state.backend.type": "hashmap"}
    assert EmbeddedRocksDBStateBackend().configuration() == {"state.backend.type": "rocksdb"}
    assert EmbeddedRocksDBStateBackend().is_incremental_checkpoints_enabled()


def test_full_snapshots_are_warned_of_at_their_line() -> None:
    with pytest.warns(UserWarning, match="reuse") as caught:
        backend = EmbeddedRocksDBStateBackend(enable_incremental_checkpointing=False)
    assert caught[0].filename == __file__
    assert not backend.is_incremental_checkpoints_enabled()
