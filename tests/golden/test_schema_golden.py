"""Bytes of states whose schema has changed stay readable, for ever."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.golden.writers.schema import (
    AT,
    BATCHES,
    HEADER,
    HIGH,
    KEY_TYPE,
    LATER,
    LOW,
    OPERATOR,
    SEGMENT,
    SNAPSHOT,
    THIRD,
    main,
)
from varvite.changelog.segments.segment import decode_segment
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.format.frame import unframe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_the_golden_segment_decodes_to_the_changes() -> None:
    segment = decode_segment(SEGMENT.read_bytes(), "segment")
    assert msgspec.structs.replace(segment.header, states=()) == HEADER
    assert segment.changes() == BATCHES[-1]


def test_its_schemas_are_as_documented() -> None:
    header = msgspec.json.decode(unframe(b"SEGM", 1, SEGMENT.read_bytes(), "segment").header)
    order, migrated = [state["schema"] for state in header["states"]]
    assert order == {
        "name": "order", "kind": "value", "value_type": "1:row<country:string,id:long,note:string>", "version": 2,
        "earlier": [
            {"value_type": "1:row<id:int,gone:string>"},
            {"value_type": "1:row<id:long,country:string>", "defaults": {"country": "okNI"}},
        ],
    }  # fmt: skip
    assert migrated["version"] == 131
    assert len(migrated["earlier"]) == 1


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RocksDBStore]:
    shutil.copytree(SNAPSHOT, tmp_path / "db")
    opened = RocksDBStore.open(tmp_path / "db", OPERATOR, KEY_TYPE, LOW, HIGH)
    yield opened
    opened.close()


def test_the_golden_snapshot_holds_values_of_three_versions(store: RocksDBStore) -> None:
    assert (store.version, store.schemas) == (AT, (THIRD, LATER))
    headers = [data[0] for key, data in store.scan(b"", b"\xff\xff") if key[:2] == b"\0\1"]
    assert headers == [0, 1, 2]
    orders = store.value_table(THIRD)
    assert [tuple(orders.get(1, key)) for key in "abc"] == [("CH", 1, None), ("AT", 2, None), ("DE", 2**40, "n")]
    elements = {key: list(held) for _, key, held in store.list_table(LATER).items()}
    assert elements == {"b": ["of version 130"], "c": ["of version 131"]}


def test_the_golden_snapshot_goes_on_as_a_store(store: RocksDBStore) -> None:
    store.apply(BATCHES[-1], msgspec.structs.replace(AT, seq=4))
    assert tuple(store.value_table(THIRD).get(1, "a")) == ("CH", 1, None)


def test_golden_files_are_not_written_again() -> None:
    with pytest.raises(SystemExit):
        main()
