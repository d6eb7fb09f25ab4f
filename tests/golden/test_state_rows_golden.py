"""The Parquet files of canonical savepoints are read as ever; running this module adds missing ones.

How Parquet lays its bytes out is the library's matter, so only reading is compared.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.jobs.state_model import FULL, KEY_TYPE, OPERATOR, BatchChanges, cells, link, model_of
from varvite.changelog.segments.batch import Batch
from varvite.changelog.segments.columns import type_of
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.materializer.savepoints.parquet import SCHEMA_KEY, parquet, read_state, write_state
from varvite.storage.errors import CorruptDataError

if TYPE_CHECKING:
    from varvite.changelog.working_stores.contract import WorkingStore

DATA = Path(__file__).parent / "data" / "state-rows-v1"
KEYS = type_of(KEY_TYPE)


def filled(directory: Path, *batches: BatchChanges) -> RocksDBStore:
    store = RocksDBStore.open(directory, OPERATOR, KEY_TYPE, 0, 8)
    for seq, batch in enumerate(batches, 1):
        store.apply(batch.rows(), link(seq))
    return store


def read_into(store: WorkingStore, schemas: RocksDBStore, directory: Path) -> None:
    for schema in schemas.schemas:
        path, positions = directory / f"{schema.name}.parquet", {} if schema.kind == "list" else None
        for changes in read_state(path, KEYS, schema, path.name):
            store.fold([Batch([changes], 1, positions=positions)], link(1), last=False)
    store.fold([], link(1), last=True)


def test_the_golden_files_are_read(tmp_path: Path) -> None:
    expected, store = filled(tmp_path / "expected", FULL), filled(tmp_path / "read")
    read_into(store, expected, DATA)
    assert cells(store) == cells(expected) == model_of(FULL).cells()
    assert sorted(path.stem for path in DATA.iterdir()) == sorted(schema.name for schema in expected.schemas)
    store.close()
    expected.close()


def test_todays_files_have_the_golden_columns_and_schemas(tmp_path: Path) -> None:
    store = filled(tmp_path / "store", FULL)
    for schema in store.schemas:
        assert write_state(tmp_path / "rows", store, KEYS, schema)
        golden, today = (parquet.read_schema(path) for path in (DATA / f"{schema.name}.parquet", tmp_path / "rows"))
        assert today.equals(golden)
        assert today.metadata[SCHEMA_KEY] == golden.metadata[SCHEMA_KEY]
    store.close()


def test_a_list_that_comes_in_many_parts_keeps_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("varvite.materializer.savepoints.parquet.ROWS", 3)
    batch = BatchChanges(events={key: (False, [f"{key}{i}" for i in range(10)]) for key in ("a", "b", "ab")})
    source, store = filled(tmp_path / "source", batch), filled(tmp_path / "store")
    for schema in source.schemas:
        assert write_state(tmp_path / f"{schema.name}.parquet", source, KEYS, schema) == 30
    read_into(store, source, tmp_path)
    assert cells(store) == model_of(batch).cells()
    source.close()
    store.close()


def test_a_file_of_another_state_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    store = filled(tmp_path / "store", FULL)
    total = next(schema for schema in store.schemas if schema.name == "total")
    for path in (DATA / "by_name.parquet", DATA / "events.parquet"):
        with pytest.raises(CorruptDataError, match="columns"):
            list(read_state(path, KEYS, total, path.name))
    (tmp_path / "damaged").write_bytes((DATA / "total.parquet").read_bytes()[:-9])
    with pytest.raises(CorruptDataError) as caught:
        list(read_state(tmp_path / "damaged", KEYS, total, "damaged"))
    assert caught.value.context["object_name"] == "damaged"
    store.close()


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        golden_store = filled(Path(name) / "store", FULL)
        for state in golden_store.schemas:
            if not (DATA / f"{state.name}.parquet").exists():
                write_state(DATA / f"{state.name}.parquet", golden_store, KEYS, state)
        golden_store.close()
