"""Content that a RocksDB store finds in its directory: its own state, another's, damage, a killed process's rest."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rocksdict import Options, Rdict

from tests.jobs.state_model import (
    BY_NAME,
    EVENTS,
    FULL,
    KEY_GROUPS,
    KEY_TYPE,
    LONG,
    OPERATOR,
    TOTAL,
    cells,
    changes,
    key_group,
    link,
    model_of,
    puts,
)
from tests.stores import rocksdb_writer
from varvite.changelog.segments.changes import Op
from varvite.changelog.working_stores.rocksdb.metadata import MARKER_KEY
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.errors import (
    CorruptDataError,
    DidNotHappenError,
    IncompatibleError,
    InvalidRequestError,
)
from varvite.storage.format.records import ORIGIN

if TYPE_CHECKING:
    from collections.abc import Callable


ROOT = Path(__file__).resolve().parents[5]


def sst_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.sst"))


@pytest.mark.parametrize(
    "asked",
    [{"operator": "other"}, {"key_type": LONG}, {"low": 1}, {"high": KEY_GROUPS * 2}],
    ids=lambda a: next(iter(a)),
)
def test_a_directory_of_another_state_is_refused(
    open_store: Callable[..., RocksDBStore], asked: dict[str, str]
) -> None:
    open_store().apply(FULL.rows(), link(1))
    with pytest.raises(IncompatibleError, match=next(iter(asked))):
        open_store(**asked)
    assert cells(open_store()) == model_of(FULL).cells()


def rewrite_marker(directory: Path, marker: bytes) -> None:
    options = Options(raw_mode=True)
    database = Rdict(str(directory), options)
    database[MARKER_KEY] = marker
    database.close()


def test_another_format_is_refused(open_store: Callable[..., RocksDBStore], tmp_path: Path) -> None:
    open_store().close()
    rewrite_marker(tmp_path / "db", b'{"magic":"varve-rocksdb","format":2}')
    with pytest.raises(IncompatibleError, match="format 2"):
        open_store()


@pytest.mark.parametrize(
    "marker", [b"{", b"[]", b'{"magic":"other","format":1}', b'{"magic":"varve-rocksdb","format":1}']
)
def test_a_damaged_marker_is_refused(open_store: Callable[..., RocksDBStore], tmp_path: Path, marker: bytes) -> None:
    open_store().close()
    rewrite_marker(tmp_path / "db", marker)
    with pytest.raises(CorruptDataError, match="db"):
        open_store()


def test_a_database_that_varvite_did_not_write_is_refused(
    open_store: Callable[..., RocksDBStore], tmp_path: Path
) -> None:
    foreign = Rdict(str(tmp_path / "db"), Options(raw_mode=True))
    foreign[b"k"] = b"v"
    foreign.close()
    with pytest.raises(CorruptDataError):
        open_store()


def test_a_directory_that_is_open_elsewhere_is_not_opened(
    open_store: Callable[..., RocksDBStore], tmp_path: Path
) -> None:
    store = open_store()
    with pytest.raises(DidNotHappenError, match="open elsewhere"):
        RocksDBStore.open(tmp_path / "db", OPERATOR, KEY_TYPE, 0, KEY_GROUPS)
    assert store.version == ORIGIN


def test_nothing_is_not_an_existing_store(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError):
        RocksDBStore.open_existing(tmp_path / "none")
    with pytest.raises(InvalidRequestError):
        RocksDBStore.open(tmp_path / "db", OPERATOR, KEY_TYPE, 3, 3)


def test_a_missing_file_is_found_when_opening(open_store: Callable[..., RocksDBStore], tmp_path: Path) -> None:
    store = open_store()
    store.apply(FULL.rows(), link(1))
    store.close()
    sst_files(tmp_path / "db")[0].unlink()
    with pytest.raises(CorruptDataError, match="db"):
        open_store()


def test_a_damaged_block_is_an_error_and_never_a_missing_row(
    open_store: Callable[..., RocksDBStore], tmp_path: Path
) -> None:
    names = [f"N{i:05d}" for i in range(5000)]
    store = open_store()
    rows = [*puts({n: i for i, n in enumerate(names)}), changes(BY_NAME, [(n, Op.PUT, "m", 1) for n in names])]
    store.apply([*rows, changes(EVENTS, [(n, Op.APPEND, None, "e") for n in names])], link(1))
    store.close()
    [path] = sst_files(tmp_path / "db")
    intact = path.read_bytes()
    for part in range(1, 8):
        damaged = bytearray(intact)
        damaged[len(damaged) * part // 9] ^= 1
        path.write_bytes(damaged)
        store = open_store()
        with pytest.raises(CorruptDataError, match="db"):
            cells(store)
        failed = 0
        for i, name in enumerate(names):
            try:
                assert store.value_table(TOTAL).get(key_group(name), name) == i
                assert store.map_table(BY_NAME).entries(key_group(name), name) == {"m": 1}
                assert store.list_table(EVENTS).elements(key_group(name), name) == ["e"]
            except CorruptDataError:
                failed += 1
        assert failed > 0
        store.close()


def test_a_value_that_does_not_parse_names_the_directory(
    open_store: Callable[..., RocksDBStore], tmp_path: Path
) -> None:
    store = open_store()
    store.apply(puts({"a": 1}), link(1))
    [row] = [row for row, _ in store.scan(b"", b"\xff\xff")]
    store.close()
    database = Rdict(str(tmp_path / "db"), Options(raw_mode=True))
    database[row] = b"\x00\xa1x"
    database.close()
    with pytest.raises(CorruptDataError, match="db"):
        open_store().value_table(TOTAL).get(key_group("a"), "a")


def test_a_value_with_a_time_stamp_is_read(open_store: Callable[..., RocksDBStore], tmp_path: Path) -> None:
    store = open_store()
    store.apply(puts({"a": 1}), link(1))
    [row] = [row for row, _ in store.scan(b"", b"\xff\xff")]
    store.close()
    database = Rdict(str(tmp_path / "db"), Options(raw_mode=True))
    database[row] = b"\x80" + bytes(8) + b"\x2a"
    database.close()
    assert open_store().value_table(TOTAL).get(key_group("a"), "a") == 42


def test_a_killed_process_leaves_the_state_of_some_version(tmp_path: Path) -> None:
    """The write-ahead log is off: what a SIGKILL leaves must still be whole, and a later run must go on from it."""
    directory, reached = tmp_path / "db", 0
    versions: list[int] = []
    for batches in (3, 40, 17, 60, 5):
        command = [sys.executable, "-m", "tests.stores.rocksdb_writer", str(directory), str(reached + 1)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            applied = [int(writer.stdout.readline()) for _ in range(batches)][-1]
            writer.kill()
            late = writer.stdout.read().split()
        store = RocksDBStore.open(directory, OPERATOR, KEY_TYPE, 0, KEY_GROUPS, rocksdb_writer.SMALL)
        reached = store.version.seq
        versions.append(reached)
        assert reached <= int(late[-1] if late else applied) + 1
        assert cells(store) == rocksdb_writer.model_at(reached).cells()
        store.close()
    assert versions == sorted(versions)
    assert reached > 0
    assert any(a != b for a, b in pairwise(versions))
