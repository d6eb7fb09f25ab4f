"""The memory that RocksDB stores of one process share."""

from __future__ import annotations

import gc
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rocksdict import Rdict

from tests.stores.rocksdb_writer import SMALL
from varvite.changelog.segments.changes import StateChanges
from varvite.changelog.working_stores.rocksdb.memory import WORKER_MEMORY_MIN_BYTES, SharedMemory, plan_memory
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions, rocksdict_options
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.changelog.working_stores.rocksdb.tables import RecentValues
from varvite.storage.errors import InvalidRequestError
from varvite.storage.format.records import Link, StateSchema

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20
TEXT = StateSchema(name="text", kind="value", value_type="1:string")


@pytest.mark.parametrize("size_bytes", [WORKER_MEMORY_MIN_BYTES, 64 * MIB, 1 << 33])
@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9])
def test_the_parts_do_not_exceed_the_whole_even_with_full_memtables(size_bytes: int, ratio: float) -> None:
    plan = plan_memory(size_bytes, ratio)
    assert plan.block_cache_bytes + plan.write_buffers_bytes // 2 + plan.recent_values_bytes <= size_bytes
    assert plan.block_cache_bytes > plan.write_buffers_bytes > 0
    assert plan.recent_values_bytes == size_bytes // 4


@pytest.mark.parametrize(
    ("size_bytes", "ratio"), [(WORKER_MEMORY_MIN_BYTES - 1, 0.5), (64 * MIB, 0.0), (64 * MIB, 1.0)]
)
def test_what_cannot_be_divided_is_an_error(size_bytes: int, ratio: float) -> None:
    with pytest.raises(InvalidRequestError):
        plan_memory(size_bytes, ratio)


def test_stores_together_keep_within_the_memory_that_they_share(tmp_path: Path) -> None:
    """Three stores write much more than fits; without sharing each would hold two memtables of 64 MiB."""
    memory = SharedMemory(8 * MIB, 0.5, 3)
    options = replace(SMALL, memory=memory, write_buffer_size_bytes=64 * MIB, compression="none")
    stores = [RocksDBStore.open(tmp_path / str(i), "op", "1:long", 0, 1, options) for i in range(3)]
    usages: list[int] = []
    for seq in range(1, 241):
        for store in stores:
            keys = list(range(seq * 50, seq * 50 + 50))
            values = ["x" * 1000] * len(keys)
            store.apply([StateChanges(TEXT, [0] * len(keys), keys, None, None, values)], Link(seq, "t"))
            usages.append(memory.write_buffers.get_usage())
    assert max(usages) <= memory.plan.write_buffers_bytes * 1.5
    for store in stores:
        assert sum(1 for _ in store.value_table(TEXT).items()) == 240 * 50
        assert store.value_table(TEXT).get(0, 600) == "x" * 1000
    assert memory.cache.get_usage() <= memory.plan.block_cache_bytes + memory.plan.write_buffers_bytes // 2
    for store in stores:
        store.close()


def test_tables_have_equal_parts_of_the_memory_for_recent_values() -> None:
    memory = SharedMemory(8 * MIB, 0.5, 1)
    tables = [RecentValues(0) for _ in range(2)]
    for table in tables:
        memory.share_with(table)
    size = memory.plan.recent_values_bytes // 2
    for table in tables:
        table.update({"fits": 1}, (size // 2 - 300) // 3)
        assert table.young == {"fits": 1}
        table.update({"does not": 1}, size // 2)
        assert table.young == {}


def test_a_table_that_is_gone_gives_its_part_back() -> None:
    memory = SharedMemory(8 * MIB, 0.5, 1)
    gone = RecentValues(0)
    memory.share_with(gone)
    del gone
    gc.collect()
    alone = RecentValues(0)
    memory.share_with(alone)
    alone.update({"large": 1}, (memory.plan.recent_values_bytes // 2 - 300) // 3)
    assert alone.young == {"large": 1}


def test_a_lower_limit_forgets_what_might_not_fit() -> None:
    recent = RecentValues(MIB)
    recent.put("a", 1, 10)
    recent.limit(2 * MIB)
    assert recent.young == {"a": 1}
    recent.limit(1000)
    assert recent.young == {}
    recent.put("b", 2, 10)
    assert recent.young == {"b": 2}


def test_a_read_of_a_large_file_does_not_load_its_whole_index_and_filter(tmp_path: Path) -> None:
    """They were one block each, of more bytes than a shard of the cache holds: with 5 M keys a read took 0.4 ms."""
    database = Rdict(str(tmp_path / "db"), rocksdict_options(RocksDBOptions(), create=True))
    for number in range(100_000):
        database[f"{number:020d}".encode()] = b""
    database.flush(True)
    database.close()
    (written,) = re.findall(r'"event": "table_file_creation".*', (tmp_path / "db" / "LOG").read_text())
    found = {name: int(value) for name, value in re.findall(r'"(index_partitions|filter_size)": (\d+)', written)}
    assert found["filter_size"] > 100_000
    assert found["index_partitions"] > 1, "and so the filter, which has as many"
