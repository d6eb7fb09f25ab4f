"""Snapshots that a RocksDB store writes, and those that are written from the rows of another store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.jobs.state_model import (
    ALARMS,
    BY_NAME,
    EVENTS,
    FULL,
    KEY_GROUPS,
    KEY_TYPE,
    OPERATOR,
    TOTAL,
    BatchChanges,
    cells,
    key_group,
    link,
    model_of,
)
from varvite.changelog.working_stores.rocksdb.bulk import write_table_snapshot
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.errors import (
    InvalidRequestError,
    InvariantError,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def sst_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.sst"))


def test_a_snapshot_is_the_state_and_shares_unchanged_files(
    open_store: Callable[..., RocksDBStore], tmp_path: Path
) -> None:
    store = open_store()
    store.apply(FULL.rows(), link(1))
    store.write_snapshot(tmp_path / "one")
    more = BatchChanges(totals={"z": 5})
    store.apply(more.rows(), link(2))
    store.write_snapshot(tmp_path / "two")
    first, second = ({p.name: p.stat().st_ino for p in sst_files(tmp_path / name)} for name in ("one", "two"))
    assert first.items() <= second.items()
    assert len(second) == len(first) + 1
    store.apply([], link(3))
    for name, model, version in (("one", model_of(FULL), 1), ("two", model_of(FULL, more), 2)):
        snapshot = RocksDBStore.open_existing(tmp_path / name)
        assert (cells(snapshot), snapshot.version) == (model.cells(), link(version))
        assert (snapshot.operator, snapshot.key_type, snapshot.key_groups) == (OPERATOR, KEY_TYPE, range(KEY_GROUPS))
        snapshot.close()


def test_files_are_rewritten_when_much_of_them_is_dead(open_store: Callable[..., RocksDBStore], tmp_path: Path) -> None:
    store = open_store()
    batch = BatchChanges(totals={f"key {i}": i for i in range(20_000)})
    store.apply(batch.rows(), link(1))
    store.compact(1.0, 0)
    assert not store.compact(1.5, 0)
    for version in (2, 3):
        store.apply(BatchChanges(totals={f"key {i}": -version for i in range(20_000)}).rows(), link(version))
    assert not store.compact(1.5, 10**9), "small files are left alone"
    assert store.compact(1.5, 0)
    assert not store.compact(1.5, 0)
    store.write_snapshot(tmp_path / "one")
    snapshot = RocksDBStore.open_existing(tmp_path / "one")
    expected = model_of(BatchChanges(totals={f"key {i}": -3 for i in range(20_000)}))
    assert (cells(snapshot), snapshot.version) == (expected.cells(), link(3))
    snapshot.close()


def test_a_snapshot_has_states_that_hold_nothing_yet(open_store: Callable[..., RocksDBStore], tmp_path: Path) -> None:
    store = open_store()
    store.map_table(BY_NAME)
    store.write_snapshot(tmp_path / "one")
    snapshot = RocksDBStore.open_existing(tmp_path / "one", read_only=True)
    assert snapshot.schemas == (BY_NAME,)
    snapshot.close()
    with pytest.raises(InvalidRequestError):
        store.write_snapshot(tmp_path / "one")


def test_rows_of_any_store_make_the_same_snapshot(open_store: Callable[..., RocksDBStore], tmp_path: Path) -> None:
    source = open_store()
    source.apply(FULL.rows(), link(4))
    tables = [
        (TOTAL, source.value_table(TOTAL).items()),
        (BY_NAME, source.map_table(BY_NAME).items()),
        (EVENTS, source.list_table(EVENTS).items()),
        (ALARMS, source.timer_table(ALARMS).items()),
    ]
    where = {"operator": OPERATOR, "key_type": KEY_TYPE, "low": 0, "high": KEY_GROUPS}
    write_table_snapshot(tmp_path / "bulk", **where, version=link(4), tables=tables)  # type: ignore[arg-type]
    made = RocksDBStore.open(tmp_path / "bulk", OPERATOR, KEY_TYPE, 0, KEY_GROUPS)
    assert (cells(made), made.version, made.schemas) == (model_of(FULL).cells(), link(4), source.schemas)
    more = BatchChanges(events={"a": (False, ["three"])})
    made.apply(more.rows(), link(5))
    assert cells(made) == model_of(FULL, more).cells()
    made.close()
    with pytest.raises(InvalidRequestError):
        write_table_snapshot(tmp_path / "bulk", **where, version=link(4), tables=[])  # type: ignore[arg-type]


@pytest.mark.parametrize("groups", [[1, 0], [0, KEY_GROUPS], [-1, 0]])
def test_rows_that_are_out_of_order_or_range_make_no_snapshot(tmp_path: Path, groups: list[int]) -> None:
    with pytest.raises(InvariantError):
        write_table_snapshot(
            tmp_path / "bulk", operator=OPERATOR, key_type=KEY_TYPE, low=0, high=KEY_GROUPS, version=link(1),
            tables=[(TOTAL, [(group, str(group), 1) for group in groups])],
        )  # fmt: skip


def test_a_large_bulk_snapshot_is_cut_into_files(tmp_path: Path) -> None:
    rows = sorted(((key_group(f"N{i}"), f"N{i}", i) for i in reversed(range(20_000))), key=lambda row: row[0])
    write_table_snapshot(
        tmp_path / "bulk", operator=OPERATOR, key_type=KEY_TYPE, low=0, high=KEY_GROUPS, version=link(1),
        tables=[(TOTAL, rows)], options=RocksDBOptions(target_file_size_bytes=1 << 16, compression="none"),
    )  # fmt: skip
    assert len(sst_files(tmp_path / "bulk")) > 3
    store = RocksDBStore.open(tmp_path / "bulk", OPERATOR, KEY_TYPE, 0, KEY_GROUPS)
    assert cells(store)["total"] == {key: value for _, key, value in rows}
    store.close()
