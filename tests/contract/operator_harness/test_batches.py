"""Batches, time, checkpoints and restores of an `OperatorHarness`, over every backend, the changelog on and off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

from tests.jobs.counting_harness import BACKENDS, INPUT, ODD, OUTPUT, Count, counting
from varvite import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from varvite.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from varvite.datastream import (
    DataStream,
    KeyedProcessFunction,
    RuntimeContext,
)
from varvite.storage.errors import IncompatibleError, InvalidRequestError, UserFunctionError
from varvite.testing import OperatorHarness


def test_elements_state_timers_and_output_batch_by_batch(life: dict[str, Any]) -> None:
    with counting(**life, parallelism=2) as harness:
        harness.process_element(("a", 1), 5)
        assert harness.output == [("a", 1, 5)], "there before the batch ends"
        assert (harness.state("n", "a"), harness.state("values", "a"), harness.state("last", "a")) == (1, [1], {1: 1})
        assert harness.state("n", "b") is None
        assert harness.process_batch([{"k": "b", "v": 2}, Row(k="a", v=11)], [6, None]) == [
            ("a", 1, 5), ("a", 2, None), ("b", 1, 6)
        ], "by key group"  # fmt: skip
        assert harness.state_names == ("n", "values", "last")
        assert sorted(harness.keys("n")) == ["a", "b"]
        assert (harness.num_keyed_state_entries(), harness.num_keyed_state_entries("n")) == (6, 2)
        assert [tuple(timer)[:2] for timer in harness.timers()][:2] == [(500, "a"), (500, "b")]
        harness.output.clear()
        harness.process_watermark(499)
        assert harness.output == []
        harness.process_watermark(500)
        assert sorted(harness.output) == [("a", -2, 500), ("b", -1, 500)]
        assert (harness.num_event_time_timers(), harness.num_processing_time_timers()) == (0, 2)
        harness.set_processing_time(1000)
        assert sorted(harness.extract_output_values()[2:]) == [("a", -2, 1000), ("b", -1, 1000)]
        assert (harness.num_keyed_state_entries("n"), harness.num_processing_time_timers()) == (0, 0)
        assert (harness.processing_time, harness.current_watermark) == (1000, 500)


def test_what_is_not_confirmed_is_dropped(life: dict[str, Any]) -> None:
    with counting(**life, side_outputs=(ODD,)) as harness:
        harness.process_batch([("a", 1)])
        harness.process_element(("a", 3))
        harness.process_element(("b", 5))
        assert harness.get_side_output(ODD) == [1, 3, 5]
        harness.fail_batch()
        assert (harness.output, harness.get_side_output(ODD)) == ([("a", 1, None)], [1])
        assert (harness.state("values", "a"), harness.keys("n")) == ([1], ["a"])
        harness.set_processing_time(1000)
        assert harness.state("n", "a") is None
        harness.fail_batch()
        assert (harness.state("n", "a"), harness.num_processing_time_timers()) == (1, 1), "it fires again"
        harness.checkpoint()
        assert harness.output == [("a", 1, None), ("a", -1, 1000)]
        harness.process_element(("a", 7))
        harness.crash()
        assert (harness.output, harness.state("values", "a")) == ([("a", 1, None), ("a", -1, 1000)], [1])
        assert harness.state("n", "a") is None


def test_a_snapshot_goes_on_with_another_parallelism_backend_and_changelog(life: dict[str, Any]) -> None:
    kinds = list(BACKENDS.values())
    restored = kinds[kinds.index(life["backend"]) - 1]
    keys = [f"key-{i}" for i in range(20)]
    with counting(**life, parallelism=3, processing_time=7) as harness:
        harness.process_batch([(key, i) for i, key in enumerate(keys)])
        harness.process_watermark(100)
        harness.process_element(("key-1", 30))
        snapshot = harness.snapshot()
        harness.process_batch([("key-1", 99)])
    options: dict[str, Any] = {"backend": restored, "changelog": not life["changelog"], "parallelism": 2}
    for _ in range(2):  # a snapshot may be used again
        with OperatorHarness.restore(snapshot, **options) as harness:
            assert harness.output == []
            assert sorted(harness.keys("values")) == sorted(keys)
            assert (harness.state("values", "key-1"), harness.state("values", "key-2")) == ([1, 30], [2])
            assert (harness.processing_time, harness.current_watermark) == (7, 100)
            assert harness.process_batch([("key-1", 31)]) == [("key-1", 3, None)]
            harness.process_watermark(500)
            assert len(harness.output) == 21


def test_materialized_state_is_what_is_restored(life: dict[str, Any]) -> None:
    with counting(**life, parallelism=2, materialize_every=2) as harness:
        for i in range(9):
            harness.process_batch([("a", i), (f"key-{i}", i)])
        snapshots = [name for name in harness.snapshot().objects if "/snap/" in name]
        assert bool(snapshots) == life["changelog"], "without a changelog there is nothing to fold"
        harness.crash()
        assert harness.state("values", "a") == list(range(9))
        assert harness.num_keyed_state_entries("n") == 10


def test_what_has_expired_is_not_seen_and_looking_does_not_renew(life: dict[str, Any]) -> None:
    class Remember(KeyedProcessFunction[Any, Any, Any]):
        def open(self, runtime_context: RuntimeContext) -> None:
            config = StateTtlConfig.new_builder(Time.milliseconds(100)).update_ttl_on_read_and_write().build()
            value = ValueStateDescriptor("value", Types.LONG())
            entries = MapStateDescriptor("entries", Types.LONG(), Types.LONG())
            items = ListStateDescriptor("items", Types.LONG())
            for descriptor in (value, entries, items):
                descriptor.enable_time_to_live(config)
            self.value = runtime_context.get_state(value)
            self.entries = runtime_context.get_map_state(entries)
            self.items = runtime_context.get_list_state(items)

        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
            self.value.update(value)
            self.entries.put(value, None)
            self.items.add(value)

    with OperatorHarness.of_function(Remember(), lambda value: value % 2, Types.LONG(), **life) as harness:
        harness.process_batch([1])
        harness.set_processing_time(60)
        harness.process_batch([3])
        found = [harness.state(name, 1) for name in ("value", "entries", "items")]
        assert found == [3, {1: None, 3: None}, [1, 3]]
        harness.set_processing_time(100)
        assert [harness.state(name, 1) for name in ("value", "entries", "items")] == [3, {3: None}, [3]]
        harness.set_processing_time(160)
        assert harness.num_keyed_state_entries() == 0


def test_what_a_function_raises_drops_the_batch(life: dict[str, Any]) -> None:
    with counting(**life) as harness:
        harness.process_batch([("a", 1)])
        harness.process_element(("a", 2))
        with pytest.raises(UserFunctionError, match="at key 'a'") as raised:
            harness.process_element(("a", -1))
        assert isinstance(raised.value.__cause__, ValueError)
        assert harness.output == [("a", 1, None)]
        assert harness.process_batch([("a", 3)]) == [("a", 2, None)]
    with (
        OperatorHarness(lambda stream: stream.map(lambda value: 1 // value).key_by(str).map(str)) as harness,
        pytest.raises(UserFunctionError, match="step map, at element 0") as raised,
    ):
        harness.process_batch([1, 0])
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


class NewCount(KeyedProcessFunction[Any, Any, Any]):
    """Reads the counts with a wider type."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.DOUBLE()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield value.k, self.n.value()


class Second(TimestampAssigner):
    """Pairs have their time stamps in the second place."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value[1]


def test_event_times_of_a_dropped_batch_move_no_watermark() -> None:
    timed = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())

    def program(first: DataStream, second: DataStream) -> DataStream:
        united = first.assign_timestamps_and_watermarks(timed).union(second.assign_timestamps_and_watermarks(timed))
        return united.key_by(lambda pair: pair[0]).map(lambda pair: pair)

    with OperatorHarness(program, None, None) as harness:
        harness.process_element(("a", 100))
        harness.process_element(("b", 100), input=1)
        harness.fail_batch()
        harness.process_batch([("a", 10)])
        assert harness.current_watermark == -(2**63), "the other input has had nothing"
        harness.process_batch([("b", 5)], input=1)
        assert harness.current_watermark == 4


def test_new_code_goes_on_with_old_state() -> None:
    class Int(KeyedProcessFunction[Any, Any, Any]):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.n = runtime_context.get_state(ValueStateDescriptor("n", Types.INT()))

        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
            self.n.update(value.v)

    def program(function: Any) -> Any:
        return lambda stream: stream.key_by("k").process(function, "k string, n double", uid="numbers")

    with OperatorHarness(program(Int()), INPUT) as harness:
        harness.process_batch([("a", 5)])
        snapshot = harness.snapshot()
    with OperatorHarness.restore(snapshot, program(NewCount())) as harness:
        assert harness.process_batch([("a", 0), ("b", 0)]) == [("a", 5.0), ("b", None)]
    with pytest.raises(IncompatibleError, match="128 key groups"):
        OperatorHarness.restore(snapshot, max_parallelism=64)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OperatorHarness(Count), "a function from a stream"),
        (lambda: OperatorHarness(lambda stream: stream.map(str)), "the program has 0"),
        (lambda: OperatorHarness(lambda stream: stream.key_by(str).map(str).key_by(str).map(str)), "the program has 2"),
        (lambda: OperatorHarness(lambda stream: None), "must return a stream"),  # type: ignore[arg-type, return-value]
        (lambda: OperatorHarness(lambda s: s.key_by("k").aggregate(n="count", uid="u"), INPUT), "with a SparkSession"),
        (lambda: OperatorHarness.of_function(print, "k", INPUT, OUTPUT), "KeyedProcessFunction"),
        (lambda: counting(materialize_every=0), "materialize_every"),
        (lambda: counting(parallelism=200), "parallelism"),
        (lambda: OperatorHarness.of_function(Count(), "k", "k nothing", OUTPUT), "does not parse"),
    ],
)
def test_what_cannot_run_is_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        make()


def test_time_never_goes_back_and_unknown_names_are_errors() -> None:
    with counting(processing_time=10) as harness:
        with pytest.raises(InvalidRequestError, match="it is 10, not 9"):
            harness.set_processing_time(9)
        harness.process_watermark(5)
        with pytest.raises(InvalidRequestError, match="it is 5, not 4"):
            harness.process_watermark(4)
        with pytest.raises(InvalidRequestError, match=r"there are \['last', 'n', 'values'\]"):
            harness.state("m", "a")
        with pytest.raises(InvalidRequestError):
            harness.state("n", 5)
        with pytest.raises(InvalidRequestError, match="is not read"):
            harness.get_side_output(ODD)


def test_nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with counting(backend=BACKENDS["rocksdb"], materialize_every=1) as harness:
        harness.process_batch([("a", 1)])
        assert list(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []
