"""The data sources without Spark: options, pushed filters, partitions and what they read."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
)

from tests.jobs.materializer_world import World
from tests.jobs.state_model import OPERATOR, key_group
from varvite.spark_integration.connectors.state_table.data_sources import (
    ChangelogSource,
    PushedChangelogSource,
    PushedStateSource,
    StateSource,
)
from varvite.storage.errors import InvalidRequestError
from varvite.storage.object_stores.local.store import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "local", LocalStore(str(tmp_path / "storage")), parallelism=2)
    world.commit(5)
    yield world
    world.close()


@pytest.fixture
def options(world: World, tmp_path: Path) -> dict[str, str]:
    return {"path": str(tmp_path / "storage"), "job": "job", "state": "total"}


def rows(source: Any, filters: Sequence[Any] = (), left: Sequence[Any] = ()) -> list[dict[str, Any]]:
    """Ranges that Spark's tasks would read; `left` is what Spark must filter itself."""
    reader = source.reader(source.schema())
    if filters:
        assert list(reader.pushFilters(list(filters))) == list(left)
    read = pickle.loads(pickle.dumps(reader))
    return [row for one in reader.partitions() for batch in read.read(one) for row in batch.to_pylist()]


def test_a_state_is_read_by_partitions(world: World, options: dict[str, str]) -> None:
    source = StateSource(options)
    placed = "seq:bigint,batch:bigint,operator:string,state:string"
    assert source.schema().simpleString() == f"struct<{placed},key_group:int,key:string,value:bigint>"
    partitions = source.reader(source.schema()).partitions()
    assert [(p.low, p.high) for p in partitions] == [(0, 4), (4, 8)]
    assert {row["key"]: row["value"] for row in rows(source)} == world.job.model.cells()["total"]


def test_a_relative_path_is_of_where_the_query_is_planned(
    options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors of a cluster have working directories of their own, where no job was found."""
    every = rows(StateSource(options))
    monkeypatch.chdir(tmp_path)
    source = StateSource(options | {"path": "storage"})
    reader = source.reader(source.schema())
    partitions = reader.partitions()
    monkeypatch.chdir("/")
    assert [row for one in partitions for batch in reader.read(one) for row in batch.to_pylist()] == every


def test_filters_of_key_groups_decide_what_is_read(world: World, options: dict[str, str]) -> None:
    source, every = PushedStateSource(options), rows(StateSource(options))
    group = every[0]["key_group"]
    key, name = ("key_group",), IsNotNull(("key",))
    assert rows(source, [EqualTo(key, group), name], [name]) == [r for r in every if r["key_group"] == group]
    assert rows(source, [GreaterThan(key, 2), LessThan(key, 6)]) == [r for r in every if 2 < r["key_group"] < 6]
    several = In(key, (1, 3))
    assert rows(source, [several]) == [r for r in every if r["key_group"] in (1, 3)]
    assert rows(source, [GreaterThanOrEqual(key, 8)]) == []
    other = EqualTo(("value",), 1)
    assert rows(source, [other], [other]) == every
    reader: Any = source.reader(source.schema())
    assert list(reader.read(InputPartition(None))) == []


def test_filters_of_seqs_and_batches_decide_which_changes_are_read(world: World, options: dict[str, str]) -> None:
    source, every = PushedChangelogSource(options), rows(ChangelogSource(options))
    assert {row["batch"] for row in every} <= set(range(5))
    seq, batch = ("seq",), ("batch",)
    assert rows(source, [GreaterThan(seq, 3)]) == [row for row in every if row["seq"] > 3]
    wanted = EqualTo(batch, 2)
    assert rows(source, [wanted]) == [row for row in every if row["batch"] == 2]
    both = [GreaterThanOrEqual(batch, 1), LessThan(batch, 3)]
    assert rows(source, both) == [row for row in every if row["batch"] in (1, 2)]
    late = GreaterThan(batch, 9)
    assert rows(source, [late]) == []
    assert all(row["key_group"] == key_group(row["key"]) for row in every)


def test_nothing_is_pushed_unless_that_was_asked_for(world: World, options: dict[str, str]) -> None:
    """Spark's plan of a `load()` is changed by each push-down, so another query on it would lack rows."""
    for source in (StateSource(options), ChangelogSource(options)):
        reader = type(source.reader(source.schema()))
        assert reader.pushFilters is DataSourceReader.pushFilters
        assert rows(source)


def test_all_tasks_read_the_checkpoint_that_was_planned(world: World, options: dict[str, str]) -> None:
    source = StateSource({**options, "operator": OPERATOR})
    reader: Any = source.reader(source.schema())
    partitions, wanted = reader.partitions(), world.job.models[world.newest().link].cells()["total"]
    world.commit()
    found = [row for one in partitions for batch in reader.read(one) for row in batch.to_pylist()]
    assert {row["key"]: row["value"] for row in found} == wanted
    older = rows(StateSource({**options, "checkpoint": "batch:4"}))
    assert {row["key"]: row["value"] for row in older} == wanted


def test_wrong_options_are_said(options: dict[str, str]) -> None:
    for wrong, message in (
        ({"path": ""}, "option 'path' is missing"),
        ({"job": ""}, "option 'job' is missing"),
        ({"table": "total"}, r"unknown options \['table'\]"),
        ({"pin": "maybe"}, "'pin' is true or false"),
        ({"storageOptions": "{"}, "no JSON"),
        ({"storageOptions": "[]"}, "a JSON object"),
        ({"state": "nothing"}, "no state 'nothing'"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            StateSource({**options, **wrong}).schema()
