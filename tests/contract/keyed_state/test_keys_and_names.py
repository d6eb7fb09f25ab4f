"""Conformance of keyed state: keys, names, types and what becomes of a batch (see conftest.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.jobs.living_job import AVERAGE, FOLDED, LIST, LOG, MAP, SNAPSHOT, SUM, SWITCHED, VALUE, Collect, LivingJob
from varvite.changelog.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from varvite.storage.errors import IncompatibleError, InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable


def test_get_keys(job: LivingJob) -> None:
    for number in range(30):
        job.at(f"k{number}", VALUE).update("x")
        job.at(f"k{number}", LIST).add(1)
        job.at(f"k{number}", MAP).put_all({1: "x", 2: "y"})
    job.step()
    job.at("k0", VALUE).clear()
    job.at("k0", LIST).clear()
    job.at("k0", MAP).clear()
    job.at("k1", MAP).remove(1)
    job.at("k1", MAP).remove(2)
    job.at("k1", LIST).update([5])
    job.at("new", VALUE).update("x")
    job.at("new", LIST).add(2)
    job.at("new", MAP).put(1, None)
    expected = {f"k{number}" for number in range(1, 30)} | {"new"}
    for _ in range(2):
        assert sorted(job.backend.get_keys("value")) == sorted(expected)
        assert sorted(job.backend.get_keys("list")) == sorted(expected)
        assert sorted(job.backend.get_keys("map")) == sorted(expected - {"k1"})
        job.step()
        for descriptor in (VALUE, LIST, MAP):
            job.handle(descriptor)
    with pytest.raises(InvalidRequestError):
        job.backend.get_keys("unknown")


@pytest.mark.parametrize("descriptor", [VALUE, LIST, MAP, SUM, AVERAGE])
def test_a_function_is_applied_to_the_state_of_every_key(job: LivingJob, descriptor: Any) -> None:
    def put(key: Any) -> None:
        state = job.at(key, descriptor)
        if descriptor is VALUE:
            state.update("x")
        elif descriptor is MAP:
            state.put(1, "x")
        else:
            state.add(1)

    def visited(call: Callable[[Any], None] = lambda _: None) -> set[Any]:
        found: list[Any] = []

        def visit(key: Any, state: Any) -> None:
            found.append(key)
            call(state)

        job.backend.apply_to_keys(descriptor, visit)
        assert len(found) == len(set(found))
        return set(found)

    for number in range(20):
        put(f"k{number}")
    put(None)
    job.step()
    job.handle(descriptor)
    put("new")
    job.at("k0", descriptor).clear()
    everything = {None, "new", *(f"k{number}" for number in range(1, 20))}
    assert visited() == everything
    with pytest.raises(InvalidRequestError, match="no key is current"):
        job.handle(descriptor).clear()
    put("newer")
    assert visited(lambda state: state.clear()) == everything | {"newer"}
    assert visited() == set()
    job.step()
    job.handle(descriptor)
    assert visited() == set()


def test_only_a_descriptor_of_keyed_state_can_be_applied_to(job: LivingJob) -> None:
    with pytest.raises(InvalidRequestError, match="not of a keyed state"):
        job.backend.apply_to_keys("sum", lambda *_: None)  # type: ignore[arg-type]


def test_keys_of_all_key_groups_keep_apart(job: LivingJob) -> None:
    """Keys that begin alike, in all key groups, interleaved, and the null key."""
    keys = [None, "", "a", "aa", "aaa", "\0", "a\0", "é", "ключ", *(str(i) for i in range(40))]
    for turn in range(3):
        for key in keys:
            job.at(key, SUM).add(len(key or "") + turn)
            job.at(key, LIST).add(turn)
            job.at(key, MAP).put(turn, key)
            assert job.backend.get_current_key() == key
        job.step()
    for key in keys:
        assert job.at(key, SUM).get() == 3 * len(key or "") + 3
        assert job.at(key, LIST).get() == [0, 1, 2]
        assert sorted(job.at(key, MAP).items()) == [(turn, key) for turn in range(3)]
    assert set(job.backend.get_keys("sum")) == set(keys)


def test_many_states_of_one_operator(job: LivingJob) -> None:
    descriptors = [ValueStateDescriptor(f"state {i}", "bigint") for i in range(60)]
    for i, descriptor in enumerate(descriptors):
        job.at("k", descriptor).update(i)
        if i % 20 == 0:
            job.step()
    job.step()
    assert [job.at("k", descriptor).value() for descriptor in descriptors] == list(range(60))
    assert [schema.name for schema in job.backend.schemas] == [f"state {i}" for i in range(60)]


def test_a_state_that_is_not_used_any_more_is_kept(job: LivingJob) -> None:
    job.at("a", VALUE).update("old")
    job.at("a", MAP).put(1, "1")
    job.step()
    for _ in range(3):
        job.at("a", LIST).add(1)
        job.step()
    assert (job.at("a", VALUE).value(), job.at("a", MAP).items()) == ("old", [(1, "1")])


def test_two_handles_of_one_name_are_one_state(job: LivingJob) -> None:
    job.set_key("k")
    one, two = job.handle(VALUE), job.handle(ValueStateDescriptor("value", "string"))
    one.update("x")
    assert two.value() == "x"
    two.clear()
    assert one.value() is None


@pytest.mark.parametrize(
    "other",
    [
        ValueStateDescriptor("value", "binary"),
        ListStateDescriptor("value", "string"),
        ReducingStateDescriptor("value", max, "string"),
        MapStateDescriptor("value", "string", "string"),
    ],
    ids=lambda descriptor: descriptor.kind,
)
def test_one_name_cannot_be_two_states(job: LivingJob, other: Any) -> None:
    job.at("k", VALUE).update("x")
    with pytest.raises(InvalidRequestError, match="'value'"):
        job.at("k", other)


def test_a_descriptor_of_another_kind_is_refused(job: LivingJob) -> None:
    with pytest.raises(InvalidRequestError, match="ValueStateDescriptor"):
        job.backend.get_state(LIST)  # type: ignore[arg-type]


def test_there_is_no_state_without_a_key(job: LivingJob) -> None:
    states = [job.handle(descriptor) for descriptor in (VALUE, LIST, MAP, SUM, AVERAGE)]
    value, elements, entries, reducing, aggregating = states
    accesses: list[Callable[[], Any]] = [
        value.value, lambda: value.update("x"), value.clear, elements.get, lambda: elements.add(1),
        lambda: elements.update([]), elements.clear, lambda: entries.get(1), lambda: entries.put(1, "x"), entries.items,
        lambda: entries.remove(1), entries.clear, entries.is_empty, lambda: entries.put_all({}), reducing.get,
        lambda: reducing.add(1), reducing.clear, aggregating.get, lambda: aggregating.add(1),
        lambda: aggregating.add(None), job.backend.get_current_key,
    ]  # fmt: skip
    for end in (lambda: None, job.backend.changes, job.backend.drop):
        end()
        for access in accesses:
            with pytest.raises(InvalidRequestError, match="no key is current"):
                access()
        job.set_key("k")
        assert job.backend.get_current_key() == "k"


@pytest.mark.parametrize("life", [LOG, SNAPSHOT, SWITCHED])
@pytest.mark.parametrize(
    ("first", "second", "write"),
    [
        (VALUE, ValueStateDescriptor("value", "bigint"), lambda state: state.update("x")),
        (LIST, ListStateDescriptor("list", "string"), lambda state: state.add(1)),
        (MAP, MapStateDescriptor("map", "string", "string"), lambda state: state.put(1, "x")),
        (MAP, MapStateDescriptor("map", "bigint", "bigint"), lambda state: state.put(1, "x")),
        (SUM, ReducingStateDescriptor("sum", max, "string"), lambda state: state.add(1)),
        (SUM, ValueStateDescriptor("sum", "bigint"), lambda state: state.add(1)),
        (AVERAGE, AggregatingStateDescriptor("average", Collect(), "array<int>"), lambda state: state.add(1)),
    ],
    ids=["value", "list", "map key", "map value", "reducing", "kind", "aggregating"],
)
def test_a_restored_state_of_another_type_is_refused(
    job: LivingJob, first: Any, second: Any, write: Callable[[Any], None]
) -> None:
    write(job.at("k", first))
    job.step()
    with pytest.raises(IncompatibleError, match=second.name):
        job.at("k", second)


def test_what_is_dropped_never_was(job: LivingJob) -> None:
    def write(mark: int) -> None:
        job.at("a", VALUE).update(str(mark))
        job.at("a", LIST).add(mark)
        job.at("a", MAP).put(1, str(mark))
        job.at("a", MAP).put(mark, None)
        job.at("a", SUM).add(mark)
        job.at("b", VALUE).update(str(mark))

    def state() -> list[Any]:
        return [
            job.at("a", VALUE).value(), job.at("a", LIST).get(), sorted(job.at("a", MAP).items()),
            job.at("a", SUM).get(), job.at("b", VALUE).value(),
        ]  # fmt: skip

    write(1)
    job.commit()
    before = state()
    write(2)
    job.at("a", LIST).clear()
    job.at("a", MAP).clear()
    job.drop()
    assert state() == before
    assert job.backend.changes() == []
    write(3)
    job.step()
    assert state() == ["3", [1, 3], [(1, "3"), (3, None)], 4, "3"]


@pytest.mark.parametrize("life", [FOLDED])
def test_the_next_keys_are_prefetched_where_values_were_read(job: LivingJob) -> None:
    """The hint changes nothing that can be seen; whatever is prefetched, the state is right."""
    descriptors = [ValueStateDescriptor("read", "int"), ValueStateDescriptor("written", "int")]
    for turn in range(4):
        keys = [job.key_type.freeze(f"k{i}") for i in range(50)]
        job.backend.prefetch([0] * 50, keys)
        for i in range(50):
            job.backend.set_current_key(i % 8, f"k{i}")
            read, written = [job.handle(descriptor) for descriptor in descriptors]
            assert read.value() == (turn - 1 if turn else None)
            read.update(turn)
            written.update(turn)
        job.step()
