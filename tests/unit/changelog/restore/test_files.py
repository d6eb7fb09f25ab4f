"""Snapshots as files: described, uploaded, fetched, and put together for another range."""

from __future__ import annotations

import errno
import os
import shutil
import zlib
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.jobs.state_model import (
    ALARMS,
    BY_NAME,
    EVENTS,
    KEY_GROUPS,
    KEY_TYPE,
    KEYS,
    LONG,
    OPERATOR,
    STRING,
    TOTAL,
    BatchChanges,
    Model,
    cells,
    key_group,
    link,
    puts,
)
from varvite.changelog.restore import files as snapshot_files
from varvite.changelog.restore.clip import SnapshotSource, open_clipped
from varvite.changelog.restore.files import FileChecksums, describe_snapshot, fetch_snapshot, fetch_snapshots
from varvite.changelog.segments.batch import Batch
from varvite.changelog.working_stores.rocksdb.settings.options import RocksDBOptions
from varvite.changelog.working_stores.rocksdb.store import RocksDBStore
from varvite.storage.errors import (
    CorruptDataError,
    IncompatibleError,
    InvalidRequestError,
    InvariantError,
    MissingObjectError,
)
from varvite.storage.format.records import ORIGIN, Link, SnapshotFile, StateSchema
from varvite.storage.object_stores.local.store import LocalStore
from varvite.storage.object_stores.memory import MemoryStore
from varvite.storage.transfer.download import DownloadPolicy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from varvite.storage.object_stores.contract import ObjectStore

ALL = BatchChanges(
    totals={key: i for i, key in enumerate(KEYS)},
    by_name={key: (False, {"x": i, "y": None}) for i, key in enumerate(KEYS)},
    events={key: (False, [f"{i}-a", f"{i}-b"]) for i, key in enumerate(KEYS)},
)
MODEL = Model()
MODEL.apply(ALL)


def make_snapshot(
    directory: Path, low: int = 0, high: int = KEY_GROUPS, version: Link | None = None, order: Sequence[int] = (0, 1, 2)
) -> Path:
    """A snapshot of `ALL` for key groups `[low, high)`; `order` is that of registering the states."""
    store = RocksDBStore.open(directory.with_suffix(".db"), OPERATOR, KEY_TYPE, low, high)
    opens = [lambda: store.value_table(TOTAL), lambda: store.map_table(BY_NAME), lambda: store.list_table(EVENTS)]
    for i in order:
        opens[i]()
    store.apply(ALL.rows(lambda key: key_group(key) in range(low, high)), version or link(1))
    store.write_snapshot(directory)
    store.close()
    shutil.rmtree(directory.with_suffix(".db"))
    return directory


def upload(store: ObjectStore, directory: Path) -> list[SnapshotFile]:
    """Upload a snapshot and tell its files."""
    described = describe_snapshot(directory)
    for local in described:
        store.put_file(f"snapdata/{local.file}", local.path)
    return [SnapshotFile(f.file, f"snapdata/{f.file}", f.size_bytes, f.crc32) for f in described]


def test_a_snapshot_is_described_without_what_is_not_state(tmp_path: Path) -> None:
    described = describe_snapshot(make_snapshot(tmp_path / "s"))
    names = [local.file for local in described]
    assert {name.split("-")[0] for name in names if not name.endswith(".sst")} == {"CURRENT", "MANIFEST", "rocksdict"}
    assert any(name.endswith(".sst") for name in names)
    for local in described:
        data = local.path.read_bytes()
        assert (local.size_bytes, local.crc32) == (len(data), zlib.crc32(data))


@pytest.mark.parametrize(
    "policy", [DownloadPolicy(), DownloadPolicy(1, 512), DownloadPolicy(4, 512), DownloadPolicy(4, 4096)]
)
def test_what_was_uploaded_is_fetched_and_opens(tmp_path: Path, policy: DownloadPolicy) -> None:
    store = MemoryStore()
    files = upload(store, make_snapshot(tmp_path / "s"))
    fetch_snapshot(store, files, tmp_path / "fetched", policy)
    opened = RocksDBStore.open_existing(tmp_path / "fetched")
    assert (cells(opened), opened.version) == (MODEL.cells(), link(1))
    opened.close()


def test_a_store_at_work_has_more_files_than_its_snapshot(tmp_path: Path) -> None:
    store = RocksDBStore.open(tmp_path / "db", OPERATOR, KEY_TYPE, 0, KEY_GROUPS)
    assert {"LOCK", "LOG"} <= {path.name for path in (tmp_path / "db").iterdir()}
    assert not {"LOCK", "LOG"} & {local.file for local in describe_snapshot(tmp_path / "db")}
    store.close()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidRequestError):
        describe_snapshot(tmp_path / "empty")


def test_unchanged_files_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    real = snapshot_files.file_crc32
    monkeypatch.setattr(snapshot_files, "file_crc32", lambda path: (read.append(path.name), real(path))[1])
    store = RocksDBStore.open(tmp_path / "db", OPERATOR, KEY_TYPE, 0, KEY_GROUPS)
    known = FileChecksums()
    for seq in (1, 2):
        store.apply(puts({f"N{seq}": seq}), link(seq))
        store.write_snapshot(tmp_path / str(seq))
        described = describe_snapshot(tmp_path / str(seq), known)
        assert [local.crc32 for local in described] == [zlib.crc32(local.path.read_bytes()) for local in described]
    store.close()
    tables = [name for name in read if name.endswith(".sst")]
    assert len(tables) == len(set(tables)) == 2


def test_unchanged_files_of_an_older_directory_are_not_fetched(tmp_path: Path) -> None:
    """The names alone say nothing: another store may have other files under them."""

    class Watched(MemoryStore):
        def get(self, name: str) -> bytes:
            reads.append(name)
            return super().get(name)

    reads: list[str] = []
    store = Watched()
    files = upload(store, make_snapshot(tmp_path / "s"))
    tables = {file.name for file in files if file.file.endswith(".sst")}
    old = tmp_path / "old"
    fetch_snapshots(store, [(files, old)])
    reads.clear()
    reused_bytes = fetch_snapshots(store, [(files, tmp_path / "again")], reuse=[tmp_path / "nothing", old])
    assert set(reads) == {file.name for file in files} - tables
    assert reused_bytes == sum(file.size_bytes for file in files if file.name in tables)
    for path in old.glob("*.sst"):
        data = path.read_bytes()
        path.unlink()
        path.write_bytes(bytes((data[0] ^ 1, *data[1:])))
    assert fetch_snapshots(store, [(files, tmp_path / "third")], reuse=[old]) == 0
    for directory in ("again", "third"):
        opened = RocksDBStore.open_existing(tmp_path / directory)
        assert cells(opened) == MODEL.cells()
        opened.close()


@pytest.mark.parametrize("damage", ["flip", "cut", "grow", "gone"])
def test_a_damaged_or_missing_file_is_named_and_nothing_is_left(tmp_path: Path, damage: str) -> None:
    intact = MemoryStore()
    files = upload(intact, make_snapshot(tmp_path / "s"))
    for file in files:
        store = MemoryStore()
        for other in files:
            store.put(other.name, intact.get(other.name))
        data = intact.get(file.name)
        middle = len(data) // 2
        changed = {"flip": data[:middle] + bytes((data[middle] ^ 1,)) + data[middle + 1 :], "cut": data[:-1]}
        if damage == "gone":
            store.delete([file.name])
        else:
            store.put(file.name, changed.get(damage, data + b"\0"))
        with pytest.raises(MissingObjectError if damage == "gone" else CorruptDataError) as caught:
            fetch_snapshot(store, files, tmp_path / "fetched")
        assert caught.value.context["object_name"] == file.name
        assert not (tmp_path / "fetched").exists()


@pytest.mark.parametrize("name", ["../x", "a/b", "", "..", "."])
def test_a_file_name_that_leads_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CorruptDataError, match="snapdata/x"):
        fetch_snapshot(MemoryStore(), [SnapshotFile(name, "snapdata/x", 0, 0)], tmp_path / "fetched")
    assert not (tmp_path / "fetched").exists()


def clip(directory: Path, sources: Sequence[SnapshotSource], low: int, high: int) -> RocksDBStore:
    return open_clipped(directory, sources, operator=OPERATOR, key_type=KEY_TYPE, low=low, high=high)


def test_a_snapshot_of_just_the_range_is_opened_as_it_is(tmp_path: Path) -> None:
    snapshot = make_snapshot(tmp_path / "s", 2, 6)
    tables = {path.name: path.stat().st_ino for path in snapshot.glob("*.sst")}
    store = clip(tmp_path / "db", [SnapshotSource(snapshot, 2, 6, link(1))], 2, 6)
    assert (cells(store), store.version, store.is_complete) == (MODEL.cells(2, 6), link(1), True)
    assert {path.name: path.stat().st_ino for path in (tmp_path / "db").glob("*.sst")} == tables
    store.close()


@pytest.mark.parametrize(("low", "high"), [(0, 8), (0, 1), (0, 5), (3, 8), (2, 6), (7, 8)])
def test_a_larger_snapshot_is_clipped(tmp_path: Path, low: int, high: int) -> None:
    """Below half of the range the rows are copied, above it the snapshot is taken over and cut."""
    source = SnapshotSource(make_snapshot(tmp_path / "s"), 0, KEY_GROUPS, link(1))
    store = clip(tmp_path / "db", [source], low, high)
    assert (cells(store), store.version) == (MODEL.cells(low, high), link(1))
    store.close()
    reopened = RocksDBStore.open(tmp_path / "db", OPERATOR, KEY_TYPE, low, high)
    assert (cells(reopened), reopened.schemas) == (MODEL.cells(low, high), (TOTAL, BY_NAME, EVENTS, ALARMS))
    reopened.close()


@pytest.mark.parametrize(("low", "high"), [(0, 5), (3, 8), (2, 6), (6, 7)])
def test_rows_of_key_groups_outside_are_gone(tmp_path: Path, low: int, high: int) -> None:
    source = SnapshotSource(make_snapshot(tmp_path / "s"), 0, KEY_GROUPS, link(1))
    store = clip(tmp_path / "db", [source], low, high)
    found = [row for row, _ in store.scan(b"", b"\xff\xff")]
    assert found
    assert {row[:2] for row in found} <= {bytes((0, group)) for group in range(low, high)}
    store.close()


def test_several_snapshots_with_other_state_ids_make_one_store(tmp_path: Path) -> None:
    sources = [
        SnapshotSource(make_snapshot(tmp_path / "a", 0, 3, order=(0, 1, 2)), 0, 3, link(1)),
        SnapshotSource(make_snapshot(tmp_path / "b", 3, 7, order=(2, 1, 0)), 3, 7, link(1)),
        SnapshotSource(make_snapshot(tmp_path / "c", 5, 8, order=(1, 2, 0)), 7, 8, link(1)),
    ]
    store = clip(tmp_path / "db", sources, 0, 8)
    assert (cells(store), store.version, store.is_complete) == (MODEL.cells(), link(1), True)
    more = BatchChanges(events={"a": (False, ["later"])}, by_name={"a": (True, {"z": 1})}, totals={"a": 99})
    store.apply(more.rows(), link(2))
    expected = Model()
    expected.apply(ALL)
    expected.apply(more)
    assert cells(store) == expected.cells()
    store.close()


def test_an_empty_tile_has_no_rows(tmp_path: Path) -> None:
    sources = [SnapshotSource(make_snapshot(tmp_path / "a", 0, 3), 0, 3, link(1)), SnapshotSource(None, 3, 8, link(1))]
    store = clip(tmp_path / "db", sources, 0, 8)
    assert (cells(store), store.version) == (MODEL.cells(0, 3), link(1))
    store.close()
    nothing = clip(tmp_path / "db2", [SnapshotSource(None, 0, 8, ORIGIN)], 0, 8)
    assert (cells(nothing), nothing.version, nothing.is_complete) == (Model().cells(), ORIGIN, True)
    nothing.close()


def test_snapshots_of_several_commits_are_complete_only_after_replay(tmp_path: Path) -> None:
    def sources() -> list[SnapshotSource]:
        return [
            SnapshotSource(make_snapshot(tmp_path / "a", 0, 4, link(3)), 0, 4, link(3)),
            SnapshotSource(make_snapshot(tmp_path / "b", 4, 8, link(7)), 4, 8, link(7)),
        ]

    store = clip(tmp_path / "db", sources(), 0, 8)
    assert (store.version, store.is_complete) == (link(3), False)
    with pytest.raises(InvariantError):
        store.fold([], link(6), last=True)
    store.fold([Batch(puts({"a": 5}), 4, lambda group: group < 4)], link(7), last=True)
    assert (store.version, store.is_complete) == (link(7), True)
    store.close()
    RocksDBStore.open(tmp_path / "db", OPERATOR, KEY_TYPE, 0, 8).close()
    clip(tmp_path / "left", sources(), 0, 8).close()
    with pytest.raises(IncompatibleError, match="middle of a restore"):
        RocksDBStore.open(tmp_path / "left", OPERATOR, KEY_TYPE, 0, 8)


@pytest.mark.parametrize(
    "sources",
    [
        [],
        [SnapshotSource(None, 0, 4, ORIGIN)],
        [SnapshotSource(None, 4, 8, ORIGIN)],
        [SnapshotSource(None, 0, 5, ORIGIN), SnapshotSource(None, 4, 8, ORIGIN)],
        [SnapshotSource(None, 0, 3, ORIGIN), SnapshotSource(None, 4, 8, ORIGIN)],
    ],
)
def test_sources_that_do_not_cover_the_range_once_are_a_bug(tmp_path: Path, sources: list[SnapshotSource]) -> None:
    with pytest.raises(InvariantError):
        clip(tmp_path / "db", sources, 0, 8)
    assert not (tmp_path / "db").exists()


def test_a_snapshot_of_another_commit_or_range_is_refused(tmp_path: Path) -> None:
    snapshot = make_snapshot(tmp_path / "s", 2, 6)
    for source in (SnapshotSource(snapshot, 2, 6, link(2)), SnapshotSource(snapshot, 1, 6, link(1))):
        with pytest.raises(CorruptDataError, match=str(snapshot)):
            clip(tmp_path / "db", [source], source.low, 6)
        assert not (tmp_path / "db").exists()


def test_a_snapshot_of_another_operator_or_key_type_is_refused(tmp_path: Path) -> None:
    source = SnapshotSource(make_snapshot(tmp_path / "s"), 0, KEY_GROUPS, link(1))
    for operator, key_type in (("other", KEY_TYPE), (OPERATOR, LONG)):
        with pytest.raises(IncompatibleError):
            open_clipped(tmp_path / "db", [source], operator=operator, key_type=key_type, low=0, high=4)


def test_states_of_one_name_and_two_types_are_refused(tmp_path: Path) -> None:
    other = RocksDBStore.open(tmp_path / "other", OPERATOR, KEY_TYPE, 4, 8)
    other.value_table(StateSchema(name="total", kind="value", value_type=STRING))
    other.apply([], link(1))
    other.close()
    sources = [
        SnapshotSource(make_snapshot(tmp_path / "s"), 0, 4, link(1)),
        SnapshotSource(tmp_path / "other", 4, 8, link(1)),
    ]
    with pytest.raises(IncompatibleError, match="'total'"):
        clip(tmp_path / "db", sources, 0, 8)


def test_the_newest_schema_wins(tmp_path: Path) -> None:
    newer = msgspec.structs.replace(TOTAL, ttl={"ms": 9}, version=2)
    sources: list[SnapshotSource] = []
    for low, seq, schema in ((0, 5, newer), (4, 3, TOTAL)):
        store = RocksDBStore.open(tmp_path / str(low), OPERATOR, KEY_TYPE, low, low + 4)
        store.value_table(schema)
        store.apply([], link(seq))
        store.close()
        sources.append(SnapshotSource(tmp_path / str(low), low, low + 4, link(seq)))
    clipped = clip(tmp_path / "db", sources, 0, 8)
    assert clipped.schemas == (newer,)
    clipped.close()


def test_a_missing_table_of_a_fetched_snapshot_is_found(tmp_path: Path) -> None:
    snapshot = make_snapshot(tmp_path / "s")
    next(iter(snapshot.glob("*.sst"))).unlink()
    for low, high in ((0, 8), (0, 3)):
        with pytest.raises(CorruptDataError):
            clip(tmp_path / f"db{high}", [SnapshotSource(snapshot, 0, 8, link(1))], low, high)


def test_small_files_keep_copied_rows_in_order(tmp_path: Path) -> None:
    options = RocksDBOptions(target_file_size_bytes=1 << 16)
    sources = [
        SnapshotSource(make_snapshot(tmp_path / "a", 0, 8), 0, 2, link(1)),
        SnapshotSource(make_snapshot(tmp_path / "b", 0, 8), 2, 5, link(1)),
        SnapshotSource(make_snapshot(tmp_path / "c", 0, 8), 5, 8, link(1)),
    ]
    store = open_clipped(tmp_path / "db", sources, operator=OPERATOR, key_type=KEY_TYPE, low=0, high=8, options=options)
    assert cells(store) == MODEL.cells()
    store.close()


def stored_bytes(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_store_that_works_on_linked_files_leaves_the_stored_ones_alone(tmp_path: Path) -> None:
    storage = LocalStore(tmp_path / "storage")
    files = upload(storage, make_snapshot(tmp_path / "s"))
    before = stored_bytes(tmp_path / "storage")
    for high in (KEY_GROUPS, 3):
        fetch_snapshot(storage, files, tmp_path / f"fetched-{high}")
        [table] = (tmp_path / f"fetched-{high}").glob("*.sst")
        assert table.samefile(tmp_path / "storage" / "snapdata" / table.name)
        source = SnapshotSource(tmp_path / f"fetched-{high}", 0, high, link(1))
        store = clip(tmp_path / f"db-{high}", [source], 0, high)
        for seq in range(2, 8):
            changed = [key for key in KEYS if key_group(key) < high]
            store.apply(puts(dict.fromkeys(changed, seq)), link(seq))
            store.write_snapshot(tmp_path / f"snapshot-{high}-{seq}")
        assert store.compact(ratio=0, size_bytes_min=0)
        store.close()
        assert stored_bytes(tmp_path / "storage") == before
    storage.delete(before)
    opened = RocksDBStore.open_existing(tmp_path / f"snapshot-{KEY_GROUPS}-7")
    assert set(cells(opened)["total"].values()) == {7}
    opened.close()


@pytest.mark.parametrize("reason", [errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP])
def test_what_cannot_be_linked_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int) -> None:
    storage = LocalStore(tmp_path / "storage")
    files = upload(storage, make_snapshot(tmp_path / "s"))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(reason, os.strerror(reason))

    monkeypatch.setattr(os, "link", refuse)
    fetch_snapshot(storage, files, tmp_path / "fetched")
    monkeypatch.undo()
    for path in (tmp_path / "fetched").iterdir():
        assert not path.samefile(tmp_path / "storage" / "snapdata" / path.name)
    opened = RocksDBStore.open_existing(tmp_path / "fetched")
    assert cells(opened) == MODEL.cells()
    opened.close()


def test_a_damaged_object_that_would_be_linked_is_named_and_stays(tmp_path: Path) -> None:
    storage = LocalStore(tmp_path / "storage")
    files = upload(storage, make_snapshot(tmp_path / "s"))
    [table] = [file for file in files if file.file.endswith(".sst")]
    for data in (storage.get(table.name)[:-1], storage.get(table.name)[:-1] + b"?"):
        storage.put(table.name, data)
        with pytest.raises(CorruptDataError) as caught:
            fetch_snapshot(storage, files, tmp_path / "fetched")
        assert caught.value.context["object_name"] == table.name
        assert not (tmp_path / "fetched").exists()
        assert storage.get(table.name) == data
