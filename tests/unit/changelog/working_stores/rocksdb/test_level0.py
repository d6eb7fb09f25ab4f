"""A database that is opened with many flushed files, such as a snapshot has that was folded part by part."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING

import pytest
from rocksdict import WriteBatch

from varvite.changelog.working_stores.rocksdb.database import BATCHES_PER_COMPACTION, Database
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions, level0_files

if TYPE_CHECKING:
    from pathlib import Path

PARTS, DEPTH, ROWS = 6, 4, 50
FOLDING = RocksDBOptions(level0_files_extra=100, level_base_size_bytes=1 << 50)


def write(database: Database, part: int, value: bytes) -> None:
    batch = WriteBatch(raw_mode=True)
    for i in range(ROWS):
        batch.put(b"%d-%04d" % (part, i), value)
    database.write(batch)
    database.flush()


def level0(database: Database) -> int:
    return sum(file.level == 0 for file in database.files())


def settled(database: Database) -> int:
    """Flushed files when RocksDB has nothing left to compact."""
    for _ in range(3_000):
        if not database._is_compacting():
            return level0(database)
        time.sleep(0.02)
    raise AssertionError("compacts without an end")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A database of `PARTS` parts, and on each of them `DEPTH` flushed files."""
    database = Database(tmp_path / "db", FOLDING, create=True)
    for part in range(PARTS):
        write(database, part, b"base")
    database.compact((file.first, file.last) for file in database.files())
    assert level0(database) == 0
    for depth in range(DEPTH):
        for part in range(PARTS):
            write(database, part, b"%d" % depth)
    database.close()
    return tmp_path / "db"


def test_what_was_flushed_is_not_compacted_just_when_the_database_is_opened(directory: Path) -> None:
    database = Database(directory, RocksDBOptions(), create=False)
    write(database, 0, b"newer")
    assert settled(database) == PARTS * DEPTH + 1
    database.close()


def test_it_is_compacted_by_and_by_a_part_at_a_time(directory: Path) -> None:
    database = Database(directory, RocksDBOptions(), create=False)
    counts = [level0(database)]
    for _ in range(PARTS + 1):
        for _ in range(BATCHES_PER_COMPACTION):
            database.compact_some()
        counts.append(settled(database))
    assert counts[:3] == [PARTS * DEPTH, (PARTS - 1) * DEPTH, (PARTS - 2) * DEPTH]
    assert counts[-1] < DEPTH
    assert {database.get(b"%d-0000" % part) for part in range(PARTS)} == {b"%d" % (DEPTH - 1)}
    for _ in range(8):  # as usual again
        write(database, 0, b"newer")
    assert settled(database) < DEPTH
    database.close()


def test_as_many_files_as_usual_may_come_on_top(directory: Path) -> None:
    database = Database(directory, RocksDBOptions(level0_files_extra=12), create=False)
    database.compact_as_usual()
    assert settled(database) == PARTS * DEPTH
    for _ in range(2 * DEPTH):
        write(database, 0, b"newer")
    assert settled(database) <= (PARTS + 1) * DEPTH
    database.close()


def test_few_files_are_compacted_as_ever(tmp_path: Path) -> None:
    database = Database(tmp_path / "db", RocksDBOptions(), create=True)
    for _ in range(3):
        write(database, 0, b"old")
    database.close()
    database = Database(tmp_path / "db", RocksDBOptions(), create=False)
    write(database, 0, b"new")
    assert settled(database) < DEPTH
    database.close()


def test_a_database_that_is_only_read_is_left_alone(directory: Path) -> None:
    database = Database(directory, RocksDBOptions(), create=False, read_only=True)
    database.compact_some()
    assert level0(database) == PARTS * DEPTH
    assert database.get(b"0-0000") == b"%d" % (DEPTH - 1)
    database.close()


def test_a_file_that_overlaps_no_other_is_moved_as_it_is(tmp_path: Path) -> None:
    database = Database(tmp_path / "db", FOLDING, create=True)
    for part in range(PARTS):
        write(database, part, b"base")
    before = {file.name for file in database.files()}
    database.compact((file.first, file.last) for file in database.files())
    assert {file.name for file in database.files()} == before
    assert level0(database) == 0
    write(database, 1, b"new")
    [flushed] = [file for file in database.files() if file.level == 0]
    database.compact([(flushed.first, flushed.last)])
    assert len({file.name for file in database.files()} & before) == PARTS - 1, "others are left alone"
    database.close()


def test_a_database_has_the_options_it_is_opened_with_not_those_it_had(tmp_path: Path) -> None:
    """Else a job that is restarted beside its local state would not see what was configured since."""
    Database(tmp_path / "db", RocksDBOptions(), create=True).close()
    Database(tmp_path / "db", RocksDBOptions(write_buffer_size_bytes=1 << 20), create=False).close()
    newest = max((tmp_path / "db").glob("OPTIONS-*"))
    assert f"write_buffer_size={1 << 20}" in newest.read_text().split()


def test_a_database_with_more_flushed_files_than_stop_writes_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction that began as it was opened put back the usual limits when it ended; writes waited for ever."""
    database, rng = Database(tmp_path / "db", FOLDING, create=True), random.Random(3)
    for _ in range(8):
        for part in range(PARTS):
            write(database, part, rng.randbytes(20_000))
    database.close()
    count = Database._level0_files

    def count_later(database: Database) -> int:
        time.sleep(0.005)
        return count(database)

    with monkeypatch.context() as slow:
        slow.setattr(Database, "_level0_files", count_later)
        database = Database(tmp_path / "db", RocksDBOptions(), create=False)
    assert level0(database) == 8 * PARTS > level0_files(0)["level0_stop_writes_trigger"]
    writer = threading.Thread(target=lambda: [write(database, i % PARTS, b"new") for i in range(40)], daemon=True)
    writer.start()
    writer.join(60)
    assert not writer.is_alive()
    for part in range(PARTS):
        assert database.get(b"%d-%04d" % (part, 0)) == b"new"
    database.close()


@pytest.mark.parametrize("rows", [0, 30_000])
def test_only_what_was_flushed_is_compacted_in_a_large_database(tmp_path: Path, rows: int) -> None:
    """One whose lowest level has more than `level_base_size_bytes`; in a small one there is no level between."""
    options = RocksDBOptions(level0_files_extra=32, level_base_size_bytes=1 << 20)
    database = Database(tmp_path / "db", options, create=True)
    rng = random.Random(3)
    for first in range(0, rows, 5_000):
        batch = WriteBatch(raw_mode=True)
        for i in range(first, first + 5_000):
            batch.put(b"%08d" % i, rng.randbytes(400))
        database.write(batch)
        database.flush()
    database.compact([(b"", b"\xff")])
    lowest = {file.name for file in database.files()}
    for _ in range(15):
        write(database, 0, b"new")
        write(database, 9, b"new")
    assert level0(database) == 30
    database.compact_flushed()
    assert level0(database) == 0
    assert lowest <= {file.name for file in database.files()}
    write(database, 0, b"newer")
    assert settled(database) == 1, "and no more than that is compacted at once"
    database.close()
