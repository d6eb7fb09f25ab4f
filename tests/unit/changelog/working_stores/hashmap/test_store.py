"""Peculiarities of the store in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from varvite.changelog.schema.history import change
from varvite.changelog.segments.batch import Batch
from varvite.changelog.segments.changes import StateChanges
from varvite.changelog.working_stores.hashmap.store import HashMapStore
from varvite.storage.errors import InvalidRequestError, InvariantError
from varvite.storage.format.records import ORIGIN, Link, StateSchema

if TYPE_CHECKING:
    from pathlib import Path

VALUE = StateSchema(name="value", kind="value", value_type="1:int")
LIST = StateSchema(name="list", kind="list", value_type="1:int")


def store(low: int = 0, high: int = 4) -> HashMapStore:
    return HashMapStore(operator="op", key_type="1:string", low=low, high=high)


def puts(*cells: tuple[int, str, int]) -> StateChanges:
    groups, keys, values = zip(*cells, strict=True)
    return StateChanges(VALUE, list(groups), list(keys), None, None, list(values))


def test_a_store_that_failed_halfway_is_not_used(tmp_path: Path) -> None:
    made = store()
    made.apply([puts((0, "a", 1))], Link(1, "t1"))
    broken = StateChanges(VALUE, [0, 0], ["b", "c"], None, None, [2])  # one value is missing
    with pytest.raises(ValueError, match="shorter"):
        made.apply([broken], Link(2, "t2"))
    for use in (
        lambda: made.version,
        lambda: made.apply([], Link(3, "t3")),
        lambda: made.write_snapshot(tmp_path / "s"),
    ):
        with pytest.raises(InvariantError, match="discard it"):
            use()


def test_replay_folds_batches_of_different_seqs_at_once() -> None:
    made = store()
    made.apply([puts((0, "a", 1))], Link(1, "t1"))
    first = [
        Batch([puts((1, "b", 5))], 5),
        Batch([puts((0, "a", 2), (1, "b", 9))], 3, accepts=lambda group: group == 0),
    ]
    made.fold(first, Link(5, "t5"), last=False)
    with pytest.raises(InvariantError):
        _ = made.version
    made.fold([Batch([puts((0, "a", 4))], 4)], Link(5, "t5"), last=True)
    assert made.version == Link(5, "t5")
    assert sorted(made.value_table(VALUE).items()) == [(0, "a", 4), (1, "b", 5)]


def test_a_replay_that_failed_leaves_no_version() -> None:
    made = store()
    made.fold([Batch([puts((1, "b", 5))], 5)], Link(5, "t5"), last=False)
    with pytest.raises(InvariantError):
        made.fold([Batch([puts((9, "x", 5))], 5)], Link(5, "t5"), last=True)
    with pytest.raises(InvariantError):
        _ = made.version


def test_a_table_of_another_kind_is_a_bug() -> None:
    with pytest.raises(InvariantError):
        store().list_table(VALUE)


def test_a_range_must_not_be_empty() -> None:
    assert store(3, 4).version == ORIGIN
    for low, high in ((3, 3), (-1, 2)):
        with pytest.raises(InvalidRequestError):
            store(low, high)


def test_a_version_that_leaves_the_values_as_they_are_keeps_the_table() -> None:
    longs = StateSchema(name="value", kind="value", value_type="1:long")
    wider = change(VALUE, longs, {}, "op", migrates=False).schema
    store_ = store()
    store_.apply([puts((0, "a", 1))], Link(1, "t1"))
    table = store_.value_table(VALUE)
    store_.register(wider)
    assert store_.value_table(wider) is table
    store_.revert()
    assert store_.value_table(VALUE) is table
    store_.register(wider)
    store_.apply([StateChanges(wider, [1], ["b"], None, None, [1 << 40])], Link(2, "t2"))
    assert sorted(store_.value_table(wider).items()) == [(0, "a", 1), (1, "b", 1 << 40)]


def test_a_batch_of_many_states_makes_no_list_of_all_of_them_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a batch grew with the square of the number of states: 5,000 took 44 s."""
    made = store()
    schemas = [StateSchema(name=f"state-{i}", kind="value", value_type="1:int") for i in range(20)]
    made.apply([StateChanges(schema, [0], ["a"], None, None, [1]) for schema in schemas], Link(1, "t1"))
    lists: list[int] = []
    listed = HashMapStore.schemas.fget
    assert listed is not None
    monkeypatch.setattr(HashMapStore, "schemas", property(lambda self: lists.append(1) or listed(self)))
    changes = [StateChanges(schema, [0], ["a"], None, None, [2]) for schema in schemas]
    made.prepare(changes, 2)
    made.apply(changes, Link(2, "t2"))
    assert len(lists) <= 2
    assert [sorted(made.value_table(schema).items()) for schema in schemas] == [[(0, "a", 2)]] * 20
